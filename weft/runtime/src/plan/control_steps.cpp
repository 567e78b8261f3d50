// The step of a plan that runs a program again and again.
//
// A loop keeps two blocks of memory for each part of its state that the
// body cannot update in place, and swaps them; iterations allocate nothing.
// Iterations that do not depend on each other are divided among all threads.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ahead.h"
#include "array.h"
#include "device.h"
#include "exec.h"
#include "fields.h"
#include "figures.h"
#include "guard.h"
#include "nested_program.h"
#include "plan.h"
#include "pool.h"
#include "profile.h"
#include "stream.h"
#include "workspace.h"

namespace weft {
namespace {

constexpr double kUnknownTrips = 1000;  // assumed number of iterations of a loop that ends by a condition
constexpr int kSignalInterval = 256;  // iterations between two checks for signals
// Steps asked for before it is known whether the loop goes on; between these as many as were done, so that at most half of
// all do nothing. On an H100 a launch takes 3.9 us, and one that is waited for 12.1 with the copy of an answer: four steps
// of two launches that do nothing cost as much as four waits, and with 256 steps ahead a wait is a hundredth.
constexpr int64_t kLeastAhead = 4, kMostAhead = 256;

// Looks for a pending interrupt every `interval` calls, outside the stream. ok, or python_error with the GIL held.
class SignalWatch {
 public:
  explicit SignalWatch(int64_t interval = kSignalInterval) : interval_(interval) {}
  Status look(Frame& frame) {
    if (stream_cancelled(frame.number)) return Status::cancelled;
    // A task of the stream may run on any thread, without the GIL; the thread that waits for it handles signals.
    if (frame.on_stream || frame.number != 0 || ++count_ % interval_ != 0) return Status::ok;
    auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return Status::ok;
    last_ = now;
    if (frame.suspended != nullptr) in_python<PyEval_RestoreThread>(std::exchange(frame.suspended, nullptr));
    const SetAside aside;
    if (in_python<PyErr_CheckSignals>() != 0) return Status::python_error;
    frame.suspended = PyEval_SaveThread();
    return Status::ok;
  }

 private:
  int64_t interval_, count_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

struct Strided {
  Location location;
  int64_t stride;
};

class LoopStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    try {
      return run_loop(frame);
    } catch (const std::bad_alloc&) {
      return Status::no_memory;
    }
  }
  bool on_host() const override { return true; }
  double cost_ns() const override {
    double once = 100 + body.plan().cost_ns + (has_cond() ? cond.plan().cost_ns : 0);
    return once * (has_cond() ? kUnknownTrips : double(trips));
  }
  bool is_python() const override { return body.plan().has_python || (has_cond() && cond.plan().has_python); }
  bool has_callbacks() const override { return body.plan().has_callbacks || (has_cond() && cond.plan().has_callbacks); }
  bool is_unbounded() const override { return has_cond() || body.plan().unbounded; }
  int traverse(visitproc visit, void* arg) const override {
    if (int status = body.traverse(visit, arg); status != 0) return status;
    return cond.traverse(visit, arg);
  }

  Executable* inner_program(size_t number) const override {
    return number == 0 ? body.program : number == 1 ? cond.program : nullptr;
  }

  bool is_guardable() const override {
    return body.is_guardable() &&
           (!has_cond() || (cond.is_guardable() && cond.plan().outputs[0].kind == OutputKind::fresh));
  }
  bool may_stall() const override { return has_cond() || body.may_stall(); }
  bool has_cond() const { return cond.program != nullptr; }

  Nested body, cond;
  std::vector<Location> tested, captured, carry;
  std::vector<int64_t> carry_bytes;
  std::vector<Strided> inputs, outputs;
  std::vector<int64_t> output_bytes;
  int64_t trips = 0;
  bool reverse = false;
  bool independent = false;  // there is no state, and iterations may run at the same time

 private:
  // How the body updates part i of the state: writes fresh memory, its own block, or another part's (move or copy).
  enum class Update { swap, in_place, move, copy };

