// What a thread asks of a GPU under a guard is done only if a number in the GPU's memory is right when its turn comes.
//
// So a loop may ask for steps before it is known that it goes on, and a branch for all of its programs: nobody waits.
// Kernels look at the number first (codegen/gpu/kernel.py); copies and fills are kernels too under a guard.
#pragma once

#include <cstdint>

namespace weft {

struct Guard {
  const char* word = nullptr;  // an int32; nullptr: there is no guard
  int32_t low = 0, high = 0;   // it must be one of these

  int64_t range() const { return int64_t(uint64_t(uint32_t(high)) << 32 | uint32_t(low)); }
};

inline thread_local Guard t_guard;
inline thread_local bool t_skipping = false;  // this thread asks for what was done already: nothing is launched (ahead.h)

// Sets the guard of this thread as long as it lives.
class Guarded {
 public:
  explicit Guarded(const Guard& guard) : before_(t_guard) { t_guard = guard; }
  ~Guarded() { t_guard = before_; }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

 private:
  Guard before_;
};

}  // namespace weft
