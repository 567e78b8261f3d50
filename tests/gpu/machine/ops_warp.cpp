// What lanes of a warp do together: shuffles, votes, matches, reductions.
#include <algorithm>

#include "decode.h"
#include "launch.h"
#include "warp.h"

namespace ptx {

namespace {

// The lanes that an instruction names must be here, and among them those that run it.
uint32_t together(const Warp& w, const Instruction& in, uint32_t slot) {
  const uint32_t named = w.src<uint32_t>(slot)[w.first_lane()];
  if (w.launch->checks(kDivergence)) {
    for (uint32_t rest = w.active; rest; rest &= rest - 1)
      if (w.src<uint32_t>(slot)[__builtin_ctz(rest)] != named)
        w.fault("divergent", "the lanes name different members", __builtin_ctz(rest));
    if ((named & w.all) & ~w.active)
      w.fault("divergent", "it names lane " + std::to_string(__builtin_ctz(named & w.all & ~w.active)) +
                               ", which is elsewhere or has ended", w.first_lane());
    if (w.active & ~named) w.fault("divergent", "a lane that is not named runs it", __builtin_ctz(w.active & ~named));
  }
  (void)in;
  return named & w.active;
}

enum Mode : uint8_t { up, down, bfly, idx };

void shuffle(Warp& w, const Instruction& in) {
  together(w, in, in.s[3]);
  const uint32_t *a = w.src<uint32_t>(in.s[0]), *b = w.src<uint32_t>(in.s[1]), *c = w.src<uint32_t>(in.s[2]);
  uint32_t result[kLanes], taken = 0, known = 0;
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const int segments = int(c[l] >> 8 & 31), most = (l & segments) | (int(c[l] & 31) & ~segments), n = int(b[l] & 31);
    int from = 0;
    bool ok = false;
    switch (in.mode) {
      case up: from = l - n; ok = from >= most; break;
      case down: from = l + n; ok = from <= most; break;
      case bfly: from = l ^ n; ok = from <= most; break;
      default: from = (l & segments) | (n & ~segments); ok = from <= most;
    }
    if (!ok) from = l;
    taken |= uint32_t(ok) << l;
    if (!(w.active >> from & 1)) {
      if (w.launch->checks(kDivergence)) w.fault("divergent", "it reads lane " + std::to_string(from) + ", which is not here", l);
      from = l;
    }
    result[l] = a[from];
    known |= (w.written[in.si[0]] >> from & 1) << l;
  }
  fill<uint32_t>(w, in.d[0], [&](int l) { return result[l]; });
  w.define(in.di[0], known);
  if (in.nd > 1) {
    w.set_pred(in.d[1], taken);
    w.define(in.di[1], ~0u);
  }
}

enum Vote : uint8_t { every, any, uniform, ballot };
void vote(Warp& w, const Instruction& in) {
  const uint32_t named = in.ns > 1 ? together(w, in, in.s[1]) : w.active;
  uint32_t p = w.pred(in.s[0]);
  if (in.extra) p = ~p;
  p &= named;
  if (in.mode == ballot) fill<uint32_t>(w, in.d[0], [=](int) { return p; });
  else if (in.mode == every) w.set_pred(in.d[0], p == named ? ~0u : 0);
  else if (in.mode == any) w.set_pred(in.d[0], p ? ~0u : 0);
  else w.set_pred(in.d[0], p == named || !p ? ~0u : 0);
}

template <class T>
void match(Warp& w, const Instruction& in) {  // mode: all lanes
  const uint32_t named = together(w, in, in.s[1]);
  const T* a = w.src<T>(in.s[0]);
  uint32_t equal[kLanes] = {};
  for (uint32_t rest = named; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    for (uint32_t others = named; others; others &= others - 1)
      if (a[__builtin_ctz(others)] == a[l]) equal[l] |= others & -others;
  }
  if (in.mode) {
    const bool all = equal[w.first_lane()] == named;
    fill<uint32_t>(w, in.d[0], [=](int) { return all ? named : 0; });
    if (in.nd > 1) w.set_pred(in.d[1], all ? ~0u : 0);
    return;
  }
  fill<uint32_t>(w, in.d[0], [&](int l) { return equal[l]; });
}

void redux(Warp& w, const Instruction& in) {
  const uint32_t named = together(w, in, in.s[1]);
  const uint32_t* a = w.src<uint32_t>(in.s[0]);
  uint32_t r = 0;
  bool first = true;
  for (uint32_t rest = named; rest; rest &= rest - 1) {
    const uint32_t x = a[__builtin_ctz(rest)];
    const bool less = in.type == Type::s32 ? int32_t(x) < int32_t(r) : x < r;
    if (first) r = x;
    else if (in.mode == 0) r += x;
    else if (in.mode == 1) r = less ? x : r;
    else if (in.mode == 2) r = less ? r : x;
    else if (in.mode == 3) r &= x;
    else if (in.mode == 4) r |= x;
    else r ^= x;
    first = false;
  }
  fill<uint32_t>(w, in.d[0], [=](int) { return r; });
}

void activemask(Warp& w, const Instruction& in) {
  const uint32_t active = w.active;
  fill<uint32_t>(w, in.d[0], [=](int) { return active; });
}
void elect(Warp& w, const Instruction& in) {
  const uint32_t named = together(w, in, in.s[0]), leader = named & -named;
  if (in.nd > 1) fill<uint32_t>(w, in.d[0], [=](int) { return uint32_t(__builtin_ctz(leader)); });
  w.set_pred(in.d[in.nd - 1], leader);
}

bool decode_shuffle(Decoder& d) {
  Instruction& in = d.in;
  d.count(5, 5);
  const RawOperand& to = d.op(0);
  d.result(to.kind == RawOperand::pair ? to.parts[0] : to.text, 4);
  if (to.kind == RawOperand::pair) d.result(to.parts[1], 4);
  for (size_t k = 1; k < 5; ++k) d.operand(d.op(k), Type::b32);
  in.mode = d.has("up") ? up : d.has("down") ? down : d.has("bfly") ? bfly : idx;
  in.masks = true;
  in.run = shuffle;
  return true;
}

bool decode_vote(Decoder& d) {
  Instruction& in = d.in;
  d.count(2, 3);
  in.mode = d.has("all") ? every : d.has("any") ? any : d.has("uni") ? uniform : ballot;
  d.result(d.op(0).text, 4);
  d.operand(d.op(1), Type::pred);
  in.extra = d.op(1).negated;
  if (d.st.operands.size() > 2) d.operand(d.op(2), Type::b32);
  in.strict = true;
  in.run = vote;
  return true;
}

bool decode_match(Decoder& d) {
  Instruction& in = d.in;
  d.count(3, 3);
  in.type = d.type();
  in.mode = d.has("all");
  const RawOperand& to = d.op(0);
  d.result(to.kind == RawOperand::pair ? to.parts[0] : to.text, 4);
  if (to.kind == RawOperand::pair) d.result(to.parts[1], 4);
  d.operand(d.op(1), in.type);
  d.operand(d.op(2), Type::b32);
  in.strict = true;
  in.run = in.type == Type::b64 ? match<uint64_t> : match<uint32_t>;
  return true;
}

bool decode_redux(Decoder& d) {
  Instruction& in = d.in;
  d.count(3, 3);
  in.type = d.type();
  const char* modes[] = {"add", "min", "max", "and", "or", "xor"};
  for (uint8_t k = 0; k < 6; ++k)
    if (d.has(modes[k])) in.mode = k;
  d.result(d.op(0).text, 4);
  d.operand(d.op(1), Type::b32);
  d.operand(d.op(2), Type::b32);
  in.strict = true;
  in.run = in.type == Type::f32 ? Run(nullptr) : redux;
  return true;
}

}  // namespace

bool decode_warp(Decoder& d) {
  const std::string& name = d.st.name;
  if (name == "shfl") return decode_shuffle(d);
  if (name == "vote") return decode_vote(d);
  if (name == "match") return decode_match(d);
  if (name == "redux") return decode_redux(d);
  if (name == "activemask") {
    d.count(1, 1);
    d.result(d.op(0).text, 4);
    d.in.run = activemask;
    return true;
  }
  if (name == "elect") {
    d.count(2, 2);
    const RawOperand& to = d.op(0);
    for (const std::string& part : to.parts) d.result(part, 4);
    d.operand(d.op(1), Type::b32);
    d.in.run = d.in.nd == 2 ? elect : Run(nullptr);
    return true;
  }
  return false;
}

}  // namespace ptx
