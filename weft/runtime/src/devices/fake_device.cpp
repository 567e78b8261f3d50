// Fake devices: they stand for hardware that a test needs and has not got. WEFT_FAKE_DEVICES=2 makes two.
//
// The memory of one is mapped twice. The addresses that the host has are in a mapping without access: whoever reads
// through them ends the process, and the traceback says where. The device's own thread works in the other mapping, on what
// it is asked for, in order, after random delays, by the CPU's kernels. New memory is filled with junk.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "device.h"
#include "figures.h"
#include "module.h"
#include "pjrt.h"

namespace weft {

namespace {

constexpr int64_t kRoom = int64_t{1} << 30;  // bytes of a device
constexpr int64_t kApart = 64;               // between blocks, so that an access behind one is seen in no other
constexpr size_t kMostWaiting = 512;         // tasks: whoever asks for more waits
constexpr int kJunk = 0xCB;

int64_t padded(int64_t bytes) { return ((std::max<int64_t>(bytes, 1) + kAlignment - 1) & ~(kAlignment - 1)) + kApart; }

class FakeEvent final : public Event {
 public:
  bool done() const noexcept override { return over_.load(std::memory_order_acquire); }
  int wait() override {
    while (!done()) {
      if (refuse_after_fork()) return -1;
      PyThreadState* state = PyEval_SaveThread();
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return done(); });
      }
      in_python<PyEval_RestoreThread>(state);
      if (!done() && in_python<PyErr_CheckSignals>() < 0) return -1;
    }
    if (!failed_) return 0;
    set_memory_error(-1, "device", "a kernel's working memory");
    return -1;
  }
  void retain() noexcept override { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept override {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  void finish(bool failed) {
    std::lock_guard<std::mutex> lock(mutex_);
    failed_ = failed;
    over_.store(true, std::memory_order_release);
    changed_.notify_all();
  }

 private:
  ~FakeEvent() = default;

  std::atomic<int32_t> references_{1};
  std::atomic<bool> over_{false};
  bool failed_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

class FakeDevice final : public Device {
 public:
  FakeDevice(uint32_t number, std::string name) : Device(number, std::move(name)), random_(number) {}

  // False if the system gives no memory.
  bool start() {
    int file = memfd_create("weft-fake-device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, kRoom) < 0) return false;
    void* hidden = mmap(nullptr, kRoom, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    void* own = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (hidden == MAP_FAILED || own == MAP_FAILED) return false;
    hidden_ = static_cast<char*>(hidden);
    own_ = static_cast<char*>(own);
    free_[0] = kRoom;
    std::thread([this] { work(); }).detach();
    return true;
  }

  Buffer* allocate(int64_t nbytes) noexcept override {
    if (nbytes < 0 || nbytes > kRoom || is_forked_child()) return nullptr;
    try {
      const int64_t bytes = padded(nbytes), offset = take(bytes);
      if (offset < 0) return nullptr;
      Buffer* buffer = buffer_on_device(this, hidden_ + offset, nbytes, bytes - kApart);
      if (buffer == nullptr) return give(offset, bytes), nullptr;
      ask([=, this] { std::memset(own_ + offset, kJunk, size_t(bytes)); });
      return buffer;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  void recycle(Buffer* buffer) noexcept override {
    if (is_forked_child()) return;
    const int64_t offset = buffer->data - hidden_, bytes = buffer->capacity + kApart;
    try {
      // whoever gets the bytes next asks for its work later than this
      const int64_t first = (offset + kPage - 1) & ~(kPage - 1), last = (offset + bytes) & ~(kPage - 1);
      if (last > first) ask([=, this] { madvise(own_ + first, size_t(last - first), MADV_REMOVE); });
      give(offset, bytes);
    } catch (const std::bad_alloc&) {  // then the bytes are lost
    }
  }
  Status copy(char* to, const char* from, int64_t nbytes) override {
    return ask([=, this] { std::memmove(mine(to), mine(from), size_t(nbytes)); });
  }
  Status upload(char* to, const char* from, int64_t nbytes) override {
    return ask([=, this, bytes = std::vector<char>(from, from + nbytes)] {
      std::memcpy(mine(to), bytes.data(), bytes.size());
    });
  }
  Status fetch(char* to, const char* from, int64_t nbytes) override {
    Status asked = ask([=, this] { std::memcpy(to, mine(from), size_t(nbytes)); });
    if (asked != Status::ok) return asked;
    drain();
    return failed_.load() ? Status::no_memory : Status::ok;
  }
  Status launch(const Step& step, Frame& frame) override {
    const Plan& plan = *frame.plan;
    return ask([this, &step, plan = &plan, slots = std::vector<char*>(frame.slots, frame.slots + plan.n_slots()),
                dynamic = std::vector<int64_t>(frame.dynamic, frame.dynamic + plan.n_dynamic)]() mutable {
      for (char*& slot : slots) slot = mine(slot);
      std::vector<Buffer*> owners(slots.size());
      Frame here{slots.data(), owners.data(), dynamic.data(), plan};
      here.on_stream = true;
      if (step.run(here) != Status::ok) failed_.store(true);
    });
  }
  Event* record() override {
    auto* event = new FakeEvent;
    event->retain();
    const auto over = [=, this] {
      event->finish(failed_.load());
      event->release();
    };
    if (ask(over) != Status::ok) over();
    return event;
  }
  void drain() override {
    if (is_forked_child()) return;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&, all = asked_] { return done_ >= all; });
  }

 private:
  // The same byte where this device reads it.
  char* mine(char* address) const {
    const bool inside = address >= hidden_ && address < hidden_ + kRoom;
    return inside ? own_ + (address - hidden_) : address;
  }
  const char* mine(const char* address) const { return mine(const_cast<char*>(address)); }

  Status ask(std::function<void()> task) {
    if (is_forked_child()) return Status::no_memory;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.size() < kMostWaiting; });
    waiting_.push_back(std::move(task));
    ++asked_;
    changed_.notify_all();
    return Status::ok;
  }

  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return !waiting_.empty(); });
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      if (random_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
      try {
        task();
      } catch (const std::bad_alloc&) {
        failed_.store(true);
      }
      task = nullptr;
      std::lock_guard<std::mutex> lock(mutex_);
      ++done_;
      changed_.notify_all();
    }
  }

  // The offset of free bytes; -1: there are none.
  int64_t take(int64_t bytes) {
    std::lock_guard<std::mutex> lock(memory_);
    for (auto range = free_.begin(); range != free_.end(); ++range) {
      const auto [offset, size] = *range;
      if (size < bytes) continue;
      if (size > bytes) free_[offset + bytes] = size - bytes;
      free_.erase(range);
      return offset;
    }
    return -1;
  }
  void give(int64_t offset, int64_t bytes) {
    std::lock_guard<std::mutex> lock(memory_);
    auto after = free_.lower_bound(offset);
    if (after != free_.end() && after->first == offset + bytes) {
      bytes += after->second;
      after = free_.erase(after);
    }
    if (after != free_.begin()) {
      auto before = std::prev(after);
      if (before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    }
    free_[offset] = bytes;
  }

  char *hidden_ = nullptr, *own_ = nullptr;
  std::mutex memory_;                 // guards free_
  std::map<int64_t, int64_t> free_;   // offset -> bytes
  std::mutex mutex_;                  // guards waiting_, asked_ and done_
  std::condition_variable changed_;   // these three
  std::deque<std::function<void()>> waiting_;
  uint64_t asked_ = 0, done_ = 0;
  std::atomic<bool> failed_{false};  // from then on nothing that it computes is valid
  std::minstd_rand random_;          // its own thread's
};

