// Exchanges between processes as steps of a plan, in two halves: one starts the messages, one waits for them.
//
// Between the halves the program goes on. MPI moves large messages only while somebody calls it, so a thread of this
// module does that meanwhile; small ones are there by the time they are waited for.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "exchange_step.h"
#include "exec.h"
#include "fields.h"
#include "figures.h"
#include "mpi.h"
#include "mpi_library.h"
#include "plan.h"
#include "stream.h"

namespace weft {

// An exchange on its way. Whoever holds the mutex may poll it.
struct Flight {
  mpi::Pending operation;
  std::mutex mutex;
  bool done = false;
  std::exception_ptr failure;  // found by the thread that polls
  Buffer* held[2] = {nullptr, nullptr};  // owned: the memory that MPI may touch

  // Memory that MPI may still touch is never given back.
  ~Flight() {
    if (operation && !done && !operation->cancel()) {
      (void)operation.release();
      return;
    }
    for (Buffer* buffer : held)
      if (buffer != nullptr) buffer_release(buffer);
  }

  // The mutex is held.
  bool poll() {
    if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
    if (!done) done = operation->poll();
    return done;
  }
};

Flights::~Flights() = default;

namespace {

constexpr int64_t kPolled = 64 << 10;  // bytes from which on a thread lets MPI work meanwhile
constexpr int kSpins = 400;            // polls before the GIL is released
constexpr double kPart = 0.05;         // seconds between two looks for interrupts

// ---- the thread that polls

class Poller {
 public:
  void add(std::shared_ptr<Flight> flight) {
    std::lock_guard<std::mutex> lock(mutex_);
    flights_.push_back(std::move(flight));
    if (process_ != getpid()) {
      process_ = getpid();
      std::thread([this] { run(); }).detach();
    }
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !flights_.empty(); });
      std::vector<std::shared_ptr<Flight>> mine = flights_;
      lock.unlock();
      for (auto& flight : mine)
        if (over(*flight)) flight = nullptr;
      lock.lock();
      std::erase_if(flights_, [](const auto& flight) {
        std::unique_lock<std::mutex> held(flight->mutex, std::try_to_lock);
        return held.owns_lock() && (flight->done || flight->failure);
      });
      if (flights_.empty()) continue;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      lock.lock();
    }
  }

  static bool over(Flight& flight) {
    std::unique_lock<std::mutex> held(flight.mutex, std::try_to_lock);
    if (!held.owns_lock()) return false;  // it is waited for
    if (flight.done || flight.failure) return true;
    try {
      flight.done = flight.operation->poll();
    } catch (...) {
      flight.failure = std::current_exception();
    }
    return flight.done || flight.failure;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Flight>> flights_;
  pid_t process_ = 0;  // in which the thread runs
};

// Never destroyed: its thread may outlive the module.
Poller& poller() {
  static Poller* made = new Poller;
  return *made;
}

// ---- errors

// Sets weft.errors.DistributedError. GIL held.
void set_failure(const std::string& text) {
  Ref errors = steal(in_python<PyImport_ImportModule>("weft.errors"));
  Ref type = errors ? steal(in_python<PyObject_GetAttrString>(errors.get(), "DistributedError")) : Ref();
  if (!type) PyErr_Clear();
  PyErr_SetString(type ? type.get() : PyExc_RuntimeError, text.c_str());
}

Status raise(Frame& frame, const std::exception_ptr& failure) {
  std::string text = "an exchange failed";
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    text = error.what();
  }
  mpi::break_off(text);
  bool holds = true;
  PyGILState_STATE state{};
  if (frame.suspended != nullptr) in_python<PyEval_RestoreThread>(std::exchange(frame.suspended, nullptr));
  else if (frame.on_stream) state = in_python<PyGILState_Ensure>(), holds = false;
  set_failure(text);
  if (!holds) {
    PyObject* type;
    PyErr_Fetch(&type, &frame.error, &frame.error_traceback);
    PyErr_NormalizeException(&type, &frame.error, &frame.error_traceback);
    Py_XDECREF(type);
    PyGILState_Release(state);
  }
  return Status::python_error;
}

// ---- starting

enum Way { kGather, kToAll, kPermute, kRank, kReduce, kScatter, kAgree, kWays };
const char* const kWayNames[kWays] = {"gather", "to_all", "permute", "rank", "reduce", "scatter", "agree"};
const char* const kCombinerNames[] = {"sum", "max", "min"};

std::atomic<uint64_t> g_launches{0};

class StartStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    if (way == kRank) {
      int32_t me = group.me;
      std::memcpy(out.address(frame), &me, sizeof me);
      return Status::ok;
    }
    try {
      auto flight = std::make_shared<Flight>();
      flight->operation = start(frame);
      if (way != kAgree) {
        int count = 0;
        for (int32_t slot : {in.slot, out.slot})
          if (Buffer* owner = frame.owners[slot]) flight->held[count++] = buffer_retain(owner);
      }
      if (!frame.flights) frame.flights = std::make_unique<Flights>();
      auto& list = frame.flights->list;
      if (list.size() <= size_t(number)) list.resize(size_t(number) + 1);
      if (meanwhile && nbytes >= kPolled) poller().add(flight);
      list[size_t(number)] = std::move(flight);
      return Status::ok;
    } catch (const std::bad_alloc&) {
      return Status::no_memory;
    } catch (const std::exception&) {
      return raise(frame, std::current_exception());
    }
  }
  bool is_python() const override { return true; }  // kept in the order of the program, as Python functions are
  double cost_ns() const override { return figures.exchange_ns + double(nbytes) * figures.exchange_byte_ns; }

  mpi::Pending start(const Frame& frame) const {
    const void* from = way == kAgree ? nullptr : in.address(frame);
    void* to = way == kAgree ? nullptr : out.address(frame);
    int n = int(group.ranks.size());
    switch (way) {
      case kGather: return mpi::start_all_gather(group, from, to, size_t(nbytes), tag);
      case kToAll: return mpi::start_all_to_all(group, from, to, size_t(nbytes / n), tag);
      case kPermute: return mpi::start_permute(from, to, size_t(nbytes), source, destinations, tag);
      case kReduce: return mpi::start_all_reduce(group, type, combiner, from, to, count, tag);
      case kScatter: return mpi::start_reduce_scatter(group, type, combiner, from, to, count / size_t(n), tag);
      default: return mpi::start_agree(++g_launches, fingerprint, words);
    }
  }

  int number, way, tag, source = -1;
  mpi::Group group;
  mpi::Type type{};
  mpi::Combine combiner{};
  std::vector<int> destinations;
  Location in{}, out{};
  int64_t nbytes = 0;  // of the operand
  size_t count = 0;
  uint64_t fingerprint = 0;
  std::string words;
  bool meanwhile = false;  // whether anything is computed before it is waited for
};

// ---- waiting

class DoneStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    std::shared_ptr<Flight> flight = std::exchange(frame.flights->list[size_t(number)], nullptr);
    try {
      std::lock_guard<std::mutex> lock(flight->mutex);
      for (int i = 0; i < kSpins; ++i)
        if (flight->poll()) return ++frame.flights->done, Status::ok;
      Status status = wait_long(frame, *flight);
      if (status == Status::ok) ++frame.flights->done;
      return status;
    } catch (const std::exception&) {
      return raise(frame, std::current_exception());
    }
  }
  bool is_python() const override { return true; }
  bool ends_exchange() const override { return true; }
  double cost_ns() const override { return figures.exchange_done_ns; }

  int number;
  std::string what;

 private:
  // Waits without the GIL, and looks for interrupts from time to time.
  Status wait_long(Frame& frame, Flight& flight) const {
    bool holds = frame.suspended == nullptr && !frame.on_stream;
    if (holds) frame.suspended = PyEval_SaveThread();
    struct Restore {
      Frame& frame;
      bool holds;
      ~Restore() {
        if (holds && frame.suspended != nullptr)
          in_python<PyEval_RestoreThread>(std::exchange(frame.suspended, nullptr));
      }
    } restore{frame, holds};
    mpi::Waited waited;
    while (!flight.done) {
      if (mpi::wait_part(*flight.operation, what, kPart, 0, &waited)) flight.done = true;
      if (flight.done) break;
      if (frame.on_stream || frame.number != 0) {
        if (!stream_cancelled(frame.number)) continue;
        mpi::break_off("the program was interrupted during " + what);
        return Status::cancelled;
      }
      in_python<PyEval_RestoreThread>(std::exchange(frame.suspended, nullptr));
      if (in_python<PyErr_CheckSignals>() != 0) {
        mpi::break_off("the program was interrupted during " + what);
        return Status::python_error;
      }
      frame.suspended = PyEval_SaveThread();
    }
    return Status::ok;
  }
};

// How many exchanges a plan has itself; `inner`: whether the programs that it runs have any.
int count_exchanges(const Plan& plan, bool* inner) {
  int count = 0;
  for (const auto& step : plan.steps) {
    count += step->ends_exchange();
    bool deeper = false;
    for (size_t i = 0; Executable* program = step->inner_program(i); ++i)
      if (count_exchanges(*program->plan, &deeper) > 0 || deeper) *inner = true;
  }
  return count;
}

