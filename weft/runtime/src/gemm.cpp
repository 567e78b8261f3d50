// Matrix products: c[m,n] = sum over k of a[m,k] b[k,n], over batches, with the kernels of gemm_kernels.h.
//
// How a product is cut (rows or columns, packed or read in place, one thread or many) is free: every element is the same
// sum. Packed products pack one operand whole, all threads together, then each task packs its part of the other one.
// An epilogue, a kernel that is the only reader of the result, runs on each part of it that is done, or on all at the end.
#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <new>
#include <vector>

#include "buffer.h"
#include "gemm_batch.h"
#include "gemm_kernels.h"
#include "module.h"
#include "plan.h"
#include "pool.h"
#include "stream.h"

namespace weft {

namespace {

constexpr int64_t kRowsOfTask = 128;         // 128 x 512 packed float32: a quarter of a second-level cache
constexpr int64_t kColumnsOfTask = 128;      // of the packed operand that is walked while the other one is cached
constexpr int64_t kInPlaceBytes = 640 << 10;  // an operand that stays in the second-level cache need not be packed
constexpr int64_t kFewColumnsBytes = 128 << 10;  // of a block of b that is read in place however many blocks there are
constexpr int64_t kSharedBytes = 32 << 20;   // packed operand of all threads
constexpr int64_t kPartialBytes = 4 << 20;   // sums of blocks of k, when k is what is cut
constexpr int64_t kVectorBytesOfTask = 128 << 10;
constexpr int64_t kFinishElements = 16 << 10;  // of a part that an epilogue is run on
constexpr double kLargeVectorBytes = 16 << 20;  // beyond caches
constexpr double kStripBytes = 3 << 19;  // of a matrix of contiguous columns that is read in narrow strips: in the second-level cache
constexpr double kCrossingBytes = 96 << 10;  // the same where columns cross cache lines
constexpr int64_t kStripDepth = 128;     // the same where it is no deeper
constexpr int64_t kTileBytes = 16384;    // of a column that is read at a time otherwise
constexpr double kTileNs = 6;  // a tile's fixed cost
constexpr int64_t kSmallTiles = 512;         // of a product whose tiles are listed once for all of its batch
constexpr int64_t kFetchedBytes = 1 << 20;   // of a batch from where on the next product is fetched during one
constexpr int64_t kNearBytes = 40 << 10;     // of the first cache
constexpr int64_t kLine = 64;
constexpr int kRowsAlike = 8;  // whose lines are in one set of the first cache, which has at least as many ways

int64_t up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
int64_t pieces_of(int64_t extent, int64_t size) { return (extent + size - 1) / size; }

// How an epilogue walks the result: one loop over all elements, rows by columns, whole rows, whole products of a batch.
enum class Form { none, flat, grid, rows, products };

class GemmStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    if (m == 0 || n == 0 || batch.count == 0) return Status::ok;
    Job job{this, &frame, frame.number, a.address(frame), b.address(frame), c.address(frame), 1, false, false};
    job.threads = pool_worth(cost) ? pool_threads() : 1;
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
  double cost_ns() const override { return cost; }
  bool is_kernel() const override { return epilogue != nullptr; }

  std::unique_ptr<Step> epilogue;  // or nullptr
  Form form = Form::none;
  const GemmKernels* kernels = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_k = 0, b_k = 0, b_column = 0, c_row = 0;  // strides in elements; c's columns are contiguous
  // Where k is two dimensions that do not lie as one: the extent of the inner one (else k), strides of the outer one.
  int64_t k_inner = 0, a_outer = 0, b_outer = 0;
  Place a{}, b{}, c{};
  GemmBatch batch;
  double cost = 0;

  void plan() {
    double read = double(kernels->source_bytes) * (double(m) * double(k) + double(k) * double(n));
    double bytes = read + double(kernels->result_bytes) * double(m) * double(n);
    const bool whole = k_inner == std::max<int64_t>(k, 1);
    vector = (m == 1 || n == 1) && kernels->vector != nullptr && whole;
    int64_t tiles = pieces_of(m, kernels->height) * pieces_of(n, tile_columns());
    double columns = double(up(n, kernels->lanes));  // a part of a vector takes as long as a whole one
    double flops = vector ? 0 : 2 * double(m) * double(k) * columns / kernels->flops_per_ns;
    cost = double(batch.count) * (20 + (vector ? 0 : kTileNs * double(tiles)) + std::max(flops, bytes * (bytes < kLargeVectorBytes ? 0.012 : 0.05)));
    span = kGemmBlock * kernels->depth;
    // of few columns a block is small, and an element of a is not read often
    const bool few = a_k == 1 && n * std::min(k, span) * kernels->source_bytes <= kFewColumnsBytes;
    const int64_t cached = few ? std::min(k, span) : k;
    in_place = kernels->strided != nullptr && whole && b_column == 1 &&
               n * cached * kernels->source_bytes <= kInPlaceBytes &&
               (a_k == 1 || m * k * kernels->source_bytes <= kInPlaceBytes);
    // rows that lie a multiple of a cache's way apart evict each other, if they are more than its ways
    const bool alike = a_k == 1 && k > 64 && a_row * kernels->source_bytes % 2048 == 0;
    most_rows = in_place && alike ? std::min(kernels->height, kRowsAlike) : kernels->height;
    wide = m <= 2 * kRowsOfTask && n > m;
    if (epilogue != nullptr) cost += epilogue->cost_ns();
    // tasks use the thread's scratch between their parts; one call of a flat epilogue wants whole rows
    by_part = form == Form::grid && !epilogue->needs_scratch();
    if (form == Form::grid && !by_part) form = Form::rows;
    by_product = form == Form::products;
    if (by_product) form = Form::none;  // nothing is done inside a product
    if (in_place && !vector && k > 0 && k <= span && tiles <= kSmallTiles) plan_small();
  }

