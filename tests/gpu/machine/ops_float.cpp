// Arithmetic of float32 and float64: every exact form is rounded once; NaN of float32 has the one pattern of the hardware.
#include <cfenv>

#include "decode.h"
#include "warp.h"

namespace ptx {

namespace {

inline float settled(float x) { return x == x ? x : as_float(0x7FFFFFFF); }
inline double settled(double x) { return x; }
inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
inline double flushed(double x) { return x; }
template <class T>
T saturated(T x) { return x > T(0) ? (x < T(1) ? x : T(1)) : T(0); }

struct Add { template <class T> T operator()(T a, T b) { return settled(a + b); } };
struct Sub { template <class T> T operator()(T a, T b) { return settled(a - b); } };
struct Mul { template <class T> T operator()(T a, T b) { return settled(a * b); } };
struct Div { template <class T> T operator()(T a, T b) { return settled(a / b); } };
struct Fma {
  float operator()(float a, float b, float c) { return settled(__builtin_fmaf(a, b, c)); }
  double operator()(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct Rcp { template <class T> T operator()(T a) { return settled(T(1) / a); } };
struct Sqrt { template <class T> T operator()(T a) { return settled(T(std::sqrt(a))); } };
// -0 is less than +0
template <class T>
bool below(T a, T b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }
struct Min {
  template <class T> T operator()(T a, T b) { return a != a ? settled(b) : b != b ? a : below(b, a) ? b : a; }
};
struct Max {
  template <class T> T operator()(T a, T b) { return a != a ? settled(b) : b != b ? a : below(a, b) ? b : a; }
};
template <class T> T quiet() { return sizeof(T) == 4 ? T(as_float(0x7FFFFFFF)) : T(as_double(0x7FF8000000000000)); }
struct MinNaN { template <class T> T operator()(T a, T b) { return a != a || b != b ? quiet<T>() : Min()(a, b); } };
struct MaxNaN { template <class T> T operator()(T a, T b) { return a != a || b != b ? quiet<T>() : Max()(a, b); } };
struct Neg {
  float operator()(float a) { return as_float(bits(a) ^ 0x80000000u); }
  double operator()(double a) { return as_double(bits(a) ^ uint64_t{1} << 63); }
};
struct Abs {
  float operator()(float a) { return as_float(bits(a) & 0x7FFFFFFFu); }
  double operator()(double a) { return as_double(bits(a) & ~(uint64_t{1} << 63)); }
};
struct Copysign {  // the sign of the first, the rest of the second
  float operator()(float a, float b) { return as_float((bits(a) & 0x80000000u) | (bits(b) & 0x7FFFFFFFu)); }
  double operator()(double a, double b) {
    const uint64_t sign = uint64_t{1} << 63;
    return as_double((bits(a) & sign) | (bits(b) & ~sign));
  }
};
// What the hardware approximates, rounded once: taken only where a load allows it.
struct Ex2 { float operator()(float a) { return settled(float(std::exp2(double(a)))); } };
struct Lg2 { float operator()(float a) { return settled(float(std::log2(double(a)))); } };
struct Sin { float operator()(float a) { return settled(float(std::sin(double(a)))); } };
struct Cos { float operator()(float a) { return settled(float(std::cos(double(a)))); } };
struct Tanh { float operator()(float a) { return settled(float(std::tanh(double(a)))); } };
struct Rsqrt { template <class T> T operator()(T a) { return settled(T(1.0 / std::sqrt(double(a)))); } };

// An operation of N operands; with Extra it flushes and saturates as the instruction says.
template <class T, class Op, int N, bool Extra>
void run_op(Warp& w, const Instruction& in) {
  const T *a = w.src<T>(in.s[0]), *b = N > 1 ? w.src<T>(in.s[1]) : a, *c = N > 2 ? w.src<T>(in.s[2]) : a;
  const bool ftz = in.ftz, sat = in.sat;
  fill<T>(w, in.d[0], [=](int l) {
    auto operand = [=](const T* p) { return Extra && ftz ? flushed(p[l]) : p[l]; };
    T r;
    if constexpr (N == 1) r = Op()(operand(a));
    if constexpr (N == 2) r = Op()(operand(a), operand(b));
    if constexpr (N == 3) r = Op()(operand(a), operand(b), operand(c));
    if (Extra && ftz) r = flushed(r);
    if (Extra && sat) r = saturated(r);
    return r;
  });
}
constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
template <Run R>
void rounded(Warp& w, const Instruction& in) {
  std::fesetround(kModes[in.rounding]);
  R(w, in);
  std::fesetround(FE_TONEAREST);
}
// Pairs of float32 in 64 bits.
template <class Op, int N>
void run_pairs(Warp& w, const Instruction& in) {
  const float *a = w.src<float>(in.s[0]), *b = w.src<float>(in.s[1]), *c = N > 2 ? w.src<float>(in.s[2]) : a;
  float* d = w.dst<float>(in.d[0]);
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    for (int l = 2 * lane; l < 2 * lane + 2; ++l) {
      float r;
      if constexpr (N == 2) r = Op()(a[l], b[l]);
      if constexpr (N == 3) r = Op()(a[l], b[l], c[l]);
      d[l] = in.ftz ? flushed(r) : r;
    }
  }
}

template <class Op, int N>
Run choose(Decoder& d) {
  const Type type = d.in.type;
  if constexpr (N > 1) {
    if (type == Type::f32x2) return d.in.rounding == kNearest ? Run(run_pairs<Op, N>) : rounded<run_pairs<Op, N>>;
  }
  if (type == Type::f64) return d.in.rounding == kNearest ? Run(run_op<double, Op, N, false>) : rounded<run_op<double, Op, N, false>>;
  if (type != Type::f32) return nullptr;
  if (d.in.rounding != kNearest) return rounded<run_op<float, Op, N, true>>;
  return d.in.ftz || d.in.sat ? Run(run_op<float, Op, N, true>) : run_op<float, Op, N, false>;
}
template <class Op>
Run of_float32(Decoder& d) {
  return d.in.type == Type::f32 ? Run(run_op<float, Op, 1, true>) : nullptr;
}

template <class T>
void testp(Warp& w, const Instruction& in) {
  const T* a = w.src<T>(in.s[0]);
  w.set_pred(in.d[0], gather_mask(w, [=](int l) {
    switch (in.mode) {
      case 0: return bool(std::isfinite(a[l]));
      case 1: return bool(std::isinf(a[l]));
      case 2: return !std::isnan(a[l]);
      case 3: return bool(std::isnan(a[l]));
      case 4: return bool(std::isnormal(a[l]));
      default: return std::fpclassify(a[l]) == FP_SUBNORMAL;
    }
  }));
}

void operands(Decoder& d, size_t count) {
  d.count(count + 1, count + 1);
  d.result(d.op(0).text, bytes_of(d.in.type));
  for (size_t k = 1; k <= count; ++k) d.operand(d.op(k), d.in.type);
}

void must_be_exact(Decoder& d) {
  if ((d.has("approx") || d.has("full")) && !d.module.approximate)
    d.refuse("the bits of an approximation are the hardware's, the machine takes exact forms");
}

bool decode_unary(Decoder& d) {
  const std::string& name = d.st.name;
  Run run = nullptr;
  if (name == "neg") run = choose<Neg, 1>(d);
  else if (name == "abs") run = choose<Abs, 1>(d);
  else if (name == "rcp") run = choose<Rcp, 1>(d);
  else if (name == "sqrt") run = choose<Sqrt, 1>(d);
  else if (name == "rsqrt") run = choose<Rsqrt, 1>(d);
  else if (name == "ex2") run = of_float32<Ex2>(d);
  else if (name == "lg2") run = of_float32<Lg2>(d);
  else if (name == "sin") run = of_float32<Sin>(d);
  else if (name == "cos") run = of_float32<Cos>(d);
  else if (name == "tanh") run = of_float32<Tanh>(d);
  else return false;
  must_be_exact(d);
  operands(d, 1);
  d.in.run = run;
  return true;
}

}  // namespace

bool decode_float(Decoder& d) {
  const std::string& name = d.st.name;
  const Type type = d.in.type = d.type();
  if ((type != Type::f32 && type != Type::f64 && type != Type::f32x2) || d.type(1) != Type::none) return false;
  if (name == "testp") {
    d.count(2, 2);
    d.result(d.op(0).text, 4);
    d.operand(d.op(1), type);
    const char* kinds[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
    for (uint8_t k = 0; k < 6; ++k)
      if (d.has(kinds[k])) d.in.mode = k;
    d.in.run = type == Type::f32 ? testp<float> : testp<double>;
    return true;
  }
  if (decode_unary(d)) return true;
  Run run = nullptr;
  size_t count = 2;
  if (name == "add") run = choose<Add, 2>(d);
  else if (name == "sub") run = choose<Sub, 2>(d);
  else if (name == "mul") run = choose<Mul, 2>(d);
  else if (name == "div") run = choose<Div, 2>(d);
  else if (name == "min") run = d.has("NaN") ? choose<MinNaN, 2>(d) : choose<Min, 2>(d);
  else if (name == "max") run = d.has("NaN") ? choose<MaxNaN, 2>(d) : choose<Max, 2>(d);
  else if (name == "copysign") run = choose<Copysign, 2>(d);
  else if (name == "fma" || name == "mad") count = 3, run = choose<Fma, 3>(d);
  else return false;
  must_be_exact(d);
  if (d.has("xorsign")) run = nullptr;
  operands(d, count);
  d.in.run = run;
  return true;
}

}  // namespace ptx
