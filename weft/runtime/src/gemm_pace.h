// Which of two ways to read a matrix is the faster one where it lies now, which timing them tells.
//
// Strips of lanes are up to twice as fast as columns side by side where caches hold the matrix, and take up to twice as
// long where it comes from memory. Which one it is depends on the program around the product. Both give the same bits.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace weft {

class Pace {
 public:
  static uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
  }

  struct Turn {
    bool strips;
    bool timed;  // `took` wants to know how long it took
  };

  // How the next part of the matrix is read.
  Turn next() {
    const uint64_t turn = turns_.fetch_add(1, std::memory_order_relaxed);
    if (turn < kUntimed) return {true, false};  // nobody has read the matrix before
    if (turn < kUntimed + kFirst) return {turn % 2 == 0, true};
    const bool strips = strips_.load(std::memory_order_relaxed);
    if (turn < again_.load(std::memory_order_relaxed)) return {strips, turn % kTimed == 0};
    again_.store(turn + interval_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return {!strips, true};
  }

  // Threads that run the same step at once may lose a measurement or a turn, no more.
  void took(bool strips, float pace) {
    std::atomic<float>& mine = paces_[strips];
    const float before = mine.load(std::memory_order_relaxed);
    const bool chosen = strips_.load(std::memory_order_relaxed);
    if (before == 0 || pace < kChanged * before) {  // the matrix lies elsewhere now: what the other way took says nothing
      mine.store(pace, std::memory_order_relaxed);
      if (before > 0 && strips == chosen) {
        paces_[!strips].store(0, std::memory_order_relaxed);
        again_.store(turns_.load(std::memory_order_relaxed), std::memory_order_relaxed);
      }
    } else {  // what disturbs makes it longer
      const float less = (pace - before) / 2, more = (std::min(pace, 2 * before) - before) / 4;
      mine.store(before + (pace < before ? less : more), std::memory_order_relaxed);
    }
    const float ours = paces_[chosen].load(std::memory_order_relaxed), other = paces_[!chosen].load(std::memory_order_relaxed);
    if (other > 0 && other < kFaster * ours) {
      strips_.store(!chosen, std::memory_order_relaxed);
      interval_.store(kInterval, std::memory_order_relaxed);
    } else if (strips != chosen) {
      const uint64_t interval = 2 * interval_.load(std::memory_order_relaxed);
      interval_.store(std::min(interval, kLongest), std::memory_order_relaxed);
    }
  }

 private:
  static constexpr uint64_t kUntimed = 2, kFirst = 6;
  static constexpr uint64_t kTimed = 16;                      // one of so many is timed
  static constexpr uint64_t kInterval = 64, kLongest = 4096;  // turns until the other way is tried again
  static constexpr float kFaster = 0.96f;                     // of two that are about as fast one stays
  static constexpr float kChanged = 0.75f;                    // of what it took before

  std::atomic<uint64_t> turns_{0}, again_{kUntimed + kFirst + kInterval}, interval_{kInterval};
  std::atomic<bool> strips_{true};
  std::atomic<float> paces_[2]{};  // ticks for an element, 0: not known
};

}  // namespace weft
