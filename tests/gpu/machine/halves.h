// Narrow floating-point formats: values of float16, bfloat16 and of 8 bits, and rounding to them from float64.
#pragma once

#ifdef __F16C__
#include <immintrin.h>
#endif

#include <bit>
#include <cmath>
#include <cstdint>

namespace ptx {

enum Rounding : uint8_t { kNearest, kZero, kDown, kUp, kAway };  // kAway: ties go away from zero

inline uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
inline uint64_t bits(double x) { return std::bit_cast<uint64_t>(x); }
inline float as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline double as_double(uint64_t x) { return std::bit_cast<double>(x); }

// A binary format of sign, exponent and significand.
struct Format {
  int exponent, significand;
  bool infinities;  // the largest exponent holds infinities and NaN; otherwise only the last value is NaN
};
constexpr Format kHalf{5, 10, true}, kBfloat{8, 7, true}, kFloat{8, 23, true}, kE5M2{5, 2, true}, kE4M3{4, 3, false};

// The bits of a value in a format; ``finite``: what is too large becomes the largest number.
uint32_t narrow(double x, Format format, Rounding rounding, bool finite = false);
// The value of bits in a format.
double widen(uint32_t x, Format format);

inline float half_value(uint16_t x) {
#ifdef __F16C__
  return _cvtsh_ss(x);
#else
  return float(widen(x, kHalf));
#endif
}
inline float bfloat_value(uint16_t x) { return as_float(uint32_t{x} << 16); }
inline uint16_t half_bits(double x) { return std::isnan(x) ? 0x7FFF : uint16_t(narrow(x, kHalf, kNearest)); }
inline uint16_t bfloat_bits(float x) {
  if (std::isnan(x)) return 0x7FFF;
  const uint32_t b = bits(x);
  return uint16_t((b + 0x7FFF + (b >> 16 & 1)) >> 16);
}

// a * b + c, rounded to odd: rounded once more, to fewer than 50 bits, it is as if rounded once.
inline double fma_to_odd(double a, double b, double c) {
  const double r = a * b, s = r + c;  // r is exact for factors of at most 26 bits
  if (!std::isfinite(s)) return s;
  const double t = s - r, error = (r - (s - t)) + (c - t);
  if (error == 0 || (bits(s) & 1)) return s;
  return as_double(bits(s) + (((error > 0) == (s > 0)) ? 1 : uint64_t(-1)));
}

// A 64-bit integer as float64, rounded to odd.
template <class T>
double integer_to_odd(T x) {
  double r = double(x);
  if (std::abs(r) < 0x1p53 || (bits(r) & 1)) return r;
  const __int128 error = __int128(x) - __int128(r);
  if (error == 0) return r;
  return as_double(bits(r) + (((error > 0) == (r > 0)) ? 1 : uint64_t(-1)));
}

}  // namespace ptx
