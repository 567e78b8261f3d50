// Large matrix products: how they are cut into parts, these into blocks of their terms, and blocks into tiles.
//
// Tasks are ranges of rows or of columns, read where the operands lie or with one operand packed for all tasks; or, of few
// elements that are long sums (gradients of dense layers over large batches, covariances), blocks of the terms, whose sums
// are added in order afterwards. An operand is read as it lies wherever a block of it is near.
#include <cstring>

#include "buffer.h"
#include "gemm_step.h"

namespace weft {

namespace {

constexpr int64_t kReadOnceTerms = 32;  // terms: if one sliver of rows reads so few, b is read where it lies
constexpr int kRowsAlike = 8;  // rows whose lines are in one set of the first cache, which has at least as many ways
constexpr int64_t kLeastRun = 8;    // terms of a run that is read where it lies
constexpr int64_t kManyRows = 512;  // rows that make packing the columns worth it
constexpr int64_t kMostRows = 32, kTileRoom = 4096;  // rows of a tile, and bytes of its results
constexpr int64_t kDeepBlocks = 4;     // blocks of k
constexpr int64_t kPitchBytes = 2048;  // bytes between rows that the processor fetches ahead by itself
constexpr int64_t kElementsOfTask = 16 << 10;  // elements that a task adds
constexpr int64_t kAddedTogether = 64;  // elements of blocks' sums that are added at a time, in registers
constexpr int64_t kMirrored = 32;  // rows and columns that are copied at a time

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

// to[i] (+)= the sum of blocks of from[i], one after another.
template <class T>
void add_in_order(void* to_bytes, const void* from_bytes, int64_t pitch, int64_t blocks, int64_t count, bool first) {
  T* to = static_cast<T*>(to_bytes);
  const T* from = static_cast<const T*>(from_bytes);
  for (int64_t at = 0; at < count; at += kAddedTogether) {
    const int64_t some = std::min(kAddedTogether, count - at);
    T sums[kAddedTogether];
    std::memcpy(sums, first ? from + at : to + at, size_t(some) * sizeof(T));
    for (int64_t block = first; block < blocks; ++block) {
      const T* next = from + block * pitch + at;
      if (some == kAddedTogether)
        for (int64_t i = 0; i < kAddedTogether; ++i) sums[i] += next[i];
      else
        for (int64_t i = 0; i < some; ++i) sums[i] += next[i];
    }
    std::memcpy(to + at, sums, size_t(some) * sizeof(T));
  }
}

// What is above the diagonal in rows first..last and columns left..right: the elements across it.
template <class T>
void mirror_square(T* c, int64_t c_row, int64_t first, int64_t last, int64_t left, int64_t right) {
  for (int64_t row = first; row < last; ++row)
    for (int64_t column = std::max(left, row + 1); column < right; ++column)
      c[row * c_row + column] = c[column * c_row + row];
}

struct Element {
  char bytes[16];
};

}  // namespace

void GemmStep::plan_blocks() {
  const int64_t item = kernels->source_bytes;
  span = kernels->unit != nullptr ? kernels->unit->span : kGemmBlock * kernels->depth;
  const int64_t depth = std::min(k, span);
  // of few columns a block is small, and an element of a is not read often
  const bool few = a_k == 1 && n * depth * item <= figures.few_columns_bytes;
  const bool read_once = m <= kernels->height && k <= kReadOnceTerms;
  in_place = kernels->strided != nullptr && plain && b_column == 1 &&
             (read_once || n * (few ? depth : k) * item <= figures.in_place_bytes) &&
             (a_k == 1 || m * k * item <= figures.in_place_bytes);
  // rows that lie a multiple of a cache's way apart evict each other, if they are more than its ways
  const bool rows_evict = a_row * item % 2048 == 0;
  most_rows = in_place && rows_evict && a_k == 1 && k > 64 ? std::min(kernels->height, kRowsAlike) : kernels->height;
  wide = m <= 2 * kRowsOfTask && n > m;
  few_sums = !vector && pieces_of(k, depth_of_block()) >= kDeepBlocks &&
             m * n * kernels->result_bytes <= figures.few_sums_bytes && (m + n) * depth * item <= figures.block_bytes;
  const auto near = [&](int64_t pitch) { return pitch * item <= kPitchBytes; };
  a_as_it_lies = kernels->strided != nullptr && a_rows.count == 1 && a_sum.count == 1 &&
                 (a_row == 1 ? near(a_k) : a_k == 1 && !rows_evict);
  b_as_it_lies = kernels->strided != nullptr && b_columns.count == 1 && b_sum.count == 1 && b_column == 1 && near(b_k);
  const auto same = [](const GemmDigits& some, const GemmDigits& others) {
    bool equal = some.count == others.count;
    for (int digit = 0; equal && digit < some.count; ++digit)
      equal = some.extents[digit] == others.extents[digit] && some.strides[digit] == others.strides[digit];
    return equal;
  };
  // products of bfloat16 parts in a matrix unit are added in an order that is not symmetric
  alike = kernels->unit == nullptr && !vector && c_rows.count == 1 && same(a_rows, b_columns) && same(a_sum, b_sum);
  for (const GemmBatch::Dim& dim : batch.dims) alike = alike && dim.a == dim.b;
  in_runs = !few_sums && !alike && reads_runs();
  in_place = in_place && !in_runs;
}

// Whether the rows of a are read where they lie. Windows overlap: packing would copy most elements several times.
bool GemmStep::reads_runs() const {
  if (kernels->in_runs == nullptr || vector || wide || k == 0) return false;
  const int64_t rows = a_rows.run(0, m), terms = a_sum.run(0, k), item = kernels->source_bytes;
  if (3 * rows < 2 * kernels->height || terms < std::min(k, kLeastRun)) return false;
  const int64_t apart = (a_k == 1 ? a_row : a_k) * item;  // lines of one set of the first cache evict each other
  if (apart % 2048 == 0 && (a_k != 1 || kernels->height > kRowsAlike)) return false;
  return !plain || (a_k == 1 && m >= kManyRows && (!in_place || n * k * item > kNearBytes));
}

// Ranges of rows, or of columns, of this size.
void GemmStep::multiply_in_parts(const Product& product, const Part& whole, int64_t size, bool by_rows) const {
  const bool symmetric = product.job->symmetric, all = whole.column1 - whole.column0 == n && whole.k1 == k;
  const int64_t first = by_rows ? whole.row0 : whole.column0, last = by_rows ? whole.row1 : whole.column1;
  const int64_t tasks = pieces_of(last - first, size);
  each(product, tasks, [&](int64_t index) {
    const int64_t task = symmetric ? tasks - 1 - index : index;  // the longest ones first
    const int64_t begin = first + task * size, end = std::min(last, begin + size);
    Part part = whole;
    (by_rows ? part.row0 : part.column0) = begin;
    (by_rows ? part.row1 : part.column1) = end;
    multiply_part(product, part);
    if (by_rows && all && !by_part && form != Form::none && !symmetric) finish(product, begin, end, 0, n);
  });
}

void GemmStep::multiply_part(const Product& product, const Part& part) const {
  const int64_t item = kernels->source_bytes, rows = part.row1 - part.row0;
  const bool shares = part.shared != nullptr, packs_a = !part.a_lies, packs_b = !part.b_lies && !shares;
  const int64_t most = steps_of(std::min(span, part.k1 - part.k0)) * kernels->packed_bytes;
  Block block{};
  block.row0 = part.row0;
  block.rows = rows;
  block.column0 = part.column0;
  block.columns = part.column1 - part.column0;
  block.a_packed = packs_a;
  block.b_packed = !part.b_lies;
  block.sums = part.sums;
  const int64_t a_bytes = packs_a ? up(packed_rows(rows) * most, kLine) : 0;
  const int64_t bytes = a_bytes + (packs_b ? packed_columns(block.columns) * most : 0);
  char* own = bytes > 0 ? scratch(product, bytes) : nullptr;  // each time: an epilogue may have used it
  if (bytes > 0 && own == nullptr) return;
  for (int64_t k0 = part.k0; k0 < part.k1 && !stream_cancelled(product.job->number); k0 += span) {
    block.k0 = k0;
    block.k = std::min(span, part.k1 - k0);
    block.a = packs_a ? own : product.a + (part.row0 * a_row + k0 * a_k) * item;
    block.b = shares ? shared_block(part, k0) : packs_b ? own + a_bytes : product.b + (k0 * b_k + part.column0) * item;
    block.b_sliver = tile_columns() * (part.b_lies ? item : steps_of(block.k) * kernels->packed_bytes);
    if (packs_a) pack_rows(product, part.row0, rows, k0, block.k, own);
    if (packs_b) pack_columns(product, part.column0, block.columns, k0, block.k, own + a_bytes);
    if (in_runs) multiply_runs(product, part, block);
    else multiply_block(product, block);
  }
}

// Rows of a where they lie, by those that lie one stride apart.
void GemmStep::multiply_runs(const Product& product, const Part& part, Block block) const {
  GemmRun runs[kGemmBlock];
  GemmRuns terms(a_sum, block.k0);
  for (int64_t at = 0; at < block.k; at += runs[block.run_count++].k, terms.advance(runs[block.run_count - 1].k))
    runs[block.run_count] = {terms.offset * kernels->source_bytes, terms.left(block.k - at)};
  block.runs = runs;
  for (; block.row0 < part.row1; block.row0 += block.rows) {
    block.rows = a_rows.run(block.row0, part.row1 - block.row0);
    block.a = product.a + a_rows.at(block.row0) * kernels->source_bytes;
    multiply_block(product, block);
  }
}

void GemmStep::multiply_block(const Product& product, const Block& block) const {
  const UnitUse use(kernels->unit);
  const bool symmetric = product.job->symmetric, apart = block.sums == nullptr && c_rows.count > 1;
  const bool last_block = block.sums == nullptr && block.k0 + block.k == k && !symmetric;
  const int64_t width = tile_columns(), steps = steps_of(block.k), c_pitch = block.sums == nullptr ? c_row : n;
  const int64_t slivers = pieces_of(block.rows, block.a_packed ? kernels->height : most_rows);
  const GemmTileFunction* functions = block.a_packed ? kernels->packed
                                      : block.runs != nullptr ? kernels->in_runs : kernels->strided;
  char* const result = block.sums == nullptr ? product.c : block.sums;
  GemmTile tile{};
  tile.a_row = a_row;
  tile.a_k = a_k;
  tile.c_row = c_pitch;
  tile.k = steps;
  tile.runs = block.runs;
  tile.run_count = block.run_count;
  tile.add = block.sums == nullptr && block.k0 > 0;
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
      tile.a = block.a + row * (block.a_packed ? steps * kernels->packed_bytes : a_row * kernels->source_bytes);
      char* c = result + ((apart ? 0 : (block.row0 + row) * c_pitch) + block.column0) * kernels->result_bytes;
      const bool storing = block.store != nullptr && sliver == 0, stored = block.store != nullptr && sliver > 0;
      if (storing) functions = kernels->storing;
      if (stored) functions = kernels->packed;
      const int64_t carriers = slivers - (block.store != nullptr), carrier = sliver - (block.store != nullptr);
      int64_t piece = first_piece;
      // of a symmetric product: columns up to that of the last row
      const int64_t wanted = symmetric ? std::min(last, block.row0 + next - block.column0) : last;
      for (int64_t column = first; column < wanted; column += width, ++piece) {
        tile.columns = int(std::min(width, block.columns - column));
        const int64_t pitch = up(tile.columns, kernels->lanes);  // where they are packed
        if (symmetric) tile.columns = int(std::min<int64_t>(tile.columns, wanted - column));
        const int64_t vectors = tile.columns == width ? kernels->vectors : pieces_of(tile.columns, kernels->lanes);
        tile.ahead = storing && column == first;
        tile.store = block.store + piece * packed_sliver;
        tile.b = stored ? tile.store : block.b + piece * block.b_sliver;
        tile.b_padded = block.b_packed || stored;
        tile.b_k = tile.b_padded ? pitch : b_k;
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
        if (apart) multiply_apart(tile, function, block.row0 + row);
        else function(tile);
      }
      row = next;
      const bool enough = row == block.rows || (row - finished) * (last - first) >= kFinishElements;
      if (!last_block || !by_part || !enough) continue;
      finish(product, block.row0 + finished, block.row0 + row, block.column0 + first, block.column0 + last);
      finished = row;
    }
  }
}