  std::vector<Update> updates() const {
    const Plan& plan = body.plan();
    int32_t first = int32_t(body.consts.size() + captured.size());
    std::vector<int> sharers(size_t(plan.n_inputs));
    for (const OutputPlan& spec : plan.outputs)
      if (spec.kind == OutputKind::donated || spec.kind == OutputKind::input) ++sharers[size_t(spec.source)];
    std::vector<Update> found(carry.size(), Update::copy);
    for (size_t i = 0; i < carry.size(); ++i) {
      const OutputPlan& spec = plan.outputs[i];
      if (spec.kind == OutputKind::fresh) found[i] = Update::swap;
      if (spec.kind != OutputKind::donated && spec.kind != OutputKind::input) continue;
      bool is_state = spec.source >= first && spec.source < first + int32_t(carry.size());
      if (spec.source == first + int32_t(i)) found[i] = Update::in_place;
      else if (is_state && sharers[size_t(spec.source)] == 1 && spec.kind == OutputKind::donated &&
               carry_bytes[size_t(spec.source - first)] == carry_bytes[i])
        found[i] = Update::move;
    }
    return found;
  }

  // Whether threads share the iterations: there is one for each thread at least, that is worth it, and none calls Python.
  // While a profile is taken one thread does all, so that the times of the body add up to the loop's.
  bool is_divided(const Device& device) const {
    return independent && device.is_host() && trips >= pool_threads() && pool_threads() > 1 && !is_python() &&
           profile_times(body.plan()) == nullptr && pool_worth(cost_ns());
  }

  struct Shared {
    const LoopStep* loop;
    Frame* frame;
    const std::thread::id caller = std::this_thread::get_id();
    SignalWatch watch{1};  // the caller's: an iteration may be long
    std::atomic<Status> status{Status::ok};
  };

  // Some of the iterations, with temporaries of their own. The caller looks for signals; others end their iteration.
  static void run_some(void* context, int64_t low, int64_t high) {
    Shared& shared = *static_cast<Shared*>(context);
    const LoopStep& loop = *shared.loop;
    Frame other{shared.frame->slots, shared.frame->owners, shared.frame->dynamic, shared.frame->plan};
    other.on_stream = true;
    other.number = shared.frame->number;
    Frame& frame = std::this_thread::get_id() == shared.caller ? *shared.frame : other;
    Status status = Status::ok;
    try {
      NestedFrame inner(loop.body);
      Workspace memory;
      if (!memory.allocate(*frame.plan->device, loop.body.plan().arena_bytes + 64)) status = Status::no_memory;
      else inner.set_arena(memory.at(0));
      for (size_t i = 0; i < loop.captured.size(); ++i) inner.input(i) = loop.captured[i].address(frame);
      std::vector<char*> none;
      for (int64_t index = low; index < high && status == Status::ok; ++index) {
        if (shared.status.load(std::memory_order_relaxed) != Status::ok) return;
        status = shared.watch.look(frame);
        if (status == Status::ok) status = loop.step(frame, inner, {}, none, none, index);
      }
    } catch (const std::bad_alloc&) {
      status = Status::no_memory;
    }
    Status none_yet = Status::ok;
    if (status != Status::ok) shared.status.compare_exchange_strong(none_yet, status, std::memory_order_relaxed);
  }

