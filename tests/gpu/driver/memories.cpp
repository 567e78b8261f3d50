// Memory of devices and of the host, and copies between them.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "driver.h"

using namespace testcuda;

namespace {

Result allocate(Address* out, size_t bytes) {
  State& s = state();
  if (out == nullptr || bytes == 0) return kInvalidValue;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    if (++s.allocations == s.fail_allocation) return kOutOfMemory;
  }
  *out = s.memory.allocate(current->device->number, bytes);
  return *out ? kSuccess : kOutOfMemory;
}

bool is_device(Address address) { return state().memory.device_of(address) >= 0; }

// A copy on a stream. Of pageable memory of the host it takes the bytes at once, and to such memory it waits.
Result copy(Address to, Address from, size_t bytes, Handle handle, bool waits) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (bytes == 0) return kSuccess;
  char *target = view(to, bytes, false), *source = view(from, bytes, false);
  if (target == nullptr || source == nullptr) return kInvalidValue;
  const bool from_pageable = !is_device(from) && !is_pinned(reinterpret_cast<void*>(from));
  const bool to_pageable = !is_device(to) && !is_pinned(reinterpret_cast<void*>(to));
  if (stream->capture != nullptr && waits) {
    stream->capture->broken = true;
    return kCaptureUnsupported;
  }
  std::shared_ptr<std::vector<char>> kept;
  if (from_pageable && stream->capture == nullptr) kept = std::make_shared<std::vector<char>>(source, source + bytes);
  const auto run = [=]() -> Result {
    char* at = view(to, bytes, true);
    const char* bytes_from = kept ? kept->data() : view(from, bytes, false);
    if (at == nullptr || bytes_from == nullptr) return kIllegalAddress;
    memmove(at, bytes_from, bytes);
    return kSuccess;
  };
  if (const Result r = ask(stream, run, 1)) return r;
  return waits || (to_pageable && stream->capture == nullptr) ? wait(stream) : kSuccess;
}

Result fill(Address to, const void* value, size_t size, size_t count, Handle handle, bool waits) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (to % size) return kInvalidValue;
  if (count == 0) return kSuccess;
  if (view(to, size * count, false) == nullptr) return kInvalidValue;
  uint32_t word = 0;
  memcpy(&word, value, size);
  if (const Result r = ask(stream, [=]() -> Result {
        char* at = view(to, size * count, true);
        if (at == nullptr) return kIllegalAddress;
        for (size_t k = 0; k < count; ++k) memcpy(at + k * size, &word, size);
        return kSuccess;
      }, 2))
    return r;
  return waits ? wait(stream) : kSuccess;
}

Result fill_rows(Address to, size_t pitch, const void* value, size_t size, size_t width, size_t height, Handle handle, bool waits) {
  for (size_t row = 0; row < height; ++row)
    if (const Result r = fill(to + row * pitch, value, size, width, handle, waits && row + 1 == height)) return r;
  return kSuccess;
}

}  // namespace

