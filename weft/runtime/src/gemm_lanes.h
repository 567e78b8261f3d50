// Vectors of one element type for the kernels of Fourier transforms and of the matrix unit, at the width the file is compiled
// for.
//
// Everything is in an unnamed namespace and nothing of the standard library is instantiated: each including file is
// compiled for another instruction set, and the linker must not mix their functions.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace weft {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};
template <class A, class B>
constexpr bool kSame = false;
template <class A>
constexpr bool kSame<A, A> = true;

template <int... i>
struct Indices {};
template <int n, int... i>
struct MakeIndices : MakeIndices<n - 1, n - 1, i...> {};
template <int... i>
struct MakeIndices<0, i...> {
  using Type = Indices<i...>;
};

// W lanes of T: float, double, uint32_t or uint64_t.
template <class Element>
struct Lanes {
  using T = Element;
  static constexpr int W = kVectorBytes / int(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  typedef T Unaligned __attribute__((vector_size(kVectorBytes), aligned(sizeof(T)), may_alias));
  static inline V load(const T* p) { return *reinterpret_cast<const Unaligned*>(p); }
  static inline void store(T* p, V v) { *reinterpret_cast<Unaligned*>(p) = v; }
  static inline V splat(T x) { return splat_over(x, typename MakeIndices<W>::Type{}); }
  // Lane j of the result is lane i[j] of a, or i[j] - W of b.
  template <int... i>
  static inline V shuffled(V a, V b, Indices<i...>) {
    return __builtin_shufflevector(a, b, i...);
  }

  // The first n lanes, the others zero; n from 1 to W.
  static inline V load(const T* p, int n) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return V(_mm512_maskz_loadu_epi32(__mmask16((1u << n) - 1), p));
    else return V(_mm512_maskz_loadu_epi64(__mmask8((1u << n) - 1), p));
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4) return V(_mm256_maskload_epi32(reinterpret_cast<const int*>(p), __m256i(first(n))));
    else return V(_mm256_maskload_epi64(reinterpret_cast<const long long*>(p), __m256i(first(n))));
#else
    V v{};
    std::memcpy(&v, p, size_t(n) * sizeof(T));
    return v;
#endif
  }
  static inline void store(T* p, V v, int n) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) _mm512_mask_storeu_epi32(p, __mmask16((1u << n) - 1), __m512i(v));
    else _mm512_mask_storeu_epi64(p, __mmask8((1u << n) - 1), __m512i(v));
#elif defined(__AVX2__)
    store_parts(reinterpret_cast<char*>(p), __m256i(v), n * int(sizeof(T)));
#else
    std::memcpy(p, &v, size_t(n) * sizeof(T));
#endif
  }

  // a * b + c, rounded once.
  static inline V fma(V a, V b, V c) {
#if defined(__AVX512F__)
    if constexpr (kSame<T, float>) return V(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
    else if constexpr (kSame<T, double>) return V(_mm512_fmadd_pd(__m512d(a), __m512d(b), __m512d(c)));
    else return a * b + c;
#elif defined(__AVX2__)
    if constexpr (kSame<T, float>) return V(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
    else if constexpr (kSame<T, double>) return V(_mm256_fmadd_pd(__m256d(a), __m256d(b), __m256d(c)));
    else return a * b + c;
#else
    if constexpr (kSame<T, float> || kSame<T, double>) {
      for (int i = 0; i < W; ++i) c[i] = kSame<T, float> ? __builtin_fmaf(a[i], b[i], c[i]) : __builtin_fma(a[i], b[i], c[i]);
      return c;
    } else {
      return a * b + c;
    }
#endif
  }

 private:
#if defined(__AVX2__) && !defined(__AVX512F__)
  // The first `bytes` bytes, a multiple of 4, in halves, quarters, ...: a masked store takes 12 cycles on a Zen 4.
  static inline void store_parts(char* p, __m256i v, int bytes) {
    if (bytes == 32) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
    __m128i part = _mm256_castsi256_si128(v);
    if (bytes & 16) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p), part);
      part = _mm256_extracti128_si256(v, 1);
      p += 16;
    }
    if (bytes & 8) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(p), part);
      part = _mm_unpackhi_epi64(part, part);
      p += 8;
    }
    if (bytes & 4) {
      const int last = _mm_cvtsi128_si32(part);
      std::memcpy(p, &last, 4);
    }
  }
#endif
  template <int... i>
  static inline V splat_over(T x, Indices<i...>) {
    return V{(static_cast<void>(i), x)...};
  }

  // All bits of the first n lanes.
  using Signed = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef Signed Mask __attribute__((vector_size(kVectorBytes)));
  static inline Mask first(int n) { return first_over(n, typename MakeIndices<W>::Type{}); }
  template <int... i>
  static inline Mask first_over(int n, Indices<i...>) {
    return Mask{i...} < Signed(n);
  }
};

template <class E, int d, int... i>
inline void turn_from(typename E::V (&rows)[E::W], Indices<i...> indices) {
  constexpr int W = E::W;
  if constexpr (d > 0) {
    for (int r = 0; r < W; ++r) {
      if (r & d) continue;
      const typename E::V low = rows[r], high = rows[r + d];
      rows[r] = E::shuffled(low, high, Indices<((i & d) ? W + i - d : i)...>{});
      rows[r + d] = E::shuffled(low, high, Indices<((i & d) ? W + i : i + d)...>{});
    }
    turn_from<E, d / 2>(rows, indices);
  }
}

// W vectors as the rows of a square, turned.
template <class E>
inline void turn(typename E::V (&rows)[E::W]) {
  turn_from<E, E::W / 2>(rows, typename MakeIndices<E::W>::Type{});
}

}  // namespace
}  // namespace weft
