// The driver of NVIDIA GPUs: the functions of libcuda.so.1, which is opened when somebody first asks for it, and no toolkit.
//
// WEFT_CUDA_LIBRARY=path opens another library instead. Functions have the names under which the library exports
// them, with the version that this file's types belong to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::cuda {

using Result = int;
using Handle = void*;       // contexts, streams, events, modules, functions
using Address = uint64_t;   // in a device's memory
inline Address address(const char* pointer) { return reinterpret_cast<Address>(pointer); }

enum : Result { kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotReady = 600 };

struct Copy2D {  // CUDA_MEMCPY2D
  size_t from_x, from_y;
  int from_type;
  const void* from_host;
  Address from;
  Handle from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int to_type;
  void* to_host;
  Address to;
  Handle to_array;
  size_t to_pitch;
  size_t width, height;
};
constexpr int kDeviceMemory = 2;

struct KernelNode {  // CUDA_KERNEL_NODE_PARAMS_v2
  Handle function;
  unsigned blocks[3], threads[3], shared_bytes;
  void **params, **extra;
  Handle kernel, context;
};

// Numbers of the driver's enumerations.
enum Attribute { kMultiprocessors = 16, kMajor = 75, kMinor = 76 };
enum PointerAttribute { kMemoryType = 2, kPointerOrdinal = 9 };
enum CaptureMode { kRelaxed = 2 };  // which forbids nobody to allocate memory meanwhile
enum JitOption { kInfoLog = 3, kInfoLogBytes = 4, kErrorLog = 5, kErrorLogBytes = 6 };
constexpr int kMaxDynamicShared = 8;  // an attribute of functions: bytes of shared memory
constexpr int kLinkPtx = 1;           // what cuLinkAddData is given
constexpr unsigned kNonBlocking = 1;  // a stream that does not wait for the legacy one
constexpr unsigned kNoTiming = 2;     // an event

// clang-format off
#define WEFT_CUDA_FUNCTIONS(X) \
  X(cuInit, unsigned) X(cuDriverGetVersion, int*) X(cuGetErrorName, Result, const char**) \
  X(cuGetErrorString, Result, const char**) X(cuDeviceGetCount, int*) X(cuDeviceGet, int*, int) \
  X(cuDeviceGetName, char*, int, int) X(cuDeviceGetAttribute, int*, int, int) X(cuDeviceTotalMem_v2, size_t*, int) \
  X(cuDevicePrimaryCtxRetain, Handle*, int) X(cuCtxGetCurrent, Handle*) X(cuCtxSetCurrent, Handle) \
  X(cuStreamCreate, Handle*, unsigned) X(cuStreamWaitEvent, Handle, Handle, unsigned) \
  X(cuEventCreate, Handle*, unsigned) X(cuEventRecord, Handle, Handle) X(cuEventQuery, Handle) \
  X(cuMemAlloc_v2, Address*, size_t) X(cuMemFree_v2, Address) X(cuMemGetInfo_v2, size_t*, size_t*) \
  X(cuMemHostAlloc, void**, size_t, unsigned) X(cuMemFreeHost, void*) \
  X(cuMemcpyHtoDAsync_v2, Address, const void*, size_t, Handle) X(cuMemcpyDtoHAsync_v2, void*, Address, size_t, Handle) \
  X(cuMemcpyDtoDAsync_v2, Address, Address, size_t, Handle) X(cuMemsetD8Async, Address, unsigned char, size_t, Handle) \
  X(cuLinkCreate_v2, unsigned, int*, void**, Handle*) \
  X(cuLinkAddData_v2, Handle, int, const void*, size_t, const char*, unsigned, int*, void**) \
  X(cuLinkComplete, Handle, void**, size_t*) X(cuLinkDestroy, Handle) \
  X(cuModuleLoadDataEx, Handle*, const void*, unsigned, int*, void**) X(cuModuleUnload, Handle) \
  X(cuModuleGetFunction, Handle*, Handle, const char*) X(cuFuncSetAttribute, Handle, int, int) \
  X(cuLaunchKernel, Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**)
// Functions that are done without where a library lacks them: nullptr then.
#define WEFT_CUDA_OPTIONAL(X) \
  X(cuMemcpy2DAsync_v2, const Copy2D*, Handle) X(cuMemcpyPeerAsync, Address, Handle, Address, Handle, size_t, Handle) \
  X(cuPointerGetAttribute, void*, int, Address) X(cuGraphCreate, Handle*, unsigned) X(cuGraphDestroy, Handle) \
  X(cuGraphAddKernelNode_v2, Handle*, Handle, const Handle*, size_t, const KernelNode*) \
  X(cuGraphAddChildGraphNode, Handle*, Handle, const Handle*, size_t, Handle) \
  X(cuStreamBeginCapture_v2, Handle, int) X(cuStreamEndCapture, Handle, Handle*) \
  X(cuGraphInstantiateWithFlags, Handle*, Handle, unsigned long long) X(cuGraphExecDestroy, Handle) \
  X(cuGraphExecKernelNodeSetParams_v2, Handle, Handle, const KernelNode*) X(cuGraphLaunch, Handle, Handle)
// clang-format on

struct Driver {
#define WEFT_CUDA_POINTER(name, ...) Result (*name)(__VA_ARGS__) = nullptr;
  WEFT_CUDA_FUNCTIONS(WEFT_CUDA_POINTER)
  WEFT_CUDA_OPTIONAL(WEFT_CUDA_POINTER)
#undef WEFT_CUDA_POINTER
  std::string path;
  int version = 0;  // 12040 is CUDA 12.4

  std::string text(Result result) const;  // "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
};

// Whether there is a library to be opened, or one was asked for; it is not started.
bool is_present();

// The opened and initialised driver, or nullptr: then *reason says why there is none, the same every time.
const Driver* driver(std::string* reason);

// The same where it is known to be there, and for those who ask whether it was opened.
const Driver& the_driver();

struct Facts {
  int ordinal, device;
  std::string name;
  int major, minor, multiprocessors;
  int64_t bytes;
  std::string refused;  // why weft does not use it; empty if it does
};

// The GPUs of the driver, in its order. False with the reason if they cannot be listed.
bool list_devices(std::vector<Facts>* out, std::string* reason);

}  // namespace weft::cuda
