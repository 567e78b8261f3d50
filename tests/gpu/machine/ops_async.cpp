// Copies from global to shared memory behind the thread's back. Until they are waited for, nobody wrote their bytes.
#include <algorithm>

#include "access.h"
#include "decode.h"
#include "launch.h"
#include "warp.h"

namespace ptx {

namespace {

constexpr uint32_t kPiece = 2;  // bytes by which a copy of fewer bytes than it writes is read

CopyGroup& open_group(Warp& w) {
  if (w.arriving.empty()) w.arriving.emplace_back();
  return w.arriving.back();
}

// Reads ``bytes`` of each active lane, from ``first`` of its address on, into the copies.
void read_source(Warp& w, const Instruction& in, uint32_t first, uint32_t bytes, Copy* copies) {
  Access access;
  reach(w, in, {in.s[1], in.si[1], in.width[1] == 4, Space::global, in.offset + first}, bytes, Kind::read, access);
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    memcpy(copies[l].data + first, access.at[l], bytes);
    if (access.missing >> l & 1) copies[l].defined = false;
  }
}

// s: to, from, bytes that are read if they are fewer than those written; the rest become 0. target: offset of the first.
void copy(Warp& w, const Instruction& in) {
  const uint32_t bytes = uint32_t(bytes_of(in.type)) * in.vector, active = w.active;
  const uint32_t* sizes = in.ns > 2 ? w.src<uint32_t>(in.s[2]) : nullptr;
  Copy copies[kLanes] = {};
  uint32_t whole = 0, most = 0;
  for (uint32_t rest = active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    copies[l].defined = true;
    const uint32_t size = sizes ? sizes[l] : bytes;
    if (size > bytes) w.fault("out of bounds", "it reads " + std::to_string(size) + " bytes to write " + std::to_string(bytes), l);
    if (size % kPiece) w.fault("misaligned address", "a copy of " + std::to_string(size) + " bytes", l);
    if (size == bytes) whole |= 1u << l;
    else most = std::max(most, size);
  }
  if ((w.active = whole)) read_source(w, in, 0, bytes, copies);
  for (uint32_t first = 0; first < most; first += kPiece) {
    w.active = 0;
    for (uint32_t rest = active & ~whole; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      w.active |= uint32_t(first < sizes[l]) << l;
      if (w.src<uint64_t>(in.s[1])[l] % bytes && in.width[1] != 4) w.fault("misaligned address", "the source of a copy", l);
    }
    if (w.active) read_source(w, in, first, kPiece, copies);
  }
  w.active = active;
  Access access;
  reach(w, in, {in.s[0], in.si[0], in.width[0] == 4, Space::shared, int64_t(in.extra)}, bytes, Kind::write, access);
  CopyGroup& group = open_group(w);
  for (uint32_t rest = active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    undefine(w, access, l, 0, bytes);
    memset(access.at[l], 0xFF, bytes);
    Copy& one = copies[l];
    one.to = access.at[l];
    one.lane = uint32_t(l);
    one.offset = uint32_t(access.address[l] - kSharedStart);
    one.bytes = bytes;
    group.copies.push_back(one);
  }
  group.ready = std::max(group.ready, w.latest + in.latency - (w.launch->options.counted == 2 ? 290 : 0));
}

void whole_warp(const Warp& w) {
  if (w.active != w.alive) w.fault("divergent", "the machine has groups of copies of whole warps only", w.first_lane());
}

void commit(Warp& w, const Instruction&) {
  whole_warp(w);
  open_group(w);
  w.arriving.emplace_back();
}

void arrive(Warp& w, const Instruction& in, const CopyGroup& group) {
  for (const Copy& one : group.copies) {
    memcpy(one.to, one.data, one.bytes);
    if (one.defined) w.block->written[one.offset / 16] |= uint16_t(((1u << one.bytes) - 1) << one.offset % 16);
    if (w.launch->checks(kRaces)) note_shared(w, in, int(one.lane), one.offset, one.bytes, Kind::write);
  }
  w.time = std::max(w.time, group.ready);
  w.latest = std::max(w.latest, w.time);
}

// All groups but the last ``extra`` have come; mode: those that are not committed too.
void wait(Warp& w, const Instruction& in) {
  whole_warp(w);
  open_group(w);
  const size_t left = in.mode ? 0 : in.extra + 1;
  while (w.arriving.size() > left) {
    arrive(w, in, w.arriving.front());
    w.arriving.erase(w.arriving.begin());
  }
}

bool decode_copy(Decoder& d) {
  Instruction& in = d.in;
  d.count(3, 4);
  uint64_t bytes = 0;
  if (!d.has("shared") && !d.has("shared::cta")) return false;
  if (!parse_number(d.op(2).text, Type::u32, &bytes)) d.refuse("the bytes of a copy are a number");
  if (bytes != 16 && (d.has("cg") || (bytes != 4 && bytes != 8))) d.refuse("a copy of so many bytes");
  in.type = Type::b32;
  in.vector = uint8_t(bytes / 4);
  in.pipe = Pipe::memory;
  d.address(d.op(0), Space::shared);
  in.extra = uint32_t(in.offset);
  in.width[0] = in.width[1];
  in.width[1] = 0;
  d.address(d.op(1), Space::global);
  in.space = Space::shared;
  if (d.st.operands.size() > 3) d.operand(d.op(3), Type::u32);
  in.run = copy;
  return true;
}

}  // namespace

bool decode_async(Decoder& d) {
  if (d.st.name != "cp" || !d.has("async")) return false;
  Instruction& in = d.in;
  if (d.has("commit_group")) {
    in.run = commit;
    return true;
  }
  if (d.has("wait_group") || d.has("wait_all")) {
    uint64_t groups = 0;
    in.mode = d.has("wait_all");
    if (!in.mode && !parse_number(d.op(0).text, Type::u32, &groups)) d.refuse("the number of groups is a number");
    in.extra = uint32_t(groups);
    in.run = wait;
    return true;
  }
  return decode_copy(d);
}

}  // namespace ptx
