// Matrix products of few elements, each a long sum, and the other half of symmetric ones.
//
// Gradients of dense layers over large batches, covariances: tasks are blocks of k, whose sums are added in order
// afterwards. An operand is read as it lies wherever a block of it is near, so that it comes from memory once.
#include <cstring>

#include "buffer.h"
#include "gemm_step.h"
#include "pool.h"
#include "stream.h"

namespace weft {

namespace {

constexpr int64_t kDeepBlocks = 4;             // blocks of k
constexpr int64_t kPitchBytes = 2048;          // bytes between rows that the processor fetches ahead by itself
constexpr int64_t kElementsOfTask = 16 << 10;  // elements that a task adds
constexpr int64_t kAddedTogether = 64;
constexpr int64_t kMirrored = 32;  // rows and columns that are copied at a time

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

void GemmStep::plan_deep() {
  const int64_t item = kernels->source_bytes, blocks = pieces_of(k, depth_of_block());
  few_sums = !vector && blocks >= kDeepBlocks && m * n * kernels->result_bytes <= figures.few_sums_bytes &&
             (m + n) * std::min(k, span) * item <= figures.block_bytes;
  const auto lies_well = [&](const GemmDigits& lines, const GemmDigits& terms) {
    return kernels->strided != nullptr && lines.count == 1 && terms.count == 1;
  };
  const auto near = [&](int64_t pitch) { return pitch * item <= kPitchBytes; };
  const bool rows_evict = a_row * item % 2048 == 0;
  a_as_it_lies = lies_well(a_rows, a_sum) && (a_row == 1 ? near(a_k) : a_k == 1 && !rows_evict);
  b_as_it_lies = lies_well(b_columns, b_sum) && b_column == 1 && near(b_k);
  // products of bfloat16 parts in a matrix unit are added in an order that is not symmetric
  const auto same = [](const GemmDigits& some, const GemmDigits& others) {
    bool equal = some.count == others.count;
    for (int digit = 0; equal && digit < some.count; ++digit)
      equal = some.extents[digit] == others.extents[digit] && some.strides[digit] == others.strides[digit];
    return equal;
  };
  alike = kernels->unit == nullptr && !vector && c_rows.count == 1 && same(a_rows, b_columns) && same(a_sum, b_sum);
  for (const GemmBatch::Dim& dim : batch.dims) alike = alike && dim.a == dim.b;
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
  const int64_t block_depth = depth_of_block(), blocks = pieces_of(k, block_depth);
  if (threads == 1 && !vector) {
    for (int64_t k0 = 0; k0 < k && !stream_cancelled(product.job->number); k0 += block_depth)
      deep_block(product, k0, std::min(block_depth, k - k0), product.c, c_row, k0 > 0);
    if (product.job->symmetric) mirror(product);
    return;
  }
  Deep deep{this, &product, 0, 0, up(m * n * kernels->result_bytes, 64), nullptr};
  const int64_t wave = std::min(blocks, std::max<int64_t>(figures.partial_bytes / deep.bytes, 2 * threads));
  Buffer* buffer = buffer_allocate(wave * deep.bytes);
  if (buffer == nullptr) {
    product.job->failed.store(true, std::memory_order_relaxed);
    return;
  }
  deep.sums = buffer->data;
  for (; deep.first < blocks; deep.first += wave) {
    deep.count = std::min(wave, blocks - deep.first);
    each(product, run_deep, &deep, deep.count);
    const bool many = m * n * deep.count >= 2 * kElementsOfTask;
    if (many) each(product, run_add, &deep, m);
    else run_add(&deep, 0, m);
  }
  buffer_release(buffer);
  if (product.job->symmetric) mirror(product);
}

void GemmStep::run_deep(void* context, int64_t low, int64_t high) {
  const Deep& deep = *static_cast<const Deep*>(context);
  const GemmStep& step = *deep.step;
  for (int64_t index = low; index < high && !stream_cancelled(deep.product->job->number); ++index) {
    const int64_t block_depth = step.depth_of_block();
    const int64_t k0 = (deep.first + index) * block_depth, depth = std::min(block_depth, step.k - k0);
    char* sums = deep.sums + index * deep.bytes;
    if (step.vector) step.vector_block(*deep.product, 0, std::max(step.m, step.n), k0, depth, sums, 1, false);
    else step.deep_block(*deep.product, k0, depth, sums, step.n, false);
  }
}

// All elements of one block of k.
void GemmStep::deep_block(const Product& product, int64_t k0, int64_t depth, char* c, int64_t row, bool add) const {
  const int64_t item = kernels->source_bytes, step_bytes = steps_of(depth) * kernels->packed_bytes;
  const int64_t a_bytes = a_as_it_lies ? 0 : up(packed_rows(m) * step_bytes, 64);
  const int64_t b_bytes = b_as_it_lies ? 0 : packed_columns(n) * step_bytes;
  char* own = nullptr;
  if (a_bytes + b_bytes > 0) own = static_cast<char*>(thread_scratch(a_bytes + b_bytes));
  if (a_bytes + b_bytes > 0 && own == nullptr) return product.job->failed.store(true, std::memory_order_relaxed);
  Block block{};
  block.a = a_as_it_lies ? product.a + k0 * a_k * item : own;
  block.b = b_as_it_lies ? product.b + k0 * b_k * item : own + a_bytes;
  block.a_row = a_row;
  block.a_k = a_k;
  block.b_k = b_k;
  block.b_sliver = tile_columns() * (b_as_it_lies ? item : step_bytes);
  block.a_packed = !a_as_it_lies;
  block.b_padded = !b_as_it_lies;
  if (!a_as_it_lies) pack_rows(product, 0, m, k0, depth, own);
  if (!b_as_it_lies) pack_columns(product, 0, n, k0, depth, own + a_bytes);
  block.c = c;
  block.c_row = row;
  block.rows = m;
  block.columns = n;
  block.k = depth;
  block.add = add;
  block.symmetric = product.job->symmetric;
  multiply_block(block, product);
}

void GemmStep::run_add(void* context, int64_t low, int64_t high) {
  const Deep& deep = *static_cast<const Deep*>(context);
  const GemmStep& step = *deep.step;
  const int64_t item = step.kernels->result_bytes;
  for (int64_t row = low; row < high; ++row) {
    // above the diagonal of a symmetric product there is nothing yet
    const int64_t count = deep.product->job->symmetric ? row + 1 : step.n;
    step.add_blocks(deep.product->c + step.c_rows.at(row) * item, deep.sums + row * step.n * item, deep.bytes, deep.count,
                    count, deep.first == 0);
  }
}

void GemmStep::add_blocks(char* to, const char* from, int64_t pitch, int64_t blocks, int64_t count, bool first) const {
  if (result == 'f') add_in_order<float>(to, from, pitch / 4, blocks, count, first);
  else if (result == 'd') add_in_order<double>(to, from, pitch / 8, blocks, count, first);
  else if (result == 'F') add_in_order<float>(to, from, pitch / 4, blocks, 2 * count, first);
  else if (result == 'D') add_in_order<double>(to, from, pitch / 8, blocks, 2 * count, first);
  else if (kernels->result_bytes == 4) add_in_order<uint32_t>(to, from, pitch / 4, blocks, count, first);
  else add_in_order<uint64_t>(to, from, pitch / 8, blocks, count, first);
}

// Symmetric products: both orders of the operands of a term give the same bits, so the other half is a copy.

void GemmStep::mirror(const Product& product) const {
  Range range{this, &product, kMirrored, true};
  const int64_t tasks = pieces_of(m, kMirrored);
  if (m * n >= 2 * kElementsOfTask) each(product, run_mirror, &range, tasks);
  else run_mirror(&range, 0, tasks);
}

void GemmStep::run_mirror(void* context, int64_t low, int64_t high) {
  const Range& range = *static_cast<const Range*>(context);
  const GemmStep& step = *range.step;
  const int64_t bytes = step.kernels->result_bytes;
  char* c = range.product->c;
  for (int64_t task = low; task < high; ++task) {
    const int64_t first = task * kMirrored, last = std::min(step.m, first + kMirrored);
    for (int64_t left = first; left < step.n; left += kMirrored) {
      const int64_t right = std::min(step.n, left + kMirrored);
      if (bytes == 4) mirror_square(reinterpret_cast<uint32_t*>(c), step.c_row, first, last, left, right);
      else if (bytes == 8) mirror_square(reinterpret_cast<uint64_t*>(c), step.c_row, first, last, left, right);
      else mirror_square(reinterpret_cast<Element*>(c), step.c_row, first, last, left, right);
    }
  }
}

}  // namespace weft
