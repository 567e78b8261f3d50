// The table of cold vector helpers. Compiled without contraction: an fma is used only where the source says fma.
//
//   trig_reduce_f32   in0 f32 x; out0 f32 r, out1 i32 q: x = q * pi/2 + r mod 2 pi, |r| <= pi/4, q in 0..3
//   trig_reduce_f64   in0 f64 x; out0 f64 r as lanes high parts, then lanes low parts; out1 i64 q
//   lgamma, digamma   in0 x; out0 the value (f32 computed in f64)
//   log_f64           in0 x; out0 the C library's logarithm
// inf and nan give nan and quadrant 0. Each lane's result depends on that lane alone.
#include "cold_functions.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "gemm_kernels.h"

namespace weft {
namespace {

// 64 zero bits, then 2/pi to 1280 bits, most significant first.
// clang-format off
constexpr uint64_t kTwoOverPi[] = {
    0,
    0xa2f9836e4e441529ull, 0xfc2757d1f534ddc0ull, 0xdb6295993c439041ull, 0xfe5163abdebbc561ull,
    0xb7246e3a424dd2e0ull, 0x06492eea09d1921cull, 0xfe1deb1cb129a73eull, 0xe88235f52ebb4484ull,
    0xe99c7026b45f7e41ull, 0x3991d639835339f4ull, 0x9c845f8bbdf9283bull, 0x1ff897ffde05980full,
    0xef2f118b5a0a6d1full, 0x6d367ecf27cb09b7ull, 0x4f463f669e5fea2dull, 0x7527bac7ebe5f17bull,
    0x3d0739f78a5292eaull, 0x6bfb5fb11f8d5d08ull, 0x56033046fc7b6babull, 0xf0cfbc209af4361dull,
};
// clang-format on
constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0, kHalfPiLow = 0x1.1a62633145c07p-54;
constexpr double kQuarterPi = 0x1.921fb54442d18p-1;

struct Reduced {
  double high, low;
  int64_t quadrant;
};

// Payne and Hanek (1983): multiplies only the bits of 2/pi that matter modulo 4, in 192-bit arithmetic.
Reduced reduce_exactly(double x) {
  double magnitude = std::fabs(x);
  if (!(magnitude <= std::numeric_limits<double>::max())) return {std::numeric_limits<double>::quiet_NaN(), 0.0, 0};
  if (magnitude <= kQuarterPi) return {x, 0.0, 0};
  uint64_t bits;
  std::memcpy(&bits, &magnitude, 8);
  int exponent = int(bits >> 52) - 1075;  // x = mantissa * 2^exponent; at least -53 here
  uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1} << 52);

  int start = exponent - 2 + 64;
  const uint64_t* word = kTwoOverPi + start / 64;
  int shift = start % 64;
  auto window = [&](int i) { return shift == 0 ? word[i] : (word[i] << shift) | (word[i + 1] >> (64 - shift)); };
  uint64_t g2 = window(0), g1 = window(1), g0 = window(2);

  unsigned __int128 low = (unsigned __int128)mantissa * g0;
  unsigned __int128 middle = (unsigned __int128)mantissa * g1 + uint64_t(low >> 64);
  uint64_t p0 = uint64_t(low), p1 = uint64_t(middle), p2 = mantissa * g2 + uint64_t(middle >> 64);

  int64_t quadrant = int64_t(p2 >> 62);
  // The fraction: 190 bits, moved up by two so that the binary point is at the top.
  uint64_t f2 = (p2 << 2) | (p1 >> 62), f1 = (p1 << 2) | (p0 >> 62), f0 = p0 << 2;
  bool negative = (f2 >> 63) != 0;
  if (negative) {  // the fraction is at least a half: take the next quadrant and a negative remainder
    quadrant += 1;
    f0 = ~f0 + 1;
    f1 = ~f1 + (f0 == 0);
    f2 = ~f2 + (f0 == 0 && f1 == 0);
  }
  int scale = 0;
  while (f2 == 0 && scale < 128) {
    f2 = f1;
    f1 = f0;
    f0 = 0;
    scale += 64;
  }
  if (f2 != 0) {
    int zeros = __builtin_clzll(f2);
    if (zeros != 0) {
      f2 = (f2 << zeros) | (f1 >> (64 - zeros));
      f1 = (f1 << zeros) | (f0 >> (64 - zeros));
    }
    scale += zeros;
  }
  double high = std::ldexp(double(f2 >> 11), -53 - scale);
  double rest = std::ldexp(double(((f2 & 2047) << 53) | (f1 >> 11)), -117 - scale);
  double product = high * kHalfPiHigh;
  double error = std::fma(high, kHalfPiHigh, -product) + (high * kHalfPiLow + rest * kHalfPiHigh);
  double sum = product + error;
  error -= sum - product;
  if (negative != (x < 0)) {
    sum = -sum;
    error = -error;
  }
  if (x < 0) quadrant = -quadrant;
  return {sum, error, quadrant & 3};
}

constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer, kept in the low bits
constexpr float kFastLimit = 0x1p40f;

// Exact to 2^-67 for |x| up to 2^40: x - k * high is rounded once, the correction once.
[[gnu::always_inline]] inline void reduce_common(const float* x, float* r, int32_t* q, int64_t lanes) {
  for (int64_t i = 0; i < lanes; ++i) {
    double value = x[i];
    double rounded = value * 0x1.45f306dc9c883p-1 + kMagic;
    double k = rounded - kMagic;
    double rest = __builtin_fma(-k, kHalfPiHigh, value);
    rest = __builtin_fma(-k, kHalfPiLow, rest);
    int64_t bits;
    std::memcpy(&bits, &rounded, 8);
    r[i] = float(rest);
    q[i] = int32_t(bits) & 3;
  }
}

using ReduceCommon = void (*)(const float* x, float* r, int32_t* q, int64_t lanes);
void reduce_generic(const float* x, float* r, int32_t* q, int64_t lanes) { reduce_common(x, r, q, lanes); }
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void reduce_avx2(const float* x, float* r, int32_t* q, int64_t lanes) {
  reduce_common(x, r, q, lanes);
}
[[gnu::target("avx512f,avx512dq,avx512vl,fma")]] void reduce_avx512(const float* x, float* r, int32_t* q,
                                                                    int64_t lanes) {
  reduce_common(x, r, q, lanes);
}
ReduceCommon choose_reduce() {
  if (takes_v4()) return reduce_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return reduce_avx2;
  return reduce_generic;
}
#else
ReduceCommon choose_reduce() { return reduce_generic; }
#endif
const ReduceCommon g_reduce = choose_reduce();

void trig_reduce_f32(const void* in0, const void*, void* out0, void* out1, int64_t lanes) {
  const float* x = static_cast<const float*>(in0);
  float* r = static_cast<float*>(out0);
  int32_t* q = static_cast<int32_t*>(out1);
  g_reduce(x, r, q, lanes);
  for (int64_t i = 0; i < lanes; ++i) {
    if (std::fabs(x[i]) < kFastLimit) continue;
    Reduced reduced = reduce_exactly(x[i]);
    r[i] = float(reduced.high);
    q[i] = int32_t(reduced.quadrant);
  }
}

void trig_reduce_f64(const void* in0, const void*, void* out0, void* out1, int64_t lanes) {
  const double* x = static_cast<const double*>(in0);
  double* r = static_cast<double*>(out0);
  int64_t* q = static_cast<int64_t*>(out1);
  for (int64_t i = 0; i < lanes; ++i) {
    Reduced reduced = reduce_exactly(x[i]);
    r[i] = reduced.high;
    r[lanes + i] = reduced.low;
    q[i] = reduced.quadrant;
  }
}