// A tile whose rows may not lie one stride apart in the result: it is then made beside it.
void GemmStep::multiply_apart(GemmTile tile, GemmTileFunction function, int64_t row) const {
  const int64_t item = kernels->result_bytes, width = tile.columns * item, height = tile.rows;
  const int64_t pitch = tile_columns() * item;
  char* c = tile.c;
  alignas(kLine) char apart[kTileRoom];
  int64_t lines[kMostRows];
  const bool regular = c_rows.run(row, height) == height;
  c_rows.list(row, height, lines);
  tile.c = regular ? c + lines[0] * item : apart;
  if (!regular) tile.c_row = tile_columns();
  for (int64_t i = 0; tile.add && !regular && i < height; ++i)
    std::memcpy(apart + i * pitch, c + lines[i] * item, size_t(width));
  function(tile);
  for (int64_t i = 0; !regular && i < height; ++i) std::memcpy(c + lines[i] * item, apart + i * pitch, size_t(width));
}

// Nothing is packed.
void GemmStep::multiply_in_place(const Product& product) const {
  const int threads = product.job->threads;
  const bool by_rows = m >= 2 * most_rows || n <= tile_columns();
  const int64_t extent = by_rows ? m : n, unit = by_rows ? most_rows : tile_columns();
  const int64_t tasks = threads == 1 ? 1 : cost < 20000 ? threads : 4 * threads;
  const int64_t size = std::max(pieces_of(extent, tasks), std::min(unit, extent));
  multiply_in_parts(product, {0, m, 0, n, 0, k, true, true}, by_rows ? size : up(size, tile_columns()), by_rows);
  finish_parts(product, by_part || by_rows);
}

