// Transforms of whole sequences by a plan: one that lies dense in memory, or a group that fills the lanes.
#pragma once

#include <atomic>

#include "fft.h"
#include "pool.h"

namespace weft {


inline int64_t rounded_to_lines(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

// Calls function(i, scratch) for all i of 0..total on the pool, with scratch of each thread's own. False: no memory.
template <class Function>
bool fft_on_pool(int64_t total, double cost_ns, int64_t bytes, Function& function) {
  struct Job {
    Function* function;
    int64_t bytes;
    std::atomic<bool> ok{true};
  } job{&function, bytes};
  auto some = [](void* context, int64_t low, int64_t high) {
    Job& of = *static_cast<Job*>(context);
    auto* scratch = static_cast<char*>(thread_scratch(of.bytes));
    if (scratch == nullptr) of.ok.store(false);
    for (int64_t i = low; i < high && scratch != nullptr; ++i) (*of.function)(i, scratch);
  };
  if (pool_worth(cost_ns)) pool_run(some, &job, total, 1, cost_ns);
  else some(&job, 0, total);
  return job.ok.load();
}

// How results are written: the inverse exchanges the parts of numbers before and after the forward transform.
template <class R>
struct FftOrder {
  bool inverse = false;
  R scale = 1;
};

// Can a group of sequences be computed at once, in lanes? Otherwise each one fills them by itself.
template <class R>
bool fft_by_groups(const FftPlan<R>& plan) {
  return plan.way == FftWay::lanes || (plan.way == FftWay::chirp && plan.longer->way == FftWay::lanes);
}

// Scratch of one call, in bytes. With `on_pool` each thread has its own vectors beside it.
template <class R>
int64_t fft_scratch_bytes(const FftPlan<R>& plan, bool on_pool = false);

// Up to `lanes` sequences; only for plans with fft_by_groups. `in` may be `out` where the strides are the same.
template <class R>
void fft_group(const FftPlan<R>& plan, const R* in, FftStrides from, R* out, FftStrides to, FftOrder<R> order, int count,
               char* scratch);

// One dense sequence, on this thread or on all of the pool. `in` may be `out`. False: no memory.
template <class R>
bool fft_sequence(const FftPlan<R>& plan, const R* in, R* out, FftOrder<R> order, char* scratch, bool on_pool = false);

}  // namespace weft
