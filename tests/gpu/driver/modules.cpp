// Images of programs: PTX, and what the linker here makes of it, a container of the text with the device's capability.
#include <cstdio>
#include <cstring>

#include "driver.h"

using namespace testcuda;

namespace {

constexpr char kMagic[] = "\x7f" "ELF weft test image ";

// The newest PTX that a driver reads: (driver, version of PTX in tenths).
int newest_ptx(int driver) {
  const std::pair<int, int> table[] = {{13000, 90}, {12090, 88}, {12080, 87}, {12070, 86}, {12050, 85}, {12040, 84},
                                       {12030, 83}, {12020, 82}, {12010, 81}, {12000, 80}, {11080, 78}, {11070, 77},
                                       {11060, 76}, {11050, 75}, {11040, 74}, {11030, 73}, {11020, 72}, {11010, 71},
                                       {11000, 70}};
  for (const auto& [version, ptx] : table)
    if (driver >= version) return ptx;
  return 65;
}

struct Jit {  // options of a call
  char *info = nullptr, *error = nullptr;
  size_t info_room = 0, error_room = 0;
  void** info_size = nullptr;
  void** error_size = nullptr;

  Jit(unsigned count, int* names, void** values) {
    for (unsigned k = 0; k < count; ++k) {
      if (names[k] == 3) info = static_cast<char*>(values[k]);
      if (names[k] == 4) info_room = reinterpret_cast<size_t>(values[k]), info_size = &values[k];
      if (names[k] == 5) error = static_cast<char*>(values[k]);
      if (names[k] == 6) error_room = reinterpret_cast<size_t>(values[k]), error_size = &values[k];
    }
    if (info != nullptr && info_room) info[0] = 0;
    if (error != nullptr && error_room) error[0] = 0;
    if (info_size != nullptr) *info_size = nullptr;
    if (error_size != nullptr) *error_size = nullptr;
  }
  void say(const std::string& text) {
    if (error == nullptr || error_room == 0) return;
    snprintf(error, error_room, "%s", text.c_str());
    if (error_size != nullptr) *error_size = reinterpret_cast<void*>(strlen(error) + 1);
  }
};

// Whether the device can run a text: its PTX is known to the driver and its target is not above the device.
Result check(const std::string& text, Jit& jit) {
  int major = 0, minor = 0, target = 0;
  char arch = 0;
  const size_t version = text.find(".version"), at = text.find(".target");
  if (version == std::string::npos || at == std::string::npos ||
      sscanf(text.c_str() + version, ".version %d.%d", &major, &minor) != 2 ||
      sscanf(text.c_str() + at, ".target sm_%d%c", &target, &arch) < 1) {
    jit.say("ptxas fatal   : the text has no .version and .target");
    return kInvalidPtx;
  }
  if (10 * major + minor > newest_ptx(state().version)) {
    jit.say("ptxas fatal   : Unsupported .version " + std::to_string(major) + "." + std::to_string(minor));
    return kUnsupportedPtx;
  }
  const int device = 10 * state().major + state().minor;
  if (target > device || (arch == 'a' && target != device)) {
    jit.say("ptxas fatal   : the device is an sm_" + std::to_string(device) + ", the text is for sm_" + std::to_string(target));
    return kNoBinary;
  }
  return kSuccess;
}

// The text of an image.
Result text_of(const void* image, Jit& jit, std::string* text) {
  const char* bytes = static_cast<const char*>(image);
  if (memcmp(bytes, kMagic, 4) == 0) {
    if (memcmp(bytes, kMagic, sizeof kMagic - 1) != 0) return kInvalidImage;
    int major = 0, minor = 0, from = 0;
    if (sscanf(bytes + sizeof kMagic - 1, "%d.%d\n%n", &major, &minor, &from) < 2) return kInvalidImage;
    if (major != state().major || minor > state().minor) return kNoBinary;
    *text = bytes + sizeof kMagic - 1 + from;
    return kSuccess;
  }
  *text = bytes;
  ready("assembled at a load");  // to be counted
  return check(*text, jit);
}

Result load(Handle* out, const void* image, Jit jit, const char* call = __builtin_FUNCTION()) {
  if (const Result r = in_context(call)) return r;
  if (image == nullptr) return kInvalidValue;
  std::string text;
  if (const Result r = text_of(image, jit, &text)) return r;
  try {
    auto module = std::make_unique<Module>();
    module->device = current->device;
    module->code = ptx::load(text, state().memory, current->device->number, state().approximate);
    *out = give(module.release());
    return kSuccess;
  } catch (const ptx::Error& error) {
    jit.say(std::string("ptxas error   : ") + error.what());
    fprintf(stderr, "test driver: %s\n", error.what());
    return kInvalidPtx;
  }
}

}  // namespace

