// The thread pool: one job at a time, cut into chunks that the caller and the workers claim.
//
// The caller drains chunks itself and waits only for chunks that a worker has already begun, so it never waits for
// a worker that is not scheduled. Workers start at the first parallel job, spin briefly after a job, then sleep.
// What a chunk computes must not depend on how many there are: results are the same for any number of threads.
#pragma once

#include <cstdint>

#include "python.h"

namespace weft {

using ChunkFunction = void (*)(void* context, int64_t low, int64_t high);

// Threads a job may use, the caller included.
int pool_threads();

// True if work of this estimated length gains from more than one thread right now (workers awake: 4 us, else 40 us).
bool pool_worth(double cost_ns);

// Calls function(context, low, high) over pieces of 0..total whose borders are multiples of grain; returns when all
// are done. A job inside a job, or while another thread's job runs, is run by the caller alone. No GIL needed.
void pool_run(ChunkFunction function, void* context, int64_t total, int64_t grain, double cost_ns);

// `bytes` of scratch owned by the current thread, 64-byte aligned, valid until the thread asks again; nullptr if
// there is no memory.
void* thread_scratch(int64_t bytes);
void trim_thread_scratch();  // gives back what is more than a few megabytes

int register_pool(PyObject* module);  // Pool

}  // namespace weft
