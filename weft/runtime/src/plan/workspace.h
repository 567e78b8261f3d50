// Memory of a step that runs programs: for the length of one run, on the device of the plan.
#pragma once

#include <cstdint>

#include "array.h"
#include "device.h"
#include "figures.h"

namespace weft {

// Memory for the length of one run.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (buffer_ != nullptr) buffer_release(buffer_);
  }
  bool allocate(Device& device, int64_t bytes) {
    buffer_ = allocate_on(device, bytes);
    return buffer_ != nullptr;
  }
  bool empty() const { return buffer_ == nullptr; }
  char* at(int64_t offset) const { return buffer_->data + offset; }

 private:
  Buffer* buffer_ = nullptr;
};

inline int64_t padded(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

// Loads stall behind a store whose address differs by a multiple of the page size, as the rows of a large state do. So
// the second block of a large part of the state starts at another offset in its page than the first.
constexpr int64_t kApart = 1024, kLargePart = 4 * kPage;

inline char* apart(char* block, const char* other) {
  uintptr_t distance = reinterpret_cast<uintptr_t>(other) + kApart - reinterpret_cast<uintptr_t>(block);
  return block + (distance & (kPage - 64));
}

}  // namespace weft
