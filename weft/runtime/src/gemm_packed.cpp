// Matrix products whose operands are packed: packing, and large products, tall or wide.
#include <cstring>

#include "buffer.h"
#include "gemm_step.h"
#include "pool.h"
#include "stream.h"

namespace weft {

namespace {

constexpr int64_t kLeastRun = 8;             // terms of a run that is read where it lies
constexpr int64_t kFewRows = 8;              // rows of a tile, if they are in one set of the first cache
constexpr int64_t kManyRows = 512;           // rows that make packing the columns worth it

}  // namespace

// Columns of b as slivers of a tile's columns, the last one padded to whole vectors.
void GemmStep::pack_columns(const Product& product, int64_t first, int64_t columns, int64_t k0, int64_t depth,
                            char* to) const {
  const int64_t steps = steps_of(depth);
  for (int64_t column = 0; column < columns; column += tile_columns()) {
    const int64_t width = std::min(tile_columns(), columns - column), padded = up(width, kernels->lanes);
    char* sliver = to + column * steps * kernels->packed_bytes;
    pack_lines({product.b, &b_sum, &b_columns, k0, depth, first + column, width, false, sliver}, padded);
  }
}

// Of an operand as its digits have it. Columns that lie side by side are copied in runs, others one by one, each with the
// terms that lie so.
void GemmStep::pack_lines(const GemmPacking& work, int64_t padded) const {
  if (kernels->unit != nullptr) return kernels->unit->pack(work);
  const GemmDigits &terms = *work.terms, &lines = *work.lines;
  if (terms.count == 1 && lines.count == 1) {
    const int64_t from = terms.at(work.k0) + lines.at(work.x0);
    return kernels->pack({work.source + from * kernels->source_bytes, terms.strides[0], lines.strides[0], nullptr,
                          work.k, work.width, padded, padded, work.to});
  }
  if (kernels->depth > 1 && terms.count > 1 && terms.extents[0] % kernels->depth != 0) return pack_pieces(work, padded);
  // where lines, or runs of them, lie and which are their first ones
  int64_t offsets[kMostLines], firsts[kMostLines + 1], parts = 0;
  const bool regular = lines.run(work.x0, work.width) == work.width, side_by_side = lines.strides[0] == 1;
  const bool in_runs = work.is_along() ? regular && !side_by_side : regular || side_by_side;
  GemmRuns columns(lines, work.x0);
  for (int64_t x = 0, next; x < work.width; x = next) {
    next = x + (in_runs ? columns.left(work.width - x) : 1);
    firsts[parts] = x;
    offsets[parts++] = columns.offset;
    columns.advance(next - x);
  }
  firsts[parts] = work.width;
  GemmPanel panel{};
  panel.k_stride = terms.strides[0];
  panel.x_stride = lines.strides[0];
  panel.pitch = padded;
  panel.lines = in_runs ? nullptr : offsets;
  GemmRuns runs(terms, work.k0);
  for (int64_t at = 0; at < work.k; at += panel.k, runs.advance(panel.k)) {
    panel.k = runs.left(work.k - at);
    const char* from = work.source + runs.offset * kernels->source_bytes;
    char* to = work.to + at / kernels->depth * padded * kernels->packed_bytes;
    for (int64_t part = 0; part < (in_runs ? parts : 1); ++part) {
      const int64_t first = firsts[part], end = in_runs ? firsts[part + 1] : work.width;
      panel.width = end - first;
      panel.padded = (end == work.width ? padded : end) - first;
      panel.source = in_runs ? from + offsets[part] * kernels->source_bytes : from;
      panel.to = to + first * kernels->packed_bytes;
      kernels->pack(panel);
    }
  }
}

// Where a packed step would hold terms that do not follow each other: they are copied first.
void GemmStep::pack_pieces(const GemmPacking& work, int64_t padded) const {
  constexpr int64_t kTerms = 64;
  const int64_t item = kernels->source_bytes;
  alignas(64) char pieces[kMostLines * kTerms * 4];
  int64_t terms[kTerms], lines[kMostLines];
  work.lines->list(work.x0, work.width, lines);
  for (int64_t at = 0; at < work.k; at += kTerms) {
    const int64_t count = std::min(kTerms, work.k - at);
    work.terms->list(work.k0 + at, count, terms);
    for (int64_t x = 0; x < work.width; ++x)
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(pieces + (x * kTerms + i) * item, work.source + (lines[x] + terms[i]) * item, size_t(item));
    kernels->pack({pieces, 1, kTerms, nullptr, count, work.width, padded, padded,
                   work.to + at / kernels->depth * padded * kernels->packed_bytes});
  }
}

// Rows of a as slivers of balanced heights, all of them or one.
void GemmStep::pack_rows(const Product& product, int64_t first, int64_t rows, int64_t k0, int64_t depth,
                         char* to) const {
  for (int64_t sliver = 0; sliver < pieces_of(rows, kernels->height); ++sliver)
    pack_sliver(product, first, rows, sliver, k0, depth, to);
}
void GemmStep::pack_sliver(const Product& product, int64_t first, int64_t rows, int64_t sliver, int64_t k0,
                           int64_t depth, char* to) const {
  const int64_t steps = steps_of(depth), row = row_of_sliver(rows, sliver);
  const int64_t height = row_of_sliver(rows, sliver + 1) - row;
  to += row * steps * kernels->packed_bytes;
  pack_lines({product.a, &a_sum, &a_rows, k0, depth, first + row, height, true, to}, height);
}

// Large products. Tall: b is packed for all, tasks are rows. Wide: a is packed for all, tasks are columns.

void GemmStep::multiply_packed(const Product& product) const {
  const int64_t block_bytes = steps_of(span) * kernels->packed_bytes;
  Range range{this, &product, 0, !wide};
  // as many columns (wide: rows, all of them) and blocks of k as the shared memory holds
  const int64_t most = std::max(figures.shared_bytes / block_bytes, tile_columns());
  const int64_t columns = wide ? n : std::min(packed_columns(n), most / tile_columns() * tile_columns());
  const int64_t width = wide ? packed_rows(m) : columns;
  // a small result is walked for each part of a long sum, whose operands are then near
  const bool small = !plain && m * n * kernels->result_bytes <= figures.held_bytes;
  const int64_t blocks = std::clamp<int64_t>((small ? figures.held_bytes / block_bytes : most) / width, 1, pieces_of(k, span));
  Buffer* buffer = buffer_allocate(width * steps_of(std::min(blocks * span, k)) * kernels->packed_bytes);
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
      const int64_t tasks = pieces_of(wide ? range.columns : m, range.size);
      if (wide) each(product, run_wide, &range, std::min<int64_t>(product.job->threads, tasks));
      else each(product, run_packed, &range, tasks);
    }
  }
  buffer_release(buffer);
  if (product.job->symmetric) mirror(product);
  if (product.job->symmetric || (!by_part && !rows_by_task(columns))) finish_all(product);
}