 private:
  struct Job {
    const GemmStep* step;
    const Frame* frame;
    uint64_t number;  // the task's, for cancellation
    const char *a, *b;
    char* c;
    int threads;       // that one product may use
    bool finish_each;  // the epilogue follows each product of a batch
    std::atomic<bool> failed;
  };
  struct Product {
    Job* job;
    const char *a, *b;
    char* c;
  };

  int64_t tile_columns() const { return kernels->vectors * kernels->lanes; }

  // Calls function(context, low, high) over 0..total, on the pool if this product may.
  void each(const Product& product, ChunkFunction function, void* context, int64_t total) const {
    if (product.job->threads > 1 && total > 1) pool_run(function, context, total, 1, cost / double(batch.count));
    else function(context, 0, total);
  }

  static void run_products(void* context, int64_t low, int64_t high) {
    Job* job = static_cast<Job*>(context);
    const GemmStep& step = *job->step;
    GemmBatch::Walk walk(step.batch, low, job->a, job->b, job->c);
    const bool small = job->threads == 1 && !step.small.empty();
    const bool short_vector = job->threads == 1 && step.vector && step.k > 0 && step.k <= step.depth_of_block();
    for (int64_t item = low; item < high && !stream_cancelled(job->number); ++item) {
      Product product{job, walk.a, walk.b, walk.c};
      if (item + 1 < high) walk.advance();
      if (small) step.multiply_small(product, walk.a, walk.b);
      else if (short_vector) step.multiply_short_vector(product);
      else step.multiply(product);
      if (job->finish_each) step.run_epilogue(product, {item, item + 1, 0, -1});
    }
  }

  // Small products on one thread: their tiles are listed.

  struct SmallTile {
    GemmTileFunction function;
    int64_t a, b, c;  // bytes from the product's
    int columns;
  };

  void plan_small() {
    const int64_t slivers = pieces_of(m, most_rows), pieces = pieces_of(n, tile_columns());
    const int64_t item = kernels->source_bytes;
    // the part of b that a column of tiles reads stays in the first cache, where not both operands do
    const bool by_column = (m + n) * k * item > kNearBytes;
    for (int64_t i = 0; i < slivers * pieces; ++i) {
      const int64_t sliver = by_column ? i % slivers : i / pieces;
      const int64_t column = (by_column ? i / slivers : i % pieces) * tile_columns();
      const int64_t row = m * sliver / slivers, height = m * (sliver + 1) / slivers - row;
      const int columns = int(std::min(tile_columns(), n - column));
      const int64_t vectors = pieces_of(columns, kernels->lanes);
      small.push_back({kernels->strided[(height - 1) * kernels->vectors + vectors - 1], row * a_row * item, column * item,
                       (row * c_row + column) * kernels->result_bytes, columns});
    }
    // operands that lie together are fetched in as many parts as there are tiles
    const int64_t tiles = int64_t(small.size()), bytes = (m * k + k * n + m * n) * item;
    const auto part = [&](int64_t rows, int64_t columns, int64_t row, int64_t column) {
      const int64_t reach = ((rows - 1) * row + (columns - 1) * column + 1) * item;
      return reach <= 2 * rows * columns * item ? up(pieces_of(reach, tiles), kLine) : 0;
    };
    near = 2 * bytes <= kNearBytes;
    if (batch.count > 1 && double(batch.count) * double(bytes) > (near ? kNearBytes : kFetchedBytes)) {
      a_part = part(m, k, a_row, a_k);
      b_part = part(k, n, b_k, b_column);
    }
  }

  // Has half the tiles fetch a and the others b, a line at each step of k; what is too much for that is fetched at once.
  void fetch_during(GemmTile& tile, const char* next_a, int64_t a_part, const char* next_b, int64_t b_part,
                    int64_t index) const {
    const bool first = index % 2 == 0;
    tile.fetch = first ? next_a : next_b;
    tile.fetch_step = kLine;
    const int64_t part = 2 * (first ? a_part : b_part);
    for (int64_t i = k * kLine; i < part; i += kLine) __builtin_prefetch(tile.fetch + i, 0, 2);
  }

  void multiply_short_vector(const Product& product) const {
    vector_block(product, 0, std::max(m, n), 0, k, product.c, n == 1 ? c_row : 1, false);
    if (form != Form::none) finish(product, 0, m, 0, n);
  }

  void multiply_small(const Product& product, const char* next_a, const char* next_b) const {
    GemmTile tile{};
    tile.a_row = a_row;
    tile.a_k = a_k;
    tile.b_k = b_k;
    tile.c_row = c_row;
    tile.k = k;
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
      part.function(tile);
    }
    if (form != Form::none) finish(product, 0, m, 0, n);
  }