  Status run_loop(Frame& frame) const {
    if (is_divided(*frame.plan->device)) {
      Shared shared{this, &frame};
      pool_run(run_some, &shared, trips, 1, cost_ns());
      return shared.status.load();
    }
    std::vector<Update> how = updates();
    Ahead* ahead = Ahead::current;
    if (ahead != nullptr && has_cond()) std::replace(how.begin(), how.end(), Update::move, Update::copy);
    NestedFrame inner(body), test(has_cond() ? cond : body);
    size_t n = carry.size(), first = captured.size();
    // State that is not updated in place has a second block, followed by the arenas and the condition's result.
    bool any_moves = std::find(how.begin(), how.end(), Update::move) != how.end();
    std::vector<int64_t> offsets(n);
    int64_t bytes = 0;
    for (size_t i = 0; i < n; ++i) {
      offsets[i] = bytes;
      if (!any_moves && how[i] == Update::in_place) continue;
      bytes += padded(carry_bytes[i]) + (carry_bytes[i] >= kLargePart ? kPage : 0);
    }
    int64_t body_arena = bytes, cond_arena = body_arena + padded(body.plan().arena_bytes);
    int64_t result = cond_arena + (has_cond() ? padded(cond.plan().arena_bytes) : 0);
    Workspace own;
    Workspace& memory = ahead == nullptr ? own : ahead->kept(this).memory;
    Device& device = *frame.plan->device;
    if (memory.empty() && !memory.allocate(device, result + 64)) return Status::no_memory;
    std::vector<char*> now(n), spare(n);
    for (size_t i = 0; i < n; ++i) {
      now[i] = carry[i].address(frame);
      spare[i] = memory.at(offsets[i]);
      if (carry_bytes[i] >= kLargePart) spare[i] = apart(spare[i], now[i]);
    }
    for (size_t i = 0; i < first; ++i) inner.input(i) = captured[i].address(frame);
    inner.set_arena(memory.at(body_arena));
    if (has_cond()) {
      for (size_t i = 0; i < tested.size(); ++i) test.input(i) = tested[i].address(frame);
      test.set_arena(memory.at(cond_arena));
    }
    Status status = Status::ok;
    if (ahead != nullptr ? has_cond() : may_be_ahead(device)) {
      const Parts parts{frame, inner, test, how, now, spare};
      int64_t done = 0;
      status = ahead == nullptr ? run_ahead(parts, &done) : run_inside(parts, *ahead);
      return status == Status::ok ? settle(frame, now) : status;
    }
    SignalWatch watch;
    const ExpectedJobs expected(has_cond() ? 0 : trips);
    Iteration iteration;
    for (int64_t trip = 0; status == Status::ok; ++trip) {
      iteration.index = reverse ? trips - 1 - trip : trip;
      if (has_cond()) {
        bool goes_on;
        status = ask(frame, test, now, memory.at(result), &goes_on);
        if (status != Status::ok || !goes_on) break;
      } else if (trip == trips) {
        break;
      }
      status = watch.look(frame);
      if (status == Status::ok) status = step(frame, inner, how, now, spare, reverse ? trips - 1 - trip : trip);
    }
    return status == Status::ok ? settle(frame, now) : status;
  }

  // What one run of the loop works with.
  struct Parts {
    Frame& frame;
    NestedFrame &inner, &test;
    const std::vector<Update>& how;
    std::vector<char*>&now, &spare;
  };

  // What was before a step that was asked for ahead.
  struct Asked {
    std::vector<char*> now, spare;
    int32_t number;  // of the last loop inside
  };

  // Whether steps may be asked for that are not done if the loop, or one inside, has not come so far.
  bool may_be_ahead(const Device& device) const { return device.guards() && may_stall() && is_guardable(); }

