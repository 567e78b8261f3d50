// Arithmetic of float16 and bfloat16, alone and in pairs: in wider formats, rounded once.
#include "decode.h"
#include "warp.h"

namespace ptx {

namespace {

struct Half {
  static constexpr uint16_t kNan = 0x7FFF;
  static float value(uint16_t x) { return half_value(x); }
  static uint16_t round(double x) { return half_bits(x); }
};
struct Bfloat {
  static constexpr uint16_t kNan = 0x7FFF;
  static float value(uint16_t x) { return bfloat_value(x); }
  // from an exact value, or one rounded to odd
  static uint16_t round(double x) { return std::isnan(x) ? kNan : uint16_t(narrow(x, kBfloat, kNearest)); }
};

// Sums, products and quotients of such values in float64 are exact or have more than twice the bits, so a second rounding
// changes nothing.
struct Add { static double of(double a, double b, double) { return a + b; } };
struct Sub { static double of(double a, double b, double) { return a - b; } };
struct Mul { static double of(double a, double b, double) { return a * b; } };
struct Fma { static double of(double a, double b, double c) { return fma_to_odd(a, b, c); } };
struct Tanh { static double of(double a, double, double) { return std::tanh(a); } };
struct Ex2 { static double of(double a, double, double) { return std::exp2(a); } };

template <class F, class Op>
uint16_t arithmetic(uint16_t a, uint16_t b, uint16_t c, const Instruction& in) {
  double r = Op::of(F::value(a), F::value(b), F::value(c));
  if (in.sat) r = r > 0 ? (r < 1 ? r : 1) : 0;
  if (in.mode == 1 && !(r > 0)) r = std::isnan(r) ? r : 0;  // relu
  return F::round(r);
}

struct Minimum { static bool first(double a, double b) { return a < b || (a == b && std::signbit(a)); } };
struct Maximum { static bool first(double a, double b) { return a > b || (a == b && !std::signbit(a)); } };
template <class F, class Which>
uint16_t extreme(uint16_t a, uint16_t b, uint16_t, const Instruction& in) {
  const float x = F::value(a), y = F::value(b);
  const bool nan = in.mode & 2;
  if (x != x || y != y) return nan || (x != x && y != y) ? F::kNan : x != x ? b : a;
  return Which::first(x, y) ? a : b;
}
inline uint16_t negated(uint16_t a, uint16_t, uint16_t, const Instruction&) { return a ^ 0x8000; }
inline uint16_t absolute(uint16_t a, uint16_t, uint16_t, const Instruction&) { return a & 0x7FFF; }

using One = uint16_t (*)(uint16_t, uint16_t, uint16_t, const Instruction&);

template <One F>
void single(Warp& w, const Instruction& in) {
  const uint16_t *a = w.src<uint16_t>(in.s[0]), *b = in.ns > 1 ? w.src<uint16_t>(in.s[1]) : a;
  const uint16_t* c = in.ns > 2 ? w.src<uint16_t>(in.s[2]) : a;
  fill<uint16_t>(w, in.d[0], [&](int l) { return F(a[l], b[l], c[l], in); });
}
template <One F>
void pair(Warp& w, const Instruction& in) {
  const uint32_t *a = w.src<uint32_t>(in.s[0]), *b = in.ns > 1 ? w.src<uint32_t>(in.s[1]) : a;
  const uint32_t* c = in.ns > 2 ? w.src<uint32_t>(in.s[2]) : a;
  fill<uint32_t>(w, in.d[0], [&](int l) {
    const uint16_t low = F(uint16_t(a[l]), uint16_t(b[l]), uint16_t(c[l]), in);
    const uint16_t high = F(uint16_t(a[l] >> 16), uint16_t(b[l] >> 16), uint16_t(c[l] >> 16), in);
    return uint32_t(low) | uint32_t(high) << 16;
  });
}

template <One F, One G>
Run choose(Type type) {
  switch (type) {
    case Type::f16: return single<F>;
    case Type::f16x2: return pair<F>;
    case Type::bf16: return single<G>;
    default: return pair<G>;
  }
}

}  // namespace

bool decode_half(Decoder& d) {
  const std::string& name = d.st.name;
  const Type type = d.in.type = d.type();
  if ((type != Type::f16 && type != Type::f16x2 && type != Type::bf16 && type != Type::bf16x2) ||
      d.type(1) != Type::none)
    return false;
  size_t count = 2;
  d.in.mode = d.has("relu") ? 1 : d.has("NaN") ? 2 : 0;
  Run run = nullptr;
  if (name == "add") run = choose<arithmetic<Half, Add>, arithmetic<Bfloat, Add>>(type);
  else if (name == "sub") run = choose<arithmetic<Half, Sub>, arithmetic<Bfloat, Sub>>(type);
  else if (name == "mul") run = choose<arithmetic<Half, Mul>, arithmetic<Bfloat, Mul>>(type);
  else if (name == "fma") count = 3, run = choose<arithmetic<Half, Fma>, arithmetic<Bfloat, Fma>>(type);
  else if (name == "min") run = choose<extreme<Half, Minimum>, extreme<Bfloat, Minimum>>(type);
  else if (name == "max") run = choose<extreme<Half, Maximum>, extreme<Bfloat, Maximum>>(type);
  else if (name == "neg") count = 1, run = choose<negated, negated>(type);
  else if (name == "abs") count = 1, run = choose<absolute, absolute>(type);
  else if (name == "tanh") count = 1, run = choose<arithmetic<Half, Tanh>, arithmetic<Bfloat, Tanh>>(type);
  else if (name == "ex2") count = 1, run = choose<arithmetic<Half, Ex2>, arithmetic<Bfloat, Ex2>>(type);
  else return false;
  if (d.has("approx") && !d.module.approximate)
    d.refuse("the bits of an approximation are the hardware's, the machine takes exact forms");
  if (d.in.ftz || d.has("xorsign")) run = nullptr;
  d.count(count + 1, count + 1);
  d.result(d.op(0).text, bytes_of(type));
  for (size_t k = 1; k <= count; ++k) d.operand(d.op(k), type);
  d.in.run = run;
  return true;
}

}  // namespace ptx