bool read_numbers(PyObject* tuple, std::vector<int>* out) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    long value = PyLong_AsLong(PyTuple_GET_ITEM(tuple, i));
    if (value == -1 && PyErr_Occurred()) return false;
    out->push_back(int(value));
  }
  return true;
}

bool read_text(PyObject* object, std::string* out) {
  const char* text = PyUnicode_AsUTF8(object);
  if (text != nullptr) *out = text;
  return text != nullptr;
}

bool bad(const char* what) {
  PyErr_Format(PyExc_ValueError, "[executable] an exchange %s", what);
  return false;
}

// Whether ranks, dtype and sizes make sense together.
bool check(StartStep& step, const std::string& dtype, int64_t result_bytes) {
  int n = int(step.group.ranks.size());
  if (step.number < 0 || step.number > 1 << 20 || step.tag < 0 || step.tag >= 1 << 20) return bad("has no number");
  if (step.way == kAgree) return true;
  if (step.group.me < 0 || step.group.me >= n) return bad("leaves out this process");
  for (int rank : step.group.ranks)
    if (rank < 0 || (mpi::connected() && rank >= mpi::size())) return bad("names a process that there is not");
  int64_t wanted = step.way == kRank    ? 4
                   : step.way == kGather ? step.nbytes * n
                   : step.way == kScatter ? step.nbytes / n
                                          : step.nbytes;
  if (result_bytes != wanted || (step.way != kRank && step.nbytes == 0)) return bad("has a result of another size");
  if ((step.way == kToAll || step.way == kScatter) && step.nbytes % n != 0) return bad("has a row for each process");
  if (step.way != kReduce && step.way != kScatter) return true;
  if (!mpi::type_of(dtype, &step.type) || !mpi::reducible(step.type, step.combiner)) return bad("reduces no such dtype");
  size_t itemsize = mpi::size_of(step.type);
  if (size_t(step.nbytes) % itemsize != 0) return bad("has parts of elements");
  step.count = size_t(step.nbytes) / itemsize;
  return step.way == kReduce || step.count % size_t(n) == 0 || bad("has a row for each process");
}

}  // namespace

void break_off_exchanges(const Plan& plan, const Frame& frame) {
  bool inner = false;
  int count = count_exchanges(plan, &inner), done = frame.flights ? frame.flights->done : 0;
  if (done < count || inner)
    mpi::break_off(plan.name + " raised an error on this rank, and did not send what the others wait for");
}

std::unique_ptr<Step> make_exchange_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  auto step = std::make_unique<StartStep>();
  step->number = int(fields.integer("number"));
  step->way = fields.word("way", kWayNames, kWays);
  step->tag = int(fields.integer("tag"));
  step->group.me = int(fields.integer("me"));
  step->source = int(fields.integer("source"));
  step->meanwhile = fields.flag("meanwhile");
  Ref ranks = fields.tuple("ranks"), destinations = fields.tuple("destinations"), operand = fields.tuple("operand"),
      result = fields.tuple("result"), dtype = fields.object("dtype"), words = fields.object("words"),
      fingerprint = fields.object("fingerprint");
  step->combiner = mpi::Combine(fields.word("combiner", kCombinerNames, 3));
  if (!fields.ok()) return nullptr;
  std::string type_name;
  if (!read_numbers(ranks.get(), &step->group.ranks) || !read_numbers(destinations.get(), &step->destinations) ||
      !read_text(dtype.get(), &type_name) || !read_text(words.get(), &step->words))
    return nullptr;
  step->fingerprint = PyLong_AsUnsignedLongLong(fingerprint.get());
  if (PyErr_Occurred()) return nullptr;
  std::vector<Location> found;
  std::vector<int64_t> sizes;
  if (!locations.sized(operand.get(), &found, &sizes) || !locations.sized(result.get(), &found, &sizes)) return nullptr;
  bool has_operand = PyTuple_GET_SIZE(operand.get()) == 1, has_result = PyTuple_GET_SIZE(result.get()) == 1;
  if (has_operand != (step->way != kRank && step->way != kAgree) || has_result != (step->way != kAgree)) {
    bad("lacks an operand or a result");
    return nullptr;
  }
  if (has_operand) step->in = found[0], step->nbytes = sizes[0];
  if (has_result) step->out = found.back();
  if (!check(*step, type_name, has_result ? sizes.back() : 0)) return nullptr;
  return step;
}

std::unique_ptr<Step> make_done_step(PyObject* record, const LocationReader&) {
  Fields fields(record);
  auto step = std::make_unique<DoneStep>();
  step->number = int(fields.integer("number"));
  Ref what = fields.object("what");
  if (!fields.ok() || !read_text(what.get(), &step->what)) return nullptr;
  return step;
}

}  // namespace weft
