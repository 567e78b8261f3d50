// Transforms of whole sequences by a plan.
#include "fft_sequences.h"
#include "figures.h"

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

// Calls function(i, vectors) for all i of 0..total; `vectors` is this thread's room for a kernel. False: no memory.
template <class Function>
bool for_groups(int64_t total, double cost_ns, bool on_pool, int64_t bytes, char* scratch, Function function) {
  if (on_pool) return fft_on_pool(total, cost_ns, bytes, function);
  for (int64_t i = 0; i < total; ++i) function(i, scratch);
  return true;
}

template <class R>
int64_t vectors_bytes(const FftPlan<R>& plan) {
  const FftKernels<R>& kernels = fft_kernels<R>();
  if (plan.way == FftWay::split) return kernels.work_bytes(std::max(plan.split.columns.n, plan.split.rows.n));
  return kernels.work_bytes(plan.n);
}

template <class R>
bool split(const FftPlan<R>& plan, const R* in, R* out, FftOrder<R> order, char* scratch, bool on_pool) {
  const FftKernels<R>& kernels = fft_kernels<R>();
  const FftSplit<R>& of = plan.split;
  R* middle = reinterpret_cast<R*>(scratch);
  char* own = scratch + rounded_to_lines(kernels.middle_bytes(of));
  const int64_t bytes = vectors_bytes(plan);
  const double cost = plan.flops * figures.fft_flop_ns / 2;
  auto columns = [&](int64_t group, char* work) {
    kernels.columns(of, in, order.inverse, group, middle, reinterpret_cast<R*>(work));
  };
  auto rows = [&](int64_t group, char* work) {
    kernels.rows(of, middle, group, out, order.inverse, order.scale, reinterpret_cast<R*>(work));
  };
  return for_groups(kernels.groups(of.rows.n, kernels.lanes), cost, on_pool, bytes, own, columns) &&
         for_groups(kernels.groups(of.columns.n, kernels.lanes), cost, on_pool, bytes, own, rows);
}

// The sum over j of x[j] w[j] conj(w[k - j]), times w[k]: jk = (j^2 + k^2 - (k - j)^2) / 2.
template <class R>
bool chirp(const FftPlan<R>& plan, const R* in, R* out, FftOrder<R> order, char* scratch, bool on_pool) {
  const FftKernels<R>& kernels = fft_kernels<R>();
  const int64_t n = plan.n, m = plan.longer->n;
  R* staged = reinterpret_cast<R*>(scratch);
  char* rest = scratch + rounded_to_lines(2 * m * int64_t(sizeof(R)));
  kernels.product(in, order.inverse, plan.chirp.data(), staged, false, R(1), n);
  std::memset(static_cast<void*>(staged + 2 * n), 0, size_t(2 * (m - n)) * sizeof(R));
  if (!fft_sequence(*plan.longer, staged, staged, FftOrder<R>{}, rest, on_pool)) return false;
  kernels.product(staged, false, plan.filter.data(), staged, false, R(1), m);
  if (!fft_sequence(*plan.longer, staged, staged, FftOrder<R>{true, 1}, rest, on_pool)) return false;
  kernels.product(staged, false, plan.chirp.data(), out, order.inverse, order.scale, n);
  return true;
}

template <class R>
void chirp_group(const FftPlan<R>& plan, const R* in, FftStrides from, R* out, FftStrides to, FftOrder<R> order, int count,
                 char* scratch) {
  const FftKernels<R>& kernels = fft_kernels<R>();
  const int64_t n = plan.n, m = plan.longer->n;
  R* staged = reinterpret_cast<R*>(scratch);
  R* work = reinterpret_cast<R*>(scratch + rounded_to_lines(kernels.lanes * 2 * m * int64_t(sizeof(R))));
  const FftStrides dense{m, 1};
  const FftPasses<R> only_copied{.n = n};
  kernels.transform(only_copied, in, from, order.inverse, staged, dense, false, R(1), count, work);
  for (int s = 0; s < count; ++s) {
    R* row = staged + 2 * m * s;
    kernels.product(row, false, plan.chirp.data(), row, false, R(1), n);
    std::memset(static_cast<void*>(row + 2 * n), 0, size_t(2 * (m - n)) * sizeof(R));
  }
  kernels.transform(plan.longer->passes, staged, dense, false, staged, dense, false, R(1), count, work);
  for (int s = 0; s < count; ++s)
    kernels.product(staged + 2 * m * s, false, plan.filter.data(), staged + 2 * m * s, false, R(1), m);
  kernels.transform(plan.longer->passes, staged, dense, true, staged, dense, true, R(1), count, work);
  for (int s = 0; s < count; ++s)
    kernels.product(staged + 2 * m * s, false, plan.chirp.data(), staged + 2 * m * s, false, R(1), n);
  kernels.transform(only_copied, staged, dense, false, out, to, order.inverse, order.scale, count, work);
}

}  // namespace

template <class R>
int64_t fft_scratch_bytes(const FftPlan<R>& plan, bool on_pool) {
  const FftKernels<R>& kernels = fft_kernels<R>();
  const int64_t own = on_pool ? 0 : rounded_to_lines(vectors_bytes(plan));
  if (plan.way == FftWay::lanes) return rounded_to_lines(vectors_bytes(plan));
  if (plan.way == FftWay::split) return rounded_to_lines(kernels.middle_bytes(plan.split)) + own;
  const int64_t m = plan.longer->n, row = rounded_to_lines(2 * m * int64_t(sizeof(R)));
  if (!fft_by_groups(plan)) return row + fft_scratch_bytes(*plan.longer, on_pool);
  return kernels.lanes * row + kernels.work_bytes(m);
}

template <class R>
void fft_group(const FftPlan<R>& plan, const R* in, FftStrides from, R* out, FftStrides to, FftOrder<R> order, int count,
               char* scratch) {
  if (plan.way == FftWay::chirp) return chirp_group(plan, in, from, out, to, order, count, scratch);
  fft_kernels<R>().transform(plan.passes, in, from, order.inverse, out, to, order.inverse, order.scale, count,
                             reinterpret_cast<R*>(scratch));
}

template <class R>
bool fft_sequence(const FftPlan<R>& plan, const R* in, R* out, FftOrder<R> order, char* scratch, bool on_pool) {
  if (plan.way == FftWay::split) return split(plan, in, out, order, scratch, on_pool);
  if (!fft_by_groups(plan)) return chirp(plan, in, out, order, scratch, on_pool);
  fft_group(plan, in, {1, 1}, out, {1, 1}, order, 1, scratch);
  return true;
}

#define WEFT_FFT_OF(R)                                                                                             \
  template int64_t fft_scratch_bytes(const FftPlan<R>&, bool);                                                     \
  template void fft_group(const FftPlan<R>&, const R*, FftStrides, R*, FftStrides, FftOrder<R>, int, char*);       \
  template bool fft_sequence(const FftPlan<R>&, const R*, R*, FftOrder<R>, char*, bool);
WEFT_FFT_OF(float)
WEFT_FFT_OF(double)
#undef WEFT_FFT_OF

}  // namespace weft