// Tall: b is packed for all, tasks are rows. Wide: a is packed for all, tasks are columns.
void GemmStep::multiply_packed(const Product& product) const {
  const int64_t block_bytes = steps_of(span) * kernels->packed_bytes, tasks = 4 * product.job->threads;
  // as many columns (wide: rows, all of them) and blocks of k as the shared memory holds
  const int64_t most = std::max(figures.shared_bytes / block_bytes, tile_columns());
  const int64_t columns = wide ? n : std::min(packed_columns(n), most / tile_columns() * tile_columns());
  const int64_t width = wide ? packed_rows(m) : columns;
  // a small result is walked for each part of a long sum, whose operands are then near
  const bool small = !plain && m * n * kernels->result_bytes <= figures.held_bytes;
  const int64_t blocks = std::clamp<int64_t>((small ? figures.held_bytes / block_bytes : most) / width, 1, pieces_of(k, span));
  Buffer* buffer = buffer_allocate(width * steps_of(std::min(blocks * span, k)) * kernels->packed_bytes);
  if (buffer == nullptr) return product.job->failed.store(true, std::memory_order_relaxed);
  for (int64_t column = 0; column < n; column += columns) {
    for (int64_t k0 = 0; k0 < k; k0 += blocks * span) {
      Part part{0, m, column, std::min(n, column + columns), k0, std::min(k, k0 + blocks * span), in_runs, false};
      part.shared = buffer->data;
      pack_shared(product, part);
      const int64_t extent = wide ? part.column1 - part.column0 : m, most_of_task = wide ? kColumnsOfTask : kRowsOfTask;
      int64_t size = std::clamp<int64_t>(pieces_of(extent, tasks), wide ? tile_columns() : 1, most_of_task);
      const int64_t run = in_runs && a_rows.count > 1 ? a_rows.extents[0] : 0;
      if (wide) multiply_wide(product, part, up(size, tile_columns()));
      else if (run > 0 && run <= kRowsOfTask)  // whole runs of rows
        multiply_in_parts(product, part, up(std::min(size, kRowsOfTask + 1 - run), run), true);
      else multiply_in_parts(product, part, packed_rows(size), true);
    }
  }
  buffer_release(buffer);
  finish_parts(product, by_part || (!wide && columns >= n));
}

