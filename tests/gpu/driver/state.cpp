// What there is and what fails, from environment variables; streams and their threads.
//
// WEFT_TEST_CUDA_DEVICES    how many (1)
// WEFT_TEST_CUDA_MEMORY     MiB of each (1024)
// WEFT_TEST_CUDA_CAPABILITY the compute capability ("9.0")
// WEFT_TEST_CUDA_VERSION    of the driver (12080)
// WEFT_TEST_CUDA_INIT       an error that cuInit gives
// WEFT_TEST_CUDA_FAIL_ALLOCATION  n: the n-th allocation finds no memory
// WEFT_TEST_CUDA_FAIL_LAUNCH      n: the n-th launch fails, and the context with it
// WEFT_TEST_CUDA_CHECKS     those of the machine, as their sum (7); WEFT_TEST_CUDA_STEPS  instructions of a warp at most
// WEFT_TEST_CUDA_SEED       of the order of blocks (0: ascending)
// WEFT_TEST_CUDA_DELAY      microseconds that work waits at most (200)
// WEFT_TEST_CUDA_PITCH      bytes of which distances of copied rows must be multiples (1)
// WEFT_TEST_CUDA_PEER       0: devices have no access to each other's memory
// WEFT_TEST_CUDA_APPROXIMATE  1: instructions whose bits are the hardware's are taken
// WEFT_TEST_CUDA_LOG        a file that gets a line for each fault of a kernel; unset: standard error
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "driver.h"

namespace testcuda {

thread_local Context* current = nullptr;

State& state() {
  static State* all = new State;  // threads of streams use it to the end of the process
  return *all;
}

namespace {

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = getenv((std::string("WEFT_TEST_CUDA_") + name).c_str());
  return text != nullptr && *text ? strtoll(text, nullptr, 0) : otherwise;
}

bool over(const Task& task) {
  return std::all_of(task.after.begin(), task.after.end(), [](const After& a) { return a.stream->done >= a.count; });
}

void work(Stream* stream) {
  State& s = state();
  std::mt19937 random(uint32_t(reinterpret_cast<uintptr_t>(stream) >> 4));
  for (;;) {
    std::unique_lock<std::mutex> lock(s.mutex);
    s.changed.wait(lock, [&] { return !stream->tasks.empty() && over(stream->tasks.front()); });
    Task task = std::move(stream->tasks.front());
    stream->tasks.pop_front();
    const bool works = stream->device->sticky == kSuccess;
    lock.unlock();
    if (s.delay > 0 && random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % uint32_t(s.delay)));
    const Result result = works && task.run ? task.run() : kSuccess;
    task = Task{};
    lock.lock();
    if (result != kSuccess && stream->device->sticky == kSuccess) stream->device->sticky = result;
    ++stream->done;
    s.changed.notify_all();
  }
}

}  // namespace

Result start() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.ready) return s.process == getpid() ? kSuccess : kNotInitialized;
  if (const Result refused = Result(setting("INIT", 0))) return refused;
  const int64_t count = setting("DEVICES", 1);
  if (count <= 0) return kNoDevice;
  s.bytes = uint64_t(setting("MEMORY", 1024)) << 20;
  s.version = int(setting("VERSION", 12080));
  if (const char* text = getenv("WEFT_TEST_CUDA_CAPABILITY")) sscanf(text, "%d.%d", &s.major, &s.minor);
  s.fail_allocation = uint64_t(setting("FAIL_ALLOCATION", 0));
  s.fail_launch = uint64_t(setting("FAIL_LAUNCH", 0));
  s.checks = uint32_t(setting("CHECKS", ptx::kEverything));
  s.steps = uint64_t(setting("STEPS", 0));
  s.seed = uint64_t(setting("SEED", 0));
  s.delay = int(setting("DELAY", 200));
  s.peer = setting("PEER", 1) != 0;
  s.pitch = uint64_t(setting("PITCH", 1));
  s.approximate = setting("APPROXIMATE", 0) != 0;
  if (const char* text = getenv("WEFT_TEST_CUDA_LOG")) s.log = text;
  for (int n = 0; n < int(count); ++n) {
    s.memory.add_device(n, s.bytes);
    s.devices.push_back(std::make_unique<Device>());
    s.devices.back()->number = n;
    s.contexts.push_back(std::make_unique<Context>(Context{s.devices.back().get()}));
    s.live.insert(s.contexts.back().get());
  }
  s.process = getpid();
  s.ready = true;
  return kSuccess;
}