int64_t GemmStep::task_size(const Product& product, int64_t extent) const {
  const int64_t tasks = 4 * product.job->threads;
  if (wide) return up(std::clamp<int64_t>(pieces_of(extent, tasks), tile_columns(), kColumnsOfTask), tile_columns());
  if (in_runs && a_rows.count > 1 && a_rows.extents[0] <= kRowsOfTask)  // whole runs of rows
    return up(std::clamp<int64_t>(pieces_of(extent, tasks), 1, kRowsOfTask + 1 - a_rows.extents[0]), a_rows.extents[0]);
  return packed_rows(std::clamp<int64_t>(pieces_of(extent, tasks), 1, kRowsOfTask));
}

// Unit of a block of k: a sliver of rows, or kColumnsOfTask columns.
void GemmStep::pack_shared(void* context, int64_t low, int64_t high) {
  const Range& range = *static_cast<const Range*>(context);
  const GemmStep& step = *range.step;
  const int64_t units = step.units_of_block(range);
  const int64_t width = step.wide ? step.packed_rows(step.m) : step.packed_columns(range.columns);
  for (int64_t unit = low; unit < high; ++unit) {
    const int64_t k0 = range.k0 + unit / units * step.span, depth = std::min(step.span, range.k1 - k0);
    char* to = step.shared_block(range, k0, width);
    if (step.wide) {
      step.pack_sliver(*range.product, 0, step.m, unit % units, k0, depth, to);
      continue;
    }
    const int64_t first = unit % units * kColumnsOfTask, count = std::min(kColumnsOfTask, range.columns - first);
    to += first * step.steps_of(depth) * step.kernels->packed_bytes;
    step.pack_columns(*range.product, range.column0 + first, count, k0, depth, to);
  }
}