WEFT_EXPORT cuMemAlloc_v2(Address* out, size_t bytes) {
  if (const Result r = in_context()) return r;
  return allocate(out, bytes);
}
WEFT_EXPORT cuMemAllocPitch_v2(Address* out, size_t* pitch, size_t width, size_t height, unsigned) {
  if (const Result r = in_context()) return r;
  *pitch = (width + 511) / 512 * 512;
  return allocate(out, *pitch * height);
}
WEFT_EXPORT cuMemFree_v2(Address address) {
  if (const Result r = ready()) return r;
  if (current == nullptr) return kInvalidContext;
  if (address == 0) return kSuccess;
  ptx::Allocation* block = state().memory.find(address);
  if (block == nullptr || block->start != address || block->device < 0) return kInvalidValue;
  const Result r = wait(state().devices[size_t(block->device)].get());
  state().memory.release(address);
  return r;
}
WEFT_EXPORT cuMemAllocAsync(Address* out, size_t bytes, Handle handle) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  Result r = allocate(out, bytes);
  if (r == kOutOfMemory) {  // what was freed on streams comes back
    if (const Result failed = wait(current->device)) return failed;
    *out = bytes ? state().memory.allocate(current->device->number, bytes) : 0;
    r = *out ? kSuccess : kOutOfMemory;
  }
  return r;
}
WEFT_EXPORT cuMemAllocFromPoolAsync(Address* out, size_t bytes, Handle, Handle stream) { return cuMemAllocAsync(out, bytes, stream); }
WEFT_EXPORT cuMemFreeAsync(Address address, Handle handle) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  ptx::Allocation* block = state().memory.find(address);
  if (block == nullptr || block->start != address || block->device < 0) return kInvalidValue;
  return ask(stream, [=]() -> Result { return state().memory.release(address) ? kSuccess : kIllegalAddress; }, 11);
}
WEFT_EXPORT cuDeviceGetDefaultMemPool(Handle* pool, int device) {
  if (const Result r = ready()) return r;
  *pool = state().contexts[size_t(device)].get();
  return kSuccess;
}
WEFT_EXPORT cuDeviceGetMemPool(Handle* pool, int device) { return cuDeviceGetDefaultMemPool(pool, device); }
WEFT_EXPORT cuMemPoolSetAttribute(Handle, int, void*) { return ready(); }
WEFT_EXPORT cuMemPoolGetAttribute(Handle pool, int attribute, void* value) {
  if (const Result r = ready()) return r;
  const uint64_t used = state().memory.used(static_cast<Context*>(pool)->device->number);
  if (attribute >= 4) *static_cast<uint64_t*>(value) = attribute == 4 ? ~uint64_t{0} : used;
  else *static_cast<int*>(value) = 1;
  return kSuccess;
}
WEFT_EXPORT cuMemPoolTrimTo(Handle, size_t) { return ready(); }
WEFT_EXPORT cuMemPoolSetAccess(Handle, const void*, size_t) { return ready(); }

WEFT_EXPORT cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  if (const Result r = in_context()) return r;
  *total = state().bytes;
  *free_bytes = state().bytes - state().memory.used(current->device->number);
  return kSuccess;
}
WEFT_EXPORT cuMemGetAddressRange_v2(Address* base, size_t* bytes, Address address) {
  if (const Result r = in_context()) return r;
  ptx::Allocation* block = state().memory.find(address);
  if (block == nullptr) return kNotFound;
  if (base != nullptr) *base = block->start;
  if (bytes != nullptr) *bytes = block->bytes;
  return kSuccess;
}

// Memory of the host

WEFT_EXPORT cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  if (const Result r = in_context()) return r;
  *out = bytes ? aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) : nullptr;
  if (*out == nullptr) return bytes ? kOutOfMemory : kInvalidValue;
  state().memory.adopt(*out, bytes);
  return kSuccess;
}
WEFT_EXPORT cuMemAllocHost_v2(void** out, size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }
WEFT_EXPORT cuMemFreeHost(void* address) {
  if (const Result r = ready()) return r;
  if (current == nullptr) return kInvalidContext;
  ptx::Allocation* block = state().memory.find(reinterpret_cast<uint64_t>(address));
  if (block == nullptr || block->device >= 0 || block->own != address) return kInvalidValue;
  for (auto& device : state().devices) wait(device.get());
  state().memory.release(block->start);
  free(address);
  return kSuccess;
}
WEFT_EXPORT cuMemHostRegister_v2(void* address, size_t bytes, unsigned) {
  if (const Result r = in_context()) return r;
  if (address == nullptr || bytes == 0) return kInvalidValue;
  if (is_pinned(address)) return kAlreadyRegistered;
  state().memory.adopt(address, bytes);
  return kSuccess;
}
WEFT_EXPORT cuMemHostUnregister(void* address) {
  if (const Result r = in_context()) return r;
  ptx::Allocation* block = state().memory.find(reinterpret_cast<uint64_t>(address));
  if (block == nullptr || block->device >= 0) return kNotRegistered;
  state().memory.release(block->start);
  return kSuccess;
}
WEFT_EXPORT cuMemHostGetDevicePointer_v2(Address* out, void* address, unsigned) {
  if (const Result r = in_context()) return r;
  if (!is_pinned(address)) return kInvalidValue;
  *out = reinterpret_cast<Address>(address);
  return kSuccess;
}
WEFT_EXPORT cuMemHostGetFlags(unsigned* flags, void* address) {
  if (const Result r = in_context()) return r;
  if (!is_pinned(address)) return kInvalidValue;
  *flags = 2;
  return kSuccess;
}

