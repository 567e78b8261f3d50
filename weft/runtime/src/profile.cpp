// Profiles: counters of plans, buffers of spans, and their way to Python. See profile.h.
//
// Each thread writes spans to its own buffer, which is found again by the next profile, and whose size is published
// after a span is whole. Python reads the buffers after the profile has ended and the stream is idle.
#include "profile.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "device.h"
#include "figures.h"
#include "module.h"
#include "stream.h"

namespace weft {

double g_inline_ns = 0;
std::atomic<uint64_t> g_session{0};

namespace {

constexpr double kShareOfTime = 0.004;  // what profiling may take of the time, which is estimated

struct Span {
  int64_t begin, end;
  uint32_t program;
  int32_t step;
};
static_assert(sizeof(Span) == 24);  // read by weft/inspect/profile.py

struct Recorder {
  std::atomic<uint64_t> session{0};
  std::atomic<size_t> size{0};
  std::atomic<int64_t> dropped{0};
  std::unique_ptr<Span[]> spans;
  size_t capacity = 0;
  long thread = 0;
  const char* name = "python";
  bool is_free = false;  // its thread has ended
};

uint64_t g_sessions = 0;             // so far; guarded by the GIL
size_t g_most_spans = 0;             // of a thread
bool g_every_call = false;
std::vector<PyObject*>* g_programs = new std::vector<PyObject*>;  // owned Executables, by number; guarded by the GIL
std::map<std::string, std::pair<int64_t, int64_t>>* g_waits =  // line -> times, nanoseconds; guarded by the GIL
    new std::map<std::string, std::pair<int64_t, int64_t>>;
std::mutex* g_mutex = new std::mutex;                             // guards the list of recorders
std::vector<std::unique_ptr<Recorder>>* g_recorders = new std::vector<std::unique_ptr<Recorder>>;

thread_local const char* t_name = "python";
thread_local uint64_t t_label = 0;

struct Handle {
  Recorder* recorder = nullptr;
  ~Handle() {
    if (recorder == nullptr) return;
    std::lock_guard<std::mutex> lock(*g_mutex);
    recorder->is_free = true;
  }
};
thread_local Handle t_handle;

Recorder* free_recorder(uint64_t session) {  // g_mutex held
  for (auto& recorder : *g_recorders)
    if (recorder->is_free && recorder->session.load() != session) return recorder.get();
  g_recorders->push_back(std::make_unique<Recorder>());
  return g_recorders->back().get();
}

// This thread's buffer, made ready for the session; nullptr without memory.
Recorder* recorder_for(uint64_t session) {
  try {
    std::lock_guard<std::mutex> lock(*g_mutex);
    Recorder* recorder = t_handle.recorder;
    if (recorder == nullptr) recorder = t_handle.recorder = free_recorder(session);
    recorder->is_free = false;
    if (recorder->capacity != g_most_spans) {
      recorder->capacity = 0;
      recorder->spans.reset(new Span[g_most_spans]);  // not cleared: pages that are not written are not taken
      recorder->capacity = g_most_spans;
    }
    recorder->size.store(0);
    recorder->dropped.store(0);
    recorder->thread = syscall(SYS_gettid);
    recorder->name = t_name;
    recorder->session.store(session);
    return recorder;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void note(uint32_t program, int32_t step, int64_t begin, int64_t end) {
  uint64_t session = g_session.load(std::memory_order_relaxed);
  if (session == 0) return;
  Recorder* recorder = t_handle.recorder;
  if (recorder == nullptr || recorder->session.load(std::memory_order_relaxed) != session) {
    recorder = recorder_for(session);
    if (recorder == nullptr) return;
  }
  size_t size = recorder->size.load(std::memory_order_relaxed);
  if (size >= recorder->capacity) {
    recorder->dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  recorder->spans[size] = {begin, end, program, step};
  recorder->size.store(size + 1, std::memory_order_release);
}

uint64_t label_of(uint32_t program, size_t step) { return uint64_t(program) << 32 | (uint32_t(step) + 1); }

// At which calls a plan is timed, so that the clock takes a small part of the time.
int64_t period_of(const Plan& plan) {
  if (g_every_call) return 1;
  double price = figures.clock_ns * double(plan.steps.size() + 2), budget = kShareOfTime * (plan.cost_ns + figures.call_ns);
  return std::max<int64_t>(1, int64_t(std::min(std::ceil(price / budget), 1e4)));
}

}  // namespace

void StepTime::add(int64_t ns) {
  int64_t before = count.fetch_add(1, std::memory_order_relaxed), least = least_ns.load(std::memory_order_relaxed);
  total_ns.fetch_add(ns, std::memory_order_relaxed);
  if (before == 0 || ns < least) least_ns.store(ns, std::memory_order_relaxed);
}

void StepTime::clear() {
  count.store(0);
  total_ns.store(0);
  least_ns.store(0);
}

bool profile_is_on() { return g_session.load(std::memory_order_relaxed) != 0; }

int64_t profile_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void profile_enter(Executable* executable) {
  const Plan& plan = *executable->plan;
  uint64_t session = g_session.load(std::memory_order_relaxed);
  PlanTimes* times = plan.times.load(std::memory_order_relaxed);
  if (session == 0 || (times != nullptr && times->session == session)) return;
  try {
    g_programs->reserve(g_programs->size() + 1);
    if (times == nullptr) times = new PlanTimes(plan.steps.size());
  } catch (const std::bad_alloc&) {
    return;
  }
  times->whole.clear();
  for (size_t i = 0; i < plan.steps.size(); ++i) times->steps[i].clear();
  times->calls.store(0);
  times->period = period_of(plan);
  times->left = 1;
  times->program = uint32_t(g_programs->size());
  times->session = session;
  g_programs->push_back(Py_NewRef(reinterpret_cast<PyObject*>(executable)));
  plan.times.store(times, std::memory_order_release);
  for (const auto& step : plan.steps)
    for (size_t i = 0; Executable* inner = step->inner_program(i); ++i) profile_enter(inner);
}

Status profile_steps(const Plan& plan, Frame& frame, PlanTimes& times) {
  uint64_t outer = t_label;
  int64_t first = profile_now(), begin = first;
  Status status = Status::ok;
  for (size_t i = 0; i < plan.steps.size() && status == Status::ok; ++i) {
    t_label = label_of(times.program, i);
    status = stream_cancelled(frame.number) ? Status::cancelled : run_step(*plan.steps[i], frame);
    int64_t end = profile_now();
    times.steps[i].add(end - begin);
    note(times.program, int32_t(i), begin, end);
    begin = end;
  }
  t_label = outer;
  times.whole.add(begin - first);
  note(times.program, kWholeCall, first, begin);
  return status;
}

uint64_t profile_label() { return t_label; }

void profile_share(uint64_t label, int64_t begin) {
  note(uint32_t(label >> 32), int32_t(uint32_t(label) - 1) + kShare, begin, profile_now());
}

void profile_wait(const std::string& line, int64_t ns) {
  if (!profile_is_on()) return;
  auto& [count, total] = (*g_waits)[line];
  ++count;
  total += ns;
}

void profile_name_thread(const char* name) { t_name = name; }

namespace {

void forget_in_child() {  // a child is not profiled
  g_session.store(0);
  g_inline_ns = figures.inline_ns;
  g_mutex = new std::mutex;
}

PyObject* profile_start(PyObject*, PyObject* args) {
  Py_ssize_t most;
  int every_call;
  if (!PyArg_ParseTuple(args, "np:profile_start", &most, &every_call)) return nullptr;
  if (most < 0 || most > (Py_ssize_t(1) << 28)) {
    PyErr_Format(PyExc_ValueError, "[profile] a thread can keep 0 to 2**28 spans, not %zd", most);
    return nullptr;
  }
  if (profile_is_on()) {
    PyErr_SetString(PyExc_RuntimeError, "[profile] a profile is being taken already; only one can be at a time");
    return nullptr;
  }
  static int registered = pthread_atfork(nullptr, nullptr, forget_in_child);
  (void)registered;
  g_most_spans = size_t(most);
  g_every_call = every_call != 0;
  g_inline_ns = -1;
  g_session.store(++g_sessions);
  Py_RETURN_NONE;
}

// (count, nanoseconds, least nanoseconds)
PyObject* counter(const StepTime& time) {
  return Py_BuildValue("(LLL)", (long long)time.count.load(), (long long)time.total_ns.load(),
                       (long long)time.least_ns.load());
}

// (executable, calls, period, counter, ((first instruction, counter), ...))
PyObject* program_times(PyObject* executable) {
  const Plan& plan = *reinterpret_cast<Executable*>(executable)->plan;
  const PlanTimes& times = *plan.times.load();
  Ref steps = steal(PyTuple_New(Py_ssize_t(plan.steps.size())));
  for (size_t i = 0; steps && i < plan.steps.size(); ++i) {
    Ref one = steal(counter(times.steps[i]));
    PyObject* pair = one ? Py_BuildValue("(iO)", int(plan.first_instruction[i]), one.get()) : nullptr;
    if (pair == nullptr) return nullptr;
    PyTuple_SET_ITEM(steps.get(), Py_ssize_t(i), pair);
  }
  Ref whole = steal(counter(times.whole));
  if (!steps || !whole) return nullptr;
  return Py_BuildValue("(OLLOO)", executable, (long long)times.calls.load(), (long long)times.period, whole.get(),
                       steps.get());
}

// (thread, name, spans as bytes, number of spans that had no room)
PyObject* thread_spans(const Recorder& recorder) {
  size_t size = recorder.size.load(std::memory_order_acquire);
  return Py_BuildValue("(lsy#L)", recorder.thread, recorder.name, reinterpret_cast<const char*>(recorder.spans.get()),
                       Py_ssize_t(size * sizeof(Span)), (long long)recorder.dropped.load());
}

bool append(const Ref& list, PyObject* owned) {
  Ref item = steal(owned);
  return item && PyList_Append(list.get(), item.get()) == 0;
}

PyObject* profile_stop(PyObject*, PyObject*) {
  uint64_t session = g_session.exchange(0);
  g_inline_ns = figures.inline_ns;
  if (session == 0) {
    PyErr_SetString(PyExc_RuntimeError, "[profile] no profile is being taken");
    return nullptr;
  }
  std::vector<PyObject*> programs;
  programs.swap(*g_programs);
  Ref times = steal(PyList_New(0)), threads = steal(PyList_New(0)), waits = steal(PyList_New(0));
  bool ok = times && threads && waits;
  for (const auto& [line, wait] : *g_waits)
    ok = ok && append(waits, Py_BuildValue("(sLL)", line.c_str(), (long long)wait.first, (long long)wait.second));
  g_waits->clear();
  for (PyObject* program : programs) ok = ok && append(times, program_times(program));
  {
    std::lock_guard<std::mutex> lock(*g_mutex);
    for (const auto& recorder : *g_recorders)
      if (ok && recorder->session.load() == session) ok = append(threads, thread_spans(*recorder));
  }
  for (PyObject* program : programs) Py_DECREF(program);
  return ok ? Py_BuildValue("(OOO)", times.get(), threads.get(), waits.get()) : nullptr;
}

PyMethodDef kMethods[] = {
    {"profile_start", entry_point<profile_start>, METH_VARARGS,
     "profile_start(most_spans, every_call): from now on the steps of programs are timed; every_call: of all calls, else "
     "of so many that this takes a hundredth of the time."},
    {"profile_stop", entry_point<profile_stop>, METH_NOARGS,
     "profile_stop() -> (programs, threads, waits). A program: (executable, calls, period, counter, ((first instruction, "
     "counter), ...)); a counter: (count, ns, least ns); a thread: (id, name, spans as bytes, spans left out); a wait: (\"file:line\", times, ns)."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_profile(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
