// Profiles: how long the steps of plans take, and when each began, while Python asks for it.
//
// A plan that runs during a profile has PlanTimes: one counter for the whole call and one for each step. So that
// looking at the clock takes less than a hundredth of the time, a short plan is timed at every `period`-th call only,
// by the compiler's estimate of its time and never by the clock itself. Timed calls also leave spans in a buffer of
// their thread, from which timelines are drawn. While no profile is taken, a warm call pays for none of this: the bound
// below, which decides anyway whether a program runs at once, sends calls here.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "exec.h"

namespace weft {

extern double g_inline_ns;  // figures.inline_ns, or negative while a profile is taken; guarded by the GIL

struct StepTime {
  std::atomic<int64_t> count{0}, total_ns{0}, least_ns{0};

  void add(int64_t ns);
  void clear();
};

// The times of one plan in the profile number `session`.
struct PlanTimes {
  explicit PlanTimes(size_t n_steps) : steps(std::make_unique<StepTime[]>(n_steps)) {}

  // Counts a call; whether it is to be timed. `alone`: nothing else counts at the same time (the GIL is held).
  bool start(bool alone) {
    int64_t before = calls.load(std::memory_order_relaxed);
    if (alone) calls.store(before + 1, std::memory_order_relaxed);
    else before = calls.fetch_add(1, std::memory_order_relaxed);
    if (!alone) return before % period == 0;
    if (--left > 0) return false;
    left = period;
    return true;
  }

  uint64_t session = 0;
  uint32_t program = 0;  // its number in the profile
  int64_t period = 1, left = 1;  // left: calls until the next timed one, of those with the GIL held
  std::atomic<int64_t> calls{0};
  StepTime whole;
  std::unique_ptr<StepTime[]> steps;
};

// What a span is: a step (0 and more), or one of these.
constexpr int32_t kWholeCall = -1;
constexpr int32_t kShare = 1 << 30;  // added to a step: a worker's share of it

bool profile_is_on();

// Enters a program and the programs it runs into the profile. GIL held; without memory it stays out.
void profile_enter(Executable* executable);

extern std::atomic<uint64_t> g_session;  // number of the profile that is taken; 0: none

// The times of a plan if it takes part in the profile, otherwise nullptr.
inline PlanTimes* profile_times(const Plan& plan) {
  uint64_t session = g_session.load(std::memory_order_relaxed);
  if (session == 0) return nullptr;
  PlanTimes* times = plan.times.load(std::memory_order_acquire);
  return times != nullptr && times->session == session ? times : nullptr;
}

// Runs all steps and notes how long each takes.
Status profile_steps(const Plan& plan, Frame& frame, PlanTimes& times);

// The step that this thread is running in a timed call, for the shares of workers; 0 outside one.
uint64_t profile_label();

// Notes that a worker has worked on a step since `begin`.
void profile_share(uint64_t label, int64_t begin);
int64_t profile_now();

// Notes that Python waited for a result at a line of the user's. GIL held.
void profile_wait(const std::string& line, int64_t ns);

// What spans of this thread are shown under; a literal.
void profile_name_thread(const char* name);

int register_profile(PyObject* module);  // profile_start, profile_stop

}  // namespace weft