// make_fake_devices(count) -> the numbers of new devices
PyObject* make_fake_devices(PyObject*, PyObject* argument) {
  const long count = PyLong_AsLong(argument);
  if (count == -1 && PyErr_Occurred()) return nullptr;
  if (count < 1 || count > 64) return PyErr_Format(PyExc_ValueError, "[devices] 1 to 64 fake devices, got %ld", count);
  if (refuse_after_fork()) return nullptr;
  Ref numbers = steal(PyList_New(0));
  auto& devices = plugin_devices();
  for (long i = 0; numbers && i < count; ++i) {
    const auto number = uint32_t(devices.size());
    auto device = std::make_unique<FakeDevice>(number, "fake:" + std::to_string(i));
    if (!device->start()) return PyErr_Format(PyExc_MemoryError, "[devices] no memory for fake device %ld", i);
    auto entry = std::make_unique<PluginDevice>();
    entry->name = device->name;
    entry->native = device.release();  // exists until the process ends
    devices.push_back(std::move(entry));
    Ref made = steal(PyLong_FromUnsignedLong(number));
    if (!made || PyList_Append(numbers.get(), made.get()) < 0) return nullptr;
  }
  return numbers.release();
}

PyObject* drain_devices(PyObject*, PyObject*) {
  PyThreadState* state = PyEval_SaveThread();
  for (const auto& device : plugin_devices())
    if (device != nullptr && device->native != nullptr) device->native->drain();
  in_python<PyEval_RestoreThread>(state);
  if (PyErr_Occurred()) return nullptr;  // a signal's handler raised
  Py_RETURN_NONE;
}

PyMethodDef kMethods[] = {
    {"make_fake_devices", entry_point<make_fake_devices>, METH_O,
     "make_fake_devices(count) -> the numbers of new devices that only look like other hardware, for tests."},
    {"drain_devices", entry_point<drain_devices>, METH_NOARGS,
     "drain_devices(): waits until all devices but plugins' have done everything that they were asked for."},
    {},
};

}  // namespace

int register_devices(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
