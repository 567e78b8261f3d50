// cvt: between integers, floating-point formats and pairs of narrow values, in each rounding.
#include <cfenv>
#include <limits>

#include "decode.h"
#include "warp.h"

namespace ptx {

namespace {

bool is_float(Type t) { return t == Type::f16 || t == Type::bf16 || t == Type::f32 || t == Type::f64 || t == Type::tf32; }
bool is_signed(Type t) { return t == Type::s8 || t == Type::s16 || t == Type::s32 || t == Type::s64; }

// The integer of a lane, from the low bytes of a register that may be wider.
int64_t integer(uint64_t raw, Type type) {
  switch (type) {
    case Type::s8: return int8_t(raw);
    case Type::s16: return int16_t(raw);
    case Type::s32: return int32_t(raw);
    case Type::u8: case Type::b8: return uint8_t(raw);
    case Type::u16: case Type::b16: return uint16_t(raw);
    case Type::u32: case Type::b32: return uint32_t(raw);
    default: return int64_t(raw);
  }
}

double real(uint64_t raw, Type type) {
  switch (type) {
    case Type::f16: return half_value(uint16_t(raw));
    case Type::bf16: return bfloat_value(uint16_t(raw));
    case Type::f32: return as_float(uint32_t(raw));
    default: return as_double(raw);
  }
}

// The bits of an exact value, or one rounded to odd, in a format.
uint64_t to_format(double x, Type type, Rounding rounding, bool finite) {
  switch (type) {
    case Type::f16: return std::isnan(x) ? 0x7FFF : narrow(x, kHalf, rounding, finite);
    case Type::bf16: return std::isnan(x) ? 0x7FFF : narrow(x, kBfloat, rounding, finite);
    case Type::f32: return std::isnan(x) ? 0x7FFFFFFF : narrow(x, kFloat, rounding, finite);
    case Type::tf32: return std::isnan(x) ? 0x7FFFFFFF : narrow(x, Format{8, 10, true}, rounding, finite) << 13;
    default: return bits(x);
  }
}

double to_integral(double x, uint8_t rounding) {
  switch (rounding) {
    case kZero: return std::trunc(x);
    case kDown: return std::floor(x);
    case kUp: return std::ceil(x);
    default: return std::nearbyint(x);
  }
}

// A real number as an integer of a type: too large ones become the nearest, NaN becomes 0 (2**63 of 64 bits).
uint64_t to_integer(double x, Type type, uint8_t rounding) {
  const int width = 8 * bytes_of(type);
  if (std::isnan(x)) return width == 64 ? uint64_t{1} << 63 : 0;
  x = to_integral(x, rounding);
  if (is_signed(type)) {
    const double bound = std::ldexp(1.0, width - 1);
    if (x >= bound) return (uint64_t{1} << (width - 1)) - 1;
    if (x < -bound) return uint64_t{1} << (width - 1);
    return uint64_t(int64_t(x));
  }
  if (x <= 0) return 0;
  if (x >= std::ldexp(1.0, width)) return width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  return uint64_t(x);
}

uint64_t clamp(int64_t x, Type from, Type to) {
  const bool huge = from == Type::u64 && x < 0;  // more than an int64_t holds
  const int width = 8 * bytes_of(to);
  if (is_signed(to)) {
    const int64_t most = width == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (width - 1)) - 1;
    if (huge || x > most) return uint64_t(most);
    return uint64_t(x < -most - 1 ? -most - 1 : x);
  }
  if (huge) return width == 64 ? uint64_t(x) : (uint64_t{1} << width) - 1;
  if (x < 0) return 0;
  if (width == 64) return uint64_t(x);
  const int64_t most = int64_t((uint64_t{1} << width) - 1);
  return uint64_t(x > most ? most : x);
}

// What a register wider than the type holds: the sign goes on.
uint64_t extended(uint64_t raw, Type type) { return is_float(type) ? raw : uint64_t(integer(raw, type)); }

uint64_t convert_one(uint64_t raw, const Instruction& in) {
  const Type to = in.type, from = in.from;
  if (is_float(from)) {
    double x = real(raw, from);
    if (in.ftz && from == Type::f32 && std::fabs(x) < 0x1p-126) x = std::copysign(0.0, x);
    if (!is_float(to)) return extended(to_integer(x, to, in.rounding), to);
    if (in.mode & 1) x = to_integral(x, in.rounding);  // to an integral value
    if (in.sat) x = x > 0 ? (x < 1 ? x : 1) : 0;
    if ((in.mode & 2) && !(x > 0)) x = std::isnan(x) ? x : 0;  // relu
    uint64_t r = to_format(x, to, Rounding(in.rounding), in.mode & 4);
    if (in.ftz && to == Type::f32 && (r & 0x7F800000) == 0) r &= 0x80000000;
    return r;
  }
  const int64_t x = integer(raw, from);
  if (!is_float(to)) return extended(in.sat ? clamp(x, from, to) : uint64_t(x), to);
  if (to == Type::f64) {
    constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
    std::fesetround(modes[in.rounding]);
    volatile double r = from == Type::u64 ? double(uint64_t(x)) : double(x);
    std::fesetround(FE_TONEAREST);
    return bits(double(r));
  }
  const double exact = from == Type::u64 ? integer_to_odd(uint64_t(x)) : integer_to_odd(x);
  return to_format(exact, to, Rounding(in.rounding), false);
}

void convert(Warp& w, const Instruction& in) {
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    set_lane(w, in.d[0], in.width[0], l, convert_one(lane_value(w, in.s[0], in.width[1], l), in));
  }
}

