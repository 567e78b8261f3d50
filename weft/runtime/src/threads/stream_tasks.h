// The tasks of the stream and their queue. Part of stream.cpp, which says what its locks guard.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "figures.h"
#include "stream.h"

namespace weft {
namespace {

constexpr double kHelpNs = 30'000'000;  // longer tasks are left to the thread, so that waiting threads handle signals
constexpr size_t kMaxQueued = 128;
constexpr int64_t kMaxQueuedBytes = int64_t{512} << 20;
constexpr size_t kMaxFailed = 32;
constexpr auto kPoll = std::chrono::milliseconds(50);
// How long callbacks of programs that another thread launched are waited for: it decides the order in which independent
// programs run, which their results do not depend on; without it a callback that waits for us would wait for ever.
constexpr auto kPatience = std::chrono::seconds(1);
using Clock = std::chrono::steady_clock;

enum class State : uint32_t { queued, running, done, failed };

// ---- references dropped without the GIL ----

std::mutex* g_graveyard_mutex = new std::mutex;
std::vector<PyObject*>* g_graveyard = new std::vector<PyObject*>;
std::atomic<bool> g_graveyard_used{false};

void bury(PyObject* object) {
  std::lock_guard<std::mutex> lock(*g_graveyard_mutex);
  try {
    g_graveyard->push_back(object);
  } catch (const std::bad_alloc&) {
    return;  // never freed
  }
  g_graveyard_used.store(true, std::memory_order_relaxed);
}

void empty_graveyard() {  // GIL held
  if (!g_graveyard_used.load(std::memory_order_relaxed)) return;
  std::vector<PyObject*> dead;
  {
    std::lock_guard<std::mutex> lock(*g_graveyard_mutex);
    dead.swap(*g_graveyard);
    g_graveyard_used.store(false, std::memory_order_relaxed);
  }
  for (PyObject* object : dead) Py_DECREF(object);
}

// Releases the GIL for the lifetime of the object.
class FreeGil {
 public:
  FreeGil() = default;
  ~FreeGil() { in_python<PyEval_RestoreThread>(saved_); }
  FreeGil(const FreeGil&) = delete;
  FreeGil& operator=(const FreeGil&) = delete;

