// The loop over instructions of a warp, groups of lanes, and frames of functions.
#include "warp.h"

#include <algorithm>

#include "decode.h"
#include "launch.h"

namespace ptx {

namespace {
constexpr uint32_t kNowhere = ~0u;
}

void Warp::start(const Function& function) {
  active = mask = alive = all;
  frames.push_back({&function, 0, 0, 0, nullptr});
  file.reset(static_cast<char*>(aligned_alloc(64, launch->register_bytes)));
  masks.assign(launch->registers, 0);
  masks[0] = ~0u;
  local.assign(size_t(launch->local_bytes) * kLanes, 0);
  levels.push_back({mask, 0, kNowhere, 0});
  pc = 0;
  if (launch->options.counted) ready.assign(launch->registers, 0);
  use_frame();
}

void Warp::use_frame() {
  const Frame& frame = frames.back();
  registers = file.get() + frame.registers;
  constants = reinterpret_cast<const char*>(frame.function->constants.data());
  written = masks.data() + frame.written;
}

void Warp::enter(const Function& function, const Call* call) {
  const Frame before = frames.back();
  levels.back().pc = pc;
  const uint32_t local_at = before.local + (before.function->frame_bytes + 15) / 16 * 16;
  if (local_at + function.frame_bytes > launch->local_bytes) fault("stack", "the calls need more local memory than there is");
  const Frame frame{&function, before.registers + (before.function->register_bytes + 63) / 64 * 64,
                    before.written + before.function->registers, local_at, call};
  if (frame.registers + function.register_bytes > launch->register_bytes) fault("stack", "a function calls itself");
  for (uint32_t rest = active; rest; rest &= rest - 1) {
    char* base = local.data() + size_t(__builtin_ctz(rest)) * launch->local_bytes;
    for (size_t k = 0; k < function.inputs.size() && k < call->inputs.size(); ++k)
      memcpy(base + local_at + function.inputs[k].offset, base + before.local + call->inputs[k].offset,
             std::min(function.inputs[k].bytes, call->inputs[k].bytes));
  }
  frames.push_back(frame);
  std::fill_n(masks.begin() + frame.written, function.registers, 0);
  masks[frame.written] = ~0u;
  levels.push_back({active, 0, kNowhere, uint32_t(frames.size() - 1)});
  mask = active;
  pc = 0;
  use_frame();
}

void Warp::leave() {
  const Frame frame = frames.back(), &before = frames[frames.size() - 2];
  for (uint32_t rest = active; rest; rest &= rest - 1) {
    char* base = local.data() + size_t(__builtin_ctz(rest)) * launch->local_bytes;
    for (size_t k = 0; k < frame.function->outputs.size() && k < frame.call->outputs.size(); ++k)
      memcpy(base + before.local + frame.call->outputs[k].offset, base + frame.local + frame.function->outputs[k].offset,
             std::min(frame.function->outputs[k].bytes, frame.call->outputs[k].bytes));
  }
  frames.pop_back();
  levels.pop_back();
  mask = levels.back().mask & alive;
  pc = levels.back().pc;
  use_frame();
}

void Warp::part(const std::vector<Group>& groups, uint32_t meet) {
  bool same = true;
  for (const Group& group : groups) same = same && group.target == groups[0].target;
  if (same) {
    pc = groups[0].target;
    return;
  }
  const uint32_t frame = uint32_t(frames.size() - 1);
  if (levels.back().meet == meet && levels.back().frame == frame) {
    levels.pop_back();  // all of them are waited for at the same instruction further down
  } else {
    levels.back().pc = meet;
  }
  for (const Group& group : groups)
    if (group.target != meet) levels.push_back({group.lanes, group.target, meet, frame});
  mask = levels.back().mask & alive;
  pc = levels.back().pc;
}

void Warp::settle() {
  mask &= alive;
  while (!mask) {
    levels.pop_back();
    if (levels.empty()) {
      state = State::done;
      return;
    }
    while (levels.back().frame + 1 < frames.size()) frames.pop_back();
    mask = levels.back().mask & alive;
    pc = levels.back().pc;
  }
  use_frame();
}

void Warp::run(uint64_t count) {
  state = State::running;
  yields = false;
  const bool initialised = launch->checks(kUninitialised), counted = launch->options.counted;
  for (; count; --count) {
    const Instruction* in = &frames.back().function->code[pc];
    while (in->join && pc == levels.back().meet) {
      levels.pop_back();
      while (!(levels.back().mask & alive)) levels.pop_back();
      mask = levels.back().mask & alive;
      pc = levels.back().pc;
      in = &frames.back().function->code[pc];
    }
    active = mask;
    ++steps;
    if (counted) keep_time(*this, *in);
    ++pc;
    if (in->guard) {
      if (initialised && (written[in->guard_index] & mask) != mask)
        fault("uninitialised", "the predicate comes of what nobody wrote", __builtin_ctz(mask & ~written[in->guard_index]));
      const uint32_t p = *reinterpret_cast<const uint32_t*>(registers + in->guard - 1);
      active &= in->negated ? ~p : p;
    }
    if (!active) continue;
    if (initialised) {
      defined = active;
      for (int k = 0; k < in->ns; ++k) defined &= written[in->si[k]];
      if (in->strict && defined != active)
        fault("uninitialised", "an operand comes of what nobody wrote", __builtin_ctz(active & ~defined));
      if (!in->masks)
        for (int k = 0; k < in->nd; ++k) define(in->di[k], defined);
    }
    in->run(*this, *in);
    if (state != State::running) return;
    if (yields) {  // what it waits for may need the others
      yields = false;
      count = std::min<uint64_t>(count, 50);
    }
  }
  if (steps >= launch->options.steps)
    fault("hang", "a warp has run " + std::to_string(steps) + " instructions and has not ended", -1);
}

std::string Warp::where(int lane) const {
  const Launch& l = *launch;
  std::string text = "block (" + std::to_string(block->index[0]) + ", " + std::to_string(block->index[1]) + ", " +
                     std::to_string(block->index[2]) + ")";
  if (lane < 0) return text + ", warp " + std::to_string(number);
  const uint32_t t = thread(lane), x = l.block[0], y = l.block[1];
  return text + ", thread (" + std::to_string(t % x) + ", " + std::to_string(t / x % y) + ", " + std::to_string(t / x / y) + ")";
}

void Warp::fault(const char* kind, const std::string& why, int lane) const {
  const auto& code = frames.back().function->code;
  const Instruction& in = code[pc > 0 && pc <= code.size() && active ? pc - 1 : std::min<size_t>(pc, code.size() - 1)];
  throw Error(kind, std::string(kind) + ": " + why + "; kernel " + launch->function.name + ", line " +
                        std::to_string(in.line) + ": " + in.text + "; " + where(lane));
}

}  // namespace ptx
