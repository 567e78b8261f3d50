// Arithmetic of integers: add to remainder, products of both halves, minima, carries.
#include <limits>
#include <type_traits>

#include "decode.h"
#include "warp.h"

namespace ptx {

namespace {

using u16 = uint16_t;
using i16 = int16_t;
using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;
using u128 = unsigned __int128;
using i128 = __int128;

template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, i32, u32>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, i64, u64>,
                       std::conditional_t<std::is_signed_v<T>, i128, u128>>>;
template <class T>
using Raw = std::make_unsigned_t<T>;

struct Add { template <class T> T operator()(T a, T b) { return T(Raw<T>(Raw<T>(a) + Raw<T>(b))); } };
struct Sub { template <class T> T operator()(T a, T b) { return T(Raw<T>(Raw<T>(a) - Raw<T>(b))); } };
struct MulLo { template <class T> T operator()(T a, T b) { return T(Raw<T>(u64(Raw<T>(a)) * u64(Raw<T>(b)))); } };
struct MulHi { template <class T> T operator()(T a, T b) { return T((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T))); } };
struct Div {
  template <class T> T operator()(T a, T b) {
    if (b == 0) return T(-1);
    if constexpr (std::is_signed_v<T>) if (b == T(-1)) return T(Raw<T>(0) - Raw<T>(a));
    return T(a / b);
  }
};
struct Rem {
  template <class T> T operator()(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) if (b == T(-1)) return T(0);
    return T(a % b);
  }
};
struct Min { template <class T> T operator()(T a, T b) { return b < a ? b : a; } };
struct Max { template <class T> T operator()(T a, T b) { return a < b ? b : a; } };
struct Abs { template <class T> T operator()(T a) { return a < 0 ? T(Raw<T>(0) - Raw<T>(a)) : a; } };
struct Neg { template <class T> T operator()(T a) { return T(Raw<T>(0) - Raw<T>(a)); } };
struct MadLo { template <class T> T operator()(T a, T b, T c) { return Add()(MulLo()(a, b), c); } };
struct MadHi { template <class T> T operator()(T a, T b, T c) { return Add()(MulHi()(a, b), c); } };
struct Sad { template <class T> T operator()(T a, T b, T c) { return Add()(c, T(a < b ? Sub()(b, a) : Sub()(a, b))); } };
struct AddSat {
  template <class T> T operator()(T a, T b) {
    T r;
    if (!__builtin_add_overflow(a, b, &r)) return r;
    return a < 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
  }
};
struct SubSat {
  template <class T> T operator()(T a, T b) {
    T r;
    if (!__builtin_sub_overflow(a, b, &r)) return r;
    return a < 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
  }
};

template <class T>
void mul_wide(Warp& w, const Instruction& in) {
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]);
  fill<Wide<T>>(w, in.d[0], [=](int l) { return Wide<T>(a[l]) * Wide<T>(b[l]); });
}
template <class T>
void mad_wide(Warp& w, const Instruction& in) {
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]);
  const Raw<Wide<T>>* c = w.src<Raw<Wide<T>>>(in.s[2]);
  fill<Raw<Wide<T>>>(w, in.d[0], [=](int l) { return Raw<Wide<T>>(Wide<T>(a[l]) * Wide<T>(b[l])) + c[l]; });
}
template <class T>
void mul24(Warp& w, const Instruction& in) {
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]);
  const T* c = in.ns > 2 ? w.src<T>(in.s[2]) : nullptr;
  auto cut = [](T x) { return std::is_signed_v<T> ? i64(i32(u32(x) << 8) >> 8) : i64(u32(x) & 0xFFFFFF); };
  fill<T>(w, in.d[0], [=](int l) {
    const i64 p = cut(a[l]) * cut(b[l]);
    return T(u32(in.mode ? p >> 16 : p) + (c ? u32(c[l]) : 0));
  });
}