WEFT_EXPORT cuPointerGetAttribute(void* out, int attribute, Address address) {
  if (const Result r = ready()) return r;
  ptx::Allocation* block = state().memory.find(address);
  if (block == nullptr) return kInvalidValue;
  const bool device = block->device >= 0;
  switch (attribute) {
    case 1: *static_cast<Handle*>(out) = state().contexts[size_t(device ? block->device : 0)].get(); break;
    case 2: *static_cast<unsigned*>(out) = device ? 2 : 1; break;
    case 3: *static_cast<Address*>(out) = address; break;
    case 4:
      if (device) return kInvalidValue;
      *static_cast<Address*>(out) = address;
      break;
    case 7: *static_cast<uint64_t*>(out) = block->start; break;
    case 8: *static_cast<unsigned*>(out) = 0; break;
    case 9: *static_cast<int*>(out) = device ? block->device : 0; break;
    case 11: *static_cast<Address*>(out) = block->start; break;
    case 12: *static_cast<size_t*>(out) = block->bytes; break;
    case 13: *static_cast<unsigned*>(out) = 1; break;
    default: return kInvalidValue;
  }
  return kSuccess;
}
WEFT_EXPORT cuPointerGetAttributes(unsigned count, int* attributes, void** out, Address address) {
  for (unsigned k = 0; k < count; ++k) {
    if (state().memory.find(address) != nullptr) {
      if (const Result r = cuPointerGetAttribute(out[k], attributes[k], address); r && r != kInvalidValue) return r;
    } else {
      memset(out[k], 0, attributes[k] == 2 || attributes[k] == 8 || attributes[k] == 9 ? 4 : 8);
    }
  }
  return kSuccess;
}

// Copies

WEFT_EXPORT cuMemcpy(Address to, Address from, size_t bytes) { return copy(to, from, bytes, nullptr, true); }
WEFT_EXPORT cuMemcpyAsync(Address to, Address from, size_t bytes, Handle stream) { return copy(to, from, bytes, stream, false); }
WEFT_EXPORT cuMemcpyHtoD_v2(Address to, const void* from, size_t bytes) {
  return copy(to, reinterpret_cast<Address>(from), bytes, nullptr, true);
}
WEFT_EXPORT cuMemcpyDtoH_v2(void* to, Address from, size_t bytes) {
  return copy(reinterpret_cast<Address>(to), from, bytes, nullptr, true);
}
WEFT_EXPORT cuMemcpyDtoD_v2(Address to, Address from, size_t bytes) { return copy(to, from, bytes, nullptr, false); }
WEFT_EXPORT cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Handle stream) {
  return copy(to, reinterpret_cast<Address>(from), bytes, stream, false);
}
WEFT_EXPORT cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Handle stream) {
  return copy(reinterpret_cast<Address>(to), from, bytes, stream, false);
}
WEFT_EXPORT cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Handle stream) {
  return copy(to, from, bytes, stream, false);
}
WEFT_EXPORT cuMemcpyPeer(Address to, Handle, Address from, Handle, size_t bytes) { return copy(to, from, bytes, nullptr, false); }
WEFT_EXPORT cuMemcpyPeerAsync(Address to, Handle to_context, Address from, Handle from_context, size_t bytes, Handle stream) {
  if (alive<Context>(to_context) == nullptr || alive<Context>(from_context) == nullptr) return kInvalidContext;
  return copy(to, from, bytes, stream, false);
}