  // Asks for several steps, each under what the condition before it will have left, then looks how many were done.
  Status run_ahead(const Parts& parts, int64_t* done) const {
    Device& device = *parts.frame.plan->device;
    static constexpr int32_t zeros[1 + kMostAhead] = {};
    int32_t found[1 + kMostAhead];
    Workspace words;  // what has stalled, then an int32 for each step; the condition writes its first byte
    if (!words.allocate(device, sizeof zeros)) return Status::no_memory;
    std::optional<Ahead> own;
    if (Ahead::current == nullptr) own.emplace(words.at(0));
    Ahead& ahead = *Ahead::current;
    const Guarded as_before(t_guard);
    std::vector<Asked> asked;
    const bool learns = own && (body.may_stall() || (has_cond() && cond.may_stall()));
    SignalWatch watch;
    int64_t since = 0;  // steps since the last stall
    for (bool first = learns;; first = false) {
      int64_t count = first ? 1 : std::clamp(since, kLeastAhead, kMostAhead);
      if (!has_cond() && (count = std::min(count, trips - *done)) == 0) return Status::ok;
      if (own) ahead.begin();
      const int waits = std::exchange(ahead.waits, ahead.waits + (first || !own));
      const auto bytes = (1 + count) * int64_t(sizeof(int32_t));
      asked.clear();
      Status status = device.upload(words.at(0), reinterpret_cast<const char*>(zeros), bytes);
      if (status == Status::ok) status = ask_ahead(parts, watch, words, 0, count, *done, &asked);
      ahead.waits = waits;
      if (status == Status::ok) status = device.fetch(reinterpret_cast<char*>(found), words.at(0), bytes);
      since += count;
      while (status == Status::ok && own && found[0] != 0) {
        int64_t step = count - 1;
        while (asked[size_t(step)].number >= found[0]) --step;
        status = resume(parts, watch, words, step, *done, found[0], &asked);
        count = step + 1;
        since = 0;
        if (status == Status::ok) status = device.fetch(reinterpret_cast<char*>(found), words.at(0), bytes);
      }
      if (status != Status::ok) return status;
      for (int64_t k = 0; k < count && has_cond(); ++k) {
        if (found[1 + k] != 0) continue;
        parts.now = asked[size_t(k)].now;
        *done += k;
        return Status::ok;
      }
      *done += count;
    }
  }

  // Steps `first` to `last` of those that have words.
  Status ask_ahead(const Parts& parts, SignalWatch& watch, const Workspace& words, int64_t first, int64_t last,
                   int64_t done, std::vector<Asked>* asked) const {
    const Guard before = t_guard;
    Status status = Status::ok;
    for (int64_t k = first; k < last && status == Status::ok; ++k) {
      asked->push_back({parts.now, parts.spare, Ahead::current->number});
      if ((status = watch.look(parts.frame)) != Status::ok) break;
      status = ask_step(parts, words.at((1 + k) * int64_t(sizeof(int32_t))), done + k);
    }
    t_guard = before;
    return status;
  }

  // The condition, and a step under its answer; under the guard of this thread, which is then that of what follows.
  Status ask_step(const Parts& parts, char* answer, int64_t number) const {
    if (has_cond()) {
      for (size_t i = 0; i < parts.now.size(); ++i) parts.test.input(tested.size() + i) = parts.now[i];
      parts.test.output(0) = answer;
      parts.test.resolve_outputs();
      if (Status status = parts.test.run(parts.frame); status != Status::ok) return status;
      guard_by({answer, 1, INT32_MAX});
    }
    const bool was_skipping = t_skipping;
    Status status = step(parts.frame, parts.inner, parts.how, parts.now, parts.spare, reverse ? trips - 1 - number : number);
    if (status != Status::ok || !was_skipping || t_skipping) return status;
    return tell_done(*parts.frame.plan->device, answer, 1);
  }

  // Answers that are known to have been yes.
  static Status tell_done(Device& device, char* answers, int64_t count) {
    const std::vector<int32_t> ones(size_t(count), 1);
    return device.upload(answers, reinterpret_cast<const char*>(ones.data()), count * int64_t(sizeof(int32_t)));
  }

  // Asks for a step again, in which a loop has stalled: that goes on, and what follows it in the step.
  Status resume(const Parts& parts, SignalWatch& watch, const Workspace& words, int64_t step, int64_t done,
                int32_t stalled, std::vector<Asked>* asked) const {
    Ahead& ahead = *Ahead::current;
    parts.now = (*asked)[size_t(step)].now;
    parts.spare = (*asked)[size_t(step)].spare;
    ahead.look_for(stalled, (*asked)[size_t(step)].number);
    asked->resize(size_t(step));
    ++ahead.waits;
    Status status = ask_ahead(parts, watch, words, step, step + 1, done, asked);
    --ahead.waits;
    return status == Status::ok && t_skipping ? Status::device_error : status;
  }