// Whether blocks of k are the tasks, or what one thread takes one after another.
bool GemmStep::is_deep(const Product& product) const {
  const int threads = product.job->threads;
  if (threads == 1) return few_sums && !in_place && c_rows.count == 1;
  if (few_sums && pieces_of(k, span) >= 2 * threads) return true;
  return pieces_of(m, kernels->height) * pieces_of(n, tile_columns()) < 4 * threads && k >= 8 * span;
}

void GemmStep::multiply_deep(const Product& product) const {
  const int threads = product.job->threads;
  const int64_t depth = depth_of_block(), blocks = pieces_of(k, depth), item = kernels->result_bytes;
  const Part whole{0, m, 0, n, 0, k, a_as_it_lies, b_as_it_lies};
  if (threads == 1 && !vector) {
    multiply_part(product, whole);
    return finish_parts(product, by_part);
  }
  const int64_t bytes = up(m * n * item, kLine);
  const int64_t wave = std::min(blocks, std::max<int64_t>(figures.partial_bytes / bytes, 2 * threads));
  Buffer* buffer = buffer_allocate(wave * bytes);
  if (buffer == nullptr) return product.job->failed.store(true, std::memory_order_relaxed);
  for (int64_t first = 0; first < blocks; first += wave) {
    const int64_t count = std::min(wave, blocks - first);
    each(product, count, [&](int64_t index) {
      Part part = whole;
      part.k0 = (first + index) * depth;
      part.k1 = std::min(k, part.k0 + depth);
      part.sums = buffer->data + index * bytes;
      if (vector) vector_block(product, 0, std::max(m, n), part.k0, part.k1 - part.k0, part.sums, 1, false);
      else multiply_part(product, part);
    });
    const int64_t rows = std::max<int64_t>(1, kElementsOfTask / (n * count));
    each(product, pieces_of(m, rows), [&](int64_t task) {
      for (int64_t row = task * rows; row < std::min(m, (task + 1) * rows); ++row) {
        // above the diagonal of a symmetric product there is nothing yet
        const int64_t some = product.job->symmetric ? row + 1 : n;
        add_blocks(product.c + c_rows.at(row) * item, buffer->data + row * n * item, bytes, count, some, first == 0);
      }
    });
  }
  buffer_release(buffer);
  finish_parts(product, false);
}

