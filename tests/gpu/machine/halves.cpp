// Rounding to narrow formats, and their values.
#include "halves.h"

namespace ptx {

uint32_t narrow(double x, Format format, Rounding rounding, bool finite) {
  const int e = format.exponent, m = format.significand, bias = (1 << (e - 1)) - 1;
  const uint32_t sign = uint32_t(bits(x) >> 63) << (e + m);
  const uint32_t infinity = ((1u << e) - 1) << m;
  const uint32_t nan = format.infinities ? infinity | 1u << (m - 1) : (1u << (e + m)) - 1;
  const uint32_t largest = format.infinities ? infinity - 1 : nan - 1;
  if (std::isnan(x)) return sign | nan;
  const bool negative = sign != 0;
  if (std::isinf(x)) return sign | (finite ? largest : format.infinities ? infinity : nan);
  if (x == 0) return sign;
  int exponent;
  const double fraction = std::frexp(std::abs(x), &exponent);  // in [0.5, 1)
  --exponent;
  const int lowest = 1 - bias, at = exponent < lowest ? lowest : exponent;
  // the significand as an integer and what is cut off
  const double scaled = std::ldexp(fraction, exponent + 1 - at + m), whole = std::floor(scaled), rest = scaled - whole;
  uint64_t n = uint64_t(whole);
  bool up = false;
  switch (rounding) {
    case kNearest: up = rest > 0.5 || (rest == 0.5 && (n & 1)); break;
    case kAway: up = rest >= 0.5; break;
    case kZero: break;
    case kDown: up = negative && rest > 0; break;
    case kUp: up = !negative && rest > 0; break;
  }
  n += up;
  const int64_t code = (int64_t(at - lowest) << m) + int64_t(n);  // a carry moves to the next exponent by itself
  if (code > int64_t(largest)) {
    if (finite) return sign | largest;
    const bool stays = rounding == kZero || (rounding == kDown && !negative) || (rounding == kUp && negative);
    return sign | (stays ? largest : format.infinities ? infinity : nan);
  }
  return sign | uint32_t(code);
}

double widen(uint32_t x, Format format) {
  const int e = format.exponent, m = format.significand, bias = (1 << (e - 1)) - 1;
  const double sign = x >> (e + m) & 1 ? -1.0 : 1.0;
  const uint32_t exponent = x >> m & ((1u << e) - 1), significand = x & ((1u << m) - 1);
  const uint32_t top = (1u << e) - 1;
  if (format.infinities && exponent == top) return significand ? std::nan("") : sign * INFINITY;
  if (!format.infinities && exponent == top && significand == (1u << m) - 1) return std::nan("");
  if (exponent == 0) return sign * std::ldexp(double(significand), 1 - bias - m);
  return sign * std::ldexp(double(significand | 1u << m), int(exponent) - bias - m);
}

}  // namespace ptx
