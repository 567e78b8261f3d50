// Loops and branches that a GPU is asked for inside of others, without knowing how far they go.
//
// A loop inside asks for as many steps as it has ever taken and one more, each under a guard (guard.h), and then whether
// it has ended. If it has not, it writes down its number, and all that was asked for behind it does nothing. The outermost
// loop looks at that word when it waits. Then it asks for the same once more, but launches nothing (`skipping`) before
// the loop of that number, which goes on from there and is waited for.
#pragma once

#include <algorithm>
#include <map>
#include <utility>

#include "guard.h"
#include "workspace.h"

namespace weft {

class Step;

class Ahead {
 public:
  // Data of a step, kept as long as the outermost loop runs: runs of the step are never inside of each other.
  struct Kept {
    Workspace memory, words;
    int64_t most = -1;  // steps that it has taken in a run, as all of a batch know it; -1: it has not run,
    int64_t seen = -1;  // and as is known now
  };

  // `stalled`: an int32 of the device; nullptr: no loop in it may be without an end.
  explicit Ahead(char* stalled) : stalled(stalled) { current = this; }
  ~Ahead() {
    current = nullptr;
    t_skipping = false;
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  Kept& kept(const Step* step) { return kept_[step]; }
  // What is asked for from now on can be asked for again.
  void begin() {
    number = 0;
    for (auto& [step, kept] : kept_) kept.most = std::max(kept.most, kept.seen);
  }
  // Asks for the same again, from what came behind loop `before` to the loop `wanted`.
  void look_for(int32_t wanted, int32_t before) {
    wanted_ = wanted;
    number = before;
    t_skipping = true;
  }
  bool found(int32_t own) {
    if (!t_skipping || own != wanted_) return false;
    t_skipping = false;
    return true;
  }

  char* const stalled;
  int32_t number = 0;  // of the loop that was last asked for
  int waits = 0;       // > 0: loops are waited for, and none stalls

  static inline thread_local Ahead* current = nullptr;

 private:
  int32_t wanted_ = 0;
  std::map<const Step*, Kept> kept_;
};

// Sets aside what this thread asks for ahead, as long as it lives: the handler of a signal may run other programs.
class SetAside {
 public:
  SetAside() : ahead_(std::exchange(Ahead::current, nullptr)), skipping_(std::exchange(t_skipping, false)) {}
  ~SetAside() {
    Ahead::current = ahead_;
    t_skipping = skipping_;
  }
  SetAside(const SetAside&) = delete;
  SetAside& operator=(const SetAside&) = delete;

 private:
  const Guarded unguarded_{Guard{}};
  Ahead* const ahead_;
  const bool skipping_;
};

// Skipped steps have no guard: all up to the loop that is looked for are known to be done.
inline void guard_by(const Guard& guard) { t_guard = t_skipping ? Guard{} : guard; }

}  // namespace weft