// a + b + carry with the carry out; a subtraction is that of the complement of b, with the opposite carry.
template <class T>
void add_carry(Warp& w, const Instruction& in) {
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]);
  const bool uses = in.mode & 1, sets = in.mode & 2, subtracts = in.mode & 4;
  uint32_t carry = 0;
  T* d = w.dst<T>(in.d[0]);
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const T other = subtracts ? T(~b[l]) : b[l];
    const bool c = uses ? (w.carry >> l & 1) : subtracts;
    const u128 sum = u128(a[l]) + other + c;
    d[l] = T(sum);
    carry |= uint32_t(sum >> (8 * sizeof(T)) & 1) << l;
  }
  if (sets) w.carry = (w.carry & ~w.active) | carry;
}
template <class T>
void mad_carry(Warp& w, const Instruction& in) {  // mode: as above, 8: the upper half
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]), *c = w.src<T>(in.s[2]);
  uint32_t carry = 0;
  T* d = w.dst<T>(in.d[0]);
  using U = Raw<T>;
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const U p = U(in.mode & 8 ? MulHi()(a[l], b[l]) : MulLo()(a[l], b[l]));
    const u128 sum = u128(p) + U(c[l]) + ((in.mode & 1) ? (w.carry >> l & 1) : 0);
    d[l] = T(U(sum));
    carry |= uint32_t(sum >> (8 * sizeof(T)) & 1) << l;
  }
  if (in.mode & 2) w.carry = (w.carry & ~w.active) | carry;
}

void dp4a(Warp& w, const Instruction& in) {  // mode: 1: a is signed, 2: b is
  const u32 *a = w.src<u32>(in.s[0]), *b = w.src<u32>(in.s[1]), *c = w.src<u32>(in.s[2]);
  fill<u32>(w, in.d[0], [=](int l) {
    u32 sum = c[l];
    for (int k = 0; k < 32; k += 8) {
      const i32 x = in.mode & 1 ? i32(int8_t(a[l] >> k)) : i32(uint8_t(a[l] >> k));
      const i32 y = in.mode & 2 ? i32(int8_t(b[l] >> k)) : i32(uint8_t(b[l] >> k));
      sum += u32(x * y);
    }
    return sum;
  });
}

// The handler for a type: all, or those with a sign.
template <template <class> class H>
Run pick(Type type) {
  switch (type) {
    case Type::u16: case Type::b16: return H<u16>::run;
    case Type::s16: return H<i16>::run;
    case Type::u32: case Type::b32: return H<u32>::run;
    case Type::s32: return H<i32>::run;
    case Type::u64: case Type::b64: return H<u64>::run;
    case Type::s64: return H<i64>::run;
    default: return nullptr;
  }
}
template <class Op>
struct Two { template <class T> struct At { static constexpr Run run = binary<T, Op>; }; };
template <class Op>
struct One { template <class T> struct At { static constexpr Run run = unary<T, Op>; }; };
template <class Op>
struct Three { template <class T> struct At { static constexpr Run run = ternary<T, Op>; }; };
template <class T> struct CarryAt { static constexpr Run run = add_carry<Raw<T>>; };
template <class T> struct MadCarryAt { static constexpr Run run = mad_carry<T>; };

Run wide(Type type, bool mad) {
  switch (type) {
    case Type::u16: return mad ? Run(mad_wide<u16>) : mul_wide<u16>;
    case Type::s16: return mad ? Run(mad_wide<i16>) : mul_wide<i16>;
    case Type::u32: return mad ? Run(mad_wide<u32>) : mul_wide<u32>;
    case Type::s32: return mad ? Run(mad_wide<i32>) : mul_wide<i32>;
    default: return nullptr;
  }
}

void operands(Decoder& d, size_t count) {
  d.count(count + 1, count + 1);
  d.result(d.op(0).text, bytes_of(d.in.type));
  for (size_t k = 1; k <= count; ++k) d.operand(d.op(k), d.in.type);
}

