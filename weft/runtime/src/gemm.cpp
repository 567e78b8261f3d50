// Matrix products: c[m,n] = sum over k of a[m,k] b[k,n], over batches, with the kernels of gemm_kernels.h.
//
// Here: how a product is planned and run, and its epilogue. Others: gemm_blocks.cpp and gemm_packed.cpp, gemm_small.cpp,
// gemm_vector.cpp.
#include <cstring>

#include "gemm_step.h"

namespace weft {

namespace {

constexpr int64_t kStripWidth = 512;  // bytes of a column that is read in narrow strips
constexpr int64_t kStripDepth = 128;  // terms: a deeper matrix is read in tiles, if it is large
constexpr int64_t kTileBytes = 16384;  // bytes of a column's results at a time, where it is read in tiles
constexpr int64_t kFinishedTogether = 2048;  // elements of small products whose epilogue is one call

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
  const int64_t tiles = pieces_of(m, kernels->height) * pieces_of(n, tile_columns());
  const double columns = double(up(n, kernels->lanes));  // a part of a vector takes as long as a whole one
  const double flops = vector ? 0 : 2 * double(m) * double(k) * columns / kernels->flops_per_ns;
  cost = double(batch.count) * (figures.product_ns + (vector ? 0 : figures.tile_ns * double(tiles)) +
                                std::max(flops, bytes * (bytes < figures.large_bytes ? figures.near_byte_ns : figures.far_byte_ns)));
  plan_blocks();
  plan_thin();
  plan_small();
  if (epilogue != nullptr) cost += epilogue->cost_ns();
  // tasks use the thread's scratch between their parts; one call of a flat epilogue wants whole rows
  by_part = form == Form::grid && !epilogue->needs_scratch();
  if (form == Form::grid && !by_part) form = Form::rows;
  by_product = form == Form::products;
  if (by_product) form = Form::none;  // nothing is done inside a product
}

void GemmStep::run_products(void* context, int64_t low, int64_t high) {
  Job* job = static_cast<Job*>(context);
  const GemmStep& step = *job->step;
  if (job->threads == 1 && step.in_run) return step.run_small(job, low, high);
  const bool short_vector =
      job->threads == 1 && !job->turned && step.vector && step.k > 0 && step.k <= step.depth_of_block();
  GemmBatch::Walk walk(step.batch, low, job->a, job->b, job->c);
  Unfinished unfinished{low};
  for (int64_t item = low; item < high && !stream_cancelled(job->number); ++item) {
    const Product product{job, walk.a, walk.b, walk.c};
    if (item + 1 < high) walk.advance();
    if (short_vector) step.multiply_short_vector(product);
    else step.multiply(product);
    if (short_vector || job->finish_each) step.finish_products(product, item, high, &unfinished);
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
  work.waiting = matrix_bytes() > figures.large_bytes ? kGemmLongWaitingBytes : kGemmWaitingBytes;
  int64_t scratch = 0;
  if (work.a_k != 1) scratch = kGemmWaiting * (std::max(work.waiting, work.tile > 0 ? kTileBytes : 0) + 2 * kLine);
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

void GemmStep::multiply(const Product& product) const {
  if (vector && k > 0) return multiply_vector(product);
  if (thin != nullptr) return multiply_thin(product);
  if (k > 0 && is_deep(product)) return multiply_deep(product);
  if (k > 0) return in_place ? multiply_in_place(product) : multiply_packed(product);
  const size_t bytes = size_t(n * kernels->result_bytes);
  for (int64_t row = 0; row < m; ++row) std::memset(product.c + c_rows.at(row) * kernels->result_bytes, 0, bytes);
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
  each(product, pieces_of(m, size),
       [&](int64_t task) { finish(product, task * size, std::min(m, (task + 1) * size), 0, n); });
}

}  // namespace weft