 private:
  PyThreadState* saved_ = PyEval_SaveThread();
};

// Why a task failed; shared by the tasks that depend on it.
struct Failure {
  Status status;
  PyObject* exception = nullptr;  // owned; python_error only
  PyObject* traceback = nullptr;  // owned or nullptr
  std::string text;
  bool has_note = false;  // the exception has the note that says where it was launched
  bool reported = false;  // already reported where a result is used, or to a thread that waits for effects
  ~Failure() {
    if (exception != nullptr) bury(exception);
    if (traceback != nullptr) bury(traceback);
  }
};

std::atomic<uint64_t> g_cancelled{0};  // tasks up to this number were interrupted
std::atomic<int32_t> g_stop{0};  // whether the running task is one of them; written under the stream's mutex
constexpr int32_t kNeverStop = 0;
static_assert(sizeof g_stop == sizeof kNeverStop);

class Task;
thread_local Task* t_running = nullptr;  // the innermost task that this thread runs

union alignas(16) HostScalar {
  char bytes[16];
};

class Task final : public Event {
 public:
  bool done() const noexcept override;
  int wait() override;
  void retain() noexcept override { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept override {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  void execute(bool on_stream);
  void let_go();
  bool is_reported() const { return failure_->reported; }
  void mark_unreported() { failure_->reported = false; }
  State state() const { return state_.load(std::memory_order_acquire); }
  int raise() const;

  uint64_t number = 0, generation = 0;
  std::thread::id launcher = std::this_thread::get_id();
  const Plan* plan = nullptr;
  PyObject* executable = nullptr;  // owned until it has run
  std::vector<Buffer*> held;       // owned until it has run
  std::vector<Task*> inputs;       // owned likewise: tasks that write what this one reads
  std::vector<char*> slots;
  std::vector<Buffer*> owners;
  std::vector<HostScalar> scalars;
  int64_t output_bytes = 0;
  std::string name;
  Task* below = nullptr;  // the task in which its thread runs this one nested
  std::string launched;   // "file:line" of the user's code; programs with Python steps only

 private:
  ~Task() = default;
  int wait_for_end();
  std::shared_ptr<Failure> run(bool on_stream);
  std::shared_ptr<Failure> no_memory() const;

  std::atomic<int32_t> references_{1};
  std::atomic<State> state_{State::queued};
  std::shared_ptr<Failure> failure_;

  friend struct Stream;
};

// Whether a waiting thread may run a program itself: not if it would then ignore signals for long.
bool may_help(const Plan& plan) { return !plan.has_python && !plan.unbounded && plan.cost_ns <= kHelpNs; }

struct Stream {
  std::mutex mutex;
  std::condition_variable changed;  // a task is done
  std::condition_variable has_work;  // for the thread: there is work, or it may continue
  std::deque<Task*> queue;          // each owned
  std::vector<Task*> active;  // tasks being run: all but the newest were in a callback when the next one began
  size_t calling = 0;  // how many of them are in a callback
  bool awake = false;               // the thread has been told to work
  bool started = false;
  bool stopping = false;  // permanently: from now on waiting threads run what is launched
  std::thread thread;
  double queued_ns = 0;
  int64_t queued_bytes = 0;
  uint64_t last = 0;  // number of the newest task
  std::vector<Task*> failed;  // owned: programs with Python steps whose error may not have been reported yet

  // Whether no task computes: every active one waits for its callback.
  bool free() const { return active.size() == calling; }
  bool launched_active(std::thread::id thread) const {
    return std::any_of(active.begin(), active.end(), [&](Task* task) { return task->launcher == thread; });
  }
  // Takes the next task if nothing is active. The mutex is held, as in all functions below.
  Task* take(bool python_too) {
    if (!active.empty() || queue.empty() || (!python_too && !may_help(*queue.front()->plan))) return nullptr;
    return begin(queue.begin());
  }
  // Takes a task that `wanted` needs, or `wanted` itself, ahead of active ones, which are in callbacks. `patient`:
  // callbacks of one launching thread may then run out of order. nullptr if it depends on an active task.
  Task* take_ahead(Task* wanted, bool patient) {
    if (active.empty() || !free() || wanted->state() != State::queued) return nullptr;
    std::vector<Task*> needed{wanted};
    std::vector<std::thread::id> calls;  // threads that launched programs with callbacks among them
    auto first = queue.end();
    for (auto at = queue.end(); at != queue.begin();) {
      Task* task = *--at;
      bool earlier = task->plan->has_python && std::find(calls.begin(), calls.end(), task->launcher) != calls.end();
      if (!earlier && std::find(needed.begin(), needed.end(), task) == needed.end()) continue;
      needed.insert(needed.end(), task->inputs.begin(), task->inputs.end());
      if (task->plan->has_python) calls.push_back(task->launcher);
      first = at;
    }
    if (first == queue.end()) return nullptr;
    const Task* task = *first;
    bool ready = std::all_of(task->inputs.begin(), task->inputs.end(), [](Task* t) { return t->state() >= State::done; });
    bool in_order = !task->plan->has_python || patient || !launched_active(task->launcher);
    bool deaf = launched_active(std::this_thread::get_id()) && !may_help(*task->plan);
    return ready && in_order && !deaf ? begin(first) : nullptr;
  }
  Task* begin(std::deque<Task*>::iterator at) {
    Task* task = *at;
    active.push_back(task);  // enqueue has reserved the room
    queue.erase(at);
    queued_ns = queue.empty() ? 0 : queued_ns - task->plan->cost_ns;
    queued_bytes -= task->output_bytes;
    set_stop();
    return task;
  }
  // Tells kernels to stop if all active tasks were interrupted: a task that continues must not be cut short.
  void set_stop() {
    g_stop.store(!active.empty() && std::all_of(active.begin(), active.end(),
                                                [](Task* task) { return stream_cancelled(task->number); }));
  }
  // Runs a task taken before; releases the lock meanwhile.
  void finish(Task* task, bool on_stream, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    task->execute(on_stream);
    lock.lock();
    active.erase(std::find(active.begin(), active.end(), task));
    set_stop();
    changed.notify_all();
    awake = awake && !queue.empty();
    if (awake && active.empty()) has_work.notify_one();
    lock.unlock();
    task->release();
    lock.lock();
  }
  void enqueue(Task* task) {
    active.reserve(active.size() + queue.size() + 1);
    failed.reserve(kMaxFailed);
    queue.push_back(task);
    task->number = ++last;
    queued_ns += task->plan->cost_ns;
    queued_bytes += task->output_bytes;
    if (task->plan->has_python || queued_ns >= figures.wake_ns) wake();
  }
  void remember(Task* task) {
    std::lock_guard<std::mutex> lock(mutex);
    if (failed.size() >= kMaxFailed) return;
    task->retain();
    failed.push_back(task);
  }
  std::vector<Task*> take_failed() {
    std::vector<Task*> taken;
    taken.reserve(kMaxFailed);
    std::lock_guard<std::mutex> lock(mutex);
    taken.swap(failed);
    return taken;
  }
  void wake() {  // mutex held
    if (awake || !started) return;
    awake = true;
    has_work.notify_one();
  }
  void work() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      has_work.wait(lock, [this] { return stopping || (awake && active.empty()); });
      if (stopping) return;
      if (Task* task = take(true)) finish(task, true, lock);
      else awake = false;
    }
  }
};

}  // namespace
}  // namespace weft