  // A loop inside of another: as many steps as it is known to take, and one; its state is at home then (``settle``).
  Status run_inside(const Parts& parts, Ahead& ahead) const {
    Device& device = *parts.frame.plan->device;
    Ahead::Kept& kept = ahead.kept(this);
    if ((ahead.waits > 0 && !t_skipping) || kept.most < 0 || kept.most >= kMostAhead - 1)
      return t_skipping ? Status::ok : run_to_its_end(parts, ahead, kept, 0);
    static constexpr int32_t zeros[2 + kMostAhead] = {};
    const int64_t count = (kept.most + 2) & ~int64_t{1};  // even: then the blocks of the state are where they were
    const int32_t own = ++ahead.number;
    if (ahead.found(own)) {
      Status status = device.upload(ahead.stalled, reinterpret_cast<const char*>(zeros), sizeof own);
      return status == Status::ok ? run_to_its_end(parts, ahead, kept, count) : status;
    }
    Workspace& words = kept.words;
    if (words.empty()) {
      if (!words.allocate(device, sizeof zeros)) return Status::no_memory;
      Status status = device.upload(words.at(0), reinterpret_cast<const char*>(zeros), sizeof zeros);
      if (status != Status::ok) return status;
    }
    const Guard before = t_guard;
    for (int64_t k = 0; k < count; ++k) {
      const bool was_skipping = t_skipping;
      Status status = ask_step(parts, words.at((2 + k) * int64_t(sizeof own)), k);
      if (status == Status::ok && was_skipping && !t_skipping && k > 0) status = tell_done(device, words.at(2 * sizeof own), k);
      if (status != Status::ok) return status;
    }
    t_guard = before;
    const bool waits = ahead.waits > 0 && !t_skipping;  // one inside had stalled
    if (Status status = device.settle(words.at(0), count, own, waits ? nullptr : ahead.stalled); status != Status::ok)
      return status;
    guard_by({words.at(0), 1, 1});
    for (size_t i = 0; i < carry.size(); ++i) {
      if (parts.how[i] == Update::in_place) continue;
      Status status = copy_on(device, parts.now[i], parts.spare[i], carry_bytes[i]);
      if (status != Status::ok) return status;
    }
    if (!waits) return guard_by({words.at(sizeof own), 1, 1}), Status::ok;
    t_guard = before;
    int32_t ended;
    Status status = device.fetch(reinterpret_cast<char*>(&ended), words.at(sizeof own), sizeof ended);
    return status != Status::ok || ended != 0 ? status : run_to_its_end(parts, ahead, kept, count);
  }

  // Waits for the loop, which has taken `done` steps.
  Status run_to_its_end(const Parts& parts, Ahead& ahead, Ahead::Kept& kept, int64_t done) const {
    Status status = run_ahead(parts, &done);
    kept.seen = std::max(kept.seen, done);
    return status;
  }

  Status ask(Frame& frame, NestedFrame& test, const std::vector<char*>& now, char* result, bool* goes_on) const {
    for (size_t i = 0; i < now.size(); ++i) test.input(tested.size() + i) = now[i];
    test.output(0) = result;
    test.resolve_outputs();
    if (Status status = test.run(frame); status != Status::ok) return status;
    View answer(*frame.plan->device, test.output(0), 1);
    if (answer.data() == nullptr) return Status::no_memory;
    *goes_on = *answer.data() != 0;
    return Status::ok;
  }

  Status step(Frame& frame, NestedFrame& inner, const std::vector<Update>& how, std::vector<char*>& now,
              std::vector<char*>& spare, int64_t index) const {
    size_t n = carry.size(), first = captured.size();
    const Plan& plan = body.plan();
    Device& device = *frame.plan->device;
    for (size_t i = 0; i < n; ++i) inner.input(first + i) = now[i];
    for (size_t i = 0; i < inputs.size(); ++i)
      inner.input(first + n + i) = inputs[i].location.address(frame) + index * inputs[i].stride;
    for (size_t i = 0; i < n; ++i) inner.output(i) = spare[i];
    for (size_t i = 0; i < outputs.size(); ++i)
      inner.output(n + i) = outputs[i].location.address(frame) + index * outputs[i].stride;
    inner.resolve_outputs();
    if (Status status = inner.run(frame); status != Status::ok) return status;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (plan.outputs[n + i].kind == OutputKind::fresh) continue;
      char* to = outputs[i].location.address(frame) + index * outputs[i].stride;
      Status status = device.copy(to, inner.output(n + i), output_bytes[i]);
      if (status != Status::ok) return status;
    }
    // Copies first, into blocks that nothing else uses; then the blocks are exchanged.
    std::vector<char*>& old = scratch(now);
    for (size_t i = 0; i < n; ++i) {
      if (how[i] != Update::copy) continue;
      Status status = copy_on(device, spare[i], inner.output(i), carry_bytes[i]);
      if (status != Status::ok) return status;
    }
    for (size_t i = 0; i < n; ++i) {
      if (how[i] == Update::in_place) continue;
      if (how[i] == Update::move) {
        now[i] = inner.output(i);
        continue;
      }
      now[i] = spare[i];
      spare[i] = old[i];
    }
    return reclaim(how, now, spare, old);
  }

