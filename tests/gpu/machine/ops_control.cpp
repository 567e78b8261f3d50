// Branches, calls, ends, barriers and fences.
#include <algorithm>

#include "decode.h"
#include "launch.h"
#include "warp.h"

namespace ptx {

void run_end(Warp& w, const Instruction&) {
  if (w.frames.size() > 1) {
    w.leave();
    return;
  }
  w.alive &= ~w.active;
  w.settle();
}

namespace {

void branch(Warp& w, const Instruction& in) {
  const uint32_t others = w.mask & ~w.active;
  if (others) w.part({{others, w.pc}, {w.active, in.target}}, in.meet);
  else w.pc = in.target;
}

void table_branch(Warp& w, const Instruction& in) {
  const uint32_t* index = w.src<uint32_t>(in.s[0]);
  const auto& targets = w.frames.back().function->tables[in.extra];
  uint32_t rest = w.active, others = w.mask & ~w.active, next = w.pc;
  for (uint32_t left = rest; left; left &= left - 1)
    if (index[__builtin_ctz(left)] >= targets.size()) w.fault("out of bounds", "the index is not in the table", __builtin_ctz(left));
  std::vector<Group> groups;
  for (; rest; ) {
    const uint32_t target = targets[index[__builtin_ctz(rest)]];
    uint32_t same = 0;
    for (uint32_t left = rest; left; left &= left - 1)
      if (targets[index[__builtin_ctz(left)]] == target) same |= left & -left;
    groups.push_back({same, target});
    rest &= ~same;
  }
  if (others) groups.push_back({others, next});
  w.part(groups, in.meet);
}

void call(Warp& w, const Instruction& in) {
  const Call& site = w.frames.back().function->calls[in.extra];
  const Function* function = site.function;
  if (function == nullptr) {
    const uint64_t address = w.src<uint64_t>(in.s[0])[w.first_lane()];
    for (uint32_t rest = w.active; rest; rest &= rest - 1)
      if (w.src<uint64_t>(in.s[0])[__builtin_ctz(rest)] != address)
        w.fault("divergent", "lanes call different functions", __builtin_ctz(rest));
    for (const Function* f : w.launch->module.numbered)
      if (uint64_t(f->number) == address) function = f;
    if (function == nullptr) w.fault("out of bounds", "there is no function at the address", w.first_lane());
  }
  if (!function->defined) w.fault("text", "the function " + function->name + " has no body");
  w.enter(*function, &site);
}

void leave(Warp& w, const Instruction&) {  // exit
  w.alive &= ~w.active;
  w.settle();
}

void trap(Warp& w, const Instruction& in) { w.fault("trap", in.text, w.first_lane()); }

void nothing(Warp&, const Instruction&) {}
void fence(Warp& w, const Instruction&) {
  note_fence(w);
  w.yields = true;
}

uint32_t uniform(const Warp& w, uint32_t slot) { return w.src<uint32_t>(slot)[w.first_lane()]; }

void barrier(Warp& w, const Instruction& in) {  // mode: 1: it only arrives; extra: 1 + reduction
  if (w.active != w.all && w.launch->checks(kDivergence)) {
    const int lane = __builtin_ctz(w.all & ~w.active);
    w.fault("divergent", "lane " + std::to_string(lane) + " is elsewhere or has ended while others reach the barrier", w.first_lane());
  }
  const uint32_t id = uniform(w, in.s[0]);
  const uint32_t threads = in.vector > 1 ? uniform(w, in.s[1]) : 0;
  if (id > 15) w.fault("out of bounds", "there are 16 barriers", w.first_lane());
  w.block->arrive(w, in, id, threads, in.mode != 1);
}

void warp_barrier(Warp& w, const Instruction& in) {
  const uint32_t named = uniform(w, in.s[0]);
  if (((named & w.all) & ~w.active) && w.launch->checks(kDivergence))
    w.fault("divergent", "it names lanes that are elsewhere or have ended", w.first_lane());
  meet_lanes(w);
}

bool decode_call(Decoder& d) {
  Instruction& in = d.in;
  in.flow = Flow::call;
  Call site;
  size_t at = 0;
  std::vector<std::string> results, inputs;
  if (d.op(at).kind == RawOperand::list) results = d.op(at++).parts;
  const std::string callee = d.op(at++).text;
  if (at < d.st.operands.size() && d.op(at).kind == RawOperand::list) inputs = d.op(at++).parts;
  auto found = d.module.functions.find(callee);
  if (found != d.module.functions.end()) site.function = found->second.get();
  else d.operand(callee, Type::b64);
  auto slot = [&](const std::string& name) {
    for (Scope* s = d.scope.get(); s != nullptr; s = s->outer.get())
      if (auto p = s->params.find(name); p != s->params.end()) return Parameter{name, p->second, s->param_bytes[name]};
    d.refuse("there is no parameter " + name);
  };
  for (const std::string& name : results) site.outputs.push_back(slot(name));
  for (const std::string& name : inputs) site.inputs.push_back(slot(name));
  in.extra = uint32_t(d.function.calls.size());
  d.function.calls.push_back(site);
  in.strict = true;
  in.run = call;
  return true;
}

bool decode_barrier(Decoder& d) {
  Instruction& in = d.in;
  if (d.has("warp")) {
    d.count(1, 1);
    d.operand(d.op(0), Type::b32);
    in.run = warp_barrier;
    return true;
  }
  const bool reduces = d.has("red");
  size_t at = reduces ? 1 : 0;
  if (reduces) {
    in.extra = d.has("popc") ? 1 : d.has("and") ? 2 : 3;
    d.result(d.op(0).text, 4);
  }
  if (d.st.operands.size() > at) d.operand(d.op(at++), Type::b32);
  else d.operand("0", Type::b32);
  const size_t left = d.st.operands.size() - at - (reduces ? 1 : 0);
  in.vector = uint8_t(1 + left);
  if (left) d.operand(d.op(at++), Type::b32);
  if (reduces) {
    d.operand(d.op(at), Type::pred);
    in.sat = d.op(at).negated;
  }
  in.mode = d.has("arrive") ? 1 : 0;
  in.strict = true;
  in.run = barrier;
  return true;
}

}  // namespace

bool decode_control(Decoder& d) {
  const std::string& name = d.st.name;
  Instruction& in = d.in;
  if (name == "bra" || name == "ret") {
    const bool returns = name == "ret";
    in.flow = d.st.guard.empty() ? Flow::jump : Flow::branch;
    if (returns) {
      in.target = d.end;
    } else {
      auto found = d.labels.find(d.op(0).text);
      if (found == d.labels.end()) d.refuse("there is no label " + d.op(0).text);
      in.target = found->second;
    }
    in.run = branch;
  } else if (name == "brx") {
    in.flow = Flow::table;
    d.count(2, 2);
    d.operand(d.op(0), Type::u32);
    auto found = d.tables.find(d.op(1).text);
    if (found == d.tables.end()) d.refuse("there is no table " + d.op(1).text);
    in.extra = found->second;
    in.strict = true;
    in.run = table_branch;
  } else if (name == "call") {
    return decode_call(d);
  } else if (name == "exit") {
    in.flow = Flow::stop;
    in.run = leave;
  } else if (name == "trap" || name == "brkpt") {
    in.flow = Flow::stop;
    in.run = trap;
  } else if (name == "bar" || name == "barrier") {
    return decode_barrier(d);
  } else if (name == "membar" || name == "fence") {
    in.run = fence;
  } else if (name == "nop" || name == "setmaxnreg") {
    in.run = nothing;
  } else {
    return false;
  }
  return true;
}

}  // namespace ptx