void GemmStep::run_packed(void* context, int64_t low, int64_t high) {
  const Range& range = *static_cast<const Range*>(context);
  const GemmStep& step = *range.step;
  Job& job = *range.product->job;
  const int64_t packed = (up(range.size, step.kernels->lanes) + 1) * step.steps_of(step.span) * step.kernels->packed_bytes;
  const int64_t own_bytes = step.in_runs ? 64 : packed;
  const int64_t tasks = pieces_of(step.m, range.size);
  for (int64_t index = low; index < high && !stream_cancelled(job.number); ++index) {
    const int64_t task = job.symmetric ? tasks - 1 - index : index;  // the longest ones first
    const int64_t first = task * range.size, last = std::min(step.m, first + range.size);
    char* own = static_cast<char*>(thread_scratch(own_bytes));  // each time: an epilogue may have used it
    if (own == nullptr) return job.failed.store(true, std::memory_order_relaxed);
    if (step.in_runs) step.multiply_in_runs(range, first, last);
    else step.multiply_rows(range, first, last - first, own);
    if (!step.by_part && step.rows_by_task(range.columns) && range.k1 == step.k && !job.symmetric)
      step.finish(*range.product, first, last, 0, step.n);
  }
}

void GemmStep::multiply_rows(const Range& range, int64_t row, int64_t rows, char* own) const {
  Block block = packed_block(range, row, range.column0);
  block.rows = rows;
  block.columns = range.columns;
  for (int64_t k0 = range.k0; k0 < range.k1 && !stream_cancelled(range.product->job->number); k0 += span) {
    block.k = std::min(span, range.k1 - k0);
    pack_rows(*range.product, row, rows, k0, block.k, own);
    block.a = own;
    block.b = shared_block(range, k0, packed_columns(range.columns));
    block.b_sliver = tile_columns() * steps_of(block.k) * kernels->packed_bytes;
    block.add = k0 > 0;
    block.symmetric = range.product->job->symmetric;
    block.last = k0 + block.k == k && !block.symmetric;
    multiply_block(block, *range.product);
  }
}

// Whether the rows of a are read where they lie. Windows overlap: packing would copy most elements several times.
bool GemmStep::reads_runs() const {
  if (kernels->in_runs == nullptr || vector || wide || k == 0) return false;
  const int64_t rows = a_rows.run(0, m), terms = a_sum.run(0, k), item = kernels->source_bytes;
  if (3 * rows < 2 * kernels->height || terms < std::min(k, kLeastRun)) return false;
  const int64_t apart = (a_k == 1 ? a_row : a_k) * item;  // lines of one set of the first cache evict each other
  if (apart % 2048 == 0 && (a_k != 1 || kernels->height > kFewRows)) return false;
  return !plain || (a_k == 1 && m >= kManyRows && (!in_place || n * k * item > kNearBytes));
}

// Rows of a where they lie, by parts that lie one stride apart.
void GemmStep::multiply_in_runs(const Range& range, int64_t first, int64_t last) const {
  GemmRun runs[kGemmBlock];
  for (int64_t k0 = range.k0; k0 < range.k1 && !stream_cancelled(range.product->job->number); k0 += span) {
    const int64_t depth = std::min(span, range.k1 - k0);
    GemmRuns terms(a_sum, k0);
    int64_t count = 0;
    for (int64_t at = 0; at < depth; at += runs[count++].k, terms.advance(runs[count - 1].k))
      runs[count] = {terms.offset * kernels->source_bytes, terms.left(depth - at)};
    for (int64_t row = first, rows; row < last; row += rows) {
      rows = a_rows.run(row, last - row);
      Block block = packed_block(range, row, range.column0);
      block.a_packed = false;
      block.a = range.product->a + a_rows.at(row) * kernels->source_bytes;
      block.a_row = a_row;
      block.a_k = a_k;
      block.runs = runs;
      block.run_count = count;
      block.rows = rows;
      block.columns = range.columns;
      block.k = depth;
      block.b = shared_block(range, k0, packed_columns(range.columns));
      block.b_sliver = tile_columns() * depth * kernels->packed_bytes;
      block.add = k0 > 0;
      block.symmetric = range.product->job->symmetric;
      block.last = k0 + depth == k && !block.symmetric;
      multiply_block(block, *range.product);
    }
  }
}