WEFT_EXPORT cuModuleLoadDataEx(Handle* out, const void* image, unsigned count, int* names, void** values) {
  return load(out, image, Jit(count, names, values));
}
WEFT_EXPORT cuModuleLoadData(Handle* out, const void* image) { return load(out, image, Jit(0, nullptr, nullptr)); }
WEFT_EXPORT cuModuleUnload(Handle handle) {
  if (const Result r = ready()) return r;
  Module* module = alive<Module>(handle);
  if (module == nullptr) return kInvalidHandle;
  wait(module->device);
  take_back(handle);
  for (auto& [name, function] : module->functions) take_back(function.get());
  for (uint64_t address : module->code->allocations) state().memory.release(address);
  delete module;
  return kSuccess;
}
WEFT_EXPORT cuModuleGetFunction(Handle* out, Handle handle, const char* name) {
  if (const Result r = in_context()) return r;
  Module* module = alive<Module>(handle);
  if (module == nullptr) return kInvalidHandle;
  auto found = module->code->functions.find(name);
  if (found == module->code->functions.end() || !found->second->entry) return kNotFound;
  auto& function = module->functions[name];
  if (!function) {
    function = std::make_unique<Function>();
    function->module = module;
    function->code = found->second.get();
    give(function.get());
  }
  *out = function.get();
  return kSuccess;
}
WEFT_EXPORT cuModuleGetFunctionCount(unsigned* count, Handle handle) {
  Module* module = alive<Module>(handle);
  if (module == nullptr) return kInvalidHandle;
  *count = 0;
  for (const auto& [name, f] : module->code->functions) *count += f->entry;
  return kSuccess;
}
WEFT_EXPORT cuModuleGetGlobal_v2(Address* address, size_t* bytes, Handle handle, const char* name) {
  if (const Result r = in_context()) return r;
  Module* module = alive<Module>(handle);
  if (module == nullptr) return kInvalidHandle;
  auto found = module->code->sizes.find(name);
  if (found == module->code->sizes.end()) return kNotFound;
  if (address != nullptr) *address = module->code->addresses.at(name);
  if (bytes != nullptr) *bytes = found->second;
  return kSuccess;
}

// A library is a module of the current context here.
WEFT_EXPORT cuLibraryLoadData(Handle* out, const void* image, int*, void**, unsigned, int*, void**, unsigned) {
  return load(out, image, Jit(0, nullptr, nullptr));
}
WEFT_EXPORT cuLibraryUnload(Handle library) { return cuModuleUnload(library); }
WEFT_EXPORT cuLibraryGetModule(Handle* out, Handle library) { return *out = library, kSuccess; }
WEFT_EXPORT cuLibraryGetKernel(Handle* out, Handle library, const char* name) { return cuModuleGetFunction(out, library, name); }
WEFT_EXPORT cuKernelGetFunction(Handle* out, Handle kernel) { return *out = kernel, kSuccess; }

// Functions

