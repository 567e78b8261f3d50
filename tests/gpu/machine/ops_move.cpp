// mov in all its forms, special registers, addresses between spaces, and what does nothing here.
#include <algorithm>

#include "decode.h"
#include "launch.h"
#include "warp.h"

namespace ptx {

namespace {

template <class T>
void move(Warp& w, const Instruction& in) {
  const T* a = w.src<T>(in.s[0]);
  fill<T>(w, in.d[0], [=](int l) { return a[l]; });
}
void move_predicate(Warp& w, const Instruction& in) { w.set_pred(in.d[0], w.pred(in.s[0])); }

// {a, b, ...} of a wider register, or the other way.
void unpack(Warp& w, const Instruction& in) {
  const int whole = bytes_of(in.type), part = whole / in.nd;
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const uint64_t value = lane_value(w, in.s[0], whole, l);
    for (int k = 0; k < in.nd; ++k) set_lane(w, in.d[k], part, l, value >> (8 * part * k));
  }
}
void pack(Warp& w, const Instruction& in) {
  const int whole = bytes_of(in.type), part = whole / in.ns;
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    uint64_t value = 0;
    for (int k = 0; k < in.ns; ++k) value |= lane_value(w, in.s[k], part, l) << (8 * part * k);
    set_lane(w, in.d[0], whole, l, value);
  }
}

void local_address(Warp& w, const Instruction& in) {
  const uint64_t base = w.frame_local(), window = in.mode ? kLocalWindow : 0;
  const uint64_t* a = w.src<uint64_t>(in.s[0]);
  fill<uint64_t>(w, in.d[0], [=](int l) { return window + base + a[l]; });
}

template <bool To>
void cvta(Warp& w, const Instruction& in) {
  const uint64_t* a = w.src<uint64_t>(in.s[0]);
  const uint64_t window = in.space == Space::shared ? kSharedWindow : in.space == Space::local ? kLocalWindow : 0;
  fill<uint64_t>(w, in.d[0], [=](int l) { return To ? a[l] - window : a[l] + window; });
}
template <bool To>
void cvta_short(Warp& w, const Instruction& in) {  // of 32-bit addresses in shared and local memory
  const uint64_t window = in.space == Space::shared ? kSharedWindow : kLocalWindow;
  if (To) {
    const uint64_t* a = w.src<uint64_t>(in.s[0]);
    fill<uint32_t>(w, in.d[0], [=](int l) { return uint32_t(a[l] - window); });
  } else {
    const uint32_t* a = w.src<uint32_t>(in.s[0]);
    fill<uint64_t>(w, in.d[0], [=](int l) { return window + a[l]; });
  }
}
void isspacep(Warp& w, const Instruction& in) {
  const uint64_t* a = w.src<uint64_t>(in.s[0]);
  w.set_pred(in.d[0], gather_mask(w, [=](int l) {
    const Space space = a[l] & kLocalWindow ? Space::local : a[l] & kSharedWindow ? Space::shared : Space::global;
    return space == in.space;
  }));
}

enum Special : uint8_t {
  tid_x, tid_y, tid_z, ctaid_x, ctaid_y, ctaid_z, ntid_x, ntid_y, ntid_z, nctaid_x, nctaid_y, nctaid_z, laneid, warpid,
  nwarpid, smid, nsmid, mask_eq, mask_lt, mask_le, mask_gt, mask_ge, clock_, clock64_, timer, dynamic, total, gridid, zero_,
  one_,
};
const std::map<std::string, Special>& specials() {
  static const std::map<std::string, Special> names = {
      {"%tid.x", tid_x}, {"%tid.y", tid_y}, {"%tid.z", tid_z}, {"%ctaid.x", ctaid_x}, {"%ctaid.y", ctaid_y},
      {"%ctaid.z", ctaid_z}, {"%ntid.x", ntid_x}, {"%ntid.y", ntid_y}, {"%ntid.z", ntid_z}, {"%nctaid.x", nctaid_x},
      {"%nctaid.y", nctaid_y}, {"%nctaid.z", nctaid_z}, {"%laneid", laneid}, {"%warpid", warpid},
      {"%nwarpid", nwarpid}, {"%smid", smid}, {"%nsmid", nsmid}, {"%lanemask_eq", mask_eq},
      {"%lanemask_lt", mask_lt}, {"%lanemask_le", mask_le}, {"%lanemask_gt", mask_gt}, {"%lanemask_ge", mask_ge},
      {"%clock", clock_}, {"%clock64", clock64_}, {"%globaltimer", timer}, {"%dynamic_smem_size", dynamic},
      {"%total_smem_size", total}, {"%gridid", gridid}, {"%cluster_ctarank", zero_}, {"%cluster_nctarank", one_},
      {"%cluster_ctaid.x", zero_}, {"%cluster_nctaid.x", one_}, {"%clusterid.x", ctaid_x}, {"%nclusterid.x", nctaid_x}};
  return names;
}