Result ready(const char* call) {
  State& s = state();
  {
    std::lock_guard<std::mutex> lock(s.counting);
    ++s.calls[call];
  }
  if (!s.ready || s.process != getpid()) return kNotInitialized;
  return kSuccess;
}

Result in_context(const char* call) {
  if (const Result r = ready(call)) return r;
  if (current == nullptr) return kInvalidContext;
  std::lock_guard<std::mutex> lock(state().mutex);
  return current->device->sticky;
}

Stream* make_stream(Device* device, bool blocking) {
  auto* stream = new Stream;  // its thread uses it to the end of the process
  stream->device = device;
  stream->blocking = blocking;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    device->streams.push_back(stream);
  }
  std::thread(work, stream).detach();
  return stream;
}

Stream* stream_of(Handle handle) {
  if (reinterpret_cast<uintptr_t>(handle) > 2) {
    Stream* stream = alive<Stream>(handle);
    return stream;
  }
  if (current == nullptr) return nullptr;
  Device* device = current->device;
  if (device->legacy == nullptr) device->legacy = make_stream(device, true);
  return device->legacy;
}

Result ask(Stream* stream, std::function<Result()> run, int kind, std::vector<After> after) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (stream->capture != nullptr) {
    if (!after.empty()) return kSuccess;  // an order within the graph, which has one already
    auto node = std::make_shared<Node>();
    node->index = stream->capture->nodes.size();
    node->run = std::move(run);
    node->kind = kind;
    stream->capture->nodes.push_back(node);
    return kSuccess;
  }
  if (stream->blocking) {
    for (Stream* other : stream->device->streams)
      if (other != stream && other->blocking && (stream == stream->device->legacy || other == stream->device->legacy))
        after.push_back({other, other->asked});
  }
  stream->tasks.push_back({std::move(run), std::move(after)});
  ++stream->asked;
  s.changed.notify_all();
  return kSuccess;
}

Result ask_kernel(Stream* stream, Kernel kernel) {
  {
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    if (stream->capture != nullptr) {
      auto node = std::make_shared<Node>();
      node->type = Node::kernel;
      node->index = stream->capture->nodes.size();
      node->launch = std::move(kernel);
      stream->capture->nodes.push_back(node);
      return kSuccess;
    }
  }
  return ask(stream, [kernel = std::move(kernel)] { return run_kernel(kernel); }, 0);
}

Result wait(Stream* stream) {
  State& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  if (stream->capture != nullptr) {
    stream->capture->broken = true;
    return kCaptureUnsupported;
  }
  const uint64_t asked = stream->asked;
  std::vector<After> others;
  if (stream == stream->device->legacy)  // its end is behind that of the streams that wait for it
    for (Stream* other : stream->device->streams)
      if (other->blocking) others.push_back({other, other->asked});
  s.changed.wait(lock, [&] { return stream->done >= asked && over(Task{{}, others}); });
  return stream->device->sticky;
}

Result wait(Device* device) {
  State& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  std::vector<After> all;
  for (Stream* stream : device->streams) all.push_back({stream, stream->asked});
  s.changed.wait(lock, [&] { return over(Task{{}, all}); });
  return device->sticky;
}

char* view(Address address, uint64_t bytes, bool writes) {
  State& s = state();
  if (char* own = s.memory.own(address, bytes, writes)) return own;
  if (s.memory.device_of(address) >= 0) return nullptr;
  return reinterpret_cast<char*>(address);
}

bool is_pinned(const void* address) {
  ptx::Allocation* block = state().memory.find(reinterpret_cast<uint64_t>(address));
  return block != nullptr && block->device < 0;
}

}  // namespace testcuda

// For tests: how often each function was called since this was last asked, as "cuLaunchKernel 3\n...".
WEFT_EXPORT weft_test_calls(char* out, size_t room) {
  testcuda::State& s = testcuda::state();
  std::lock_guard<std::mutex> lock(s.counting);
  std::string text;
  for (const auto& [name, count] : s.calls) text += name + " " + std::to_string(count) + "\n";
  s.calls.clear();
  snprintf(out, room, "%s", text.c_str());
  return int(text.size());
}