// The frequent ones over all lanes at once.
template <class D, class S, class F>
void fast(Warp& w, const Instruction& in, F f) {
  const S* a = w.src<S>(in.s[0]);
  fill<D>(w, in.d[0], [=](int l) { return f(a[l]); });
}
void u64_u32(Warp& w, const Instruction& in) { fast<uint64_t, uint32_t>(w, in, [](uint32_t x) { return uint64_t{x}; }); }
void s64_s32(Warp& w, const Instruction& in) { fast<int64_t, int32_t>(w, in, [](int32_t x) { return int64_t{x}; }); }
void b32_b64(Warp& w, const Instruction& in) { fast<uint32_t, uint64_t>(w, in, [](uint64_t x) { return uint32_t(x); }); }
void f32_s32(Warp& w, const Instruction& in) { fast<float, int32_t>(w, in, [](int32_t x) { return float(x); }); }
void f64_f32(Warp& w, const Instruction& in) { fast<double, float>(w, in, [](float x) { return double(x); }); }
void f32_f64(Warp& w, const Instruction& in) {
  fast<float, double>(w, in, [](double x) { return x == x ? float(x) : as_float(0x7FFFFFFF); });
}
void rni_f32(Warp& w, const Instruction& in) {
  fast<float, float>(w, in, [](float x) { return x == x ? __builtin_nearbyintf(x) : as_float(0x7FFFFFFF); });
}
void rzi_s32_f32(Warp& w, const Instruction& in) {
  fast<int32_t, float>(w, in, [](float x) {
    return x != x ? 0 : x >= 0x1p31f ? 0x7FFFFFFF : x < -0x1p31f ? int32_t(0x80000000) : int32_t(x);
  });
}
void f32_f16(Warp& w, const Instruction& in) {
  fast<float, uint16_t>(w, in, [](uint16_t x) {
    const float r = half_value(x);
    return r == r ? r : as_float(0x7FFFFFFF);
  });
}
void f32_bf16(Warp& w, const Instruction& in) {
  fast<float, uint16_t>(w, in, [](uint16_t x) {
    const float r = bfloat_value(x);
    return r == r ? r : as_float(0x7FFFFFFF);
  });
}
void bf16_f32(Warp& w, const Instruction& in) { fast<uint16_t, float>(w, in, bfloat_bits); }

Run frequent(const Instruction& in) {
  if (in.ftz || in.sat || in.mode & 6) return nullptr;
  const Type to = in.type, from = in.from;
  const bool natural = in.width[0] == std::max(2, bytes_of(to)) && in.width[1] == std::max(2, bytes_of(from));
  if (!natural) return nullptr;
  auto is = [&](Type a, Type b) { return to == a && from == b; };
  if (is(Type::u64, Type::u32) || is(Type::s64, Type::u32)) return u64_u32;
  if (is(Type::s64, Type::s32)) return s64_s32;
  if ((to == Type::u32 || to == Type::s32) && (from == Type::u64 || from == Type::s64)) return b32_b64;
  if (is(Type::f32, Type::f32) && in.mode == 1 && in.rounding == kNearest) return rni_f32;
  if (is(Type::s32, Type::f32) && in.rounding == kZero) return rzi_s32_f32;
  if (in.mode) return nullptr;
  if (is(Type::f64, Type::f32)) return f64_f32;
  if (is(Type::f32, Type::f16)) return f32_f16;
  if (is(Type::f32, Type::bf16)) return f32_bf16;
  if (in.rounding != kNearest) return nullptr;
  if (is(Type::f32, Type::s32)) return f32_s32;
  if (is(Type::f32, Type::f64)) return f32_f64;
  if (is(Type::bf16, Type::f32)) return bf16_f32;
  return nullptr;
}

