// A thread pool whose threads claim chunks of a job. See pool.h.
//
// `claim` holds epoch << 32 | chunks taken from the end << 16 | chunks taken from the beginning. A new job first closes
// the word (kClosed taken), then writes the job, then opens the word: a late worker sees either the closed word or
// another epoch, and claims nothing. The caller takes chunks from the beginning and workers from the end, so that of jobs
// that follow each other over the same arrays each finds in its own cache what it had before.
//
// The clock is read to choose who works and who waits, never what is computed: late workers are left out of short jobs,
// sleeping ones are woken for calls that follow each other, pinned ones are let go. A job gives the same bits in one
// piece by the caller and in chunks by all, since no result depends on where chunks end (docs/NUMERICS.md).
#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cgroup.h"
#include "figures.h"
#include "profile.h"

namespace weft {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kSpin = 800;  // pauses before sleeping, about 20 us: consecutive calls are 10 us apart
// consecutive jobs after which sleeping workers are woken: that costs the waking call 5 to 9 us
constexpr int kStreak = 32;
constexpr uint32_t kClosed = 0xffff, kFromEnd = 1 << 16;  // a claim counts chunks from each end, in 16 bits each
constexpr int kStarvedRuns = 4;  // consecutive long jobs where no worker took a chunk
constexpr int64_t kLongRunNs = 300'000;
constexpr int64_t kKeptScratch = 8 << 20;
constexpr double kLongChunkNs = 20e6;
constexpr int64_t kMaxChunks = kClosed - 1;
constexpr int64_t kUnpinnedNs = 30'000'000;  // the first time; twice as long after each time without success
constexpr int64_t kMostUnpinnedNs = 1'000'000'000;
// a late worker is left out for 20 times its delay, so that delays cost at most a twentieth of the time
constexpr int64_t kAloneFactor = 20;
constexpr int64_t kMostAloneNs = 1'000'000'000;
constexpr int64_t kMaskNs = 10'000'000;  // how long a reading of the process's affinity mask is trusted

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void futex_wait(std::atomic<uint32_t>* word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(getpid(), sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

// CPUs that the control groups' quotas allow, or a large number.
int cgroup_limit() {
  double cpus = cgroup_limits().cpus;
  return cpus > 0 ? std::max(1, int(std::min(std::ceil(cpus), double(kMaxThreads)))) : kMaxThreads;
}

int default_threads() {
  if (const char* text = std::getenv("WEFT_NUM_THREADS")) {
    char* end = nullptr;
    long count = std::strtol(text, &end, 10);
    if (end != text && *end == 0 && count >= 1) return int(std::min<long>(count, kMaxThreads));
  }
  int cpus = std::max(1, int(allowed_cpus().size()));
  return std::min({cpus, cgroup_limit(), kMaxThreads});
}

struct Job {
  std::atomic<ChunkFunction> function{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<int64_t> total{0}, grain{1};
  std::atomic<uint32_t> chunks{0};
  std::atomic<uint64_t> label{0};  // of the step, where its time is taken (profile.h)
};

struct JobView {
  ChunkFunction function;
  void* context;
  int64_t total, grain;
  uint32_t chunks;
};

thread_local bool t_inside_job = false;

// One set of workers. Replaced by set_threads, abandoned (never freed) in a forked child.
class Pool {
 public:
  explicit Pool(int threads) : threads_(threads) {}

  int threads() const { return threads_; }
  bool awake() const {
    return started_.load(std::memory_order_acquire) && sleepers_.load(std::memory_order_relaxed) == 0;
  }

  void run(const JobView& job, double cost_ns) {
    if (t_inside_job || !run_mutex_.try_lock()) {
      job.function(job.context, 0, job.total);
      return;
    }
    std::lock_guard<std::mutex> lock(run_mutex_, std::adopt_lock);
    if (!started_.load(std::memory_order_relaxed)) start();
    int64_t begin = now_ns();
    pin_workers(begin);
    if (cpus_.size() == 1 || workers_are_late(cost_ns, begin)) {
      t_inside_job = true;
      job.function(job.context, 0, job.total);
      t_inside_job = false;
      return;
    }
    uint32_t epoch = publish(job);
    if (sleepers_.load(std::memory_order_seq_cst) != 0)
      futex_wake(&epoch_, int(std::min<uint32_t>(job.chunks, INT_MAX)));
    t_inside_job = true;
    uint32_t own = drain(epoch, job, 1);
    t_inside_job = false;
    await_workers(job.chunks, own, begin);
    note_share(own == job.chunks, begin);
  }

  // The caller ensures that no job is running and none can start.
  void stop() {
    std::lock_guard<std::mutex> lock(run_mutex_);
    stopping_.store(true, std::memory_order_release);
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(&epoch_, INT_MAX);
    for (Worker& worker : workers_) worker.thread.join();
    workers_.clear();
  }

 private:
  struct Worker {
    std::thread thread;
    int cpu = -1;  // pinned to, or -1
  };

  void start() {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);  // only Python's threads handle signals
    for (int i = 1; i < threads_; ++i) {
      try {
        Worker worker;
        worker.thread = std::thread([this] { work(); });
        workers_.push_back(std::move(worker));
      } catch (const std::system_error&) {
        break;  // run with fewer workers: the caller takes the remaining chunks
      }
    }
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    started_.store(true, std::memory_order_release);
  }

  uint32_t publish(const JobView& job) {
    uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
    claim_.store(uint64_t(epoch) << 32 | kClosed, std::memory_order_seq_cst);
    job_.function.store(job.function, std::memory_order_release);
    job_.context.store(job.context, std::memory_order_release);
    job_.total.store(job.total, std::memory_order_release);
    job_.grain.store(job.grain, std::memory_order_release);
    job_.chunks.store(job.chunks, std::memory_order_release);
    job_.label.store(profile_label(), std::memory_order_release);
    done_.store(0, std::memory_order_relaxed);
    claim_.store(uint64_t(epoch) << 32, std::memory_order_release);
    epoch_.store(epoch, std::memory_order_seq_cst);
    return epoch;
  }

  // Claims and runs chunks of the given epoch, from the beginning (side 1) or the end (kFromEnd), until none is left;
  // returns how many.
  uint32_t drain(uint32_t epoch, const JobView& job, uint32_t side) {
    uint32_t taken = 0;
    uint64_t claim = claim_.load(std::memory_order_acquire);
    for (;;) {
      uint32_t first = uint32_t(claim) % kFromEnd, last = uint32_t(claim) / kFromEnd;
      if (uint32_t(claim >> 32) != epoch || first + last >= job.chunks) return taken;
      uint32_t chunk = side == kFromEnd ? job.chunks - 1 - last : first;
      if (!claim_.compare_exchange_weak(claim, claim + side, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      int64_t units = (job.total + job.grain - 1) / job.grain;
      int64_t low = job.grain * int64_t((__int128)units * chunk / job.chunks);
      int64_t high = std::min(job.total, job.grain * int64_t((__int128)units * (chunk + 1) / job.chunks));
      if (low < high) job.function(job.context, low, high);
      ++taken;
      done_.fetch_add(1, std::memory_order_release);
      claim = claim_.load(std::memory_order_acquire);
    }
  }

  // Waits for the chunks that workers have claimed. Records the wait where a worker takes far longer than the caller
  // needed for its `own` chunks since `begin`: that worker has lost its CPU to another process.
  void await_workers(uint32_t chunks, uint32_t own, int64_t begin) {
    for (int spins = 0; spins < 2000; ++spins) {
      if (done_.load(std::memory_order_acquire) == chunks) return;
      pause_cpu();
    }
    int64_t drained = now_ns();
    while (done_.load(std::memory_order_acquire) != chunks) sched_yield();
    int64_t end = now_ns(), waited = end - drained;
    if (waited < 2 * (drained - begin) / std::max(own, 1u)) return;
    late_ns_ = waited;
    late_until_ = end + std::min(kAloneFactor * waited, kMostAloneNs);
  }

  // True if another wait as long as the last one could cost more than the workers save.
  bool workers_are_late(double cost_ns, int64_t now) const {
    return cost_ns < 2.0 * double(late_ns_) && now < late_until_;
  }

  void work() {
    t_inside_job = true;  // a job started inside a chunk runs on this thread alone
    profile_name_thread("worker");
    uint32_t seen = 0;
    for (;;) {
      uint32_t epoch;
      for (int spins = 0; (epoch = epoch_.load(std::memory_order_acquire)) == seen; ++spins) {
        if (spins < kSpin) {
          pause_cpu();
          continue;
        }
        trim_thread_scratch();
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        if (epoch_.load(std::memory_order_seq_cst) == seen) futex_wait(&epoch_, seen);
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
        spins = 0;
      }
      seen = epoch;
      if (stopping_.load(std::memory_order_acquire)) return;
      JobView job{job_.function.load(std::memory_order_acquire), job_.context.load(std::memory_order_acquire),
                  job_.total.load(std::memory_order_acquire), job_.grain.load(std::memory_order_acquire),
                  job_.chunks.load(std::memory_order_acquire)};
      uint64_t label = job_.label.load(std::memory_order_acquire);
      int64_t begin = label == 0 ? 0 : now_ns();
      if (drain(epoch, job, kFromEnd) > 0 && label != 0) profile_share(label, begin);
    }
  }

  void pin(Worker& worker, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= 0) CPU_SET(cpu, &set);
    else
      for (int allowed : cpus_) CPU_SET(allowed, &set);
    bool ok = pthread_setaffinity_np(worker.thread.native_handle(), sizeof(set), &set) == 0;
    worker.cpu = ok ? cpu : -1;
  }

  // Restricts the workers to the process's affinity mask, which may have changed.
  void follow_mask(int64_t now) {
    mask_due_ = now + kMaskNs;
    std::vector<int> cpus = allowed_cpus();
    if (cpus == cpus_) return;
    cpus_ = std::move(cpus);
    for (Worker& worker : workers_) pin(worker, -1);
    pinning_ = int(cpus_.size()) >= threads_;
    unpinned_until_ = 0;
    caller_cpu_ = -1;
  }

  // Pins every worker to a CPU that is not the caller's; makes system calls only if the caller has moved.
  void pin_workers(int64_t now) {
    if (now >= mask_due_) follow_mask(now);
    if (!pinning_) {
      if (unpinned_until_ == 0 || now < unpinned_until_) return;
      pinning_ = true;
      caller_cpu_ = -1;
    }
    int cpu = sched_getcpu();
    if (cpu == caller_cpu_) return;
    caller_cpu_ = cpu;
    for (Worker& worker : workers_) {
      if (worker.cpu >= 0 && worker.cpu != cpu) continue;
      worker.cpu = -1;
      pin(worker, free_cpu(cpu));
    }
  }

  int free_cpu(int caller) const {
    for (int cpu : cpus_) {
      bool taken = cpu == caller;
      for (const Worker& worker : workers_) taken = taken || worker.cpu == cpu;
      if (!taken) return cpu;
    }
    return -1;
  }

  // Pinned workers that get no chunk of long jobs share their CPU with another process: let the system choose one for a
  // while. The time is short unless it helps, since the system may put a worker on the caller's CPU.
  void note_share(bool alone, int64_t begin) {
    int64_t end = now_ns();
    if (end - begin < kLongRunNs) return;
    starved_ = alone ? starved_ + 1 : 0;
    if (!pinning_ || starved_ < kStarvedRuns) return;
    for (Worker& worker : workers_) pin(worker, -1);
    pinning_ = false;
    starved_ = 0;
    bool again = end - unpinned_until_ < 2 * unpinned_ns_;
    unpinned_ns_ = again ? std::min(2 * unpinned_ns_, kMostUnpinnedNs) : kUnpinnedNs;
    unpinned_until_ = end + unpinned_ns_;
  }

  const int threads_;
  std::mutex run_mutex_;
  std::atomic<bool> started_{false}, stopping_{false};
  std::vector<Worker> workers_;
  std::vector<int> cpus_;
  bool pinning_ = false;
  int caller_cpu_ = -1;
  int starved_ = 0;
  int64_t mask_due_ = 0;  // when to read the mask again
  int64_t late_ns_ = 0;  // the last long wait for a worker
  int64_t late_until_ = 0;  // until then short jobs run without workers
  int64_t unpinned_until_ = 0;  // 0: never so far
  int64_t unpinned_ns_ = kUnpinnedNs;
  Job job_;
  alignas(64) std::atomic<uint32_t> epoch_{0};
  alignas(64) std::atomic<uint64_t> claim_{kClosed};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
};

std::atomic<Pool*> g_pool{nullptr};
std::atomic<int> g_threads{0};  // 0: not decided yet

// Threads in a job are counted here as readers, so that set_threads can wait for them.
std::atomic<int> g_users{0};
std::mutex* g_change = new std::mutex;

void forget_in_child() {
  g_pool.store(nullptr);  // the child has none of its threads; the memory is leaked
  g_users.store(0);
  g_change = new std::mutex;
  t_inside_job = false;
}

[[maybe_unused]] const int g_at_fork = pthread_atfork(nullptr, nullptr, forget_in_child);

Pool* acquire_pool() {
  for (;;) {
    g_users.fetch_add(1, std::memory_order_seq_cst);
    if (Pool* pool = g_pool.load(std::memory_order_seq_cst)) return pool;
    g_users.fetch_sub(1, std::memory_order_seq_cst);  // set_threads waits for users while it holds g_change
    std::lock_guard<std::mutex> lock(*g_change);
    if (g_pool.load() != nullptr) continue;
    g_pool.store(new Pool(pool_threads()));
  }
}
void leave_pool() { g_users.fetch_sub(1, std::memory_order_seq_cst); }

void set_threads(int count) {
  std::lock_guard<std::mutex> lock(*g_change);
  g_threads.store(count);
  Pool* old = g_pool.exchange(nullptr);
  if (old == nullptr) return;
  old->stop();  // waits for the running job
  while (g_users.load(std::memory_order_seq_cst) != 0) sched_yield();
  delete old;
}

struct Scratch {
  void* data = nullptr;
  int64_t bytes = 0;
  ~Scratch() { std::free(data); }
};
thread_local Scratch t_scratch;

PyObject* pool_set_threads(PyObject*, PyObject* argument) {
  long count = PyLong_AsLong(argument);
  if (count == -1 && PyErr_Occurred()) return nullptr;
  if (count < 1 || count > kMaxThreads) {
    PyErr_Format(PyExc_ValueError, "[threads] the number of threads must be between 1 and %d, not %ld", kMaxThreads,
                 count);
    return nullptr;
  }
  Py_BEGIN_ALLOW_THREADS;
  set_threads(int(count));
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

PyObject* pool_get_threads(PyObject*, PyObject*) { return PyLong_FromLong(pool_threads()); }

PyMethodDef kPoolMethods[] = {
    {"set_threads", pool_set_threads, METH_O | METH_STATIC, "set_threads(n): threads that one computation may use."},
    {"get_threads", pool_get_threads, METH_NOARGS | METH_STATIC, "Threads that one computation may use."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot kPoolSlots[] = {
    {Py_tp_doc, const_cast<char*>("The thread pool shared by all computations of the process.")},
    {Py_tp_methods, kPoolMethods},
    {0, nullptr},
};
PyType_Spec kPoolSpec = {"weft.runtime.Pool", sizeof(PyObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kPoolSlots};

}  // namespace

int pool_threads() {
  int count = g_threads.load(std::memory_order_relaxed);
  if (count == 0) {
    count = default_threads();
    int expected = 0;
    if (!g_threads.compare_exchange_strong(expected, count)) count = expected;
  }
  return count;
}

thread_local int64_t t_expected = 0;

// True if this thread starts jobs in quick succession: then waking the workers once pays off for many jobs.
bool is_streak(double cost_ns) {
  thread_local int64_t last = 0;
  thread_local int count = 0;
  int64_t now = now_ns();
  count = double(now - last) < 2 * cost_ns + figures.streak_pause_ns ? count + 1 : 0;
  last = now;
  return count >= (t_expected >= kStreak ? 1 : kStreak);
}

ExpectedJobs::ExpectedJobs(int64_t count) : before_(t_expected) { t_expected = std::max(count, before_); }
ExpectedJobs::~ExpectedJobs() { t_expected = before_; }

bool pool_worth(double cost_ns) {
  if (cost_ns < figures.awake_ns || t_inside_job || pool_threads() == 1) return false;
  if (cost_ns >= figures.asleep_ns) return true;
  Pool* pool = acquire_pool();
  bool awake = pool->awake();
  leave_pool();
  return awake || is_streak(cost_ns);
}

void pool_run(ChunkFunction function, void* context, int64_t total, int64_t grain, double cost_ns) {
  int threads = pool_threads();
  if (total <= 0) return;
  if (grain < 1) grain = 1;
  int64_t units = (total + grain - 1) / grain;
  // About four chunks per thread balance a late start; a chunk shorter than a microsecond does not pay.
  cost_ns = std::min(cost_ns, 1e15);
  int64_t chunks = std::min(int64_t(threads) * 4, std::max<int64_t>(threads, int64_t(cost_ns / 1000)));
  chunks = std::min({units, std::max(chunks, int64_t(cost_ns / kLongChunkNs)), kMaxChunks});
  // several chunks even on one thread, so that interrupts are handled between them
  if (threads == 1 && chunks > 1 && cost_ns > 2 * kLongChunkNs) {
    for (int64_t i = 0; i < chunks; ++i) {
      int64_t low = grain * int64_t((__int128)units * i / chunks),
              high = std::min(total, grain * int64_t((__int128)units * (i + 1) / chunks));
      if (low < high) function(context, low, high);
    }
    return;
  }
  if (threads == 1 || chunks <= 1 || t_inside_job) {
    function(context, 0, total);
    return;
  }
  Pool* pool = acquire_pool();
  pool->run({function, context, total, grain, uint32_t(chunks)}, cost_ns);
  leave_pool();
}

void* thread_scratch(int64_t bytes) {
  if (bytes > t_scratch.bytes) {
    std::free(t_scratch.data);
    t_scratch.bytes = (bytes + 4095) & ~int64_t{4095};
    t_scratch.data = std::aligned_alloc(64, size_t(t_scratch.bytes));
    if (t_scratch.data == nullptr) t_scratch.bytes = 0;
  }
  return t_scratch.data;
}

void trim_thread_scratch() {
  if (t_scratch.bytes <= kKeptScratch) return;
  std::free(std::exchange(t_scratch.data, nullptr));
  t_scratch.bytes = 0;
}

int register_pool(PyObject* module) {
  PyObject* type = PyType_FromSpec(&kPoolSpec);
  if (type == nullptr) return -1;
  if (PyModule_AddObject(module, "Pool", type) == 0) return 0;
  Py_DECREF(type);
  return -1;
}

}  // namespace weft