  void multiply(const Product& product) const {
    int64_t units = pieces_of(m, kernels->height) * pieces_of(n, tile_columns());
    bool deep = product.job->threads > 1 && units < 4 * product.job->threads && k >= 8 * span;
    if (k == 0) fill_zero(product.c);
    else if (vector) multiply_vector(product);
    else if (deep) multiply_deep(product);
    else if (in_place) return multiply_in_place(product);
    else return multiply_packed(product);
    finish_all(product);
  }

  // Runs the epilogue on rows row0..row1 of this product, by part: on columns column0..column1 of them.
  void finish(const Product& product, int64_t row0, int64_t row1, int64_t column0, int64_t column1) const {
    const int64_t above = (product.c - product.job->c) / (n * kernels->result_bytes);  // rows of earlier products
    row0 += above;
    row1 += above;
    if (form == Form::grid) return run_epilogue(product, {row0, row1, column0, column1});
    if (form == Form::rows) return run_epilogue(product, {row0, row1, 0, -1});
    run_epilogue(product, {0, -1, row0 * n, row1 * n});
  }
  void run_epilogue(const Product& product, const int64_t (&part)[4]) const {
    if (epilogue->run_part(*product.job->frame, part) != Status::ok)
      product.job->failed.store(true, std::memory_order_relaxed);
  }

  // Runs the epilogue on the whole product.
  void finish_all(const Product& product) const {
    if (form == Form::none) return;
    const int64_t size = std::max<int64_t>(1, std::min(pieces_of(m, product.job->threads), pieces_of(kFinishElements, n)));
    Range range{this, &product, size, true};
    each(product, run_finish, &range, pieces_of(m, size));
  }
  static void run_finish(void* context, int64_t low, int64_t high) {
    const Range& range = *static_cast<const Range*>(context);
    const GemmStep& step = *range.step;
    step.finish(*range.product, low * range.size, std::min(step.m, high * range.size), 0, step.n);
  }

  void fill_zero(char* to) const {
    for (int64_t row = 0; row < m; ++row) std::memset(to + row * c_row * kernels->result_bytes, 0, size_t(n * kernels->result_bytes));
  }

  // Tiles of one block of k.

  // A block of k of a task's columns of a wide product, and where they are packed.
  struct Unit {
    int64_t column, columns, k0, depth;
    char* packed;
  };

  // A range of rows times a range of columns. a and b point at the range's first elements.
  struct Block {
    const char* a;
    int64_t a_row, a_k;  // elements; packed: not used, slivers of balanced heights follow each other
    const char* b;
    int64_t b_k;       // elements
    int64_t b_sliver;  // bytes from one tile's columns to the next
    char* c;           // row-major, `c_row` elements
    int64_t c_row;
    int64_t rows, columns, k;
    char* store;  // b is not packed yet: the first sliver leaves it here
    const Unit* next = nullptr;  // whose columns are packed meanwhile
    bool a_packed, b_padded, add;
    bool last;                     // of k: the epilogue may follow
    int64_t row0, column0;         // of the product
  };

  void multiply_block(const Block& block, const Product& product) const {
    const int64_t width = tile_columns(), slivers = pieces_of(block.rows, most_rows);
    const int64_t steps = pieces_of(block.k, kernels->depth);
    const GemmTileFunction* functions = block.a_packed ? kernels->packed : kernels->strided;
    GemmTile tile{};
    tile.a_row = block.a_row;
    tile.a_k = block.a_k;
    tile.c_row = block.c_row;
    tile.k = steps;
    tile.add = block.add;
    const int64_t packed_sliver = width * steps * kernels->packed_bytes;
    for (int64_t first = 0; first < block.columns; first += kColumnsOfTask) {
      const int64_t last = std::min(block.columns, first + kColumnsOfTask), first_piece = first / width;
      for (int64_t sliver = 0, row = 0; sliver < slivers; ++sliver) {
        const int64_t next = block.rows * (sliver + 1) / slivers, height = next - row;
        tile.a = block.a_packed ? block.a + row * steps * kernels->packed_bytes
                                : block.a + row * block.a_row * kernels->source_bytes;
        char* c = block.c + row * block.c_row * kernels->result_bytes;
        const bool storing = block.store != nullptr && sliver == 0, stored = block.store != nullptr && sliver > 0;
        if (storing) functions = kernels->storing;
        if (stored) functions = kernels->packed;
        const int64_t carriers = slivers - (block.store != nullptr), carrier = sliver - (block.store != nullptr);
        int64_t piece = first_piece;
        for (int64_t column = first; column < last; column += width, ++piece) {
          tile.columns = int(std::min(width, block.columns - column));
          const int64_t vectors = tile.columns == width ? kernels->vectors : pieces_of(tile.columns, kernels->lanes);
          tile.ahead = storing && column == first;
          tile.store = block.store + piece * packed_sliver;
          tile.b = stored ? tile.store : block.b + piece * block.b_sliver;
          tile.b_k = block.b_padded || stored ? vectors * kernels->lanes : block.b_k;
          tile.b_padded = block.b_padded || stored;
          tile.c = c + column * kernels->result_bytes;
          const GemmTileFunction* kind = functions;
          GemmCarry carry;
          if (block.next != nullptr && !storing && carry_part(product, *block.next, piece, carrier, carriers, steps, &carry)) {
            tile.carry = &carry;
            kind = kernels->carrying;
          }
          kind[(height - 1) * kernels->vectors + vectors - 1](tile);
        }
        row = next;
      }
      if (block.last && by_part)
        finish(product, block.row0, block.row0 + block.rows, block.column0 + first, block.column0 + last);
    }
  }

