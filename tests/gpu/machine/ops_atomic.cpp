// atom and red: one lane after the other.
#include <algorithm>

#include "access.h"
#include "decode.h"
#include "launch.h"
#include "warp.h"

namespace ptx {

namespace {

enum Operation : uint8_t { add, minimum, maximum, inc, dec, conjunction, disjunction, exclusive, exchange, cas };

template <class T>
T combine(Operation operation, T old, T b, T c) {
  switch (operation) {
    case add: return T(std::make_unsigned_t<T>(old) + std::make_unsigned_t<T>(b));
    case minimum: return b < old ? b : old;
    case maximum: return old < b ? b : old;
    case inc: return old >= b ? T(0) : T(old + 1);
    case dec: return old == 0 || old > b ? b : T(old - 1);
    case conjunction: return old & b;
    case disjunction: return old | b;
    case exclusive: return T(old ^ b);
    case exchange: return b;
    default: return old == b ? c : old;
  }
}

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

uint64_t added(Type type, uint64_t old, uint64_t b, bool flush) {
  switch (type) {
    case Type::f32: {
      float x = as_float(uint32_t(old)), y = as_float(uint32_t(b));
      if (flush) x = flushed(x), y = flushed(y);
      const float r = flush ? flushed(x + y) : x + y;
      return r == r ? bits(r) : 0x7FFFFFFF;
    }
    case Type::f64: return bits(as_double(old) + as_double(b));
    case Type::f16: return half_bits(half_value(uint16_t(old)) + half_value(uint16_t(b)));
    case Type::bf16: return bfloat_bits(bfloat_value(uint16_t(old)) + bfloat_value(uint16_t(b)));
    default: {  // a pair
      const Type one = type == Type::f16x2 ? Type::f16 : Type::bf16;
      return added(one, old & 0xFFFF, b & 0xFFFF, false) | added(one, old >> 16, b >> 16, false) << 16;
    }
  }
}

uint64_t changed(const Instruction& in, uint64_t old, uint64_t b, uint64_t c, bool flush) {
  const Operation operation = Operation(in.mode);
  switch (in.type) {
    case Type::s32: return uint32_t(combine<int32_t>(operation, int32_t(old), int32_t(b), int32_t(c)));
    case Type::u32: case Type::b32: return combine<uint32_t>(operation, uint32_t(old), uint32_t(b), uint32_t(c));
    case Type::s64: return uint64_t(combine<int64_t>(operation, int64_t(old), int64_t(b), int64_t(c)));
    case Type::u64: case Type::b64: return combine<uint64_t>(operation, old, b, c);
    case Type::b16: return combine<uint16_t>(operation, uint16_t(old), uint16_t(b), uint16_t(c));
    default: return added(in.type, old, b, flush);
  }
}

void atomic(Warp& w, const Instruction& in) {
  Access access;
  const int bytes = bytes_of(in.type);
  reach(w, in, uint32_t(bytes), Kind::both, access);
  const bool flush = in.type == Type::f32 && in.space == Space::global;  // the hardware's units for global memory do
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    uint64_t old = 0;
    memcpy(&old, access.at[l], size_t(bytes));
    const uint64_t b = lane_value(w, in.s[1], bytes, l), c = in.ns > 2 ? lane_value(w, in.s[2], bytes, l) : 0;
    const uint64_t now = changed(in, old, b, c, flush);
    memcpy(access.at[l], &now, size_t(bytes));
    if (in.nd) set_lane(w, in.d[0], bytes, l, old);
  }
  w.yields = true;
}

}  // namespace

bool decode_atomic(Decoder& d) {
  const std::string& name = d.st.name;
  if (name != "atom" && name != "red") return false;
  static const std::map<std::string, Operation> names = {
      {"add", add}, {"min", minimum}, {"max", maximum}, {"inc", inc}, {"dec", dec}, {"and", conjunction},
      {"or", disjunction}, {"xor", exclusive}, {"exch", exchange}, {"cas", cas}};
  Instruction& in = d.in;
  in.type = d.type();
  in.pipe = Pipe::memory;
  int found = -1;
  Space space = Space::generic;
  for (const std::string& part : d.st.parts) {
    if (auto at = names.find(part); at != names.end()) found = at->second;
    if (part == "global") space = Space::global;
    if (part == "shared" || part == "shared::cta") space = Space::shared;
  }
  const bool real = in.type == Type::f32 || in.type == Type::f64 || in.type == Type::f16 || in.type == Type::bf16 ||
                    in.type == Type::f16x2 || in.type == Type::bf16x2;
  if (found < 0 || (real && found != add) || d.has("v2") || d.has("v4") || in.type == Type::b128) return false;
  in.mode = uint8_t(found);
  in.strong = true;
  in.acquire = d.has("acquire") || d.has("acq_rel");
  in.release = d.has("release") || d.has("acq_rel");
  const bool gives = name == "atom";
  const size_t first = gives ? 1 : 0, count = first + 2 + (found == cas);
  d.count(count, count);
  d.address(d.op(first), space);
  if (gives) d.result(d.op(0).text, bytes_of(in.type));
  for (size_t k = first + 1; k < count; ++k) d.operand(d.op(k), in.type);
  in.strict = true;
  in.run = atomic;
  return true;
}

}  // namespace ptx
