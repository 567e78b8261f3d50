// Products of few terms and at most a vector of columns: tall ones in parts of rows, and those of a batch.
//
// Elements that are narrower than their sums are widened first, into buffers on the stack: some rows at a time, or some
// products whose operands follow each other in memory.
#include "gemm_step.h"
#include "pool.h"
#include "stream.h"

namespace weft {

namespace {

constexpr int64_t kWidenedBytes = 4 << 10;   // bytes of an operand that are widened at a time
constexpr int64_t kPartElements = 16 << 10;  // elements of the result that an epilogue, or a look for interrupts, waits for
constexpr int kChainsInFlight = 8, kFullTerms = 12;

}  // namespace

// An operand as kernels read it: where it is, or a copy in which its elements are as wide as their sums.
struct GemmStep::ThinOperand {
  bool copied;
  bool flat;         // those of products that follow each other are one run of elements
  int64_t elements;  // of one product
  const char* of = nullptr;  // what was copied last
  int64_t first = 0, end = 0;  // the products of a run that was
  alignas(64) char copy[kWidenedBytes + 64];
};

void GemmStep::plan_thin() {
  const bool fits = kernels->thin != nullptr && k > 0 && k <= kernels->thin_terms && n <= kernels->lanes;
  // tiles of as many rows as there are chains in flight, of whole vectors, do as well for more terms
  const bool tiles_do = n == kernels->lanes && kernels->height >= kChainsInFlight && k > kFullTerms;
  thin = fits && plain && !vector && !tiles_do ? kernels->thin[k - 1] : nullptr;
  if (thin == nullptr) return;
  const double bytes = double(kernels->source_bytes * (m * k + k * n) + kernels->result_bytes * m * n);
  const double each = std::max(double(m) * double(std::max<int64_t>(k, 3)) * figures.term_ns, bytes * figures.near_byte_ns);
  cost = double(batch.count) * (10 + each);
}

GemmTile GemmStep::thin_tile() const {
  const bool widens = kernels->source_bytes != kernels->packed_bytes;
  GemmTile tile{};
  tile.a_row = a_row;
  tile.a_k = a_k;
  tile.b_padded = widens || b_column != 1;
  tile.b_k = tile.b_padded ? kernels->lanes : b_k;
  tile.c_row = c_row;
  tile.columns = int(n);
  return tile;
}

void GemmStep::multiply_thin(const Product& product) const {
  const int64_t tasks = product.job->threads == 1 ? 1 : cost < 20000 ? product.job->threads : 4 * product.job->threads;
  Range range{this, &product, pieces_of(m, tasks), true};
  each(product, run_thin, &range, pieces_of(m, range.size));
}

void GemmStep::run_thin(void* context, int64_t low, int64_t high) {
  const Range& range = *static_cast<const Range*>(context);
  const GemmStep& step = *range.step;
  step.thin_rows(*range.product, low * range.size, std::min(step.m, high * range.size));
}

void GemmStep::thin_rows(const Product& product, int64_t row, int64_t end) const {
  const bool widens = kernels->source_bytes != kernels->packed_bytes;
  alignas(64) char columns[kWidenedBytes], widened[kWidenedBytes + 64];
  GemmTile tile = thin_tile();
  tile.b = tile.b_padded ? columns : product.b;
  if (tile.b_padded) pack_thin_columns(product.b, columns);
  const int64_t most = widens ? kWidenedBytes / (k * kernels->packed_bytes) : std::max<int64_t>(1, kPartElements / n);
  for (int64_t some; row < end && !stream_cancelled(product.job->number); row += some) {
    some = std::min(most, end - row);
    tile.a = product.a + row * a_row * kernels->source_bytes;
    if (widens) widen_rows(some, widened, &tile);
    tile.c = product.c + row * c_row * kernels->result_bytes;
    tile.rows = int(some);
    thin(tile);
    if (form != Form::none) finish(product, row, row + some, 0, n);
  }
}

void GemmStep::pack_thin_columns(const char* b, char* to) const {
  kernels->pack({b, b_k, b_column, nullptr, k, n, kernels->lanes, kernels->lanes, to});
}

// A copy of rows of a: terms follow each other where they do in a, otherwise rows do.
void GemmStep::widen_rows(int64_t rows, char* to, GemmTile* tile) const {
  if (a_k == 1 && a_row == k) {
    kernels->pack({tile->a, 0, 1, nullptr, 1, rows * k, rows * k, rows * k, to});
  } else if (a_k == 1) {
    kernels->pack({tile->a, a_row, 1, nullptr, rows, k, k, k, to});
  } else {
    kernels->pack({tile->a, a_k, a_row, nullptr, k, rows, rows, rows, to});
  }
  tile->a = to;
  tile->a_row = a_k == 1 ? k : 1;
  tile->a_k = a_k == 1 ? 1 : rows;
}

// Whether products of a batch are small enough for `thin_products`.
bool GemmStep::thin_in_batch() const {
  return thin != nullptr && m * k * kernels->packed_bytes <= kWidenedBytes && m * n <= kPartElements;
}

// Where product `item` of a run of them has this operand. If need be, it is widened, with the next ones up to `high`.
const char* GemmStep::widened_run(ThinOperand& operand, const char* from, int64_t item, int64_t high) const {
  const int64_t packed = kernels->packed_bytes, elements = operand.elements;
  if (item >= operand.end) {
    operand.first = item;
    operand.end = std::min(high, item + kWidenedBytes / (elements * packed));
    const int64_t count = (operand.end - item) * elements;
    kernels->pack({from, 0, 1, nullptr, 1, count, count, count, operand.copy});
  }
  return operand.copy + (item - operand.first) * elements * packed;
}

void GemmStep::thin_product(const Product& product, ThinOperand& left, ThinOperand& right, int64_t item, int64_t high,
                            GemmTile& tile) const {
  tile.a = left.copied && !left.flat && left.of == product.a ? left.copy : product.a;
  tile.b = right.copied ? right.copy : product.b;
  tile.c = product.c;
  if (left.flat) {
    tile.a = widened_run(left, product.a, item, high);
  } else if (left.copied && left.of != product.a) {
    widen_rows(m, left.copy, &tile);
    left.of = product.a;
  }
  if (right.flat) {
    tile.b = widened_run(right, product.b, item, high);
  } else if (right.copied && right.of != product.b) {
    pack_thin_columns(product.b, right.copy);
    right.of = product.b;
  }
  thin(tile);
}

void GemmStep::run_thin_products(Job* job, int64_t low, int64_t high) const {
  const int64_t item_bytes = kernels->source_bytes;
  const bool widens = item_bytes != kernels->packed_bytes, single = batch.dims.size() == 1;
  ThinOperand left, right;
  left.elements = m * k;
  left.copied = widens;
  const bool dense = (a_k == 1 && a_row == k) || (a_row == 1 && a_k == m);
  left.flat = widens && single && dense && batch.dims[0].a == left.elements * item_bytes;
  right.elements = k * n;
  right.copied = widens || b_column != 1;
  right.flat = widens && single && b_column == 1 && b_k == n && batch.dims[0].b == right.elements * item_bytes;
  GemmTile tile = thin_tile();
  tile.rows = int(m);
  if (right.flat) tile.b_k = n, tile.b_padded = false;
  GemmBatch::Walk walk(batch, low, job->a, job->b, job->c);
  Unfinished unfinished{low};
  for (int64_t item = low; item < high && !stream_cancelled(job->number); ++item) {
    const Product product{job, walk.a, walk.b, walk.c};
    if (item + 1 < high) walk.advance();
    thin_product(product, left, right, item, high, tile);
    finish_products(product, item, high, &unfinished);
  }
}

}  // namespace weft