// Two values to a pair: the first operand is the upper half.
void pack(Warp& w, const Instruction& in) {
  const float *a = w.src<float>(in.s[0]), *b = w.src<float>(in.s[1]);
  const bool eight = in.type == Type::e4m3x2 || in.type == Type::e5m2x2;
  auto one = [&](double x) -> uint32_t {
    if ((in.mode & 2) && !(x > 0)) x = std::isnan(x) ? x : 0;
    if (in.type == Type::e4m3x2) return std::isnan(x) ? 0x7F : narrow(x, kE4M3, kNearest, true);
    if (in.type == Type::e5m2x2) return std::isnan(x) ? 0x7F : narrow(x, kE5M2, kNearest, true);
    return uint32_t(to_format(x, in.type == Type::f16x2 ? Type::f16 : Type::bf16, Rounding(in.rounding), in.mode & 4));
  };
  if (eight) {
    fill<uint16_t>(w, in.d[0], [&](int l) { return uint16_t(one(a[l]) << 8 | one(b[l])); });
  } else {
    fill<uint32_t>(w, in.d[0], [&](int l) { return one(a[l]) << 16 | one(b[l]); });
  }
}
void pack_from_half(Warp& w, const Instruction& in) {  // a pair of float16 to one of 8 bits
  const uint32_t* a = w.src<uint32_t>(in.s[0]);
  const Format format = in.type == Type::e4m3x2 ? kE4M3 : kE5M2;
  auto one = [&](uint16_t h) -> uint32_t {
    double x = half_value(h);
    if ((in.mode & 2) && !(x > 0)) x = std::isnan(x) ? x : 0;
    return std::isnan(x) ? 0x7F : narrow(x, format, kNearest, true);
  };
  fill<uint16_t>(w, in.d[0], [&](int l) { return uint16_t(one(uint16_t(a[l] >> 16)) << 8 | one(uint16_t(a[l]))); });
}
void unpack(Warp& w, const Instruction& in) {  // 8 bits to float16
  const uint16_t* a = w.src<uint16_t>(in.s[0]);
  const Format format = in.from == Type::e4m3x2 ? kE4M3 : kE5M2;
  auto one = [&](uint8_t x) { return uint32_t(half_bits(widen(x, format))); };
  fill<uint32_t>(w, in.d[0], [&](int l) { return one(uint8_t(a[l] >> 8)) << 16 | one(uint8_t(a[l])); });
}

bool decode_pairs(Decoder& d) {
  Instruction& in = d.in;
  if (in.from == Type::e4m3x2 || in.from == Type::e5m2x2) {
    d.count(2, 2);
    d.result(d.op(0).text, 4);
    d.operand(d.op(1), Type::b16);
    in.run = in.type == Type::f16x2 && !(in.mode & 2) ? unpack : nullptr;
    return true;
  }
  d.result(d.op(0).text, bytes_of(in.type));
  if (in.from == Type::f16x2) {
    d.count(2, 2);
    d.operand(d.op(1), Type::b32);
    in.run = pack_from_half;
    return true;
  }
  d.count(3, 3);
  d.operand(d.op(1), Type::f32);
  d.operand(d.op(2), Type::f32);
  in.run = in.from == Type::f32 ? pack : nullptr;
  return true;
}

}  // namespace

bool decode_convert(Decoder& d) {
  if (d.st.name != "cvt") return false;
  Instruction& in = d.in;
  in.type = d.type(1);
  in.from = d.type(0);
  const bool integral = d.has("rni") || d.has("rzi") || d.has("rmi") || d.has("rpi");
  in.mode = uint8_t((integral && is_float(in.type) ? 1 : 0) | (d.has("relu") ? 2 : 0) | (d.has("satfinite") ? 4 : 0));
  for (Type pair : {Type::f16x2, Type::bf16x2, Type::e4m3x2, Type::e5m2x2})
    if (in.type == pair || in.from == pair) return decode_pairs(d);
  // without a rounding a conversion to a wider format, or of a format to itself, is exact
  d.count(2, 2);
  in.width[0] = uint8_t(d.result(d.op(0).text, 0));
  in.width[1] = uint8_t(d.operand(d.op(1), in.from, true));
  const int to = in.type == Type::tf32 ? 4 : std::max(2, bytes_of(in.type));
  if (in.width[0] < to || in.width[1] < bytes_of(in.from)) d.refuse("a register is too narrow");
  in.run = frequent(in);
  if (in.run == nullptr) in.run = convert;
  return true;
}

}  // namespace ptx