WEFT_EXPORT cuFuncGetAttribute(int* value, int attribute, Handle handle) {
  if (const Result r = in_context()) return r;
  Function* function = alive<Function>(handle);
  if (function == nullptr) return kInvalidHandle;
  const ptx::Function& code = *function->code;
  switch (attribute) {
    case 0: *value = code.max_threads ? int(code.max_threads) : 1024; break;
    case 1: *value = int(code.shared_bytes); break;
    case 2: *value = 0; break;
    case 3: *value = int(code.frame_bytes); break;
    case 4: *value = 32; break;
    case 5: case 6: *value = 10 * state().major + state().minor; break;
    case 8: *value = int(function->dynamic_shared - code.shared_bytes); break;
    default: *value = 0;
  }
  return attribute >= 0 && attribute <= 15 ? kSuccess : kInvalidValue;
}
WEFT_EXPORT cuFuncSetAttribute(Handle handle, int attribute, int value) {
  if (const Result r = in_context()) return r;
  Function* function = alive<Function>(handle);
  if (function == nullptr) return kInvalidHandle;
  if (attribute == 8) {
    const uint64_t bytes = uint64_t(value) + function->code->shared_bytes;
    if (value < 0 || bytes > 227 * 1024) return kInvalidValue;
    function->dynamic_shared = std::max<uint32_t>(48 * 1024, uint32_t(bytes));
  }
  return attribute >= 0 && attribute <= 15 ? kSuccess : kInvalidValue;
}
WEFT_EXPORT cuFuncSetCacheConfig(Handle, int) { return in_context(); }
WEFT_EXPORT cuFuncGetName(const char** name, Handle handle) {
  Function* function = alive<Function>(handle);
  if (function == nullptr) return kInvalidHandle;
  *name = function->code->name.c_str();
  return kSuccess;
}
WEFT_EXPORT cuFuncGetModule(Handle* out, Handle handle) {
  Function* function = alive<Function>(handle);
  if (function == nullptr) return kInvalidHandle;
  *out = function->module;
  return kSuccess;
}
WEFT_EXPORT cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Handle handle, int threads, size_t shared) {
  if (const Result r = in_context()) return r;
  Function* function = alive<Function>(handle);
  if (function == nullptr) return kInvalidHandle;
  if (threads <= 0) return kInvalidValue;
  *blocks = std::min(32, 2048 / threads);
  const size_t each = shared + function->code->shared_bytes;
  if (each) *blocks = std::min<int>(*blocks, int(227 * 1024 / each));
  return kSuccess;
}

// The linker

struct Linked {
  std::string text, image;
  Jit jit;
};
WEFT_EXPORT cuLinkCreate_v2(unsigned count, int* names, void** values, Handle* out) {
  if (const Result r = in_context()) return r;
  *out = give(new Linked{"", "", Jit(count, names, values)});
  return kSuccess;
}
WEFT_EXPORT cuLinkAddData_v2(Handle handle, int type, const void* data, size_t bytes, const char*, unsigned, int*, void**) {
  if (const Result r = in_context()) return r;
  Linked* linked = alive<Linked>(handle);
  if (linked == nullptr) return kInvalidHandle;
  if (type != 1 || !linked->text.empty()) return kNotSupported;  // one text of PTX
  linked->text.assign(static_cast<const char*>(data), bytes);
  linked->text = linked->text.c_str();
  return check(linked->text, linked->jit);
}
WEFT_EXPORT cuLinkComplete(Handle handle, void** image, size_t* bytes) {
  if (const Result r = in_context()) return r;
  Linked* linked = alive<Linked>(handle);
  if (linked == nullptr) return kInvalidHandle;
  try {
    auto code = ptx::load(linked->text, state().memory, current->device->number, state().approximate);
    for (uint64_t address : code->allocations) state().memory.release(address);
  } catch (const ptx::Error& error) {
    linked->jit.say(std::string("ptxas error   : ") + error.what());
    return kInvalidPtx;
  }
  linked->image = kMagic + std::to_string(state().major) + "." + std::to_string(state().minor) + "\n" + linked->text;
  *image = linked->image.data();
  *bytes = linked->image.size() + 1;
  return kSuccess;
}
WEFT_EXPORT cuLinkDestroy(Handle handle) {
  if (const Result r = ready()) return r;
  Linked* linked = alive<Linked>(handle);
  if (linked == nullptr) return kInvalidHandle;
  take_back(handle);
  delete linked;
  return kSuccess;
}
