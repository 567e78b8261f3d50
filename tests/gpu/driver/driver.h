// A driver of GPUs for tests, without a GPU: the functions of libcuda.so.1 over the PTX machine.
//
// Work runs in the order of its stream on a thread of the stream, after small random delays. Environment variables that
// begin with WEFT_TEST_CUDA_ say what there is and what fails (state.cpp).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../machine/launch.h"
#include "../machine/memory.h"
#include "../machine/program.h"

namespace testcuda {

using Result = int;
using Handle = void*;
using Address = uint64_t;

enum : Result {
  kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100, kInvalidDevice = 101,
  kInvalidImage = 200, kInvalidContext = 201, kNoBinary = 209, kInvalidPtx = 218, kUnsupportedPtx = 222, kInvalidHandle = 400,
  kNotFound = 500, kNotReady = 600, kIllegalAddress = 700, kOutOfResources = 701, kTimeout = 702, kPeerEnabled = 704,
  kPeerNotEnabled = 705, kAlreadyRegistered = 712, kNotRegistered = 713, kIllegalInstruction = 715, kMisaligned = 716,
  kLaunchFailed = 719, kNotSupported = 801, kCaptureUnsupported = 900, kCaptureInvalidated = 901, kCaptureUnmatched = 903,
  kCapturedEvent = 907, kGraphUpdate = 910,
};

struct Stream;
struct Graph;

struct Device {
  int number = 0;
  Result sticky = kSuccess;  // guarded by the mutex of State
  uint64_t peers = 0;
  std::vector<Stream*> streams;
  Stream* legacy = nullptr;
  int retained = 0;
};

struct Context {
  Device* device;
};

// So many tasks of a stream must be over.
struct After {
  Stream* stream;
  uint64_t count;
};

struct Task {
  std::function<Result()> run;
  std::vector<After> after;
};

struct Stream {
  Device* device;
  bool blocking;  // it and the legacy stream wait for each other
  std::deque<Task> tasks;
  uint64_t asked = 0, done = 0;
  Graph* capture = nullptr;
  bool ended = false;
};

struct Event {
  bool timed;
  Stream* stream = nullptr;  // where it was recorded last
  uint64_t count = 0;
  std::shared_ptr<double> time;
  Graph* capture = nullptr;
};

struct Module {
  Device* device;
  std::unique_ptr<ptx::Module> code;
  std::map<std::string, std::unique_ptr<struct Function>> functions;
};

struct Function {
  Module* module;
  const ptx::Function* code;
  uint32_t dynamic_shared = 48 * 1024;  // what a launch may ask for
};

// A launch as a call or a node of a graph gives it.
struct Kernel {
  Function* function = nullptr;
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, shared = 0;
  std::vector<char> params;
};

struct Node {
  enum Type { kernel, other } type = other;
  size_t index = 0;
  Kernel launch;
  std::function<Result()> run;
  int kind = 0;  // the driver's number of its type
};

struct Graph {
  std::vector<std::shared_ptr<Node>> nodes;  // in an order in which they can run
  Device* device = nullptr;
  std::vector<Stream*> streams;  // that are captured into it
  Stream* origin = nullptr;
  bool broken = false;
};

struct State {
  std::mutex mutex;  // guards all that follows
  std::condition_variable changed;
  ptx::Memory memory;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Context>> contexts;
  std::unordered_set<const void*> live;  // handles that the caller may use
  bool ready = false;
  int process = 0;
  int version = 12080, major = 9, minor = 0;
  uint64_t bytes = 0;
  uint64_t allocations = 0, launches = 0, fail_allocation = 0, fail_launch = 0;
  uint32_t checks = ptx::kEverything;
  uint64_t seed = 0;
  int delay = 200;  // microseconds at most
  bool peer = true, approximate = false;
  uint64_t steps = 0, pitch = 1;
  std::string log;
  std::mutex counting;  // guards
  std::map<std::string, uint64_t> calls;
};

State& state();
extern thread_local Context* current;

// Starts the driver: what cuInit does.
Result start();
// What every call asks first: whether the driver was started in this process, and the context's error if it has one.
// It counts the call under the name of the function that asks.
Result ready(const char* call = __builtin_FUNCTION());
// The same, and that a context is current.
Result in_context(const char* call = __builtin_FUNCTION());
// A handle that was given and is still alive; nullptr: it is not.
template <class T>
T* alive(Handle handle) {
  std::lock_guard<std::mutex> lock(state().mutex);
  return state().live.count(handle) ? static_cast<T*>(handle) : nullptr;
}
template <class T>
Handle give(T* object) {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().live.insert(object);
  return object;
}
inline void take_back(Handle handle) {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().live.erase(handle);
}

// The stream of a handle: 0, 1 and 2 are the legacy stream of the current context. nullptr: there is none.
Stream* stream_of(Handle handle);
// Asks for work on a stream, or makes it a node of the graph that is captured there.
Result ask(Stream* stream, std::function<Result()> run, int kind, std::vector<After> after = {});
Result ask_kernel(Stream* stream, Kernel kernel);
// Waits until what was asked of a stream, or of all streams of a device, is over. The error of the device.
Result wait(Stream* stream);
Result wait(Device* device);
Stream* make_stream(Device* device, bool blocking);

// A launch from what a caller gives; checks of its extents.
Result kernel_of(Handle function, const uint32_t* grid, const uint32_t* block, uint32_t shared, void** params, void** extra,
                 Kernel* out);
Result run_kernel(const Kernel& kernel);

// Where the bytes at an address of a device or of the host lie for this library; nullptr: out of bounds of a device.
char* view(Address address, uint64_t bytes, bool writes);
bool is_pinned(const void* address);

}  // namespace testcuda

#define WEFT_EXPORT extern "C" __attribute__((visibility("default"))) int