void GemmStep::add_blocks(char* to, const char* from, int64_t pitch, int64_t blocks, int64_t count, bool first) const {
  if (result == 'f') add_in_order<float>(to, from, pitch / 4, blocks, count, first);
  else if (result == 'd') add_in_order<double>(to, from, pitch / 8, blocks, count, first);
  else if (result == 'F') add_in_order<float>(to, from, pitch / 4, blocks, 2 * count, first);
  else if (result == 'D') add_in_order<double>(to, from, pitch / 8, blocks, 2 * count, first);
  else if (kernels->result_bytes == 4) add_in_order<uint32_t>(to, from, pitch / 4, blocks, count, first);
  else add_in_order<uint64_t>(to, from, pitch / 8, blocks, count, first);
}

// The other half of a symmetric product, as both orders of the operands of a term give the same bits, and the epilogue of
// what has not had it.
void GemmStep::finish_parts(const Product& product, bool finished) const {
  if (!product.job->symmetric) return finished ? void() : finish_all(product);
  const int64_t bytes = kernels->result_bytes, size = m * n >= 2 * kElementsOfTask ? kMirrored : m;
  char* c = product.c;
  each(product, pieces_of(m, size), [&](int64_t task) {
    for (int64_t first = task * size, end = std::min(m, first + size); first < end; first += kMirrored)
      for (int64_t left = first, last = std::min(end, first + kMirrored); left < n; left += kMirrored) {
        const int64_t right = std::min(n, left + kMirrored);
        if (bytes == 4) mirror_square(reinterpret_cast<uint32_t*>(c), c_row, first, last, left, right);
        else if (bytes == 8) mirror_square(reinterpret_cast<uint64_t*>(c), c_row, first, last, left, right);
        else mirror_square(reinterpret_cast<Element*>(c), c_row, first, last, left, right);
      }
  });
  finish_all(product);
}

}  // namespace weft