  // Small products: nothing is packed.

  struct Range {
    const GemmStep* step;
    const Product* product;
    int64_t size;  // rows (or columns) of one task
    bool rows;
    const char* shared = nullptr;           // the packed operand of all tasks
    int64_t column0 = 0, columns = 0;       // of the result
    int64_t k0 = 0, k1 = 0;
    std::atomic<int64_t>* claimed = nullptr;  // columns of a wide product
  };

  void multiply_in_place(const Product& product) const {
    const int threads = product.job->threads;
    Range range{this, &product, 0, m >= 2 * most_rows || n <= tile_columns()};
    const int64_t extent = range.rows ? m : n, unit = range.rows ? most_rows : tile_columns();
    const int64_t tasks = threads == 1 ? 1 : cost < 20000 ? threads : 4 * threads;
    range.size = std::max(pieces_of(extent, tasks), std::min(unit, extent));
    if (!range.rows) range.size = up(range.size, tile_columns());
    each(product, run_in_place, &range, pieces_of(extent, range.size));
    if (!by_part && !range.rows) finish_all(product);
  }

  static void run_in_place(void* context, int64_t low, int64_t high) {
    const Range& range = *static_cast<const Range*>(context);
    const GemmStep& step = *range.step;
    const int64_t extent = range.rows ? step.m : step.n;
    for (int64_t task = low; task < high; ++task) {
      const int64_t first = task * range.size, last = std::min(extent, first + range.size);
      if (range.rows) step.rectangle(*range.product, first, last, 0, step.n);
      if (range.rows && !step.by_part && step.form != Form::none) step.finish(*range.product, first, last, 0, step.n);
      if (!range.rows) step.rectangle(*range.product, 0, step.m, first, last);
    }
  }

