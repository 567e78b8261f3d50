// Matrix products: c[m,n] = sum over k of a[m,k] b[k,n], over batches, with the kernels of gemm_kernels.h.
//
// Here: how a product is planned and run, its epilogue, and what is multiplied as it lies. Others: gemm_packed.cpp,
// gemm_deep.cpp, gemm_thin.cpp and gemm_vector.cpp.
#include <cstring>

#include "gemm_step.h"
#include "pool.h"
#include "stream.h"

namespace weft {

namespace {

constexpr int64_t kReadOnceTerms = 32;        // terms: if one sliver of rows reads so few, b is read where it lies
constexpr int64_t kFinishElements = 16 << 10;  // elements of a part that an epilogue is run on
constexpr int64_t kStripWidth = 512;  // bytes of a column that is read in narrow strips
constexpr int64_t kStripDepth = 128;  // terms: a deeper matrix is read in tiles, if it is large
constexpr int64_t kTileBytes = 16384;  // bytes of a column's results at a time, where it is read in tiles
constexpr int64_t kCopiedBytes = 16 << 10;  // bytes of an operand of a small product that is copied first
constexpr int64_t kSmallTiles = 512;  // tiles of a product that are listed once for all of its batch
constexpr int64_t kFinishedTogether = 2048;  // elements of small products whose epilogue is one call
constexpr int64_t kMostRows = 32, kTileRoom = 4096;  // rows of a tile, and bytes of its results
// A thread's use of the matrix unit.
struct UnitUse {
  const GemmUnit* unit;
  explicit UnitUse(const GemmUnit* unit) : unit(unit) {
    if (unit != nullptr) unit->enter();
  }
  ~UnitUse() {
    if (unit != nullptr) unit->leave();
  }
};

constexpr int kRowsAlike = 8;  // whose lines are in one set of the first cache, which has at least as many ways

}  // namespace

Status GemmStep::run(Frame& frame) const {
  if (m == 0 || n == 0 || batch.count == 0) return Status::ok;
  Job job{this, &frame, frame.number, a.address(frame), b.address(frame), c.address(frame), 1};
  job.threads = pool_worth(cost) ? pool_threads() : 1;
  job.symmetric = alike && job.a == job.b;
  if (vector && batch.count == 1) look_at_cache(&job);
  double one = cost / double(batch.count);
  if (batch.count > 1 && job.threads > 1 && (batch.count >= 4 * job.threads || one < 20000)) {
    job.threads = 1;
    job.finish_each = by_product;
    pool_run(run_products, &job, batch.count, 1, cost);
  } else {
    job.finish_each = by_product && job.threads == 1;
    run_products(&job, 0, batch.count);
  }
  if (job.failed.load(std::memory_order_relaxed)) return Status::no_memory;
  if (stream_cancelled(frame.number)) return Status::cancelled;
  return by_product && !job.finish_each ? epilogue->run(frame) : Status::ok;
}

void GemmStep::plan() {
  plain = true;
  for (const GemmDigits* digits : {&a_rows, &a_sum, &b_sum, &b_columns, &c_rows}) plain = plain && digits->count == 1;
  vector = in_chains && (m == 1 || n == 1) && kernels->by_vector != nullptr && plain;
  // vectors of narrower elements take as long as if these were as wide as their sums
  const int item = vector ? kernels->result_bytes : kernels->source_bytes;
  double read = double(item) * (double(m) * double(k) + double(k) * double(n));
  double bytes = read + double(kernels->result_bytes) * double(m) * double(n);
  in_strips = vector && may_be_in_strips();
  int64_t tiles = pieces_of(m, kernels->height) * pieces_of(n, tile_columns());
  double columns = double(up(n, kernels->lanes));  // a part of a vector takes as long as a whole one
  double flops = vector ? 0 : 2 * double(m) * double(k) * columns / kernels->flops_per_ns;
  cost = double(batch.count) * (figures.product_ns + (vector ? 0 : figures.tile_ns * double(tiles)) +
                                std::max(flops, bytes * (bytes < figures.large_bytes ? figures.near_byte_ns : figures.far_byte_ns)));
  span = kernels->unit != nullptr ? kernels->unit->span : kGemmBlock * kernels->depth;
  // of few columns a block is small, and an element of a is not read often
  const bool few = a_k == 1 && n * std::min(k, span) * kernels->source_bytes <= figures.few_columns_bytes;
  const int64_t cached = few ? std::min(k, span) : k;
  const bool read_once = m <= kernels->height && k <= kReadOnceTerms;
  in_place = kernels->strided != nullptr && plain && b_column == 1 &&
             (read_once || n * cached * kernels->source_bytes <= figures.in_place_bytes) &&
             (a_k == 1 || m * k * kernels->source_bytes <= figures.in_place_bytes);
  // rows that lie a multiple of a cache's way apart evict each other, if they are more than its ways
  const bool evicting = a_k == 1 && k > 64 && a_row * kernels->source_bytes % 2048 == 0;
  most_rows = in_place && evicting ? std::min(kernels->height, kRowsAlike) : kernels->height;
  wide = m <= 2 * kRowsOfTask && n > m;
  plan_deep();
  plan_thin();
  in_runs = !few_sums && !alike && reads_runs();
  in_place = in_place && !in_runs;
  if (epilogue != nullptr) cost += epilogue->cost_ns();
  // tasks use the thread's scratch between their parts; one call of a flat epilogue wants whole rows
  by_part = form == Form::grid && !epilogue->needs_scratch();
  if (form == Form::grid && !by_part) form = Form::rows;
  by_product = form == Form::products;
  if (by_product) form = Form::none;  // nothing is done inside a product
  const bool rest_plain = a_rows.count == 1 && a_sum.count == 1 && c_rows.count == 1;
  copies_b = kernels->strided != nullptr && (plain ? b_column != 1 : rest_plain && n <= kMostLines) &&
           k * up(n, kernels->lanes) * kernels->source_bytes <= kCopiedBytes &&
           (a_k == 1 || m * k * kernels->source_bytes <= figures.in_place_bytes);
  const int64_t copied = steps_of(k) * kernels->packed_bytes;
  packs_small = kernels->strided == nullptr && kernels->unit == nullptr && plain &&
                std::max(m, packed_columns(n)) * copied <= kCopiedBytes;
  const bool may = in_place || copies_b || packs_small;
  if (may && !vector && thin == nullptr && k > 0 && k <= span && tiles <= kSmallTiles) plan_small();
}

// Flattened, but for what large products take: a small one is done in tens of nanoseconds.
[[gnu::flatten]] void GemmStep::run_products(void* context, int64_t low, int64_t high) {
  Job* job = static_cast<Job*>(context);
  const GemmStep& step = *job->step;
  if (job->threads == 1 && step.thin_in_batch()) return step.run_thin_products(job, low, high);
  GemmBatch::Walk walk(step.batch, low, job->a, job->b, job->c);
  const bool small = job->threads == 1 && !step.small.empty();
  const bool one_block = job->threads == 1 && !job->turned;
  const bool short_vector = one_block && step.vector && step.k > 0 && step.k <= step.depth_of_block();
  alignas(kLine) char rows[kCopiedBytes], columns[kCopiedBytes];
  const char *rows_of = nullptr, *columns_of = nullptr;  // often one operand for all of the batch
  Unfinished unfinished{low};
  for (int64_t item = low; item < high && !stream_cancelled(job->number); ++item) {
    Product product{job, walk.a, walk.b, walk.c};
    if (item + 1 < high) walk.advance();
    if (small && step.packs_small) {
      if (rows_of != product.a) step.pack_rows(product, 0, step.m, 0, step.k, rows);
      rows_of = product.a;
      product.a = rows;
    }
    if (small && (step.copies_b || step.packs_small)) {
      if (columns_of != product.b) step.copy_columns(product, columns);
      columns_of = product.b;
      product.b = columns;
    }
    if (small) step.multiply_small(product, walk.a, walk.b);
    else if (short_vector) step.multiply_short_vector(product);
    else step.multiply(product);
    if (small || short_vector || job->finish_each) step.finish_products(product, item, high, &unfinished);
  }
}

// The epilogue of small products up to number `item` of a batch, whose last one is before `high`, if they are enough.
void GemmStep::finish_products(const Product& product, int64_t item, int64_t high, Unfinished* unfinished) const {
  int64_t& rows = unfinished->rows;
  if (product.job->finish_each) {
    if (item + 1 < high && (item + 1 - unfinished->done) * m * n < kFinishedTogether) return;
    run_epilogue(product, {unfinished->done, item + 1, 0, -1});
    unfinished->done = item + 1;
  }
  if (form == Form::none) return;
  const bool follows = rows > 0 && product.c == unfinished->first.c + rows * n * kernels->result_bytes;
  if (rows > 0 && !follows) finish(unfinished->first, 0, rows, 0, n);
  if (!follows) unfinished->first = product, rows = 0;
  rows += m;
  if (item + 1 < high && rows * n < kFinishedTogether) return;
  finish(unfinished->first, 0, rows, 0, n);
  rows = 0;
}

// Small products on one thread: their tiles are listed. They read their operands as they lie, or a copy of the right one;
// those whose kernels only take packed ones read copies of both.

void GemmStep::list_tile(int64_t sliver, int64_t slivers, int64_t column, int64_t width) {
  const int64_t item = kernels->source_bytes, row = m * sliver / slivers, height = m * (sliver + 1) / slivers - row;
  const int columns = int(std::min(width, n - column));
  const int64_t vectors = pieces_of(columns, kernels->lanes);
  const GemmTileFunction* functions = packs_small ? kernels->packed : kernels->strided;
  const bool is_half = kernels->half != nullptr && columns <= tile_columns() + kernels->lanes / 2;
  const GemmTileFunction function = vectors > kernels->vectors
                                        ? (is_half ? kernels->half : kernels->broad)[height - 1]
                                        : functions[(height - 1) * kernels->vectors + vectors - 1];
  const int64_t c = (row * c_row + column) * kernels->result_bytes, line = steps_of(k) * kernels->packed_bytes;
  const int64_t a = packs_small ? row * line : row * a_row * item, b = column * (packs_small ? line : item);
  small.push_back({function, a, b, c, columns});
}

void GemmStep::plan_small() {
  const int64_t item = kernels->source_bytes, width = tile_columns();
  // a last vector alone is bound by its loads
  const bool broad = !packs_small && n > width && n % width != 0 && n % width <= kernels->lanes;
  const int64_t whole = broad ? n / width - 1 : pieces_of(n, width), slivers = pieces_of(m, most_rows);
  // the part of b that a column of tiles reads stays in the first cache, where not both operands do
  const bool by_column = (m + n) * k * item > kNearBytes;
  for (int64_t i = 0; i < slivers * whole; ++i)
    list_tile(by_column ? i % slivers : i / whole, slivers, (by_column ? i / slivers : i % whole) * width, width);
  const int64_t lower = broad ? pieces_of(m, std::min<int64_t>(most_rows, kernels->broad_height)) : 0;
  for (int64_t sliver = 0; sliver < lower; ++sliver)
    list_tile(sliver, lower, whole * width, width + kernels->lanes);
  // operands that lie together are fetched in as many parts as there are tiles
  const int64_t tiles = int64_t(small.size()), bytes = (m * k + k * n + m * n) * item;
  const auto part = [&](int64_t rows, int64_t columns, int64_t row, int64_t column) {
    const int64_t reach = ((rows - 1) * row + (columns - 1) * column + 1) * item;
    return reach <= 2 * rows * columns * item ? up(pieces_of(reach, tiles), kLine) : 0;
  };
  if (packs_small) return;
  near = 2 * bytes <= kNearBytes;
  if (batch.count > 1 && double(batch.count) * double(bytes) > (near ? kNearBytes : figures.batch_bytes)) {
    a_part = part(m, k, a_row, a_k);
    b_part = part(k, n, b_k, b_column);
  }
}

// Copies b, whose rows or columns do not lie side by side, as rows of whole vectors: packs it where a is packed too.
void GemmStep::copy_columns(const Product& product, char* to) const {
  const int64_t pitch = up(n, kernels->lanes);
  if (packs_small) pack_columns(product, 0, n, 0, k, to);
  else if (plain) kernels->pack({product.b, b_k, b_column, nullptr, k, n, pitch, pitch, to});
  else pack_lines({product.b, &b_sum, &b_columns, 0, k, 0, n, false, to}, pitch);
}

// Has half the tiles fetch a and the others b, a line at each step of k; what is too much for that is fetched at once.
void GemmStep::fetch_during(GemmTile& tile, const char* next_a, int64_t a_part, const char* next_b, int64_t b_part,
                            int64_t index) const {
  const bool first = index % 2 == 0;
  tile.fetch = first ? next_a : next_b;
  tile.fetch_step = kLine;
  const int64_t part = 2 * (first ? a_part : b_part);
  for (int64_t i = k * kLine; i < part; i += kLine) __builtin_prefetch(tile.fetch + i, 0, 2);
}

void GemmStep::vector_block(const Product& product, int64_t row, int64_t rows, int64_t k0, int64_t depth, char* y,
                            int64_t y_row, bool add) const {
  GemmVector work{};
  const bool left = n == 1;  // the matrix is on the left
  work.a_row = left ? a_row : b_column;
  work.a_k = left ? a_k : b_k;
  work.a = (left ? product.a : product.b) + (row * work.a_row + k0 * work.a_k) * kernels->source_bytes;
  work.x_k = left ? b_k : a_k;
  work.x = (left ? product.b : product.a) + k0 * work.x_k * kernels->source_bytes;
  work.y = y;
  work.y_row = y_row;
  work.rows = rows;
  work.k = depth;
  work.add = add;
  // memory likes long contiguous reads
  const bool crossing = work.a_k * kernels->source_bytes % kLine != 0;
  const double strips = is_complex() && column_bytes() > kStripWidth ? figures.complex_strip_bytes : figures.strip_bytes;
  const bool large = matrix_bytes() > (crossing ? figures.crossing_bytes : strips), deep = k > kStripDepth;
  work.in_strips = in_strips;
  work.far = product.job->far;
  work.by_chain = product.job->turned;
  work.in_parts = work.far && !work.by_chain && figures.in_parts;
  work.backwards = product.job->backwards;
  work.tile = (large || work.by_chain) && deep && work.a_k != 1 ? kTileBytes / kernels->result_bytes : 0;
  const int64_t pitch = work.tile > 0 ? up(work.tile, kernels->lanes) + kernels->lanes : 0;  // of a chain's sums
  int64_t scratch = kGemmLaneBytes / kernels->result_bytes * kernels->sum_bytes * pitch;
  work.waiting = matrix_bytes() > figures.large_bytes ? kGemmLongWaitingBytes : kGemmWaitingBytes;
  if (work.a_k != 1) scratch = std::max(scratch, kGemmWaiting * work.waiting);
  else if (work.x_k != 1) scratch = depth * kernels->source_bytes;
  if (kernels->source_bytes != kernels->result_bytes) scratch = std::max(scratch, depth * kernels->result_bytes);
  if (scratch > 0) {
    work.scratch = static_cast<char*>(thread_scratch(scratch));
    if (work.scratch == nullptr) return product.job->failed.store(true, std::memory_order_relaxed);
  }
  gemm_by_vector(*kernels, work);
}

void GemmStep::multiply_short_vector(const Product& product) const {
  vector_block(product, 0, std::max(m, n), 0, k, product.c, n == 1 ? c_row : 1, false);
}

void GemmStep::multiply_small(const Product& product, const char* next_a, const char* next_b) const {
  GemmTile tile{};
  tile.a_row = a_row;
  tile.a_k = a_k;
  tile.b_k = copies_b ? up(n, kernels->lanes) : b_k;
  tile.b_padded = copies_b || packs_small;
  tile.c_row = c_row;
  tile.k = steps_of(k);
  for (const SmallTile& part : small) {
    if (near) {
      for (int64_t i = 0; i < a_part; i += kLine) __builtin_prefetch(next_a + i);
      for (int64_t i = 0; i < b_part; i += kLine) __builtin_prefetch(next_b + i);
    } else if (a_part > 0) {
      fetch_during(tile, next_a, a_part, next_b, b_part, &part - small.data());
    }
    next_a += a_part;
    next_b += b_part;
    tile.a = product.a + part.a;
    tile.b = product.b + part.b;
    tile.c = product.c + part.c;
    tile.columns = part.columns;
    if (packs_small) tile.b_k = up(part.columns, kernels->lanes);
    part.function(tile);
  }
}

[[gnu::noinline]] void GemmStep::multiply(const Product& product) const {
  if (k == 0) fill_zero(product.c);
  else if (vector) multiply_vector(product);
  else if (thin != nullptr) return multiply_thin(product);
  else if (is_deep(product)) multiply_deep(product);
  else if (in_place) return multiply_in_place(product);
  else return multiply_packed(product);
  finish_all(product);
}

// Runs the epilogue on rows row0..row1 of this product, by part: on columns column0..column1 of them.
void GemmStep::finish(const Product& product, int64_t row0, int64_t row1, int64_t column0, int64_t column1) const {
  const int64_t above = (product.c - product.job->c) / (n * kernels->result_bytes);  // rows of earlier products
  row0 += above;
  row1 += above;
  if (form == Form::grid) return run_epilogue(product, {row0, row1, column0, column1});
  if (form == Form::rows) return run_epilogue(product, {row0, row1, 0, -1});
  run_epilogue(product, {0, -1, row0 * n, row1 * n});
}
void GemmStep::run_epilogue(const Product& product, const int64_t (&part)[4]) const {
  if (epilogue->run_part(*product.job->frame, part) != Status::ok)
    product.job->failed.store(true, std::memory_order_relaxed);
}

// Runs the epilogue on the whole product.
void GemmStep::finish_all(const Product& product) const {
  if (form == Form::none) return;
  const int64_t size =
      std::max<int64_t>(1, std::min(pieces_of(m, product.job->threads), pieces_of(kFinishElements, n)));
  Range range{this, &product, size, true};
  each(product, run_finish, &range, pieces_of(m, size));
}
void GemmStep::run_finish(void* context, int64_t low, int64_t high) {
  const Range& range = *static_cast<const Range*>(context);
  const GemmStep& step = *range.step;
  step.finish(*range.product, low * range.size, std::min(step.m, high * range.size), 0, step.n);
}

void GemmStep::fill_zero(char* to) const {
  const size_t bytes = size_t(n * kernels->result_bytes);
  for (int64_t row = 0; row < m; ++row) std::memset(to + c_rows.at(row) * kernels->result_bytes, 0, bytes);
}

// Tiles of one block of k.

void GemmStep::multiply_block(const Block& block, const Product& product) const {
  const UnitUse use(kernels->unit);
  const int64_t width = tile_columns(), steps = steps_of(block.k);
  const int64_t slivers = pieces_of(block.rows, block.a_packed ? kernels->height : most_rows);
  const GemmTileFunction* functions = block.a_packed ? kernels->packed
                                      : block.runs != nullptr ? kernels->in_runs : kernels->strided;
  GemmTile tile{};
  tile.a_row = block.a_row;
  tile.a_k = block.a_k;
  tile.c_row = block.c_row;
  tile.k = steps;
  tile.runs = block.runs;
  tile.run_count = block.run_count;
  tile.add = block.add;
  tile.exchanged = exchanged;
  const int64_t packed_sliver = width * steps * kernels->packed_bytes;
  // few terms of b stay near in any order: whole rows of the result are written one after another
  const bool few_terms = double(block.k) * double(block.columns) * kernels->source_bytes <= figures.few_terms_bytes;
  const int64_t at_once = few_terms ? block.columns : kColumnsOfTask;
  for (int64_t first = 0; first < block.columns; first += at_once) {
    const int64_t last = std::min(block.columns, first + at_once), first_piece = first / width;
    for (int64_t sliver = 0, row = 0, finished = 0; sliver < slivers; ++sliver) {
      const int64_t next =
          block.a_packed ? row_of_sliver(block.rows, sliver + 1) : block.rows * (sliver + 1) / slivers;
      const int64_t height = next - row;
      tile.rows = int(height);
      tile.a = block.a_packed ? block.a + row * steps * kernels->packed_bytes
                              : block.a + row * block.a_row * kernels->source_bytes;
      char* c = block.c_rows != nullptr ? block.c : block.c + row * block.c_row * kernels->result_bytes;
      const bool storing = block.store != nullptr && sliver == 0, stored = block.store != nullptr && sliver > 0;
      if (storing) functions = kernels->storing;
      if (stored) functions = kernels->packed;
      const int64_t carriers = slivers - (block.store != nullptr), carrier = sliver - (block.store != nullptr);
      int64_t piece = first_piece;
      // of a symmetric product: columns up to that of the last row
      const int64_t wanted = block.symmetric ? std::min(last, block.row0 + next - block.column0) : last;
      for (int64_t column = first; column < wanted; column += width, ++piece) {
        tile.columns = int(std::min(width, block.columns - column));
        const int64_t pitch = up(tile.columns, kernels->lanes);  // where they are packed
        if (block.symmetric) tile.columns = int(std::min<int64_t>(tile.columns, wanted - column));
        const int64_t vectors = tile.columns == width ? kernels->vectors : pieces_of(tile.columns, kernels->lanes);
        tile.ahead = storing && column == first;
        tile.store = block.store + piece * packed_sliver;
        tile.b = stored ? tile.store : block.b + piece * block.b_sliver;
        tile.b_k = block.b_padded || stored ? pitch : block.b_k;
        tile.b_padded = block.b_padded || stored;
        tile.c = c + column * kernels->result_bytes;
        const GemmTileFunction* kind = functions;
        GemmCarry carry;
        tile.carry = nullptr;
        if (block.next != nullptr && !storing &&
            carry_part(product, *block.next, piece, carrier, carriers, steps, &carry)) {
          tile.carry = &carry;
          kind = kernels->carrying;
        }
        const GemmTileFunction function = kind[(height - 1) * kernels->vectors + vectors - 1];
        if (block.c_rows == nullptr) function(tile);
        else multiply_apart(block, tile, function, block.row0 + row);
      }
      row = next;
      const bool enough = row == block.rows || (row - finished) * (last - first) >= kFinishElements;
      if (!block.last || !by_part || !enough) continue;
      finish(product, block.row0 + finished, block.row0 + row, block.column0 + first, block.column0 + last);
      finished = row;
    }
  }
}

// A tile whose rows may not lie one stride apart in the result: it is then made beside it.
void GemmStep::multiply_apart(const Block& block, GemmTile tile, GemmTileFunction function, int64_t row) const {
  const int64_t item = kernels->result_bytes, width = tile.columns * item, height = tile.rows;
  const int64_t pitch = tile_columns() * item;
  char* c = tile.c;
  alignas(kLine) char apart[kTileRoom];
  int64_t lines[kMostRows];
  const bool regular = block.c_rows->run(row, height) == height;
  block.c_rows->list(row, height, lines);
  tile.c = regular ? c + lines[0] * item : apart;
  if (!regular) tile.c_row = tile_columns();
  for (int64_t i = 0; tile.add && !regular && i < height; ++i)
    std::memcpy(apart + i * pitch, c + lines[i] * item, size_t(width));
  function(tile);
  for (int64_t i = 0; !regular && i < height; ++i) std::memcpy(c + lines[i] * item, apart + i * pitch, size_t(width));
}

// Small products: nothing is packed.

void GemmStep::multiply_in_place(const Product& product) const {
  const int threads = product.job->threads;
  Range range{this, &product, 0, m >= 2 * most_rows || n <= tile_columns()};
  const int64_t extent = range.rows ? m : n, unit = range.rows ? most_rows : tile_columns();
  const int64_t tasks = threads == 1 ? 1 : cost < 20000 ? threads : 4 * threads;
  range.size = std::max(pieces_of(extent, tasks), std::min(unit, extent));
  if (!range.rows) range.size = up(range.size, tile_columns());
  each(product, run_in_place, &range, pieces_of(extent, range.size));
  if (product.job->symmetric) mirror(product);
  if (product.job->symmetric || (!by_part && !range.rows)) finish_all(product);
}

void GemmStep::run_in_place(void* context, int64_t low, int64_t high) {
  const Range& range = *static_cast<const Range*>(context);
  const GemmStep& step = *range.step;
  const int64_t extent = range.rows ? step.m : step.n;
  for (int64_t task = low; task < high; ++task) {
    const int64_t first = task * range.size, last = std::min(extent, first + range.size);
    if (range.rows) step.rectangle(*range.product, first, last, 0, step.n);
    const bool done = range.rows && !step.by_part && step.form != Form::none && !range.product->job->symmetric;
    if (done) step.finish(*range.product, first, last, 0, step.n);
    if (!range.rows) step.rectangle(*range.product, 0, step.m, first, last);
  }
}

void GemmStep::rectangle(const Product& product, int64_t row0, int64_t row1, int64_t column0, int64_t column1) const {
  const int64_t item = kernels->source_bytes;
  Block block{};
  block.a_row = a_row;
  block.a_k = a_k;
  block.b_k = b_k;
  block.b_sliver = tile_columns() * item;
  block.c = product.c + (row0 * c_row + column0) * kernels->result_bytes;
  block.c_row = c_row;
  block.rows = row1 - row0;
  block.columns = column1 - column0;
  block.row0 = row0;
  block.column0 = column0;
  for (int64_t k0 = 0; k0 < k; k0 += span) {
    block.a = product.a + (row0 * a_row + k0 * a_k) * item;
    block.b = product.b + (k0 * b_k + column0) * item;
    block.k = std::min(span, k - k0);
    block.add = k0 > 0;
    block.symmetric = product.job->symmetric;
    block.last = k0 + block.k == k && !block.symmetric;
    multiply_block(block, product);
  }
}

}  // namespace weft
