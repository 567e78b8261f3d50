// Devices, contexts, names of errors, and addresses of functions by name.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "driver.h"

using namespace testcuda;

namespace {

struct Name {
  Result result;
  const char *name, *text;
};
constexpr Name kNames[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {kInvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {kUnsupportedPtx, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {kTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {kPeerEnabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {kPeerNotEnabled, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {kIllegalInstruction, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {kMisaligned, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "stream was not the origin of its capture sequence"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {kGraphUpdate, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

Device* device_at(int number) {
  auto& devices = state().devices;
  return number >= 0 && number < int(devices.size()) ? devices[size_t(number)].get() : nullptr;
}

}  // namespace

WEFT_EXPORT cuInit(unsigned flags) { return flags ? kInvalidValue : start(); }

WEFT_EXPORT cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = state().ready ? state().version : (start(), state().version);
  return kSuccess;
}

WEFT_EXPORT cuGetErrorName(Result result, const char** text) {
  for (const Name& name : kNames)
    if (name.result == result) return *text = name.name, kSuccess;
  *text = nullptr;
  return kInvalidValue;
}

WEFT_EXPORT cuGetErrorString(Result result, const char** text) {
  for (const Name& name : kNames)
    if (name.result == result) return *text = name.text, kSuccess;
  *text = nullptr;
  return kInvalidValue;
}

WEFT_EXPORT cuDeviceGetCount(int* count) {
  if (const Result r = ready()) return r;
  *count = int(state().devices.size());
  return kSuccess;
}

WEFT_EXPORT cuDeviceGet(int* device, int ordinal) {
  if (const Result r = ready()) return r;
  if (device_at(ordinal) == nullptr) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

WEFT_EXPORT cuDeviceGetName(char* name, int room, int device) {
  if (const Result r = ready()) return r;
  if (device_at(device) == nullptr) return kInvalidDevice;
  snprintf(name, size_t(room), "Test GPU %d.%d", state().major, state().minor);
  return kSuccess;
}

WEFT_EXPORT cuDeviceGetUuid(char* uuid, int device) {
  if (const Result r = ready()) return r;
  if (device_at(device) == nullptr) return kInvalidDevice;
  memset(uuid, 0x57, 16);
  uuid[15] = char(device);
  return kSuccess;
}
WEFT_EXPORT cuDeviceGetUuid_v2(char* uuid, int device) { return cuDeviceGetUuid(uuid, device); }

WEFT_EXPORT cuDeviceGetPCIBusId(char* text, int room, int device) {
  if (const Result r = ready()) return r;
  if (device_at(device) == nullptr) return kInvalidDevice;
  snprintf(text, size_t(room), "0000:%02x:00.0", device + 1);
  return kSuccess;
}

WEFT_EXPORT cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (const Result r = ready()) return r;
  if (device_at(device) == nullptr) return kInvalidDevice;
  *bytes = state().bytes;
  return kSuccess;
}

WEFT_EXPORT cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (const Result r = ready()) return r;
  if (device_at(device) == nullptr) return kInvalidDevice;
  static const std::map<int, int> values = {
      {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 0x7FFFFFFF}, {6, 65535}, {7, 65535}, {8, 49152}, {9, 65536},
      {10, 32}, {11, 0x7FFFFFFF}, {12, 65536}, {13, 1755000}, {14, 512}, {15, 1}, {16, 132}, {17, 0}, {18, 0}, {19, 1},
      {20, 0}, {31, 1}, {32, 1}, {33, 1}, {34, 0}, {36, 2619000}, {37, 5120}, {38, 50 << 20}, {39, 2048}, {40, 3},
      {41, 1}, {50, 0}, {78, 1}, {79, 1}, {80, 1}, {81, 233472}, {82, 65536}, {83, 1}, {84, 0}, {85, 0}, {86, 0},
      {87, 2}, {88, 0}, {89, 1}, {90, 1}, {91, 1}, {95, 1}, {97, 232448}, {99, 1}, {102, 0}, {106, 32}, {111, 1024},
      {115, 1}, {120, 1}};
  if (attribute == 33) return *value = device + 1, kSuccess;
  if (attribute == 75) return *value = state().major, kSuccess;
  if (attribute == 76) return *value = state().minor, kSuccess;
  auto found = values.find(attribute);
  if (attribute <= 0 || attribute > 150) return kInvalidValue;
  *value = found == values.end() ? 0 : found->second;
  return kSuccess;
}

// Contexts

WEFT_EXPORT cuDevicePrimaryCtxRetain(Handle* context, int device) {
  if (const Result r = ready()) return r;
  if (device_at(device) == nullptr) return kInvalidDevice;
  ++device_at(device)->retained;
  *context = state().contexts[size_t(device)].get();
  return kSuccess;
}
WEFT_EXPORT cuDevicePrimaryCtxRelease_v2(int device) {
  if (const Result r = ready()) return r;
  if (device_at(device) == nullptr) return kInvalidDevice;
  if (device_at(device)->retained == 0) return kInvalidContext;
  --device_at(device)->retained;
  return kSuccess;
}
WEFT_EXPORT cuDevicePrimaryCtxRelease(int device) { return cuDevicePrimaryCtxRelease_v2(device); }
WEFT_EXPORT cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (const Result r = ready()) return r;
  if (device_at(device) == nullptr) return kInvalidDevice;
  *flags = 0;
  *active = device_at(device)->retained > 0;
  return kSuccess;
}
WEFT_EXPORT cuDevicePrimaryCtxSetFlags_v2(int device, unsigned) {
  if (const Result r = ready()) return r;
  return device_at(device) == nullptr ? kInvalidDevice : kSuccess;
}
WEFT_EXPORT cuCtxGetCurrent(Handle* context) {
  if (const Result r = ready()) return r;
  *context = current;
  return kSuccess;
}
WEFT_EXPORT cuCtxSetCurrent(Handle context) {
  if (const Result r = ready()) return r;
  if (context != nullptr && alive<Context>(context) == nullptr) return kInvalidContext;
  current = static_cast<Context*>(context);
  return kSuccess;
}
static thread_local std::vector<Context*> pushed;
WEFT_EXPORT cuCtxPushCurrent_v2(Handle context) {
  if (const Result r = ready()) return r;
  if (alive<Context>(context) == nullptr) return kInvalidContext;
  pushed.push_back(current);
  current = static_cast<Context*>(context);
  return kSuccess;
}
WEFT_EXPORT cuCtxPopCurrent_v2(Handle* context) {
  if (const Result r = ready()) return r;
  if (context != nullptr) *context = current;
  if (current == nullptr) return kInvalidContext;
  current = pushed.empty() ? nullptr : pushed.back();
  if (!pushed.empty()) pushed.pop_back();
  return kSuccess;
}
WEFT_EXPORT cuCtxGetDevice(int* device) {
  if (const Result r = ready()) return r;
  if (current == nullptr) return kInvalidContext;
  *device = current->device->number;
  return kSuccess;
}
WEFT_EXPORT cuCtxSynchronize() {
  if (const Result r = in_context()) return r;
  return wait(current->device);
}
WEFT_EXPORT cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (const Result r = in_context()) return r;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}
WEFT_EXPORT cuCtxGetLimit(size_t* value, int) {
  if (const Result r = in_context()) return r;
  *value = 1024;
  return kSuccess;
}
WEFT_EXPORT cuCtxSetLimit(int, size_t) { return in_context(); }
WEFT_EXPORT cuCtxGetApiVersion(Handle, unsigned* version) {
  *version = unsigned(state().version);
  return kSuccess;
}

// Peers

WEFT_EXPORT cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (const Result r = ready()) return r;
  if (device_at(device) == nullptr || device_at(peer) == nullptr) return kInvalidDevice;
  *can = state().peer && device != peer;
  return kSuccess;
}
WEFT_EXPORT cuCtxEnablePeerAccess(Handle context, unsigned flags) {
  if (const Result r = in_context()) return r;
  Context* peer = alive<Context>(context);
  if (peer == nullptr) return kInvalidContext;
  if (flags || peer->device == current->device) return kInvalidValue;
  if (!state().peer) return 217;
  std::lock_guard<std::mutex> lock(state().mutex);
  const uint64_t bit = uint64_t{1} << peer->device->number;
  if (current->device->peers & bit) return kPeerEnabled;
  current->device->peers |= bit;
  return kSuccess;
}
WEFT_EXPORT cuCtxDisablePeerAccess(Handle context) {
  if (const Result r = in_context()) return r;
  Context* peer = alive<Context>(context);
  if (peer == nullptr) return kInvalidContext;
  std::lock_guard<std::mutex> lock(state().mutex);
  const uint64_t bit = uint64_t{1} << peer->device->number;
  if (!(current->device->peers & bit)) return kPeerNotEnabled;
  current->device->peers &= ~bit;
  return kSuccess;
}

// The function that a name means with the newest version's suffix that there is, as the real driver chooses.
WEFT_EXPORT cuGetProcAddress_v2(const char* name, void** address, int, uint64_t, int* status) {
  *address = nullptr;
  Dl_info here;
  void* self = dladdr(reinterpret_cast<void*>(cuInit), &here) ? dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    if (self == nullptr || *address != nullptr) break;
    *address = dlsym(self, (std::string(name) + suffix).c_str());
  }
  if (status != nullptr) *status = *address == nullptr ? 1 : 0;
  return *address == nullptr ? kNotFound : kSuccess;
}
WEFT_EXPORT cuGetProcAddress(const char* name, void** address, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, address, version, flags, nullptr);
}
