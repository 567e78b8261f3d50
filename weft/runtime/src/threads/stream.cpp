// The in-order stream of the host device. See stream.h.
//
// One task computes at a time, the first of the queue. A callback may wait for other tasks, for example by joining a
// thread that calls weft. While the running task is in a callback, the thread of the callback may run the tasks that it
// waits for (nested in the running one), and any other thread may run the tasks that it waits for, ahead of it.
// Programs with callbacks keep the order in which one thread launched them.
//
// Locks: Stream::mutex guards the queue. It is never held while waiting for the GIL or running a task. References to
// Python objects that a task drops are put on a list (the graveyard), which the next thread with the GIL empties.
#include "stream.h"

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

#include "module.h"
#include "profile.h"
#include "stream_tasks.h"

namespace weft {
namespace {

Stream* g_stream = new Stream;
std::atomic<uint64_t> g_generation{0};  // increases in a forked child
std::atomic<bool> g_async{true};
bool g_hooked = false;

bool Task::done() const noexcept {
  State state = state_.load(std::memory_order_acquire);
  if (state == State::done || state == State::failed) return true;
  if (generation != g_generation.load()) return true;  // lost in a fork: wait() raises
  if (state == State::queued && t_running == nullptr) {
    std::lock_guard<std::mutex> lock(g_stream->mutex);
    g_stream->wake();
  }
  return false;
}

int Task::raise() const {
  Failure& failure = *failure_;
  failure.reported = true;
  if (failure.status == Status::python_error) {
    if (!std::exchange(failure.has_note, true) && !launched.empty()) {
      Ref note = steal(PyUnicode_FromFormat("The program %s was launched at %s.", name.c_str(), launched.c_str()));
      Ref added = note ? steal(in_python<PyObject_CallMethod>(failure.exception, "add_note", "O", note.get())) : Ref();
      if (!added) PyErr_Clear();
    }
    PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(failure.exception))), Py_NewRef(failure.exception),
                  Py_XNewRef(failure.traceback));
  } else if (failure.status == Status::no_memory) {
    set_memory_error_text(failure.text.c_str());
  } else {
    PyErr_Format(PyExc_RuntimeError, "[%s] %s", name.c_str(), failure.text.c_str());
  }
  return -1;
}

std::shared_ptr<Failure> failed(Status status, std::string text = "") {
  auto failure = std::make_shared<Failure>();
  failure->status = status;
  failure->text = std::move(text);
  return failure;
}

const auto* g_no_memory = new std::shared_ptr<Failure>(failed(Status::no_memory, "RESOURCE_EXHAUSTED: Out of memory"));

std::shared_ptr<Failure> Task::no_memory() const {
  try {
    return failed(Status::no_memory, memory_error_text(-1, name.c_str(), "a kernel's working memory"));
  } catch (const std::bad_alloc&) {
    return *g_no_memory;
  }
}

std::shared_ptr<Failure> Task::run(bool on_stream) {
  for (Task* input : inputs) {
    if (input->state() == State::failed) return input->failure_;
    if (input->state() != State::done) return failed(Status::cancelled, "it depends on a program that waits for it");
  }
  if (stream_cancelled(number)) return failed(Status::cancelled, "the computation was interrupted");
  Buffer* arena;
  if (!allocate_temporaries(*plan, &arena, slots.data(), owners.data()))
    return failed(Status::no_memory, memory_error_text(plan->arena_bytes, name.c_str(), "temporaries"));
  if (arena != nullptr) held.push_back(arena);
  std::vector<int64_t> dynamic(size_t(plan->n_dynamic));
  Frame frame{slots.data(), owners.data(), dynamic.data(), plan};
  frame.on_stream = on_stream;
  frame.number = number;
  PlanTimes* times = profile_times(*plan);
  Status status = Status::ok;
  if (times != nullptr && times->start(false)) {
    status = profile_steps(*plan, frame, *times);
  } else {
    for (const auto& step : plan->steps) {
      status = stream_cancelled(number) ? Status::cancelled : step->run(frame);
      if (status != Status::ok) break;
    }
  }
  if (status != Status::ok) {
    break_off_exchanges(*plan, frame);
    if (stream_cancelled(number) && status != Status::python_error)
      return failed(Status::cancelled, "the computation was interrupted");
    if (status == Status::no_memory) return no_memory();
    auto failure = failed(status);
    failure->exception = frame.error;
    failure->traceback = frame.error_traceback;
    return failure;
  }
  // A kernel that an interrupt cut short does not report it: ask again.
  if (stream_cancelled(number)) return failed(Status::cancelled, "the computation was interrupted");
  return nullptr;
}

