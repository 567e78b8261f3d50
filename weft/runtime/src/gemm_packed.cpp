// Packing operands of matrix products, and products of few rows whose columns are packed in passing.
#include <cstring>

#include "gemm_step.h"

namespace weft {

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

// Packs an operand in the order of its digits. Columns that lie side by side are copied in runs, others one by one; so
// are the terms of each.
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

// The operand that all tasks share: a unit of a block of k is a sliver of rows, or kColumnsOfTask columns.
void GemmStep::pack_shared(const Product& product, const Part& part) const {
  const int64_t columns = part.column1 - part.column0;
  const int64_t units = wide ? pieces_of(m, kernels->height) : pieces_of(columns, kColumnsOfTask);
  each(product, units * pieces_of(part.k1 - part.k0, span), [&](int64_t unit) {
    const int64_t k0 = part.k0 + unit / units * span, depth = std::min(span, part.k1 - k0);
    char* to = shared_block(part, k0);
    if (wide) return pack_sliver(product, 0, m, unit % units, k0, depth, to);
    const int64_t first = unit % units * kColumnsOfTask, count = std::min(kColumnsOfTask, columns - first);
    to += first * steps_of(depth) * kernels->packed_bytes;
    pack_columns(product, part.column0 + first, count, k0, depth, to);
  });
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

// Wide: a thread takes its next columns before it has done the last ones, and packs them meanwhile, until none are left.
void GemmStep::multiply_wide(const Product& product, const Part& part, int64_t size) const {
  std::atomic<int64_t> claimed{0};
  each(product, std::min<int64_t>(product.job->threads, pieces_of(n, size)), [&](int64_t) {
    const bool plain_b = b_column == 1 && b_columns.count == 1 && b_sum.count == 1;
    const bool direct = kernels->storing != nullptr && plain_b;
    const bool carries = kernels->carrying != nullptr && plain_b && m > kernels->height;
    const int64_t bytes = up(up(size, kernels->lanes) * steps_of(span) * kernels->packed_bytes, kLine);
    char* own = scratch(product, carries ? 2 * bytes : bytes);  // no epilogue that runs by part uses it
    if (own == nullptr) return;
    // the columns that no thread has taken yet, or none
    const auto claim = [&](char* to) {
      const int64_t first = claimed.fetch_add(size, std::memory_order_relaxed);
      return Unit{first, std::clamp<int64_t>(n - first, 0, size), part.k0, std::min(span, part.k1 - part.k0), to};
    };
    Unit unit = claim(own);
    bool packed = false;
    while (unit.columns > 0 && !stream_cancelled(product.job->number)) {
      char* to = carries && unit.packed == own ? own + bytes : own;
      const int64_t k1 = unit.k0 + unit.depth;
      const Unit next = k1 < part.k1 ? Unit{unit.column, unit.columns, k1, std::min(span, part.k1 - k1), to} : claim(to);
      if (!direct && !packed) pack_columns(product, unit.column, unit.columns, unit.k0, unit.depth, unit.packed);
      if (packed && kernels->unit != nullptr) finish_columns(product, unit);
      const bool stores = direct && !packed;
      Block block{};
      block.rows = m;
      block.column0 = unit.column;
      block.columns = unit.columns;
      block.k0 = unit.k0;
      block.k = unit.depth;
      block.a_packed = true;
      block.b_packed = !stores;
      block.a = shared_block(part, unit.k0);
      block.b = stores ? column_of_b(product, unit.column, unit.k0) : unit.packed;
      block.b_sliver = tile_columns() * (stores ? kernels->source_bytes : steps_of(unit.depth) * kernels->packed_bytes);
      block.store = stores ? unit.packed : nullptr;
      block.next = carries && next.columns > 0 ? &next : nullptr;
      multiply_block(product, block);
      packed = carries;
      unit = next;
    }
  });
}

// What a matrix unit needs beside what was packed in passing.
void GemmStep::finish_columns(const Product& product, const Unit& unit) const {
  for (int64_t column = 0; column < unit.columns; column += tile_columns()) {
    const int64_t width = std::min(tile_columns(), unit.columns - column);
    char* packed = unit.packed + column * steps_of(unit.depth) * kernels->packed_bytes;
    kernels->unit->finish({product.b, &b_sum, &b_columns, unit.k0, unit.depth, unit.column + column, width, false, packed});
  }
}

}  // namespace weft