struct Copy2D {
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
WEFT_EXPORT cuMemcpy2DAsync_v2(const Copy2D* c, Handle stream) {
  if (c == nullptr || c->from_array != nullptr || c->to_array != nullptr) return kInvalidValue;
  const bool from_host = c->from_type == 1, to_host = c->to_type == 1;
  const size_t from_pitch = c->from_pitch ? c->from_pitch : c->width, to_pitch = c->to_pitch ? c->to_pitch : c->width;
  if ((c->height > 1 && (from_pitch < c->width + c->from_x || to_pitch < c->width + c->to_x))) return kInvalidValue;
  const bool within = !from_host && !to_host && c->height > 1;
  if (within && (from_pitch % state().pitch || to_pitch % state().pitch)) return kInvalidValue;
  const Address from = (from_host ? reinterpret_cast<Address>(c->from_host) : c->from) + c->from_y * from_pitch + c->from_x;
  const Address to = (to_host ? reinterpret_cast<Address>(c->to_host) : c->to) + c->to_y * to_pitch + c->to_x;
  for (size_t row = 0; row < c->height; ++row)
    if (const Result r = copy(to + row * to_pitch, from + row * from_pitch, c->width, stream, false)) return r;
  return kSuccess;
}
WEFT_EXPORT cuMemcpy2D_v2(const Copy2D* c) {
  if (const Result r = cuMemcpy2DAsync_v2(c, nullptr)) return r;
  return wait(stream_of(nullptr));
}
WEFT_EXPORT cuMemcpy2DUnaligned_v2(const Copy2D* c) { return cuMemcpy2D_v2(c); }

WEFT_EXPORT cuMemsetD8_v2(Address to, unsigned char v, size_t n) { return fill(to, &v, 1, n, nullptr, false); }
WEFT_EXPORT cuMemsetD16_v2(Address to, unsigned short v, size_t n) { return fill(to, &v, 2, n, nullptr, false); }
WEFT_EXPORT cuMemsetD32_v2(Address to, unsigned v, size_t n) { return fill(to, &v, 4, n, nullptr, false); }
WEFT_EXPORT cuMemsetD8Async(Address to, unsigned char v, size_t n, Handle s) { return fill(to, &v, 1, n, s, false); }
WEFT_EXPORT cuMemsetD16Async(Address to, unsigned short v, size_t n, Handle s) { return fill(to, &v, 2, n, s, false); }
WEFT_EXPORT cuMemsetD32Async(Address to, unsigned v, size_t n, Handle s) { return fill(to, &v, 4, n, s, false); }
WEFT_EXPORT cuMemsetD2D8_v2(Address to, size_t pitch, unsigned char v, size_t w, size_t h) {
  return fill_rows(to, pitch, &v, 1, w, h, nullptr, false);
}
WEFT_EXPORT cuMemsetD2D32_v2(Address to, size_t pitch, unsigned v, size_t w, size_t h) {
  return fill_rows(to, pitch, &v, 4, w, h, nullptr, false);
}
WEFT_EXPORT cuMemsetD2D8Async(Address to, size_t pitch, unsigned char v, size_t w, size_t h, Handle s) {
  return fill_rows(to, pitch, &v, 1, w, h, s, false);
}
WEFT_EXPORT cuMemsetD2D16Async(Address to, size_t pitch, unsigned short v, size_t w, size_t h, Handle s) {
  return fill_rows(to, pitch, &v, 2, w, h, s, false);
}
WEFT_EXPORT cuMemsetD2D32Async(Address to, size_t pitch, unsigned v, size_t w, size_t h, Handle s) {
  return fill_rows(to, pitch, &v, 4, w, h, s, false);
}