void Task::let_go() {
  for (Buffer* buffer : held) buffer_release(buffer);
  for (Task* input : inputs) input->release();
  held.clear();
  inputs.clear();
  slots.clear();
  owners.clear();
  plan = nullptr;
  bury(std::exchange(executable, nullptr));
}

void Task::execute(bool on_stream) {
  state_.store(State::running, std::memory_order_release);
  below = std::exchange(t_running, this);
  try {
    failure_ = run(on_stream);
  } catch (const std::bad_alloc&) {
    failure_ = no_memory();
  }
  t_running = below;
  bool notable = failure_ && failure_->exception != nullptr && plan->has_python;
  let_go();
  state_.store(failure_ ? State::failed : State::done, std::memory_order_release);
  if (notable) g_stream->remember(this);
}

// Whether this thread runs the task.
bool runs_below(const Task* task) {
  const Task* running = t_running;
  while (running != nullptr && running != task) running = running->below;
  return running != nullptr;
}

// A callback waits for a task later in the queue: run the queue up to it, nested in the running task.
int wait_inside_task(Task* task) {
  bool itself = false;
  {
    FreeGil free_gil;
    std::unique_lock<std::mutex> lock(g_stream->mutex);
    while (task->state() == State::queued && !g_stream->queue.empty()) {
      const std::vector<Task*>& inputs = g_stream->queue.front()->inputs;
      bool elsewhere = std::any_of(inputs.begin(), inputs.end(), [](Task* input) {
        return input->state() < State::done && !runs_below(input);
      });
      if (g_stream->free() && !elsewhere) g_stream->finish(g_stream->begin(g_stream->queue.begin()), true, lock);
      else g_stream->changed.wait_for(lock, kPoll);
    }
    itself = runs_below(task);
  }
  if (!itself) return 0;
  PyErr_SetString(PyExc_RuntimeError, "[stream] a callback waits for a result of the program that called it");
  return -1;
}

std::string user_line();

int Task::wait() {
  // This part must not run Python code: callers rely on arrays that they checked before.
  if (state() >= State::done) return state() == State::done ? 0 : raise();
  if (!profile_is_on()) return wait_for_end();
  int64_t begin = profile_now();
  int status = wait_for_end();
  if (status == 0) profile_wait(user_line(), profile_now() - begin);
  return status;
}

int Task::wait_for_end() {
  if (generation != g_generation.load() && state() < State::done) {
    PyErr_Format(PyExc_RuntimeError, "[%s] the result was still pending when the process forked", name.c_str());
    return -1;
  }
  if (t_running != nullptr && state() < State::done && wait_inside_task(this) < 0) return -1;
  auto began = Clock::now();
  while (state() < State::done) {
    {
      FreeGil free_gil;
      std::unique_lock<std::mutex> lock(g_stream->mutex);
      auto deadline = Clock::now() + kPoll;
      while (state() < State::done && Clock::now() < deadline) {
        Task* task = g_stream->take(!g_stream->started);
        if (task == nullptr) task = g_stream->take_ahead(this, Clock::now() - began > kPatience);
        if (task != nullptr) {
          bool as_stream = task->plan->has_python;
          g_stream->finish(task, as_stream, lock);
        } else {
          g_stream->wake();
          g_stream->changed.wait_until(lock, deadline);
        }
      }
    }
    if (state() >= State::done || in_python<PyErr_CheckSignals>() == 0) continue;
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
      std::lock_guard<std::mutex> lock(g_stream->mutex);
      g_cancelled.store(g_stream->last);
      g_stream->set_stop();
    }
    return -1;
  }
  empty_graveyard();
  return state() == State::done ? 0 : raise();
}

// ---- launching

