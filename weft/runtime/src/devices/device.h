// Device: memory, and what works on it in the order in which it was asked. The host is the first of them, and works at
// once; others work later, on threads or hardware of their own, and the host may not touch their memory.
//
// A buffer knows its device, a plan has one, and a step that works on memory carries it (Step::device). Steps that decide
// something on the host (loops, branches, offsets, guards, callbacks) get what they look at from their plan's device.
// Addresses of a device's memory are char*, as the host's: the host may add to them, and may not read there.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "buffer.h"
#include "plan.h"

namespace weft {

// The functions may be called from any thread, with or without the GIL, and need none; those that wait should not have it.
class Device {
 public:
  Device(uint32_t number, std::string name) : number(number), name(std::move(name)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const uint32_t number;  // 0: the host
  const std::string name;
  bool is_host() const { return number == 0; }

  // Owned buffer of nbytes >= 0 uninitialised bytes, or nullptr if there is no memory.
  virtual Buffer* allocate(int64_t nbytes) noexcept = 0;
  // The last reference to a buffer of allocate is gone: its memory is used again by what is asked for from now on.
  virtual void recycle(Buffer* buffer) noexcept = 0;
  // Within its memory; the two may overlap.
  virtual Status copy(char* to, const char* from, int64_t nbytes) = 0;
  // From the host's memory, which the caller may change afterwards.
  virtual Status upload(char* to, const char* from, int64_t nbytes) = 0;
  // To the host's memory: waits until everything before is done.
  virtual Status fetch(char* to, const char* from, int64_t nbytes) = 0;
  // A step that does not run on the host (Step::on_host), with the addresses that the frame has now.
  virtual Status launch(const Step& step, Frame& frame) = 0;
  virtual bool copies_ahead() const { return false; }  // whether fetch_later does something
  // Owned buffer of the host with what `source`, a buffer of this device, holds: pending until it is copied. nullptr: fetch
  // it, there is no such way or no memory for it.
  virtual Buffer* fetch_later(Buffer* source, int64_t nbytes) { return nullptr; }
  // Owned buffer with a copy of another device's, made without the host; nullptr: it must go through the host.
  virtual Buffer* copy_of(Device& other, Buffer* source, int64_t nbytes) { return nullptr; }
  // A plan for it is made and has its name.
  virtual void made(Plan* plan) {}
  // Owned event that is over when everything asked for so far is done; nullptr if it is done.
  virtual Event* record() = 0;
  // Waits until everything asked for so far is done, and no step is needed any more.
  virtual void drain() = 0;
  virtual bool guards() const { return false; }  // whether what is asked of it may depend on its memory (guard.h)
  // `to`, an int32, gets that at `word` or 0 if it is negative or there is none; -1 if the guard of this thread does not
  // hold, or something has stalled (ahead.h).
  virtual Status narrow(char* to, const char* word, const char* stalled) { return Status::device_error; }
  // Whether a loop took an odd number of steps, and whether it has ended: words[0] and [1], both 0 where narrow gives -1.
  // The int32 behind these are `count` answers of its condition, which are 0 again then. What has not ended stalls.
  virtual Status settle(char* words, int64_t count, int32_t number, char* stalled) { return Status::device_error; }
  virtual bool keeps_steps() const { return true; }  // whether a step must exist until it is done
  // Raises why what this thread asked for has failed, if that is known. `program`, or nullptr. GIL held.
  virtual bool explain(const char* program) { return false; }
  virtual std::string memory_text() { return ""; }  // what to say where memory is out: what holds it, and the cure
};

Device& host_device();

// Runs the steps of one plan where a device has a shorter way than one after the other.
class Replay {
 public:
  virtual ~Replay() = default;
  virtual Status run(const Plan& plan, Frame& frame) = 0;
};

// The device of a buffer.
inline Device& device_of(const Buffer* buffer) {
  return buffer->size_class == kOnDevice ? *static_cast<Device*>(buffer->owner) : host_device();
}

// As device.allocate; the host's, which every call needs, without a look at a table.
inline Buffer* allocate_on(Device& device, int64_t nbytes) {
  return device.is_host() ? buffer_allocate(nbytes) : device.allocate(nbytes);
}

// Owned buffer on a device's memory: for implementations of allocate. nullptr without memory for it.
Buffer* buffer_on_device(Device* device, char* data, int64_t nbytes, int64_t capacity) noexcept;

// Runs the step where it runs: on its device, or here.
inline Status run_step(const Step& step, Frame& frame) {
  return step.device == nullptr ? step.run(frame) : step.device->launch(step, frame);
}

// Bytes of a device's memory, as the host may read them: where they lie if they are the host's, otherwise a copy.
class View {
 public:
  View(Device& device, const char* address, int64_t nbytes) : data_(address) {
    if (!device.is_host()) fetch(device, nbytes);
  }
  const char* data() const { return data_; }  // nullptr: it failed

 private:
  void fetch(Device& device, int64_t nbytes);

  const char* data_;
  char room_[16];
  std::unique_ptr<char[]> heap_;
};

// Copies within a device's memory; the two do not overlap.
inline Status copy_on(Device& device, char* to, const char* from, int64_t nbytes) {
  if (!device.is_host()) return device.copy(to, from, nbytes);
  std::memcpy(to, from, size_t(nbytes));
  return Status::ok;
}

// The device of a number from 1 on that is no plugin's, or nullptr.
Device* native_device(uint32_t number);

}  // namespace weft
