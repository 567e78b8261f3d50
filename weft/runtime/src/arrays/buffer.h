// Buffer: one block of memory with its readiness event, counted apart from the Arrays that share it.
//
// A Buffer starts with one reference, owned by whoever allocated it. When the last reference goes, its block returns to
// the free lists. Allocation and release need no GIL; the functions that wait do.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "python.h"

namespace weft {

// Completion of the stream task that writes a buffer. Counted by hand: each pending buffer owns one reference.
class Event {
 public:
  virtual bool done() const noexcept = 0;
  // GIL held on entry and return, released during the wait; handles signals. 0, or -1 with the task's error (or
  // KeyboardInterrupt) set. After a failure it may be called again and then fails again.
  virtual int wait() = 0;
  virtual void retain() noexcept = 0;
  virtual void release() noexcept = 0;

 protected:
  ~Event() = default;
};

struct alignas(64) Buffer {
  std::atomic<int32_t> references;
  int16_t size_class;  // index of the free list, or kExternal, or kOnDevice
  char* data;          // 64-byte aligned, never null; the host's own memory begins right behind this header
  int64_t nbytes;      // what was asked for
  int64_t capacity;    // what the block holds, >= nbytes, a multiple of 64
  // nullptr when ready. Set before Python can see the buffer, cleared only with the GIL held; owns a reference.
  Event* pending;
  void (*release_owner)(void* owner);  // external memory only: called once, without our locks, with or without the GIL
  void* owner;  // who owns external memory; the Device (device.h) of a device's memory
};
static_assert(sizeof(Buffer) == 64);

constexpr int16_t kExternal = -1;
constexpr int16_t kOnDevice = -2;  // memory of a device, which the host does not touch
constexpr int64_t kAlignment = 64;

// Owned buffer of nbytes >= 0 uninitialised bytes, or nullptr if there is no memory or the limit is reached.
Buffer* buffer_allocate(int64_t nbytes) noexcept;

// Owned buffer on memory that something else owns; release_owner(owner) is called when the buffer is freed. nullptr
// (owner untouched) if there is no memory.
Buffer* buffer_wrap(void* data, int64_t nbytes, void (*release_owner)(void*), void* owner) noexcept;

void buffer_destroy(Buffer* buffer) noexcept;  // the last reference is gone; called by buffer_release only

// The message for a failed buffer_allocate(nbytes): who asked, what for, how much there is. nbytes < 0: unknown.
std::string memory_error_text(int64_t nbytes, const char* who, const char* what);

std::string bytes_text(double bytes);             // "1.5 GiB"
std::string requested_text(int64_t nbytes);      // "1.5 GiB (1610612736 bytes)"; "more memory" if it is negative
inline constexpr const char* kMemoryCure =
    "; drop arrays that are not needed any more (del, delete(), donate_argnums) or work on parts";

// Raises the class given to set_memory_error_type (MemoryError by default) and returns nullptr. GIL held.
PyObject* set_memory_error(int64_t nbytes, const char* who, const char* what);
PyObject* set_memory_error_text(const char* text);

inline Buffer* buffer_retain(Buffer* buffer) noexcept {
  buffer->references.fetch_add(1, std::memory_order_relaxed);
  return buffer;
}

inline void buffer_release(Buffer* buffer) noexcept {
  // Only a holder can add a reference, so nobody can raise a count of one meanwhile: no atomic instruction is needed.
  if (buffer->references.load(std::memory_order_acquire) == 1 ||
      buffer->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
    buffer_destroy(buffer);
}

// True if the caller's reference is the only one: the memory may be reused in place (unless it is external).
inline bool buffer_is_exclusive(const Buffer* buffer) noexcept {
  return buffer->references.load(std::memory_order_acquire) == 1 && buffer->size_class != kExternal;
}

inline bool buffer_is_ready(const Buffer* buffer) noexcept {
  return buffer->pending == nullptr || buffer->pending->done();
}

int buffer_wait_pending(Buffer* buffer);

// Waits until the buffer may be read by the host. GIL held. 0, or -1 with a Python error set.
inline int buffer_wait(Buffer* buffer) { return buffer->pending == nullptr ? 0 : buffer_wait_pending(buffer); }

}  // namespace weft