// Part `index` of `count` of the rows of a column of tiles: whether a tile of so many steps is to take it along.
// If it has more rows than the tile has steps, it is packed at once.
bool GemmStep::carry_part(const Product& product, const Unit& unit, int64_t piece, int64_t index, int64_t count,
                          int64_t steps, GemmCarry* carry) const {
  const int64_t column = piece * tile_columns();
  if (kernels->unit != nullptr) {
    const int64_t all = steps_of(unit.depth), first = all * index / count, last = all * (index + 1) / count;
    if (column >= unit.columns || first == last) return false;
    const int64_t k = first * kernels->depth, rows = std::min(unit.depth, last * kernels->depth) - k;
    const char* from = column_of_b(product, unit.column + column, unit.k0 + k);
    const int width = int(std::min(tile_columns(), unit.columns - column));
    *carry = {from, b_k * kernels->source_bytes, unit.packed + column * all * kernels->packed_bytes, width, rows, first, all};
    return true;
  }
  const int64_t begin = unit.depth * index / count, end = unit.depth * (index + 1) / count;
  if (column >= unit.columns || begin == end) return false;
  const int64_t columns = std::min(tile_columns(), unit.columns - column);
  const int64_t padded = up(columns, kernels->lanes);
  const char* from = column_of_b(product, unit.column + column, unit.k0 + begin);
  char* to = unit.packed + (column * unit.depth + begin * padded) * kernels->packed_bytes;
  *carry = {from, b_k * kernels->source_bytes, to, int(columns), end - begin, 0, 0};
  if (end - begin <= steps) return true;
  kernels->pack({from, b_k, 1, nullptr, end - begin, columns, padded, padded, to});
  return false;
}

// Wide: a thread takes its next columns before it has done the last ones, and packs them meanwhile, until none are
// left.
void GemmStep::run_wide(void* context, int64_t low, int64_t high) {
  const Range& range = *static_cast<const Range*>(context);
  for (int64_t thread = low; thread < high; ++thread) range.step->multiply_columns(range);
}

void GemmStep::multiply_columns(const Range& range) const {
  const Product& product = *range.product;
  const bool plain = b_column == 1 && b_columns.count == 1 && b_sum.count == 1;
  const bool direct = kernels->storing != nullptr && plain;
  const bool carries = kernels->carrying != nullptr && plain && m > kernels->height;
  const int64_t bytes = up(up(range.size, kernels->lanes) * steps_of(span) * kernels->packed_bytes, 64);
  char* own = static_cast<char*>(thread_scratch(carries ? 2 * bytes : bytes));  // no epilogue that runs by part uses it
  if (own == nullptr) return product.job->failed.store(true, std::memory_order_relaxed);
  Unit unit = claim(range, own);
  bool packed = false;
  while (unit.columns > 0 && !stream_cancelled(product.job->number)) {
    char* to = carries && unit.packed == own ? own + bytes : own;
    const int64_t k1 = unit.k0 + unit.depth;
    const Unit deeper{unit.column, unit.columns, k1, std::min(span, range.k1 - k1), to};
    const Unit next = k1 < range.k1 ? deeper : claim(range, to);
    if (!direct && !packed) pack_columns(product, unit.column, unit.columns, unit.k0, unit.depth, unit.packed);
    if (packed && kernels->unit != nullptr) finish_columns(product, unit);
    Block block = packed_block(range, 0, unit.column);
    block.rows = m;
    block.columns = unit.columns;
    block.k = unit.depth;
    block.a = shared_block(range, unit.k0, packed_rows(m));
    block.b = unit.packed;
    block.b_sliver = tile_columns() * steps_of(unit.depth) * kernels->packed_bytes;
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

// What a matrix unit needs beside what was packed in passing.
void GemmStep::finish_columns(const Product& product, const Unit& unit) const {
  for (int64_t column = 0; column < unit.columns; column += tile_columns()) {
    const int64_t width = std::min(tile_columns(), unit.columns - column);
    char* packed = unit.packed + column * steps_of(unit.depth) * kernels->packed_bytes;
    kernels->unit->finish({product.b, &b_sum, &b_columns, unit.k0, unit.depth, unit.column + column, width, false, packed});
  }
}

// The columns that no thread has taken yet, or none.
GemmStep::Unit GemmStep::claim(const Range& range, char* to) const {
  const int64_t first = range.claimed->fetch_add(range.size, std::memory_order_relaxed);
  const int64_t columns = std::clamp<int64_t>(range.columns - first, 0, range.size);
  return {range.column0 + first, columns, range.k0, std::min(span, range.k1 - range.k0), to};
}

GemmStep::Block GemmStep::packed_block(const Range& range, int64_t row, int64_t column) const {
  Block block{};
  block.a_packed = block.b_padded = true;
  if (c_rows.count == 1) block.c = range.product->c + (row * c_row + column) * kernels->result_bytes;
  else block.c = range.product->c + column * kernels->result_bytes, block.c_rows = &c_rows;
  block.c_row = c_row;
  block.row0 = row;
  block.column0 = column;
  return block;
}

}  // namespace weft