uint64_t special_value(const Warp& w, uint8_t which, int lane) {
  const Launch& launch = *w.launch;
  const uint32_t t = w.thread(lane), x = launch.block[0], y = launch.block[1];
  switch (which) {
    case tid_x: return t % x;
    case tid_y: return t / x % y;
    case tid_z: return t / x / y;
    case ctaid_x: case ctaid_y: case ctaid_z: return w.block->index[which - ctaid_x];
    case ntid_x: case ntid_y: case ntid_z: return launch.block[which - ntid_x];
    case nctaid_x: case nctaid_y: case nctaid_z: return launch.grid[which - nctaid_x];
    case laneid: return uint64_t(lane);
    case warpid: return w.number;
    case nwarpid: return w.block->warps.size();
    case smid: return w.block->number % 132;
    case nsmid: return 132;
    case mask_eq: return 1u << lane;
    case mask_lt: return (1u << lane) - 1;
    case mask_le: return (2u << lane) - 1;
    case mask_gt: return ~((2u << lane) - 1) & 0xFFFFFFFFu;
    case mask_ge: return ~((1u << lane) - 1) & 0xFFFFFFFFu;
    case clock_: case clock64_: case timer: return w.steps;
    case dynamic: return launch.shared_bytes - std::min(launch.shared_bytes, launch.function.shared_bytes);
    case total: return launch.shared_bytes;
    case one_: return 1;
    default: return 0;
  }
}
void special(Warp& w, const Instruction& in) {
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    set_lane(w, in.d[0], in.width[0], l, special_value(w, in.mode, l));
  }
}

void nothing(Warp&, const Instruction&) {}

bool decode_mov(Decoder& d) {
  Instruction& in = d.in;
  in.type = d.type();
  d.count(2, 2);
  const RawOperand &to = d.op(0), &from = d.op(1);
  if (auto found = specials().find(from.text); found != specials().end()) {
    in.width[0] = uint8_t(d.result(to.text, 0));
    in.mode = found->second;
    in.run = special;
    return true;
  }
  const int whole = bytes_of(in.type);
  if (to.kind == RawOperand::list) {
    for (const std::string& part : to.parts) d.result(part, whole / int(to.parts.size()));
    d.operand(from, in.type);
    in.run = unpack;
    return true;
  }
  if (from.kind == RawOperand::list) {
    d.result(to.text, whole);
    const int part = whole / int(from.parts.size());
    for (const std::string& text : from.parts) d.operand(text, part == 2 ? Type::b16 : part == 4 ? Type::b32 : Type::b64);
    in.run = pack;
    return true;
  }
  d.result(to.text, whole);
  d.operand(from, in.type);
  if (d.module.locals.count(d.function.name + "/" + from.text)) {
    in.run = whole == 8 ? local_address : Run(nullptr);
    return true;
  }
  in.run = in.type == Type::pred ? move_predicate
           : whole == 2          ? Run(move<uint16_t>)
           : whole == 4          ? Run(move<uint32_t>)
           : whole == 8          ? Run(move<uint64_t>)
                                 : nullptr;
  return true;
}

Space space_of(const Decoder& d) {
  if (d.has("shared") || d.has("shared::cta")) return Space::shared;
  if (d.has("local")) return Space::local;
  return Space::global;
}

}  // namespace

bool decode_move(Decoder& d) {
  const std::string& name = d.st.name;
  Instruction& in = d.in;
  if (name == "mov") return decode_mov(d);
  if (name == "implicit-def") {
    const Register& r = d.reg(d.op(0).text);
    d.result(d.op(0).text, r.type == Type::pred ? 4 : 0);
    in.run = nothing;
    return true;
  }
  if (name == "cvta") {
    in.type = d.type();
    in.space = space_of(d);
    d.count(2, 2);
    const bool to = d.has("to"), is_short = in.type == Type::u32;
    const int bytes = d.result(d.op(0).text, 0), from = d.operand(d.op(1), Type::b64, true);
    if (bytes == 8 && from == 8 && !is_short) in.run = to ? cvta<true> : cvta<false>;
    else if (in.space != Space::global) in.run = to ? cvta_short<true> : cvta_short<false>;
    if (in.run == cvta<false> && d.module.locals.count(d.function.name + "/" + d.op(1).text)) {
      in.mode = 1;
      in.run = local_address;
    }
    in.space = in.space == Space::shared || in.space == Space::local ? in.space : Space::global;
    return true;
  }
  if (name == "isspacep") {
    in.space = space_of(d);
    d.count(2, 2);
    d.result(d.op(0).text, 4);
    d.operand(d.op(1), Type::b64);
    in.run = isspacep;
    return true;
  }
  for (const char* idle : {"prefetch", "prefetchu", "griddepcontrol", "nanosleep", "pmevent", "discard", "applypriority"})
    if (name == idle) {
      in.run = nothing;
      return true;
    }
  return false;
}

}  // namespace ptx
