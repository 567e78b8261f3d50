// Sums and extrema over the parts of several ranks, in the order of ranks and the precision of weft's reductions.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "mpi.h"

namespace weft::mpi {
namespace {

constexpr size_t kTile = 2048;   // elements that are combined at a time: they stay in the first cache
constexpr size_t kBlock = 256;   // parts; NUMERICS.md, BLOCK_ROWS

// How elements lie in memory, and what they are while they are combined.
template <class T>
struct Plain {
  using Stored = T;
  using Wide = T;
  static Wide widen(Stored x) { return x; }
  static Stored narrow(Wide x) { return x; }
};

struct Bfloat16 {
  using Stored = uint16_t;
  using Wide = float;
  static Wide widen(Stored x) {
    uint32_t bits = uint32_t(x) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  static Stored narrow(Wide x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    return uint16_t((bits & 0x7FFFFFFF) > 0x7F800000 ? (bits >> 16) | 0x40 : rounded);
  }
};

struct Half {
  using Stored = uint16_t;
  using Wide = float;
  static Wide widen(Stored x) {
    uint32_t sign = uint32_t(x & 0x8000) << 16, rest = uint32_t(x & 0x7FFF) << 13;
    float value;
    if ((x & 0x7C00) == 0x7C00) {  // infinity and NaN
      uint32_t bits = sign | 0x7F800000 | (rest & 0x7FFFFF);
      std::memcpy(&value, &bits, 4);
      return value;
    }
    std::memcpy(&value, &rest, 4);
    value *= 0x1p112f;  // moves the exponent; exact, also for subnormal numbers
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    bits |= sign;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  static Stored narrow(Wide x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    uint16_t sign = uint16_t((bits >> 16) & 0x8000);
    bits &= 0x7FFFFFFF;
    if (bits > 0x7F800000) return uint16_t(sign | 0x7E00 | ((bits >> 13) & 0x1FF));
    if (bits >= 0x477FF000) return uint16_t(sign | 0x7C00);  // 65520 and more round to infinity
    if (bits < 0x38800000) {  // below 2^-14: the unit is 2^-24, and adding 0.5 leaves the rounded count of units
      float value;
      std::memcpy(&value, &bits, 4);
      value += 0.5f;
      std::memcpy(&bits, &value, 4);
      return uint16_t(sign | (bits - 0x3F000000));
    }
    bits += 0xFFF + ((bits >> 13) & 1);
    return uint16_t(sign | ((bits - 0x38000000) >> 13));
  }
};

template <class T>
struct Complex {
  T real, imag;
};

template <class T>
struct IsComplex : std::false_type {};
template <class T>
struct IsComplex<Complex<T>> : std::true_type {};

struct Sum {
  template <class T>
  static T identity() {
    return T{};
  }
  template <class T>
  static T combine(T x, T y) {
    if constexpr (IsComplex<T>::value) {
      return {x.real + y.real, x.imag + y.imag};
    } else if constexpr (std::is_integral_v<T>) {
      using Bits = std::make_unsigned_t<T>;
      return T(Bits(Bits(x) + Bits(y)));  // wraps
    } else {
      return x + y;
    }
  }
};

// The larger or the smaller one; NaN if one is, and +0 above -0.
template <bool larger>
struct Extremum {
  template <class T>
  static T identity() {
    using Limits = std::numeric_limits<T>;
    if constexpr (std::is_floating_point_v<T>) return larger ? -Limits::infinity() : Limits::infinity();
    else return larger ? Limits::min() : Limits::max();
  }
  template <class T>
  static T combine(T x, T y) {
    if constexpr (std::is_floating_point_v<T>) {
      if (x != x) return x;
      if (y != y) return y;
      if (x == y) return std::signbit(x) == larger ? y : x;
    }
    return larger ? (x > y ? x : y) : (x < y ? x : y);
  }
};

// The parts at [low, low + n), folded from the identity in blocks.
template <class Element, class Op>
void combine_tile(const std::vector<const void*>& parts, void* out, size_t low, size_t n) {
  using Stored = typename Element::Stored;
  using Wide = typename Element::Wide;
  Wide total[kTile], block[kTile];
  for (size_t i = 0; i < n; ++i) total[i] = Op::template identity<Wide>();
  for (size_t first = 0; first < parts.size(); first += kBlock) {
    bool only = parts.size() <= kBlock;  // then the block is the total
    Wide* sums = only ? total : block;
    if (!only)
      for (size_t i = 0; i < n; ++i) block[i] = Op::template identity<Wide>();
    for (size_t p = first; p < std::min(parts.size(), first + kBlock); ++p) {
      const Stored* part = static_cast<const Stored*>(parts[p]) + low;
      for (size_t i = 0; i < n; ++i) sums[i] = Op::template combine<Wide>(sums[i], Element::widen(part[i]));
    }
    if (!only)
      for (size_t i = 0; i < n; ++i) total[i] = Op::template combine<Wide>(total[i], block[i]);
  }
  Stored* result = static_cast<Stored*>(out) + low;
  for (size_t i = 0; i < n; ++i) result[i] = Element::narrow(total[i]);
}

template <class Element, class Op>
void combine_all(const std::vector<const void*>& parts, void* out, size_t count) {
  for (size_t low = 0; low < count; low += kTile)
    combine_tile<Element, Op>(parts, out, low, std::min(kTile, count - low));
}

template <class Element>
void combine_by(Combine combine, const std::vector<const void*>& parts, void* out, size_t count) {
  if (combine == Combine::sum) return combine_all<Element, Sum>(parts, out, count);
  if constexpr (!IsComplex<typename Element::Wide>::value) {
    if (combine == Combine::max) return combine_all<Element, Extremum<true>>(parts, out, count);
    return combine_all<Element, Extremum<false>>(parts, out, count);
  }
}

struct Named {
  const char* name;
  Type type;
  size_t size;
};
constexpr Named kTypes[] = {
    {"int8", Type::i8, 1},       {"int16", Type::i16, 2},       {"int32", Type::i32, 4},
    {"int64", Type::i64, 8},     {"uint8", Type::u8, 1},        {"uint16", Type::u16, 2},
    {"uint32", Type::u32, 4},    {"uint64", Type::u64, 8},      {"bool", Type::boolean, 1},
    {"float16", Type::f16, 2},   {"bfloat16", Type::bf16, 2},   {"float32", Type::f32, 4},
    {"float64", Type::f64, 8},   {"complex64", Type::c64, 8},   {"complex128", Type::c128, 16},
};

}  // namespace

size_t size_of(Type type) { return kTypes[size_t(type)].size; }

bool type_of(const std::string& name, Type* type) {
  for (const Named& named : kTypes)
    if (name == named.name) {
      *type = named.type;
      return true;
    }
  return false;
}

bool reducible(Type type, Combine combine) {
  if (type == Type::boolean) return combine != Combine::sum;
  return combine == Combine::sum || (type != Type::c64 && type != Type::c128);
}

void reduce_parts(Type type, Combine combine, const std::vector<const void*>& parts, void* out, size_t count) {
  switch (type) {
    case Type::i8: return combine_by<Plain<int8_t>>(combine, parts, out, count);
    case Type::i16: return combine_by<Plain<int16_t>>(combine, parts, out, count);
    case Type::i32: return combine_by<Plain<int32_t>>(combine, parts, out, count);
    case Type::i64: return combine_by<Plain<int64_t>>(combine, parts, out, count);
    case Type::boolean:  // 0 and 1
    case Type::u8: return combine_by<Plain<uint8_t>>(combine, parts, out, count);
    case Type::u16: return combine_by<Plain<uint16_t>>(combine, parts, out, count);
    case Type::u32: return combine_by<Plain<uint32_t>>(combine, parts, out, count);
    case Type::u64: return combine_by<Plain<uint64_t>>(combine, parts, out, count);
    case Type::f16: return combine_by<Half>(combine, parts, out, count);
    case Type::bf16: return combine_by<Bfloat16>(combine, parts, out, count);
    case Type::f32: return combine_by<Plain<float>>(combine, parts, out, count);
    case Type::f64: return combine_by<Plain<double>>(combine, parts, out, count);
    case Type::c64: return combine_by<Plain<Complex<float>>>(combine, parts, out, count);
    case Type::c128: return combine_by<Plain<Complex<double>>>(combine, parts, out, count);
  }
}

}  // namespace weft::mpi