  void rectangle(const Product& product, int64_t row0, int64_t row1, int64_t column0, int64_t column1) const {
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
      block.last = k0 + block.k == k;
      multiply_block(block, product);
    }
  }

  // Packing.

  int64_t packed_columns(int64_t columns) const {
    return columns / tile_columns() * tile_columns() + up(columns % tile_columns(), kernels->lanes);
  }

  // Columns of b as slivers of a tile's columns, the last one padded to whole vectors.
  void pack_columns(const Product& product, int64_t first, int64_t columns, int64_t k0, int64_t depth, char* to) const {
    const int64_t steps = pieces_of(depth, kernels->depth);
    for (int64_t column = 0; column < columns; column += tile_columns()) {
      const int64_t width = std::min(tile_columns(), columns - column), padded = up(width, kernels->lanes);
      char* sliver = to + column * steps * kernels->packed_bytes;
      for (int64_t run, at = 0; at < depth; at += run) {
        run = run_of(k0 + at, depth - at);
        kernels->pack(column_of_b(product, first + column, k0 + at), b_k, b_column, run, width, padded,
                      sliver + at / kernels->depth * padded * kernels->packed_bytes);
      }
    }
  }

  // Rows of a as slivers of balanced heights, all of them or one.
  void pack_rows(const Product& product, int64_t first, int64_t rows, int64_t k0, int64_t depth, char* to) const {
    for (int64_t sliver = 0; sliver < pieces_of(rows, kernels->height); ++sliver)
      pack_sliver(product, first, rows, sliver, k0, depth, to);
  }
  void pack_sliver(const Product& product, int64_t first, int64_t rows, int64_t sliver, int64_t k0, int64_t depth,
                   char* to) const {
    const int64_t steps = pieces_of(depth, kernels->depth), slivers = pieces_of(rows, kernels->height);
    const int64_t row = rows * sliver / slivers, height = rows * (sliver + 1) / slivers - row;
    to += row * steps * kernels->packed_bytes;
    for (int64_t run, at = 0; at < depth; at += run) {
      run = run_of(k0 + at, depth - at);
      kernels->pack(row_of_a(product, first + row, k0 + at), a_k, a_row, run, height, height,
                    to + at / kernels->depth * height * kernels->packed_bytes);
    }
  }

  // How many of the next `most` terms from `k0` lie in one stride.
  int64_t run_of(int64_t k0, int64_t most) const { return std::min(most, k_inner - k0 % k_inner); }

  const char* row_of_a(const Product& product, int64_t row, int64_t k0) const {
    return product.a + (row * a_row + k0 / k_inner * a_outer + k0 % k_inner * a_k) * kernels->source_bytes;
  }
  const char* column_of_b(const Product& product, int64_t column, int64_t k0) const {
    return product.b + (k0 / k_inner * b_outer + k0 % k_inner * b_k + column * b_column) * kernels->source_bytes;
  }

  // Large products. Tall: b is packed for all, tasks are rows. Wide: a is packed for all, tasks are columns.

  void multiply_packed(const Product& product) const {
    const int64_t block_bytes = span * kernels->packed_bytes;
    Range range{this, &product, 0, !wide};
    // as many columns (wide: rows, all of them) and blocks of k as the shared memory holds
    const int64_t most = std::max(kSharedBytes / block_bytes, tile_columns());
    const int64_t columns = wide ? n : std::min(packed_columns(n), most / tile_columns() * tile_columns());
    const int64_t width = wide ? m : columns;
    const int64_t blocks = std::clamp<int64_t>(most / width, 1, pieces_of(k, span));
    Buffer* buffer = buffer_allocate(width * std::min(blocks * span, up(k, kernels->depth)) * kernels->packed_bytes);
    if (buffer == nullptr) {
      product.job->failed.store(true, std::memory_order_relaxed);
      return;
    }
    range.shared = buffer->data;
    for (range.column0 = 0; range.column0 < n; range.column0 += columns) {
      range.columns = std::min(columns, n - range.column0);
      for (range.k0 = 0; range.k0 < k; range.k0 = range.k1) {
        range.k1 = std::min(k, range.k0 + blocks * span);
        each(product, pack_shared, &range, units_of_block(range) * pieces_of(range.k1 - range.k0, span));
        range.size = task_size(product, wide ? range.columns : m);
        std::atomic<int64_t> claimed{0};
        range.claimed = &claimed;
        each(product, wide ? run_wide : run_packed, &range, pieces_of(wide ? range.columns : m, range.size));
      }
    }
    buffer_release(buffer);
    if (!by_part && !rows_by_task(columns)) finish_all(product);
  }

  // Whether the tasks of a packed product make whole rows, and the epilogue wants these.
  bool rows_by_task(int64_t columns) const { return !wide && columns >= n && form != Form::none; }

  int64_t task_size(const Product& product, int64_t extent) const {
    const int64_t tasks = 4 * product.job->threads;
    if (wide) return up(std::clamp<int64_t>(pieces_of(extent, tasks), tile_columns(), kColumnsOfTask), tile_columns());
    return std::clamp<int64_t>(pieces_of(extent, tasks), 1, kRowsOfTask);
  }

  // Where a block of k begins in the shared operand, which has `width` columns (wide: rows).
  char* shared_block(const Range& range, int64_t k0, int64_t width) const {
    return const_cast<char*>(range.shared) + (k0 - range.k0) / kernels->depth * width * kernels->packed_bytes;
  }

  // Unit of a block of k: a sliver of rows, or kColumnsOfTask columns.
  static void pack_shared(void* context, int64_t low, int64_t high) {
    const Range& range = *static_cast<const Range*>(context);
    const GemmStep& step = *range.step;
    const int64_t units = step.units_of_block(range);
    const int64_t width = step.wide ? step.m : step.packed_columns(range.columns);
    for (int64_t unit = low; unit < high; ++unit) {
      const int64_t k0 = range.k0 + unit / units * step.span, depth = std::min(step.span, range.k1 - k0);
      char* to = step.shared_block(range, k0, width);
      if (step.wide) {
        step.pack_sliver(*range.product, 0, step.m, unit % units, k0, depth, to);
        continue;
      }
      const int64_t first = unit % units * kColumnsOfTask, count = std::min(kColumnsOfTask, range.columns - first);
      to += first * pieces_of(depth, step.kernels->depth) * step.kernels->packed_bytes;
      step.pack_columns(*range.product, range.column0 + first, count, k0, depth, to);
    }
  }
  int64_t units_of_block(const Range& range) const {
    return wide ? pieces_of(m, kernels->height) : pieces_of(range.columns, kColumnsOfTask);
  }

  static void run_packed(void* context, int64_t low, int64_t high) {
    const Range& range = *static_cast<const Range*>(context);
    const GemmStep& step = *range.step;
    Job& job = *range.product->job;
    const int64_t extent = step.m;
    const int64_t own_bytes = (up(range.size, step.kernels->lanes) + 1) * step.span * step.kernels->packed_bytes;
    for (int64_t task = low; task < high && !stream_cancelled(job.number); ++task) {
      const int64_t first = task * range.size, last = std::min(extent, first + range.size);
      char* own = static_cast<char*>(thread_scratch(own_bytes));  // each time: an epilogue may have used it
      if (own == nullptr) return job.failed.store(true, std::memory_order_relaxed);
      step.multiply_rows(range, first, last - first, own);
      if (!step.by_part && step.rows_by_task(range.columns) && range.k1 == step.k)
        step.finish(*range.product, first, last, 0, step.n);
    }
  }

  void multiply_rows(const Range& range, int64_t row, int64_t rows, char* own) const {
    Block block = packed_block(range, row, range.column0);
    block.rows = rows;
    block.columns = range.columns;
    for (int64_t k0 = range.k0; k0 < range.k1 && !stream_cancelled(range.product->job->number); k0 += span) {
      block.k = std::min(span, range.k1 - k0);
      pack_rows(*range.product, row, rows, k0, block.k, own);
      block.a = own;
      block.b = shared_block(range, k0, packed_columns(range.columns));
      block.b_sliver = tile_columns() * pieces_of(block.k, kernels->depth) * kernels->packed_bytes;
      block.add = k0 > 0;
      block.last = k0 + block.k == k;
      multiply_block(block, *range.product);
    }
  }

  // Part `index` of `count` of the rows of a column of tiles: whether a tile of so many steps is to take it along.
  bool carry_part(const Product& product, const Unit& unit, int64_t piece, int64_t index, int64_t count, int64_t steps,
                  GemmCarry* carry) const {
    const int64_t column = piece * tile_columns(), begin = unit.depth * index / count, end = unit.depth * (index + 1) / count;
    if (column >= unit.columns || begin == end) return false;
    const int64_t columns = std::min(tile_columns(), unit.columns - column);
    const int64_t padded = up(columns, kernels->lanes);
    const char* from = column_of_b(product, unit.column + column, unit.k0 + begin);
    char* to = unit.packed + (column * unit.depth + begin * padded) * kernels->packed_bytes;
    *carry = {from, b_k * kernels->source_bytes, to, int(columns), end - begin};
    if (end - begin <= steps) return true;
    kernels->pack(from, b_k, 1, end - begin, columns, padded, to);
    return false;
  }

  // Wide: a thread takes its next columns before it has done the last ones, and packs them meanwhile, until none are left.
  // So its first task does all that it can do.
  static void run_wide(void* context, int64_t, int64_t) {
    const Range& range = *static_cast<const Range*>(context);
    if (range.claimed->load(std::memory_order_relaxed) < range.columns) range.step->multiply_columns(range);
  }

  void multiply_columns(const Range& range) const {
    const Product& product = *range.product;
    const bool direct = kernels->storing != nullptr && b_column == 1 && k_inner == k, carries = direct && m > kernels->height;
    const int64_t bytes = up(up(range.size, kernels->lanes) * span * kernels->packed_bytes, 64);
    char* own = static_cast<char*>(thread_scratch(carries ? 2 * bytes : bytes));  // no epilogue that runs by part uses it
    if (own == nullptr) return product.job->failed.store(true, std::memory_order_relaxed);
    Unit unit = claim(range, own);
    bool packed = false;
    while (unit.columns > 0 && !stream_cancelled(product.job->number)) {
      char* to = carries && unit.packed == own ? own + bytes : own;
      const int64_t k1 = unit.k0 + unit.depth;
      Unit next = k1 < range.k1 ? Unit{unit.column, unit.columns, k1, std::min(span, range.k1 - k1), to} : claim(range, to);
      if (!direct) pack_columns(product, unit.column, unit.columns, unit.k0, unit.depth, own);
      Block block = packed_block(range, 0, unit.column);
      block.rows = m;
      block.columns = unit.columns;
      block.k = unit.depth;
      block.a = shared_block(range, unit.k0, m);
      block.b = unit.packed;
      block.b_sliver = tile_columns() * pieces_of(unit.depth, kernels->depth) * kernels->packed_bytes;
      if (direct && !packed) {
        block.b = column_of_b(product, unit.column, unit.k0);
        block.b_k = b_k;
        block.b_sliver = tile_columns() * kernels->source_bytes;
        block.b_padded = false;
        block.store = unit.packed;
      }
      block.next = carries && next.columns > 0 ? &next : nullptr;
      block.add = unit.k0 > 0;
      block.last = k1 == k;
      multiply_block(block, product);
      packed = carries;
      unit = next;
    }
  }

  // The columns that no thread has taken yet, or none.
  Unit claim(const Range& range, char* to) const {
    const int64_t first = range.claimed->fetch_add(range.size, std::memory_order_relaxed);
    const int64_t columns = std::clamp<int64_t>(range.columns - first, 0, range.size);
    return {range.column0 + first, columns, range.k0, std::min(span, range.k1 - range.k0), to};
  }

  Block packed_block(const Range& range, int64_t row, int64_t column) const {
    Block block{};
    block.a_packed = block.b_padded = true;
    block.c = range.product->c + (row * c_row + column) * kernels->result_bytes;
    block.c_row = c_row;
    block.row0 = row;
    block.column0 = column;
    return block;
  }

  // Few elements, each a long sum: tasks are blocks of k, whose sums are added in order afterwards.

  struct Deep {
    const GemmStep* step;
    const Product* product;
    int64_t first;  // block of k
    char* sums;
  };

  void multiply_deep(const Product& product) const {
    const int64_t bytes = up(m * n * kernels->result_bytes, 64), blocks = pieces_of(k, depth_of_block());
    const int64_t wave = std::clamp<int64_t>(kPartialBytes / bytes, 1, blocks);
    Buffer* buffer = buffer_allocate(wave * bytes);
    if (buffer == nullptr) {
      product.job->failed.store(true, std::memory_order_relaxed);
      return;
    }
    Deep deep{this, &product, 0, buffer->data};
    for (; deep.first < blocks; deep.first += wave) {
      const int64_t count = std::min(wave, blocks - deep.first);
      each(product, run_deep, &deep, count);
      for (int64_t block = 0; block < count; ++block)
        add_sums(product.c, deep.sums + block * bytes, deep.first + block == 0);
    }
    buffer_release(buffer);
  }

  int64_t depth_of_block() const { return vector ? kGemmBlock * (kGemmLaneBytes / kernels->source_bytes) : span; }

  static void run_deep(void* context, int64_t low, int64_t high) {
    const Deep& deep = *static_cast<const Deep*>(context);
    const GemmStep& step = *deep.step;
    const GemmKernels& kernels = *step.kernels;
    Job& job = *deep.product->job;
    const int64_t bytes = up(step.m * step.n * kernels.result_bytes, 64);
    const int64_t a_bytes = up(step.m * step.span * kernels.packed_bytes, 64);
    char* own = nullptr;
    if (!step.vector) {
      own = static_cast<char*>(
          thread_scratch(a_bytes + step.packed_columns(step.n) * step.span * kernels.packed_bytes));
      if (own == nullptr) {
        job.failed.store(true, std::memory_order_relaxed);
        return;
      }
    }
    for (int64_t index = low; index < high && !stream_cancelled(job.number); ++index) {
      const int64_t block_depth = step.depth_of_block();
      const int64_t k0 = (deep.first + index) * block_depth, depth = std::min(block_depth, step.k - k0);
      char* sums = deep.sums + index * bytes;
      if (step.vector) {
        step.vector_block(*deep.product, 0, std::max(step.m, step.n), k0, depth, sums, 1, false);
        continue;
      }
      step.pack_rows(*deep.product, 0, step.m, k0, depth, own);
      step.pack_columns(*deep.product, 0, step.n, k0, depth, own + a_bytes);
      Block block{};
      block.a = own;
      block.b = own + a_bytes;
      block.b_sliver = step.tile_columns() * pieces_of(depth, kernels.depth) * kernels.packed_bytes;
      block.c = sums;
      block.c_row = step.n;
      block.rows = step.m;
      block.columns = step.n;
      block.k = depth;
      block.a_packed = block.b_padded = true;
      step.multiply_block(block, *deep.product);
    }
  }

  template <class T>
  static void add_all(void* to, const void* from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) static_cast<T*>(to)[i] += static_cast<const T*>(from)[i];
  }
  void add_sums(char* to, const char* from, bool first) const {
    for (int64_t row = 0; row < m; ++row) {
      if (first) std::memcpy(to, from, size_t(n * kernels->result_bytes));
      else if (result == 'f') add_all<float>(to, from, n);
      else if (result == 'd') add_all<double>(to, from, n);
      else if (result == 'F') add_all<float>(to, from, 2 * n);
      else if (result == 'D') add_all<double>(to, from, 2 * n);
      else if (kernels->result_bytes == 4) add_all<uint32_t>(to, from, n);
      else add_all<uint64_t>(to, from, n);
      to += c_row * kernels->result_bytes;
      from += n * kernels->result_bytes;
    }
  }

  // A vector and a matrix: bound by memory.

  void multiply_vector(const Product& product) const {
    const int64_t rows = std::max(m, n), item = kernels->source_bytes;
    const int64_t most = std::clamp<int64_t>(rows * k * item / kVectorBytesOfTask, 1, 1 << 20);
    Range range{this, &product, rows, true};
    if (product.job->threads > 1 && most > 1) {
      // long pieces of contiguous columns, but enough tasks; else blocks of k
      const int64_t least = matrix_row() != 1 ? 8 : rows * k * item > kLargeVectorBytes ? 512 : 128;
      if (rows < 2 * least * product.job->threads && k >= 2 * depth_of_block() * product.job->threads)
        return multiply_deep(product);
      range.size = up(std::max(pieces_of(rows, std::min<int64_t>(most, 4 * product.job->threads)), least), 64);
    }
    each(product, run_vector, &range, pieces_of(rows, range.size));
  }

  int64_t matrix_row() const { return n == 1 ? a_row : b_column; }

  static void run_vector(void* context, int64_t low, int64_t high) {
    const Range& range = *static_cast<const Range*>(context);
    const GemmStep& step = *range.step;
    const int64_t rows = std::max(step.m, step.n), y_row = step.n == 1 ? step.c_row : 1;
    for (int64_t task = low; task < high && !stream_cancelled(range.product->job->number); ++task) {
      const int64_t first = task * range.size, count = std::min(range.size, rows - first);
      const int64_t depth = step.depth_of_block();
      for (int64_t k0 = 0; k0 < step.k; k0 += depth)
        step.vector_block(*range.product, first, count, k0, std::min(depth, step.k - k0),
                          range.product->c + first * y_row * step.kernels->result_bytes, y_row, k0 > 0);
    }
  }

  void vector_block(const Product& product, int64_t row, int64_t rows, int64_t k0, int64_t depth, char* y,
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
    const double bytes = double(std::max(m, n)) * double(k) * kernels->source_bytes;
    const bool large = bytes > (crossing ? kCrossingBytes : kStripBytes) && k > kStripDepth;
    work.tile = large && work.a_k != 1 ? kTileBytes / kernels->source_bytes : 0;
    const int64_t pitch = work.tile > 0 ? up(work.tile, kernels->lanes) + kernels->lanes : 0;  // of a chain's sums
    int64_t scratch = kGemmLaneBytes / kernels->source_bytes * kernels->sum_bytes * pitch;
    if (work.a_k == 1 && work.x_k != 1) scratch = depth * kernels->source_bytes;
    if (scratch > 0) {
      work.scratch = static_cast<char*>(thread_scratch(scratch));
      if (work.scratch == nullptr) return product.job->failed.store(true, std::memory_order_relaxed);
    }
    kernels->vector(work);
  }

 public:
  char result = 'f';

 private:
  bool vector = false, in_place = false, wide = false;
  int64_t most_rows = 0;      // of a tile
  int64_t span = kGemmBlock;  // elements of k whose sum is one chain
  bool by_part = false;       // the epilogue runs on tiles, else on rows
  bool by_product = false;    // it runs on whole products of a batch
  std::vector<SmallTile> small;
  bool near = false;               // into the first cache
  int64_t a_part = 0, b_part = 0;  // bytes of the next product that each tile fetches
};