bool decode_product(Decoder& d) {
  const std::string& name = d.st.name;
  const bool mad = name[1] == 'a';  // mad, madc
  const Type type = d.in.type;
  if (d.has("wide")) {
    d.count(mad ? 4 : 3, mad ? 4 : 3);
    d.result(d.op(0).text, 2 * bytes_of(type));
    d.operand(d.op(1), type);
    d.operand(d.op(2), type);
    if (mad) d.operand(d.op(3), bytes_of(type) == 2 ? Type::u32 : Type::u64);
    d.in.run = wide(type, mad);
    return true;
  }
  operands(d, mad ? 3 : 2);
  const bool high = d.has("hi");
  if (name == "mul24" || name == "mad24") {
    d.in.mode = high;
    d.in.run = type == Type::s32 ? mul24<i32> : mul24<u32>;
  } else if (name == "madc" || d.has("cc")) {
    d.in.mode = uint8_t((name == "madc") | (d.has("cc") ? 2 : 0) | (high ? 8 : 0));
    d.in.run = pick<MadCarryAt>(type);
  } else if (mad) {
    d.in.run = high ? pick<Three<MadHi>::At>(type) : pick<Three<MadLo>::At>(type);
  } else {
    d.in.run = high ? pick<Two<MulHi>::At>(type) : pick<Two<MulLo>::At>(type);
  }
  return true;
}

bool decode_carry(Decoder& d) {
  const std::string& name = d.st.name;
  operands(d, 2);
  d.in.mode = uint8_t((name.back() == 'c') | (d.has("cc") ? 2 : 0) | (name[0] == 's' ? 4 : 0));
  d.in.run = pick<CarryAt>(d.in.type);
  return true;
}

}  // namespace

bool decode_integer(Decoder& d) {
  const std::string& name = d.st.name;
  const Type type = d.in.type = d.type();
  if (type == Type::f16 || type == Type::f16x2 || type == Type::bf16 || type == Type::bf16x2 || type == Type::f32 ||
      type == Type::f64 || type == Type::pred || type == Type::none || type == Type::b128)
    return false;
  if (name == "addc" || name == "subc" || ((name == "add" || name == "sub") && d.has("cc"))) return decode_carry(d);
  if (name == "mul" || name == "mad" || name == "madc" || name == "mul24" || name == "mad24") return decode_product(d);
  if (name == "dp4a") {
    d.count(4, 4);
    d.in.type = Type::u32;
    operands(d, 3);
    d.in.mode = uint8_t((d.type(1) == Type::s32 ? 1 : 0) | (d.type(0) == Type::s32 ? 2 : 0));
    d.in.run = dp4a;
    return true;
  }
  if (name == "add") {
    operands(d, 2);
    d.in.run = d.in.sat ? binary<i32, AddSat> : pick<Two<Add>::At>(type);
  } else if (name == "sub") {
    operands(d, 2);
    d.in.run = d.in.sat ? binary<i32, SubSat> : pick<Two<Sub>::At>(type);
  } else if (name == "div") {
    operands(d, 2);
    d.in.run = pick<Two<Div>::At>(type);
  } else if (name == "rem") {
    operands(d, 2);
    d.in.run = pick<Two<Rem>::At>(type);
  } else if (name == "min") {
    operands(d, 2);
    d.in.run = pick<Two<Min>::At>(type);
  } else if (name == "max") {
    operands(d, 2);
    d.in.run = pick<Two<Max>::At>(type);
  } else if (name == "abs") {
    operands(d, 1);
    d.in.run = pick<One<Abs>::At>(type);
  } else if (name == "neg") {
    operands(d, 1);
    d.in.run = pick<One<Neg>::At>(type);
  } else if (name == "sad") {
    operands(d, 3);
    d.in.run = pick<Three<Sad>::At>(type);
  } else {
    return false;
  }
  return true;
}

}  // namespace ptx
