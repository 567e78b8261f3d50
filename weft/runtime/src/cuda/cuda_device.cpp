// What a GPU is asked for, in order, and how it is waited for. See cuda_device.h.
#include "cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <optional>
#include <thread>

#include "ahead.h"
#include "cuda_graphs.h"
#include "pjrt.h"

namespace weft {

using cuda::address;
using cuda::Handle;
using cuda::Result;
using cuda::the_driver;

namespace {

constexpr size_t kMostRecent = 4;  // programs named where one has failed,
constexpr size_t kMostLines = 6;   // and lines of each
constexpr auto kSpin = std::chrono::microseconds(40);
constexpr auto kYield = std::chrono::milliseconds(1);  // a sleep takes 50 us more than it is asked for
constexpr auto kLongestSleep = std::chrono::microseconds(1000);
constexpr auto kSignals = std::chrono::milliseconds(50);
using Clock = std::chrono::steady_clock;

thread_local std::string t_reason;  // why what this thread asked for last has failed; empty: not known

// Whether a context that had this error does nothing more.
bool is_sticky(Result result) {
  switch (result) {
    case 4: case 214: case 226: case 700: case 702: case 709: case 710: case 714: case 715: case 716: case 717: case 718:
    case 719: case 721: case 810: case 911: case 999: return true;
    default: return false;
  }
}

// Lets other threads have the GIL if this one has it.
class OthersMayRun {
 public:
  OthersMayRun() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~OthersMayRun() {
    if (state_ != nullptr) in_python<PyEval_RestoreThread>(state_);
  }
  OthersMayRun(const OthersMayRun&) = delete;
  OthersMayRun& operator=(const OthersMayRun&) = delete;

 private:
  PyThreadState* state_;
};

// False if the handler of a signal raised: the error is this thread's.
bool signals_let_wait() {
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) return true;
  const SetAside aside;
  const NoRecording none;
  PyGILState_STATE state = in_python<PyGILState_Ensure>();
  const bool fine = in_python<PyErr_CheckSignals>() == 0;
  PyGILState_Release(state);
  return fine;
}

}  // namespace

// ---- events ----

class CudaEvent final : public Event {
 public:
  CudaEvent(CudaDevice& device, Handle event, uint64_t launched) : device_(device), event_(event), launched_(launched) {}