  static std::vector<char*>& scratch(const std::vector<char*>& now) {
    thread_local std::vector<char*> copy;
    copy.assign(now.begin(), now.end());
    return copy;
  }

  // After a move, the spare block of one part may hold the state of another: assign spare blocks again. A part without
  // elements has no block of its own: its address may be that of another part's block.
  Status reclaim(const std::vector<Update>& how, std::vector<char*>& now, std::vector<char*>& spare,
                 const std::vector<char*>& old) const {
    bool moved = false;
    for (Update update : how) moved = moved || update == Update::move;
    if (!moved) return Status::ok;
    size_t n = now.size();
    std::vector<std::pair<char*, int64_t>> blocks;
    for (size_t i = 0; i < n; ++i) {
      if (carry_bytes[i] == 0) continue;
      for (char* block : {old[i], spare[i], now[i]}) {
        bool known = false;
        for (const auto& entry : blocks) known = known || entry.first == block;
        if (!known) blocks.emplace_back(block, carry_bytes[i]);
      }
    }
    for (size_t i = 0; i < n; ++i)
      for (auto& entry : blocks)
        if (carry_bytes[i] != 0 && entry.first == now[i]) entry.second = -1;
    for (size_t i = 0; i < n; ++i)
      for (auto& entry : blocks)
        if (entry.second == carry_bytes[i]) {
          spare[i] = entry.first;
          entry.second = -1;
          break;
        }
    return Status::ok;
  }

  // Copies the state to where the outer plan wants it; the blocks may have been permuted. A value whose destination
  // holds no other value is copied first; if only cycles are left, one value is moved aside.
  Status settle(Frame& frame, std::vector<char*>& now) const {
    Device& device = *frame.plan->device;
    size_t n = carry.size(), left = 0;
    std::vector<char*> homes(n);
    for (size_t i = 0; i < n; ++i) {
      homes[i] = carry[i].address(frame);
      if (carry_bytes[i] == 0) now[i] = homes[i];
      left += now[i] != homes[i];
    }
    std::vector<Workspace> shelters(n);
    while (left > 0) {
      bool moved = false;
      for (size_t i = 0; i < n; ++i) {
        if (now[i] == homes[i]) continue;
        bool occupied = false;
        for (size_t j = 0; j < n; ++j) occupied = occupied || (j != i && carry_bytes[j] != 0 && now[j] == homes[i]);
        if (occupied) continue;
        if (Status status = copy_on(device, homes[i], now[i], carry_bytes[i]); status != Status::ok) return status;
        now[i] = homes[i];
        --left;
        moved = true;
      }
      if (moved) continue;
      size_t first = 0;
      while (now[first] == homes[first]) ++first;
      if (!shelters[first].allocate(device, carry_bytes[first])) return Status::no_memory;
      Status status = copy_on(device, shelters[first].at(0), now[first], carry_bytes[first]);
      if (status != Status::ok) return status;
      now[first] = shelters[first].at(0);
    }
    return Status::ok;
  }
};

