// The thread pool: runs one job at a time, cut into chunks that the caller and the workers claim.
//
// The caller takes chunks itself and waits only for chunks that a worker has already begun, so it never waits for a
// worker that is not scheduled. Workers start at the first parallel job, spin briefly after a job, then sleep. What a
// chunk computes must not depend on the number of chunks: results are the same for any number of threads.
#pragma once

#include <cstdint>

#include "python.h"

namespace weft {

using ChunkFunction = void (*)(void* context, int64_t low, int64_t high);

// The number of threads that a job may use, with the caller.
int pool_threads();

// True if a job of this estimated time is faster on several threads (over 4 us if the workers are awake, 40 us if not).
bool pool_worth(double cost_ns);

// While it lives, this thread is about to repeat its work `count` times: sleeping workers are woken as soon as one job
// follows another, not only after many of them.
class ExpectedJobs {
 public:
  explicit ExpectedJobs(int64_t count);
  ~ExpectedJobs();
  ExpectedJobs(const ExpectedJobs&) = delete;
  ExpectedJobs& operator=(const ExpectedJobs&) = delete;

 private:
  int64_t before_;
};

// Calls function(context, low, high) for ranges that cover 0..total, with bounds that are multiples of grain; returns
// when all are done. Inside a job, or while another thread's job runs, the caller does all of it alone. No GIL needed.
void pool_run(ChunkFunction function, void* context, int64_t total, int64_t grain, double cost_ns);

// `bytes` of scratch memory of the current thread, 64-byte aligned, valid until this thread's next call; nullptr if
// there is no memory.
void* thread_scratch(int64_t bytes);
void trim_thread_scratch();  // frees what exceeds a few megabytes

int register_pool(PyObject* module);  // Pool

}  // namespace weft