// "file:line" of the innermost frame outside this package, or "".
std::string user_line() {
  static std::string package;
  if (package.empty()) {
    Ref module = steal(in_python<PyImport_ImportModule>("weft"));
    Ref file = module ? steal(in_python<PyObject_GetAttrString>(module.get(), "__file__")) : Ref();
    const char* text = file && PyUnicode_Check(file.get()) ? PyUnicode_AsUTF8(file.get()) : nullptr;
    PyErr_Clear();
    package = text != nullptr ? text : "?";
    package.resize(package.rfind('/') == std::string::npos ? package.size() : package.rfind('/') + 1);
  }
  Ref frame = borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    PyFrameObject* raw = reinterpret_cast<PyFrameObject*>(frame.get());
    Ref code = steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    Ref name = steal(in_python<PyObject_GetAttrString>(code.get(), "co_filename"));
    const char* file = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
    if (file == nullptr) PyErr_Clear();
    else if (std::strncmp(file, package.c_str(), package.size()) != 0)
      return std::string(file) + ":" + std::to_string(PyFrame_GetLineNumber(raw));
    frame = steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return "";
}

void start_thread() {  // mutex held
  if (g_stream->started || g_stream->stopping) return;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  try {
    Stream* stream = g_stream;
    g_stream->thread = std::thread([stream] {
      profile_name_thread("stream");
      stream->work();
    });
    g_stream->started = true;
  } catch (const std::system_error&) {
  // Without a thread, whoever waits runs everything.
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

// Waits for a queued task, which is retained meanwhile. The task's own error is raised where its result is used. 0, or
// -1 if a signal handler raised.
int drain_one(Task* task) {
  int status = task->wait();
  bool interrupted = status < 0 && task->state() < State::done;
  if (status < 0 && !interrupted) {
    PyErr_Clear();
    task->mark_unreported();
  }
  task->release();
  return interrupted ? -1 : 0;
}

// Waits, GIL held, until at most so much is queued. Handles signals; 0, or -1 with an error set.
int drain_to(size_t count, int64_t bytes) {
  for (;;) {
    Task* front = nullptr;
    {
      std::lock_guard<std::mutex> lock(g_stream->mutex);
      bool over = g_stream->queue.size() > count || g_stream->queued_bytes > bytes;
      if (over && !g_stream->queue.empty()) front = g_stream->queue.front();
      if (front != nullptr) front->retain();
    }
    if (front == nullptr) return 0;
    if (drain_one(front) < 0) return -1;
  }
}

// Waits for everything launched so far. GIL held; 0, or -1 with an error set if a signal handler raised. While a task
// that another thread launched is in a callback, the wait for it is bounded by kPatience unless `for_all`: the callback
// may be waiting for this thread.
int drain_all(bool for_all = false) {
  uint64_t generation = g_generation.load();
  std::thread::id here = std::this_thread::get_id();
  auto patient_until = Clock::time_point::max();
  for (;;) {
    if (t_running != nullptr || generation != g_generation.load()) return 0;
    Task* next = nullptr;
    bool idle, others;
    {
      std::lock_guard<std::mutex> lock(g_stream->mutex);
      std::deque<Task*>& queue = g_stream->queue;
      others = !for_all && !g_stream->active.empty() && g_stream->free() && !g_stream->launched_active(here);
      auto first = queue.begin();
      if (others) first = std::find_if(first, queue.end(), [&](Task* task) { return task->launcher == here; });
      if (first != queue.end()) (next = *first)->retain();
    }
    if (next != nullptr && drain_one(next) < 0) return -1;
    if (!others || next != nullptr) patient_until = Clock::time_point::max();
    else patient_until = std::min(patient_until, Clock::now() + kPatience);
    {
      FreeGil free_gil;
      std::unique_lock<std::mutex> lock(g_stream->mutex);
      if (next == nullptr) g_stream->changed.wait_for(lock, kPoll, [] { return g_stream->active.empty(); });
      idle = g_stream->active.empty() && g_stream->queue.empty();
    }
    if (idle || Clock::now() > patient_until) return empty_graveyard(), 0;
    if (in_python<PyErr_CheckSignals>() != 0) return -1;
  }
}

// The first error of a Python step that was not reported yet, or nullptr. Owned; others stay for the next call.
Task* first_unreported() {
  Task* found = nullptr;
  for (Task* task : g_stream->take_failed()) {
    bool news = !task->is_reported();
    if (news && found == nullptr) found = task;
    else if (news) g_stream->remember(task);
    if (task != found) task->release();
  }
  return found;
}

PyObject* stream_drain(PyObject*, PyObject*) {
  if (drain_all() < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* stream_barrier(PyObject*, PyObject*) {
  if (drain_all() < 0) return nullptr;
  Task* failed = t_running == nullptr ? first_unreported() : nullptr;
  if (failed == nullptr) Py_RETURN_NONE;
  failed->raise();
  failed->release();
  return nullptr;
}

// Ends the stream's thread before the interpreter ends. GIL held.
void end_thread() {
  {
    std::lock_guard<std::mutex> lock(g_stream->mutex);
    g_stream->stopping = true;
    g_stream->started = false;
    g_stream->has_work.notify_one();
  }
  if (!g_stream->thread.joinable()) return;
  FreeGil free_gil;  // its last task may need the GIL
  g_stream->thread.join();
}

PyObject* stream_stop(PyObject*, PyObject*) {  // at exit: programs launched afterwards run at once
  g_async.store(false);
  if (drain_all(true) < 0) return nullptr;  // interrupted: remaining tasks are abandoned
  while (Task* failed = first_unreported()) {
    failed->raise();
    Ref name = steal(PyUnicode_FromString(failed->name.c_str()));
    failed->release();
    in_python<PyErr_WriteUnraisable>(name.get());
  }
  end_thread();
  Py_RETURN_NONE;
}

void forget_in_child() {
  g_stream = new Stream;  // its thread does not exist in the child; the memory is leaked
  g_graveyard_mutex = new std::mutex;
  g_graveyard = new std::vector<PyObject*>;  // another thread may have been growing the old one during the fork
  g_graveyard_used.store(false, std::memory_order_relaxed);
  g_generation.fetch_add(1);
  g_cancelled.store(0);  // the new stream numbers tasks from 1
  g_stop.store(0);
  t_running = nullptr;
}

PyMethodDef kStopMethod = {"stream_stop", entry_point<stream_stop>, METH_NOARGS, nullptr};
PyMethodDef kDrainMethod = {"stream_drain", entry_point<stream_drain>, METH_NOARGS,
                            "Waits until everything launched so far is done."};
PyMethodDef kBarrierMethod = {"stream_barrier", entry_point<stream_barrier>, METH_NOARGS,
                              "As stream_drain, then raises the first error of a callback that nobody has seen."};

// Drains the stream before a fork and at exit. Called once.
int install_hooks() {
  if (g_hooked) return 0;
  Ref os = steal(in_python<PyImport_ImportModule>("os")), atexit = steal(in_python<PyImport_ImportModule>("atexit"));
  Ref stop = steal(PyCFunction_New(&kStopMethod, nullptr)), drain = steal(PyCFunction_New(&kDrainMethod, nullptr));
  Ref empty = steal(PyTuple_New(0)), named = steal(PyDict_New());
  if (!os || !atexit || !stop || !drain || !empty || !named) return -1;
  Ref fork = steal(in_python<PyObject_GetAttrString>(os.get(), "register_at_fork"));
  if (!fork || PyDict_SetItemString(named.get(), "before", drain.get()) < 0) return -1;
  Ref first = steal(in_python<PyObject_Call>(fork.get(), empty.get(), named.get()));
  Ref second = first ? steal(in_python<PyObject_CallMethod>(atexit.get(), "register", "O", stop.get())) : Ref();
  if (!second) return -1;
  pthread_atfork(nullptr, nullptr, forget_in_child);
  g_hooked = true;
  return 0;
}

void fill_slots(Task* task, const Operand* operands, Buffer* const* outputs) {
  const Plan& plan = *task->plan;
  size_t n_inputs = size_t(plan.n_inputs);
  task->scalars.reserve(n_inputs);  // it must not grow: addresses into it are kept
  task->slots.reserve(size_t(plan.n_slots()));
  task->owners.reserve(size_t(plan.n_slots()));
  task->held.reserve(n_inputs + plan.outputs.size() + 1);  // and the temporaries
  task->inputs.reserve(n_inputs);
  for (int32_t i = 0; i < plan.n_inputs; ++i) {
    const Operand& operand = operands[i];
    task->owners.push_back(operand.buffer);
    if (operand.buffer == nullptr) {
      task->scalars.emplace_back();
      std::memcpy(task->scalars.back().bytes, operand.data, sizeof(HostScalar));
      task->slots.push_back(task->scalars.back().bytes);
      continue;
    }
    task->slots.push_back(operand.data);
    task->held.push_back(buffer_retain(operand.buffer));
    if (operand.buffer->pending == nullptr) continue;
    Task* input = static_cast<Task*>(operand.buffer->pending);  // every event is a task
    input->retain();
    task->inputs.push_back(input);
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    task->slots.push_back(outputs[i]->data);
    task->owners.push_back(outputs[i]);
    task->held.push_back(buffer_retain(outputs[i]));
    task->output_bytes += plan.outputs[i].nbytes;
    bool own = plan.outputs[i].kind == OutputKind::fresh || plan.outputs[i].kind == OutputKind::donated;
    if (!own || outputs[i]->pending == task) continue;
    task->retain();
    outputs[i]->pending = task;
  }
  task->slots.resize(size_t(plan.n_slots()));
  task->owners.resize(size_t(plan.n_slots()));
}

}  // namespace

bool stream_cancelled(uint64_t number) { return number != 0 && number <= g_cancelled.load(std::memory_order_relaxed); }

int stream_check_interrupt() {
  if (in_python<PyErr_CheckSignals>() != 0) return -1;
  if (stream_cancelled(stream_running())) return PyErr_SetNone(PyExc_KeyboardInterrupt), -1;
  return 0;
}

uint64_t stream_running() { return t_running == nullptr ? 0 : t_running->number; }

const int32_t* stream_stop_word(uint64_t number) {
  return number == 0 ? &kNeverStop : reinterpret_cast<const int32_t*>(&g_stop);
}

bool stream_event_over(const Event* event) {
  const Task* task = static_cast<const Task*>(event);  // there is no other kind
  return task->state() >= State::done || task->generation != g_generation.load();
}

bool stream_enabled() { return g_async.load(std::memory_order_relaxed) && t_running == nullptr; }

bool stream_idle() {
  std::lock_guard<std::mutex> lock(g_stream->mutex);
  return g_stream->queue.empty() && g_stream->active.empty();
}

void stream_calls(bool begins) {
  std::lock_guard<std::mutex> lock(g_stream->mutex);
  if (begins) ++g_stream->calling;
  else if (g_stream->calling > 0) --g_stream->calling;  // not in a child forked during a callback
  g_stream->changed.notify_all();
}

int stream_launch(Executable* executable, const Operand* operands, Buffer* const* outputs) {
  empty_graveyard();
  if (install_hooks() < 0) return kNotStarted;
  Task* task = new (std::nothrow) Task;
  if (task == nullptr) return PyErr_NoMemory(), kNotStarted;
  task->plan = executable->plan;
  task->executable = Py_NewRef(reinterpret_cast<PyObject*>(executable));
  task->generation = g_generation.load();
  bool full;
  try {
    if (const char* name = PyUnicode_AsUTF8(executable->name)) task->name = name;
    else PyErr_Clear();
    if (task->plan->has_python) task->launched = user_line();
    fill_slots(task, operands, outputs);
    std::lock_guard<std::mutex> lock(g_stream->mutex);
    start_thread();
    g_stream->enqueue(task);
    full = g_stream->queue.size() > kMaxQueued || g_stream->queued_bytes > kMaxQueuedBytes;
  } catch (const std::bad_alloc&) {
    for (size_t i = 0; i < executable->plan->outputs.size(); ++i)
      if (outputs[i]->pending == task) std::exchange(outputs[i]->pending, nullptr)->release();
    task->let_go();
    task->release();
    return PyErr_NoMemory(), kNotStarted;
  }
  return full ? drain_to(kMaxQueued / 2, kMaxQueuedBytes / 2) : 0;
}

namespace {

PyObject* set_async(PyObject*, PyObject* flag) {
  int value = in_python<PyObject_IsTrue>(flag);
  if (value < 0) return nullptr;
  if (value == 0 && drain_all() < 0) return nullptr;
  g_async.store(value != 0);
  Py_RETURN_NONE;
}
PyObject* get_async(PyObject*, PyObject*) { return PyBool_FromLong(g_async.load()); }

PyObject* check_interrupt(PyObject*, PyObject*) {
  if (stream_check_interrupt() < 0) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef kMethods[] = {
    {"set_async", entry_point<set_async>, METH_O, "set_async(bool): whether programs over 20 us return before they have run."},
    {"get_async", get_async, METH_NOARGS, "Whether programs over 20 us return before they have run."},
    {"check_interrupt", check_interrupt, METH_NOARGS,
     "Raises KeyboardInterrupt if the program that this thread runs was interrupted."},
    kDrainMethod,
    kBarrierMethod,
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_stream(PyObject* module) {
  const char* sync = std::getenv("WEFT_SYNC");
  g_async.store(!(sync != nullptr && *sync != 0 && std::strcmp(sync, "0") != 0));
  return PyModule_AddFunctions(module, kMethods);
}

}  // namespace weft