// sequence of (location, bytes of one element); there are `trips` elements at the location
bool read_rows(PyObject* sequence, const LocationReader& locations, int64_t trips, std::vector<Strided>* out,
               std::vector<int64_t>* sizes) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sequence); ++i) {
    PyObject* location;
    long long nbytes;
    int64_t total;
    PyObject* item = PyTuple_GET_ITEM(sequence, i);
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "OL", &location, &nbytes) || nbytes < 0 ||
        __builtin_mul_overflow(int64_t(nbytes), trips, &total))
      return wrong("[executable] rows of a loop are (location, bytes of one)");
    Strided found{};
    if (!locations.location(location, total, &found.location)) return false;
    found.stride = nbytes;
    out->push_back(found);
    sizes->push_back(nbytes);
  }
  return true;
}

bool check_loop(const LoopStep& loop, const std::vector<int64_t>& tested, const std::vector<int64_t>& captured,
                const std::vector<int64_t>& rows) {
  size_t n = loop.carry.size();
  if (loop.body.plan().outputs.size() != n + loop.outputs.size() ||
      size_t(loop.body.plan().n_inputs) != loop.body.consts.size() + captured.size() + n + rows.size())
    return wrong("[executable] a loop's body takes or gives another number of values");
  if (loop.independent && (n != 0 || loop.has_cond()))
    return wrong("[executable] iterations that pass a state on depend on each other");
  for (size_t i = 0; i < captured.size(); ++i)
    if (!fits(loop.body, i, captured[i])) return false;
  for (size_t i = 0; i < n; ++i)
    if (!fits(loop.body, captured.size() + i, loop.carry_bytes[i]) || !gives(loop.body, i, loop.carry_bytes[i]))
      return false;
  for (size_t i = 0; i < rows.size(); ++i)
    if (!fits(loop.body, captured.size() + n + i, rows[i])) return false;
  for (size_t i = 0; i < loop.outputs.size(); ++i)
    if (!gives(loop.body, n + i, loop.output_bytes[i])) return false;
  if (!loop.has_cond()) return true;
  if (loop.cond.plan().outputs.size() != 1 || !gives(loop.cond, 0, 1) ||
      size_t(loop.cond.plan().n_inputs) != loop.cond.consts.size() + tested.size() + n)
    return wrong("[executable] a loop's condition takes or gives another number of values");
  for (size_t i = 0; i < tested.size(); ++i)
    if (!fits(loop.cond, i, tested[i])) return false;
  for (size_t i = 0; i < n; ++i)
    if (!fits(loop.cond, tested.size() + i, loop.carry_bytes[i])) return false;
  return true;
}

}  // namespace

std::unique_ptr<Step> make_loop_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  auto step = std::make_unique<LoopStep>();
  Ref body = fields.object("body"), cond = fields.object("cond");
  step->trips = fields.integer("trips");
  step->reverse = fields.flag("reverse");
  step->independent = fields.flag("independent");
  Ref tested = fields.tuple("tested"), captured = fields.tuple("captured"), carry = fields.tuple("carry"),
      inputs = fields.tuple("inputs"), outputs = fields.tuple("outputs");
  if (!fields.ok()) return nullptr;
  std::vector<int64_t> tested_bytes, captured_bytes, row_bytes;
  if (!read_nested(body.get(), locations, &step->body) ||
      (cond.get() != Py_None && !read_nested(cond.get(), locations, &step->cond)))
    return nullptr;
  if (!step->has_cond() && step->trips < 0) return wrong("[executable] a loop without a condition has a count"), nullptr;
  int64_t rows = step->has_cond() ? 0 : step->trips;
  if (!locations.sized(tested.get(), &step->tested, &tested_bytes) ||
      !locations.sized(captured.get(), &step->captured, &captured_bytes) ||
      !locations.sized(carry.get(), &step->carry, &step->carry_bytes) ||
      !read_rows(inputs.get(), locations, rows, &step->inputs, &row_bytes) ||
      !read_rows(outputs.get(), locations, rows, &step->outputs, &step->output_bytes))
    return nullptr;
  if (!check_loop(*step, tested_bytes, captured_bytes, row_bytes)) return nullptr;
  return step;
}

}  // namespace weft
