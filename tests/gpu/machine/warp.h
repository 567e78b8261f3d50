// A warp as it runs: 32 lanes in lockstep over arrays of registers, and a stack of groups of lanes that went apart.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "halves.h"
#include "memory.h"
#include "program.h"

namespace ptx {

struct Block;
struct Launch;

// Lanes that go on together at pc, until ``meet``.
struct Level {
  uint32_t mask, pc, meet, frame;
};

struct Group {
  uint32_t lanes, target;
};

struct Frame {
  const Function* function;
  uint32_t registers, written;  // where its registers and the masks of written ones begin
  uint32_t local;               // where its local memory begins
  const Call* call;
};

// Bytes on their way to shared memory, and when they come; ``defined``: somebody wrote them where they come from.
struct Copy {
  char* to;
  uint32_t lane, offset, bytes;
  bool defined;
  char data[16];
};
struct CopyGroup {
  std::vector<Copy> copies;
  double ready = 0;
};

enum class State : uint8_t { running, waiting, done };

struct Warp {
  uint32_t active = 0;        // lanes of the instruction at hand
  uint32_t mask = 0;          // lanes that go on together
  uint32_t alive = 0;         // lanes that have not ended
  uint32_t carry = 0;         // the carry flag of each lane
  uint32_t pc = 0;
  char* registers = nullptr;
  const char* constants = nullptr;
  uint32_t* written = nullptr;  // for each register the lanes that have a defined value
  uint32_t defined = 0;         // active lanes whose operands are all defined
  Block* block = nullptr;
  Launch* launch = nullptr;
  uint32_t number = 0;  // in its block
  uint32_t all = 0;     // lanes that there are
  State state = State::running;
  bool yields = false;  // what it looks at is another thread's to change
  int waits_at = -1;    // the barrier
  std::vector<Level> levels;
  std::vector<Frame> frames;
  std::unique_ptr<char, void (*)(void*)> file{nullptr, free};
  std::vector<uint32_t> masks;
  std::vector<char> local;
  std::vector<uint32_t> clock;  // for races: how far each warp of the block was when this one last met it
  std::vector<CopyGroup> arriving;  // of which the last is not committed
  uint64_t steps = 0;
  // Of a launch that is timed, cycles: the instructions of a region begin when their operands are ready, in any order, as
  // the hardware's compiler arranges them; a region ends when all of them have begun.
  double time = 0;              // the region's begin
  double latest = 0, issued = 0;  // in the region: the last begin, and what all of them take to be issued
  double unit = 0;              // when the unit of loads can take another of this warp
  uint32_t jumps = 0;           // back, for four of which the compiler unrolls a loop
  std::vector<double> ready;    // of each register

  template <class T>
  const T* src(uint32_t slot) const {
    return reinterpret_cast<const T*>(slot & kConstant ? constants + (slot ^ kConstant) : registers + slot);
  }
  template <class T>
  T* dst(uint32_t slot) {
    return reinterpret_cast<T*>(registers + slot);
  }
  uint32_t pred(uint32_t slot) const { return *src<uint32_t>(slot); }
  void set_pred(uint32_t slot, uint32_t value) {
    uint32_t* p = dst<uint32_t>(slot);
    *p = (*p & ~active) | (value & active);
  }

  // Of a result: the active lanes that are defined.
  void define(uint32_t index, uint32_t lanes) { written[index] = (written[index] & ~active) | (lanes & active); }
  void start(const Function& function);
  // Runs until it waits or ends, or some steps are over.
  void run(uint64_t steps);
  void enter(const Function& function, const Call* call);
  void leave();
  void use_frame();
  // Groups of the lanes go to their targets, until they meet again.
  void part(const std::vector<Group>& groups, uint32_t meet);
  // After lanes ended: the next group that has any.
  void settle();
  uint32_t frame_local() const { return frames.back().local; }
  int first_lane() const { return __builtin_ctz(active); }
  uint32_t thread(int lane) const { return number * kLanes + uint32_t(lane); }
  [[noreturn]] void fault(const char* kind, const std::string& why, int lane = -1) const;
  std::string where(int lane) const;
};

// d[lane] = f(lane) for the active lanes.
template <class D, class F>
inline void fill(Warp& w, uint32_t slot, F f) {
  D* d = w.dst<D>(slot);
  if (w.active == ~0u) {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) d[lane] = f(lane);
  } else {
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
      const int lane = __builtin_ctz(rest);
      d[lane] = f(lane);
    }
  }
}

// A predicate of f(lane).
template <class F>
inline uint32_t gather_mask(const Warp& w, F f) {
  uint32_t result = 0;
  if (w.active == ~0u) {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) result |= uint32_t(bool(f(lane))) << lane;
  } else {
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
      const int lane = __builtin_ctz(rest);
      result |= uint32_t(bool(f(lane))) << lane;
    }
  }
  return result;
}

template <class T, class Op>
void unary(Warp& w, const Instruction& in) {
  const T* a = w.src<T>(in.s[0]);
  fill<T>(w, in.d[0], [=](int l) { return T(Op()(a[l])); });
}
template <class T, class Op>
void binary(Warp& w, const Instruction& in) {
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]);
  fill<T>(w, in.d[0], [=](int l) { return T(Op()(a[l], b[l])); });
}
template <class T, class Op>
void ternary(Warp& w, const Instruction& in) {
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]), *c = w.src<T>(in.s[2]);
  fill<T>(w, in.d[0], [=](int l) { return T(Op()(a[l], b[l], c[l])); });
}

// The value of a lane of an operand of some bytes.
inline uint64_t lane_value(const Warp& w, uint32_t slot, int bytes, int lane) {
  switch (bytes) {
    case 2: return w.src<uint16_t>(slot)[lane];
    case 4: return w.src<uint32_t>(slot)[lane];
    default: return w.src<uint64_t>(slot)[lane];
  }
}
inline void set_lane(Warp& w, uint32_t slot, int bytes, int lane, uint64_t value) {
  switch (bytes) {
    case 2: w.dst<uint16_t>(slot)[lane] = uint16_t(value); break;
    case 4: w.dst<uint32_t>(slot)[lane] = uint32_t(value); break;
    default: w.dst<uint64_t>(slot)[lane] = value; break;
  }
}

}  // namespace ptx