double digamma(double x) {
  if (x <= 0 && x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
  double result = 0;
  if (x < 0) {  // reflection; the tangent of the distance to the nearest integer
    double distance = x - std::nearbyint(x);
    result = -M_PI / std::tan(M_PI * distance);
    x = 1 - x;
  }
  if (std::isinf(x)) return result + x;
  for (; x < 12; x += 1) result -= 1 / x;
  double z = 1 / (x * x);  // Bernoulli numbers over 2k, to 2^-56 at 12
  double series =
      z *
      (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return result + (std::log(x) - 0.5 / x - series);
}

double log_gamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

double library_log(double x) { return std::log(x); }

template <class T, double (*function)(double)>
void map_lanes(const void* in0, const void*, void* out0, void*, int64_t lanes) {
  const T* x = static_cast<const T*>(in0);
  T* out = static_cast<T*>(out0);
  for (int64_t i = 0; i < lanes; ++i) out[i] = T(function(double(x[i])));
}

template <class T>
void remainders(const void* in0, const void* in1, void* out0, void*, int64_t lanes) {
  const T* x = static_cast<const T*>(in0);
  const T* y = static_cast<const T*>(in1);
  T* out = static_cast<T*>(out0);
  for (int64_t i = 0; i < lanes; ++i) out[i] = std::fmod(x[i], y[i]);
}

struct Entry {
  const char* name;
  Helper function;
};
constexpr Entry kEntries[] = {
    {"trig_reduce_f32", trig_reduce_f32},
    {"trig_reduce_f64", trig_reduce_f64},
    {"lgamma_f32", map_lanes<float, log_gamma>},
    {"lgamma_f64", map_lanes<double, log_gamma>},
    {"digamma_f32", map_lanes<float, digamma>},
    {"digamma_f64", map_lanes<double, digamma>},
    {"fmod_f32", remainders<float>},
    {"fmod_f64", remainders<double>},
    {"log_f64", map_lanes<double, library_log>},
    {"poll", poll_interrupt},
};
constexpr size_t kCount = sizeof(kEntries) / sizeof(kEntries[0]);

struct Table {
  const void* pointers[kCount];
  Table() {
    for (size_t i = 0; i < kCount; ++i) pointers[i] = reinterpret_cast<const void*>(kEntries[i].function);
  }
};
const Table g_table;

PyObject* helper_names(PyObject*, PyObject*) {
  PyObject* names = PyTuple_New(kCount);
  for (size_t i = 0; names != nullptr && i < kCount; ++i) {
    PyObject* name = PyUnicode_FromString(kEntries[i].name);
    if (name == nullptr) Py_CLEAR(names);
    else PyTuple_SET_ITEM(names, i, name);
  }
  return names;
}

// call_helper(index, in0, out0, out1, lanes): runs one helper on buffers, for the tests of the helpers themselves.
PyObject* call_helper(PyObject*, PyObject* args) {
  Py_ssize_t index, lanes;
  Py_buffer in0, out0, out1;
  if (!PyArg_ParseTuple(args, "ny*w*w*n", &index, &in0, &out0, &out1, &lanes)) return nullptr;
  bool fits = index >= 0 && size_t(index) < kCount && lanes >= 0 && lanes <= in0.len / 4;
  if (fits) {
    Py_ssize_t item = std::strstr(kEntries[index].name, "f64") != nullptr ? 8 : 4;
    Py_ssize_t results = std::strcmp(kEntries[index].name, "trig_reduce_f64") == 0 ? 2 : 1;
    fits = lanes <= in0.len / item && lanes <= out0.len / item / results && lanes <= out1.len / item;
  }
  if (fits) kEntries[index].function(in0.buf, nullptr, out0.buf, out1.buf, lanes);
  PyBuffer_Release(&in0);
  PyBuffer_Release(&out0);
  PyBuffer_Release(&out1);
  if (fits) Py_RETURN_NONE;
  PyErr_SetString(PyExc_ValueError, "[call_helper] no such helper, or the buffers are too small");
  return nullptr;
}

PyMethodDef kMethods[] = {
    {"helper_names", helper_names, METH_NOARGS,
     "The cold vector helpers, in the order of the table passed to kernels."},
    {"call_helper", call_helper, METH_VARARGS,
     "call_helper(index, in0, out0, out1, lanes): run one helper on buffers."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

const void* const* helper_table() { return g_table.pointers; }

int register_helpers(PyObject* module) {
  if (PyModule_AddFunctions(module, kMethods) < 0) return -1;
  PyObject* address = PyLong_FromVoidPtr(const_cast<void*>(static_cast<const void*>(g_table.pointers)));
  if (address == nullptr) return -1;
  if (PyModule_AddObject(module, "helper_table_address", address) < 0) {
    Py_DECREF(address);
    return -1;
  }
  return 0;
}

}  // namespace weft