  bool done() const noexcept override {
    if (over_.load(std::memory_order_acquire) || event_ == nullptr) return true;
    if (is_forked_child()) return false;
    CudaDevice::InContext here(device_);
    const Result result = the_driver().cuEventQuery(event_);
    if (result == cuda::kNotReady) return false;
    if (result == cuda::kSuccess) over_.store(true, std::memory_order_release);
    return true;  // whoever waits for a failed one gets the error
  }
  int wait() override {
    if (over_.load(std::memory_order_acquire)) return 0;
    if (refuse_after_fork()) return -1;
    if (event_ != nullptr && device_.wait(event_) == Status::ok) {
      device_.forget(launched_);
      over_.store(true, std::memory_order_release);
      return 0;
    }
    if (!PyErr_Occurred() && !device_.explain(nullptr)) PyErr_SetString(PyExc_RuntimeError, "[devices] a GPU failed");
    return -1;
  }
  void retain() noexcept override { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept override {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (!is_forked_child() && event_ != nullptr) device_.give_event(event_);
    delete this;
  }
  Handle handle() const { return event_; }

 private:
  ~CudaEvent() = default;

  CudaDevice& device_;
  const Handle event_;  // owned; nullptr: it could not be recorded, since what was before it has failed
  const uint64_t launched_;  // how many launches there were before
  std::atomic<int32_t> references_{1};
  mutable std::atomic<bool> over_{false};
};

Handle CudaDevice::take_event(uint64_t* launched) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (launched != nullptr) *launched = launched_;
    if (!events_.empty()) {
      Handle event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  Handle made = nullptr;
  check(the_driver().cuEventCreate(&made, cuda::kNoTiming), "cuEventCreate");
  return made;
}

void CudaDevice::give_event(Handle event) {
  std::lock_guard<std::mutex> lock(mutex_);
  events_.push_back(event);
}

Handle CudaDevice::mark(Handle stream, uint64_t* launched) {
  Handle event = take_event(launched);
  if (event == nullptr || check(the_driver().cuEventRecord(event, stream), "cuEventRecord") == Status::ok) return event;
  give_event(event);
  return nullptr;
}

Status CudaDevice::wait(Handle event) {
  const auto query = [&] {
    InContext here(*this);
    return the_driver().cuEventQuery(event);
  };
  Result result = query();
  if (result == cuda::kNotReady) {
    OthersMayRun free;
    const auto begin = Clock::now();
    auto looked = begin;
    while ((result = query()) == cuda::kNotReady) {
      const auto now = Clock::now();
      if (now - begin < kSpin) continue;
      if (now - begin < kYield) {
        std::this_thread::yield();
        continue;
      }
      if (now - looked >= kSignals) {
        if (!signals_let_wait()) return t_reason.clear(), Status::device_error;
        looked = now;
      }
      std::this_thread::sleep_for(std::min<Clock::duration>((now - begin) / 8, kLongestSleep));
    }
  }
  return check(result, "waiting");
}

Status CudaDevice::wait_idle() {
  if (Status status = refuse(); status != Status::ok) return status;
  Handle event;
  uint64_t launched = 0;
  {
    InContext here(*this);
    event = mark(stream_, &launched);
  }
  if (event == nullptr) return Status::device_error;
  const Status status = wait(event);
  give_event(event);
  if (status == Status::ok) forget(launched);
  return status;
}

Event* CudaDevice::record() {
  InContext here(*this);
  uint64_t launched = 0;
  Handle event = refuse() == Status::ok ? mark(stream_, &launched) : nullptr;
  return new CudaEvent(*this, event, launched);
}

void CudaDevice::drain() { wait_idle(); }

// ---- contexts and errors ----

CudaDevice::InContext::InContext(const CudaDevice& device) {
  if (the_driver().cuCtxGetCurrent(&before_) == cuda::kSuccess && before_ == device.context_) return;
  // The first GPU's stays where there was none: it is what the CUDA runtime of other libraries would take by itself.
  const bool stays = before_ == nullptr && device.facts.ordinal == 0;
  changed_ = the_driver().cuCtxSetCurrent(device.context_) == cuda::kSuccess && !stays;
}

CudaDevice::InContext::~InContext() {
  if (changed_) the_driver().cuCtxSetCurrent(before_);
}

CudaDevice::CudaDevice(uint32_t number, const cuda::Facts& facts)
    : Device(number, "cuda:" + std::to_string(facts.ordinal)), facts(facts) {}

CudaDevice* CudaDevice::open(uint32_t number, const cuda::Facts& facts, double fraction, std::string* reason) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(number, facts));
  Result result = the_driver().cuDevicePrimaryCtxRetain(&device->context_, facts.device);
  if (result == cuda::kSuccess) {
    InContext here(*device);
    result = the_driver().cuStreamCreate(&device->stream_, cuda::kNonBlocking);
    if (result == cuda::kSuccess) result = the_driver().cuStreamCreate(&device->copies_, cuda::kNonBlocking);
    size_t free = 0, total = 0;
    if (result == cuda::kSuccess) result = the_driver().cuMemGetInfo_v2(&free, &total);
    device->bytes_limit_ = fraction > 0 ? int64_t(fraction * double(facts.bytes)) : int64_t(free);
    if (fraction > 0) device->pool_.limit = device->bytes_limit_;
  }
  if (result == cuda::kSuccess) return device.release();
  *reason = the_driver().text(result);
  return nullptr;
}

std::string CudaDevice::who() const { return "GPU " + std::to_string(facts.ordinal) + " (" + facts.name + ")"; }

Status CudaDevice::check(Result result, const char* what, const char* where) {
  if (result == cuda::kSuccess) return Status::ok;
  t_reason = who() + ": " + what + ": " + the_driver().text(result);
  if (!is_sticky(result)) return result == cuda::kOutOfMemory ? Status::no_memory : Status::device_error;
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_.load()) return Status::device_error;
  stopped_because_ = the_driver().text(result);
  if (*where != 0) {
    stopped_because_ += std::string(", in the kernel at ") + where;
  } else if (!recent_.empty()) {
    stopped_because_ += ", in ";
    for (const auto& program : recent_) stopped_because_ += program.first + (&program == &recent_.back() ? "" : " or ");
  }
  stopped_.store(true);
  return Status::device_error;
}

void CudaDevice::fails(const std::string& why) const { t_reason = who() + ": " + why; }

void CudaDevice::forget_reason() { t_reason.clear(); }

Status CudaDevice::refuse() {
  if (!stopped_.load(std::memory_order_relaxed) && !is_forked_child()) return Status::ok;
  t_reason.clear();
  return Status::device_error;
}