bool read_epilogue(const char* form, PyObject* kernel, const PlaceReader& places, GemmStep* step) {
  static constexpr const char* names[] = {"none", "flat", "grid", "rows", "products"};
  for (int i = 1; i < 5; ++i)
    if (std::strcmp(form, names[i]) == 0) step->form = Form(i);
  if (step->form == Form::none || step->c_row != step->n) return invalid_gemm("[gemm] an epilogue cannot be run like this");
  Ref fields = steal(PyTuple_GetSlice(kernel, 1, PyTuple_GET_SIZE(kernel)));
  if (!fields) return false;
  step->epilogue = make_kernel_step(fields.get(), places);
  return step->epilogue != nullptr;
}

}  // namespace

std::unique_ptr<Step> make_gemm_step(PyObject* fields, const PlaceReader& places) {
  auto step = std::make_unique<GemmStep>();
  PyObject *a, *b, *c, *batch, *outer;
  int source, result;
  long long m, n, k, a_row, a_k, b_k, b_column, c_row, outer_k = 1, a_outer = 0, b_outer = 0;
  const char* form = "";
  PyObject* epilogue = nullptr;
  if (!PyArg_ParseTuple(fields, "CCLLLOLLOLLOLO!O!|sO!;[executable] a gemm instruction has 15 or 17 fields after its name",
                        &source, &result, &m, &n, &k, &a, &a_row, &a_k, &b, &b_k, &b_column, &c, &c_row, &PyTuple_Type,
                        &batch, &PyTuple_Type, &outer, &form, &PyTuple_Type, &epilogue))
    return nullptr;
  if (PyTuple_GET_SIZE(outer) != 0 &&
      !PyArg_ParseTuple(outer, "LLL;[gemm] an outer sum has an extent and two strides", &outer_k, &a_outer, &b_outer))
    return nullptr;
  for (int64_t value : {m, n, k, a_row, a_k, b_k, b_column, c_row, outer_k, a_outer, b_outer})
    if (value < 0 || value > INT64_MAX / 64) {
      invalid_gemm("[gemm] a size or stride is negative or too large");
      return nullptr;
    }
  step->kernels = gemm_kernels(char(source), char(result));
  if (step->kernels == nullptr) {
    PyErr_Format(PyExc_ValueError, "[gemm] no kernels multiply dtype %c to dtype %c", source, result);
    return nullptr;
  }
  if (outer_k > 1 && (step->kernels->depth != 1 || k == 0 || outer_k > INT64_MAX / 64 / k)) {
    invalid_gemm("[gemm] sums over two dimensions: too long, or of a dtype whose terms are added in pairs");
    return nullptr;
  }
  if (m > 1 && c_row < n) {
    invalid_gemm("[gemm] rows of the result overlap");
    return nullptr;
  }
  step->result = char(result);
  step->m = m;
  step->n = n;
  step->k = k * outer_k;
  step->k_inner = outer_k > 1 ? k : std::max<int64_t>(k, 1);
  step->a_outer = a_outer;
  step->b_outer = b_outer;
  step->a_row = a_row;
  step->a_k = a_k;
  step->b_k = b_k;
  step->b_column = b_column;
  step->c_row = c_row;
  if (!step->batch.read(batch)) return nullptr;
  const int64_t item = step->kernels->source_bytes;
  const int64_t blocks = outer_k - 1;
  int64_t bytes[3] = {step->batch.reach(m, k, a_row, a_k, item, &GemmBatch::Dim::a, blocks, a_outer),
                      step->batch.reach(k, n, b_k, b_column, item, &GemmBatch::Dim::b, blocks, b_outer),
                      step->batch.reach(m, n, c_row, 1, step->kernels->result_bytes, &GemmBatch::Dim::c)};
  if (bytes[0] < 0 || bytes[1] < 0 || bytes[2] < 0) {
    invalid_gemm("[gemm] the operands are too large");
    return nullptr;
  }
  if (!places.place(a, bytes[0], &step->a) || !places.place(b, bytes[1], &step->b) ||
      !places.place(c, bytes[2], &step->c))
    return nullptr;
  if (epilogue != nullptr && !read_epilogue(form, epilogue, places, step.get())) return nullptr;
  step->plan();
  return step;
}

}  // namespace weft
