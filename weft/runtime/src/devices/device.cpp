// The host as a device, and what all devices share. See device.h.
#include "device.h"

#include <cstdlib>
#include <new>

namespace weft {

namespace {

class HostDevice final : public Device {
 public:
  HostDevice() : Device(0, "cpu:0") {}
  Buffer* allocate(int64_t nbytes) noexcept override { return buffer_allocate(nbytes); }
  void recycle(Buffer* buffer) noexcept override { buffer_destroy(buffer); }
  Status copy(char* to, const char* from, int64_t nbytes) override {
    std::memmove(to, from, size_t(nbytes));
    return Status::ok;
  }
  Status upload(char* to, const char* from, int64_t nbytes) override { return copy(to, from, nbytes); }
  Status fetch(char* to, const char* from, int64_t nbytes) override { return copy(to, from, nbytes); }
  Status launch(const Step& step, Frame& frame) override { return step.run(frame); }
  Event* record() override { return nullptr; }
  void drain() override {}
};

}  // namespace

Device& host_device() {
  static auto* host = new HostDevice;  // never destroyed: buffers may outlive static destructors
  return *host;
}

Buffer* buffer_on_device(Device* device, char* data, int64_t nbytes, int64_t capacity) noexcept {
  Buffer* buffer = buffer_wrap(data, nbytes, nullptr, device);
  if (buffer == nullptr) return nullptr;
  buffer->size_class = kOnDevice;
  buffer->capacity = capacity;
  return buffer;
}

void View::fetch(Device& device, int64_t nbytes) {
  char* to = room_;
  if (nbytes > int64_t(sizeof room_)) {
    heap_.reset(new (std::nothrow) char[size_t(nbytes)]);
    to = heap_.get();
  }
  data_ = to != nullptr && device.fetch(to, data_, nbytes) == Status::ok ? to : nullptr;
}

}  // namespace weft