bool CudaDevice::explain(const char* program) {
  if (refuse_after_fork()) return true;
  const std::string prefix = program == nullptr ? "INTERNAL: " : std::string("INTERNAL: [") + program + "] ";
  if (stopped_.load()) {
    std::string text;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      text = said_ ? prefix + who() + " has stopped before: " + stopped_because_
                   : prefix + who() + " has stopped: " + stopped_because_ +
                         ". What it was computing is lost, and it computes nothing more in this process; other devices "
                         "still work, and a new process can use it";
      said_ = true;
    }
    set_runtime_error(text);
    return true;
  }
  if (t_reason.empty()) return false;
  set_runtime_error(prefix + std::exchange(t_reason, std::string()));
  return true;
}

void CudaDevice::forget(uint64_t launched) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(recent_, [launched](const auto& program) { return program.second <= launched; });
}

// ---- memory ----

Buffer* CudaDevice::allocate(int64_t nbytes) noexcept {
  if (nbytes < 0 || nbytes > (int64_t{1} << 56) || refuse() != Status::ok) return nullptr;
  try {
    int64_t capacity = 0;
    Result result;
    cuda::Address found = pool_.take_free(nbytes, &capacity);
    std::optional<InContext> here;
    if (found == 0) {
      here.emplace(*this);
      found = pool_.take(nbytes, &capacity, &result);
    }
    if (found == 0 && result == cuda::kOutOfMemory && wait_idle() == Status::ok && pool_.trim())
      found = pool_.take(nbytes, &capacity, &result);
    if (found == 0) {
      if (result != cuda::kOutOfMemory) check(result, "cuMemAlloc");
      else if (!stopped_.load()) t_reason.clear();  // that memory is out, is said by who asked
      return nullptr;
    }
    Buffer* buffer = buffer_on_device(this, reinterpret_cast<char*>(found), nbytes, capacity);
    if (buffer == nullptr) pool_.give(found);
    return buffer;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void CudaDevice::recycle(Buffer* buffer) noexcept {
  if (is_forked_child()) return;
  try {
    pool_.give(address(buffer->data));
  } catch (const std::bad_alloc&) {  // then the bytes are lost
  }
}

std::string CudaDevice::memory_text() {
  const cuda::PoolStats stats = pool_.stats();
  size_t free = 0, total = 0;
  InContext here(*this);
  the_driver().cuMemGetInfo_v2(&free, &total);
  const auto text = [](int64_t bytes) { return bytes_text(double(bytes)); };
  return "; arrays and running programs hold " + text(stats.bytes_in_use) + ", " +
         text(stats.pool_bytes - stats.bytes_in_use) + " more are kept in parts too small, and " + text(int64_t(free)) +
         " of the " + text(int64_t(total)) + " of " + who() +
         " are free" + (pool_.limit < INT64_MAX ? "; XLA_PYTHON_CLIENT_MEM_FRACTION allows " + text(pool_.limit) : "") +
         kMemoryCure;
}

Status CudaDevice::copy(char* to, const char* from, int64_t nbytes) {
  if (nbytes == 0 || to == from || t_skipping) return Status::ok;
  if (Status status = refuse(); status != Status::ok) return status;
  InContext here(*this);
  if (to >= from + nbytes || from >= to + nbytes) {
    if (t_guard.word != nullptr) return move_guarded(to, from, 0, nbytes);
    return check(the_driver().cuMemcpyDtoDAsync_v2(address(to), address(from), size_t(nbytes), stream_), "a copy");
  }
  Buffer* between = allocate(nbytes);
  if (between == nullptr) return Status::no_memory;
  Status status = copy(between->data, from, nbytes);
  if (status == Status::ok) status = copy(to, between->data, nbytes);
  buffer_release(between);
  return status;
}

Status CudaDevice::fill(char* to, int byte, int64_t nbytes) {
  if (nbytes == 0) return Status::ok;
  InContext here(*this);
  if (t_guard.word != nullptr) return move_guarded(to, nullptr, byte, nbytes);
  return check(the_driver().cuMemsetD8Async(address(to), static_cast<unsigned char>(byte), size_t(nbytes), stream_), "a fill");
}

bool CudaDevice::copy_rows(char* to, const char* from, int64_t nbytes, int64_t count, int64_t stride, Status* status) {
  if (the_driver().cuMemcpy2DAsync_v2 == nullptr || stride >= (int64_t{1} << 31) || stride < nbytes) return false;
  cuda::Copy2D rows{};
  rows.from_type = rows.to_type = cuda::kDeviceMemory;
  rows.from = address(from);
  rows.to = address(to);
  rows.from_pitch = rows.to_pitch = size_t(stride);
  rows.width = size_t(nbytes);
  rows.height = size_t(count);
  InContext here(*this);
  const Result result = the_driver().cuMemcpy2DAsync_v2(&rows, stream_);
  if (result == cuda::kInvalidValue) return false;  // it may refuse pitches that are not those of its own allocations
  *status = check(result, "a copy of rows");
  return true;
}

// ---- copies that somebody waits for later ----

struct CudaDevice::HostCopy {
  CudaDevice* device;
  char* piece;
  CudaEvent* event;  // owned
  Buffer* source;    // owned

  static void release(void* object) {
    auto* own = static_cast<HostCopy*>(object);
    if (!is_forked_child()) {
      CudaDevice& device = *own->device;
      InContext here(device);
      // whoever gets the source's memory next works after the copy
      if (!own->event->done()) the_driver().cuStreamWaitEvent(device.stream_, own->event->handle(), 0);
      device.rest(own->piece, device.mark(device.stream_));
      buffer_release(own->source);
      own->event->release();
    }
    delete own;
  }
};

Buffer* CudaDevice::fetch_later(Buffer* source, int64_t nbytes) {
  if (nbytes == 0 || refuse() != Status::ok) return nullptr;
  InContext here(*this);
  sweep();
  char* piece = pinned_.take(nbytes);
  if (piece == nullptr) return nullptr;
  const auto& driver = the_driver();
  Handle ready = mark(stream_), over = nullptr;
  if (ready != nullptr) {
    Status status = check(driver.cuStreamWaitEvent(copies_, ready, 0), "waiting for an event");
    if (status == Status::ok)
      status = check(driver.cuMemcpyDtoHAsync_v2(piece, address(source->data), size_t(nbytes), copies_), "a copy to the host");
    if (status == Status::ok) over = mark(copies_);
    give_event(ready);
  }
  Buffer* made = over == nullptr ? nullptr : buffer_wrap(piece, nbytes, HostCopy::release, nullptr);
  if (made == nullptr) return nullptr;  // the piece may still be written to: it is lost
  auto* event = new CudaEvent(*this, over, 0);
  event->retain();
  made->owner = new HostCopy{this, piece, event, buffer_retain(source)};
  made->pending = event;
  return made;
}

// ---- other streams and other devices ----

Status CudaDevice::wait_before(Handle other) {
  InContext here(*this);
  Handle event = mark(stream_);
  if (event == nullptr) return Status::device_error;
  Status status = check(the_driver().cuStreamWaitEvent(other, event, 0), "another stream");
  give_event(event);
  return status;
}

Status CudaDevice::wait_for(Handle other) {
  InContext here(*this);
  Handle event = mark(other);
  if (event == nullptr) return Status::device_error;
  Status status = check(the_driver().cuStreamWaitEvent(stream_, event, 0), "another stream");
  give_event(event);
  return status;
}

Buffer* CudaDevice::copy_of(Device& other, Buffer* source, int64_t nbytes) {
  CudaDevice* from = cuda_device(&other);
  if (from == nullptr || the_driver().cuMemcpyPeerAsync == nullptr || from->refuse() != Status::ok) return nullptr;
  Buffer* made = allocate(nbytes);
  if (made == nullptr || nbytes == 0) return made;
  Status status = from->wait_before(stream_);
  if (status == Status::ok) {
    InContext here(*this);
    status = check(the_driver().cuMemcpyPeerAsync(address(made->data), context_, address(source->data), from->context_,
                                                  size_t(nbytes), stream_),
                   "a copy between GPUs");
  }
  if (status == Status::ok) status = wait_before(from->stream_);  // before the source's memory is used again
  if (status == Status::ok) return made;
  buffer_release(made);
  return nullptr;
}

// ---- kernels ----

Status CudaDevice::launch(const Step& step, Frame& frame) {
  if (t_skipping) return Status::ok;
  if (Status status = begin(*frame.plan); status != Status::ok) return status;
  InContext here(*this);
  Status status;
  return step.enqueue(*this, frame, &status) ? status : run_on_host(step, frame);
}

Status CudaDevice::launch_kernel(const CudaLaunch& own) {
  if (CudaRecording* recording = CudaRecording::current) return recording->add(own), Status::ok;
  return check(the_driver().cuLaunchKernel(own.function, own.blocks[0], own.blocks[1], 1, own.threads, 1, 1,
                                           own.shared_bytes, stream_, own.params, nullptr),
               "cuLaunchKernel", own.where);
}

Status CudaDevice::launch_library(const LibraryCall& call, const int64_t* words, uint32_t n_words, const char* where) {
  if (CudaRecording* recording = CudaRecording::current) return recording->add(call, words, n_words, where), Status::ok;
  return call.ask(words, stream_, where);
}

Handle CudaDevice::captured(const LibraryCall& call, const int64_t* words) {
  const cuda::Driver& driver = the_driver();
  if (driver.cuStreamBeginCapture_v2 == nullptr || driver.cuStreamEndCapture == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(capture_mutex_);
  if (captures_ == nullptr && driver.cuStreamCreate(&captures_, cuda::kNonBlocking) != cuda::kSuccess) return nullptr;
  if (driver.cuStreamBeginCapture_v2(captures_, cuda::kRelaxed) != cuda::kSuccess) return nullptr;
  const Status status = call.ask(words, captures_, "");
  Handle graph = nullptr;
  if (driver.cuStreamEndCapture(captures_, &graph) == cuda::kSuccess && status == Status::ok) return graph;
  if (graph != nullptr) driver.cuGraphDestroy(graph);
  t_reason.clear();
  return nullptr;
}

Status CudaDevice::launch_graph(Handle graph) {
  return check(the_driver().cuGraphLaunch(graph, stream_), "cuGraphLaunch");
}

void CudaDevice::end_scratch(Buffer* scratch) {
  if (CudaRecording::current != nullptr) CudaRecording::current->keep(scratch);
  else buffer_release(scratch);
}

void CudaDevice::made(Plan* plan) {
  plan->replay = cuda_replay(*this, *plan);
  std::vector<std::string> lines;
  for (const auto& step : plan->steps)
    if (std::string where = step->where(); !where.empty() && std::find(lines.begin(), lines.end(), where) == lines.end())
      lines.push_back(where);
  plan->lines = plan->name;
  for (size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) plan->lines += (i == 0 ? " at " : " or ") + lines[i];
  if (lines.size() > kMostLines) plan->lines += " or in " + std::to_string(lines.size() - kMostLines) + " more";
  if (lines.size() > 1) plan->lines += " (CUDA_LAUNCH_BLOCKING=1 tells which)";
}

Status CudaDevice::begin(const Plan& plan) {
  if (Status status = refuse(); status != Status::ok) return status;
  std::lock_guard<std::mutex> lock(mutex_);
  ++launched_;
  for (auto& known : recent_)
    if (known.first == plan.lines) return known.second = launched_, Status::ok;
  if (recent_.size() == kMostRecent) recent_.pop_front();
  recent_.emplace_back(plan.lines, launched_);
  return Status::ok;
}

Handle CudaDevice::load(const std::string& image) {
  InContext here(*this);
  char words[4096] = "";
  int options[] = {cuda::kErrorLog, cuda::kErrorLogBytes};
  void* values[] = {words, reinterpret_cast<void*>(sizeof words)};
  Handle module = nullptr;
  const Result result = the_driver().cuModuleLoadDataEx(&module, image.c_str(), 2, options, values);
  if (check(result, "loading a module") == Status::ok) return module;
  words[sizeof words - 1] = 0;
  if (*words != 0) t_reason += std::string("\n") + words;
  return nullptr;
}

void CudaDevice::unload(Handle module) {
  if (is_forked_child() || !Py_IsInitialized()) return;
  InContext here(*this);
  Handle event = mark(stream_);
  std::lock_guard<std::mutex> lock(mutex_);
  if (event != nullptr) unloading_.emplace_back(module, event);
  std::erase_if(unloading_, [this](const auto& entry) {
    if (the_driver().cuEventQuery(entry.second) != cuda::kSuccess) return false;
    the_driver().cuModuleUnload(entry.first);
    events_.push_back(entry.second);
    return true;
  });
}

Handle CudaDevice::function(Handle module, const std::string& entry, int64_t shared_bytes) {
  constexpr int64_t kWithoutAsking = 48 << 10;
  InContext here(*this);
  Handle found = nullptr;
  const std::string what = "the entry " + entry;
  if (check(the_driver().cuModuleGetFunction(&found, module, entry.c_str()), what.c_str()) != Status::ok) return nullptr;
  if (shared_bytes <= kWithoutAsking) return found;
  const Result result = the_driver().cuFuncSetAttribute(found, cuda::kMaxDynamicShared, int(shared_bytes));
  return check(result, (what + " with " + std::to_string(shared_bytes) + " bytes of shared memory").c_str()) == Status::ok
             ? found
             : nullptr;
}

}  // namespace weft
