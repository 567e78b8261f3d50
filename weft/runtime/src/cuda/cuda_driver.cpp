// Opens the driver of NVIDIA GPUs and lists its devices. See cuda_driver.h.
#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>

namespace weft::cuda {

namespace {

constexpr int kOldestDriver = 11000;  // the first that knows sm_80
constexpr int kOldestMajor = 8;       // first digit of the compute capability: bfloat16 and asynchronous copies begin there

struct Opened {
  std::unique_ptr<Driver> driver;
  std::string reason;
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

struct Library {
  std::string path;
  bool asked;     // by WEFT_CUDA_LIBRARY
  void* handle;   // nullptr: it cannot be loaded, and
  std::string why;
};

Library open_library(const char* asked) {
  Library found{*asked != 0 ? asked : "libcuda.so.1", *asked != 0, nullptr, ""};
  found.handle = dlopen(found.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* text = found.handle == nullptr ? dlerror() : nullptr;
  if (text != nullptr) found.why = text;
  return found;
}

Opened open_driver(const Library& from) {
  const auto& [path, asked, library, why] = from;
  if (library == nullptr)
    return {nullptr, asked ? "WEFT_CUDA_LIBRARY=" + path + ": " + why : "there is no NVIDIA driver here (" + why + ")"};
  auto found = std::make_unique<Driver>();
  found->path = path;
  const char* missing = nullptr;
#define WEFT_CUDA_FIND(name, ...) \
  found->name = reinterpret_cast<decltype(found->name)>(dlsym(library, #name));
  WEFT_CUDA_FUNCTIONS(WEFT_CUDA_FIND)
  WEFT_CUDA_OPTIONAL(WEFT_CUDA_FIND)
#undef WEFT_CUDA_FIND
#define WEFT_CUDA_CHECK(name, ...) \
  if (missing == nullptr && found->name == nullptr) missing = #name;
  WEFT_CUDA_FUNCTIONS(WEFT_CUDA_CHECK)
#undef WEFT_CUDA_CHECK
  if (missing != nullptr)
    return {nullptr, path + " is too old: it has no function " + missing + "; install a newer NVIDIA driver"};
  if (Result result = found->cuInit(0)) return {nullptr, "the NVIDIA driver does not start: " + found->text(result)};
  if (found->cuDriverGetVersion(&found->version) != kSuccess) found->version = 0;
  if (found->version < kOldestDriver)
    return {nullptr, "the NVIDIA driver is of CUDA " + version_text(found->version) + ", and CUDA " +
                         version_text(kOldestDriver) + " or later is needed: install a newer driver"};
  return {std::move(found), ""};
}

// What was opened. A library that cannot be used is forgotten when the variable names another.
struct State {
  std::mutex mutex;  // guards
  std::string asked;
  std::unique_ptr<Library> library;
  std::unique_ptr<Opened> opened;

  // With the lock.
  Library& found() {
    const char* text = std::getenv("WEFT_CUDA_LIBRARY");
    const bool kept = opened != nullptr && opened->driver != nullptr;
    if (library == nullptr || (!kept && asked != (text == nullptr ? "" : text))) {
      asked = text == nullptr ? "" : text;
      library = std::make_unique<Library>(open_library(asked.c_str()));
      opened = nullptr;
    }
    return *library;
  }
};

State& state() {
  static State* once = [] {
    pthread_atfork(nullptr, nullptr, [] { new (&state().mutex) std::mutex; });
    return new State;  // never destroyed: buffers may outlive static destructors
  }();
  return *once;
}

const Driver* g_driver = nullptr;  // once it is opened, which happens before anything asks for the_driver

}  // namespace

std::string Driver::text(Result result) const {
  const char *name = nullptr, *words = nullptr;
  if (cuGetErrorName(result, &name) != kSuccess || name == nullptr) name = "CUDA error";
  if (cuGetErrorString(result, &words) != kSuccess || words == nullptr) words = "the driver has no words for it";
  return std::string(name) + " (" + std::to_string(result) + "): " + words;
}

const Driver* driver(std::string* reason) {
  State& own = state();
  std::lock_guard<std::mutex> lock(own.mutex);
  const Library& from = own.found();
  if (own.opened == nullptr) own.opened = std::make_unique<Opened>(open_driver(from));
  if (own.opened->driver == nullptr && reason != nullptr) *reason = own.opened->reason;
  return g_driver = own.opened->driver.get();
}

bool is_present() {
  State& own = state();
  std::lock_guard<std::mutex> lock(own.mutex);
  const Library& from = own.found();
  return from.handle != nullptr || from.asked;
}

const Driver& the_driver() { return *g_driver; }

bool list_devices(std::vector<Facts>* out, std::string* reason) {
  const Driver* found = driver(reason);
  if (found == nullptr) return false;
  int count = 0;
  if (Result result = found->cuDeviceGetCount(&count)) return *reason = found->text(result), false;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Facts facts{};
    facts.ordinal = ordinal;
    char name[256] = "";
    size_t bytes = 0;
    Result result = found->cuDeviceGet(&facts.device, ordinal);
    if (result == kSuccess) result = found->cuDeviceGetName(name, sizeof name, facts.device);
    if (result == kSuccess) result = found->cuDeviceTotalMem_v2(&bytes, facts.device);
    for (auto [attribute, to] : {std::pair{kMajor, &facts.major}, {kMinor, &facts.minor},
                                 {kMultiprocessors, &facts.multiprocessors}})
      if (result == kSuccess) result = found->cuDeviceGetAttribute(to, attribute, facts.device);
    facts.name = name;
    facts.bytes = int64_t(bytes);
    if (result != kSuccess) {
      facts.refused = found->text(result);
    } else if (facts.major < kOldestMajor) {
      facts.refused = "its compute capability is " + std::to_string(facts.major) + "." + std::to_string(facts.minor) +
                      ", and weft's kernels need 8.0 or later";
    }
    out->push_back(facts);
  }
  if (count == 0) *reason = "the driver has no GPU (CUDA_VISIBLE_DEVICES may hide them)";
  return count > 0;
}

}  // namespace weft::cuda
