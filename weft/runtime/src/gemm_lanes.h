// Vectors of one element type for the kernels of matrix products, at the width the file is compiled for.
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
template <class R>
struct Complex {
  R real, imag;
  Complex operator+(Complex other) const { return {real + other.real, imag + other.imag}; }
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
  // Complex products are more than one real one: what vectors are multiplied by, and sums while they grow.
  static constexpr int kParts = 1;
  using Factor = V;
  using Sum = V;

  static inline V load(const T* p) { return *reinterpret_cast<const Unaligned*>(p); }
  static inline void store(T* p, V v) { *reinterpret_cast<Unaligned*>(p) = v; }
  static inline Factor splat(T x) { return splat_over(x, typename MakeIndices<W>::Type{}); }
  static inline Factor factor(V x) { return x; }
  // Lane j of the factors is lane i[j] of a, or i[j] - W of b.
  template <int... i>
  static inline Factor factors(V a, V b, Indices<i...> indices) {
    return shuffled(a, b, indices);
  }
  static inline V total(Sum sum) { return sum; }
  static inline V paired_total(Sum sum) { return sum; }
  // Sums in memory; a complex one's second part lies `apart` elements after its first.
  static inline Sum load_sum(const T* p, int64_t) { return load(p); }
  static inline Sum load_sum(const T* p, int64_t, int n) { return load(p, n); }
  static inline void store_sum(T* p, int64_t, Sum sum) { store(p, sum); }
  static inline void store_sum(T* p, int64_t, Sum sum, int n) { store(p, sum, n); }

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
#if defined(__AVX512F__)
  // Groups of k lanes that follow each other, moved to the first of every `lanes` lanes; the others are zero.
  struct Spread {
    __m512i index;
    unsigned mask;
  };
  static inline Spread spread_of(int k, int lanes) {
    Spread spread{_mm512_setzero_si512(), 0};
    alignas(64) std::conditional_t<sizeof(T) == 4, int32_t, int64_t> index[W];
    for (int i = 0; i < W; ++i) {
      index[i] = i / lanes * k + i % lanes;
      if (i % lanes < k) spread.mask |= 1u << i;
    }
    spread.index = _mm512_load_si512(index);
    return spread;
  }
  static inline V spread(V v, const Spread& to) {
    if constexpr (sizeof(T) == 4) return V(_mm512_maskz_permutexvar_epi32(__mmask16(to.mask), to.index, __m512i(v)));
    else return V(_mm512_maskz_permutexvar_epi64(__mmask8(to.mask), to.index, __m512i(v)));
  }
  // Which lane of a vector each lane of another one is.
  using Order = __m512i;
  static inline Factor factor_parts(V x) { return x; }
  static inline V ordered(V v, Order order) {
    if constexpr (sizeof(T) == 4) return V(_mm512_permutexvar_epi32(order, __m512i(v)));
    else return V(_mm512_permutexvar_epi64(order, __m512i(v)));
  }
  // Of vectors that follow each other: each lane once for every `rows` elements, of `parts` lanes each.
  static inline void order_by(int rows, Order* orders, int parts = 1) {
    using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    Index* to = reinterpret_cast<Index*>(orders);
    for (int lane = 0; lane < W; lane += parts)
      for (int i = 0; i < rows * parts; ++i) *to++ = Index(lane);
  }
  // Half a vector, of floats: its first n lanes, and a * b + c with the lower half of a.
  typedef T HalfV __attribute__((vector_size(kVectorBytes / 2)));
  static inline HalfV load_half(const T* p, int n) {
    if constexpr (sizeof(T) == 4) return HalfV(_mm256_maskz_loadu_ps(__mmask8((1u << n) - 1), p));
    else return HalfV(_mm256_maskz_loadu_pd(__mmask8((1u << n) - 1), p));
  }
  static inline void store_half(T* p, HalfV v, int n) {
    if constexpr (sizeof(T) == 4) _mm256_mask_storeu_ps(p, __mmask8((1u << n) - 1), __m256(v));
    else _mm256_mask_storeu_pd(p, __mmask8((1u << n) - 1), __m256d(v));
  }
  static inline HalfV fma_half(V a, HalfV b, HalfV c) {
    if constexpr (sizeof(T) == 4) return HalfV(_mm256_fmadd_ps(_mm512_castps512_ps256(__m512(a)), __m256(b), __m256(c)));
    else return HalfV(_mm256_fmadd_pd(_mm512_castpd512_pd256(__m512d(a)), __m256d(b), __m256d(c)));
  }
  // Lanes first to first + n - 1 from p, the others of old.
  static inline V load_at(V old, const T* p, int first, int n) {
    const unsigned mask = ((1u << n) - 1) << first;
    p = reinterpret_cast<const T*>(reinterpret_cast<uintptr_t>(p) - uintptr_t(first) * sizeof(T));
    if constexpr (sizeof(T) == 4) return V(_mm512_mask_loadu_epi32(__m512i(old), __mmask16(mask), p));
    else return V(_mm512_mask_loadu_epi64(__m512i(old), __mmask8(mask), p));
  }
#endif
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

  static inline V add(V a, V b) { return a + b; }

  // The first n lanes of v, the others of old: a masked-out product of zeros must not turn -0 into +0.
  static inline V keep(V v, V old, int n) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return V(_mm512_mask_mov_epi32(__m512i(old), __mmask16((1u << n) - 1), __m512i(v)));
    else return V(_mm512_mask_mov_epi64(__m512i(old), __mmask8((1u << n) - 1), __m512i(v)));
#else
    return first(n) ? v : old;
#endif
  }

  // n elements of another type, converted exactly (integers wrap), the other lanes zero.
  template <class S>
  static inline V widen(const S* p, int n) {
    if constexpr (sizeof(S) == sizeof(T)) {
      return n == W ? load(reinterpret_cast<const T*>(p)) : load(reinterpret_cast<const T*>(p), n);
    } else {
      return widened<S>(n == W ? narrow(p) : narrow(p, n));
    }
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
  // Fewer than 16 bytes, the rest zero, in registers: a library's copy, read back before it is written, takes 20 ns.
  template <class U>
  static inline unsigned __int128 ends(const char* p, int n) {  // of sizeof(U) to twice as many bytes
    U low, high;
    std::memcpy(&low, p, sizeof(U));
    std::memcpy(&high, p + n - sizeof(U), sizeof(U));
    return low | static_cast<unsigned __int128>(high) << (n - int(sizeof(U))) * 8;
  }
  static inline unsigned __int128 few_bytes(const char* p, int n) {
    if (n >= 8) return ends<uint64_t>(p, n);
    if (n >= 4) return ends<uint32_t>(p, n);
    if (n >= 2) return ends<uint16_t>(p, n);
    return n > 0 ? static_cast<unsigned char>(*p) : 0;
  }

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

  // Narrower elements as they are in memory: W of them, or the first n, the others zero; and each as a T.
#if defined(__AVX512F__)
  template <class S>
  static inline auto narrow(const S* p) {
    if constexpr (sizeof(S) == 2) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    else return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  template <class S>
  static inline auto narrow(const S* p, int n) {
    if constexpr (sizeof(S) == 2) return _mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p);
    else return _mm_maskz_loadu_epi8(__mmask16((1u << n) - 1), p);
  }
  template <class S, class Narrow>
  static inline V widened(Narrow v) {
    if constexpr (kSame<S, Half>) return V(_mm512_cvtph_ps(v));
    else if constexpr (kSame<S, Bfloat16>) return V(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
    else if constexpr (sizeof(S) == 2) return V(S(-1) < S(0) ? _mm512_cvtepi16_epi32(v) : _mm512_cvtepu16_epi32(v));
    else return V(S(-1) < S(0) ? _mm512_cvtepi8_epi32(v) : _mm512_cvtepu8_epi32(v));
  }
#elif defined(__AVX2__)
  template <class S>
  static inline __m128i narrow(const S* p) {
    if constexpr (sizeof(S) == 2) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    else return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  }
  template <class S>
  static inline __m128i narrow(const S* p, int n) {
    const unsigned __int128 bytes = few_bytes(reinterpret_cast<const char*>(p), n * int(sizeof(S)));
    return _mm_set_epi64x(static_cast<long long>(bytes >> 64), static_cast<long long>(bytes));
  }
  template <class S>
  static inline V widened(__m128i v) {
    if constexpr (kSame<S, Half>) return V(_mm256_cvtph_ps(v));
    else if constexpr (kSame<S, Bfloat16>) return V(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
    else if constexpr (sizeof(S) == 2) return V(S(-1) < S(0) ? _mm256_cvtepi16_epi32(v) : _mm256_cvtepu16_epi32(v));
    else return V(S(-1) < S(0) ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v));
  }
#else
  template <class S>
  struct Narrow {
    S elements[W];
  };
  template <class S>
  static inline Narrow<S> narrow(const S* p, int n = W) {
    Narrow<S> v{};
    const unsigned __int128 bytes = few_bytes(reinterpret_cast<const char*>(p), n * int(sizeof(S)));
    std::memcpy(v.elements, &bytes, sizeof(v));
    return v;
  }
  template <class S>
  static inline V widened(const Narrow<S>& v) {
    V to;
    for (int i = 0; i < W; ++i) {
      if constexpr (kSame<S, Half>) {
        __fp16 half;  // AArch64's name; C++ has _Float16 there only from GCC 13 on
        std::memcpy(&half, &v.elements[i], 2);
        to[i] = T(half);
      } else if constexpr (kSame<S, Bfloat16>) {
        const uint32_t bits = uint32_t{v.elements[i].bits} << 16;
        std::memcpy(&to[i], &bits, 4);
      } else {
        to[i] = T(v.elements[i]);
      }
    }
    return to;
  }
#endif
};

// W lanes of complex numbers over R, their parts interleaved as in memory.
//
// A product's four sums of real products are kept apart, in two vectors: real parts of factors times whole elements, and
// imaginary parts. So nothing is shuffled as they grow, and operands may be exchanged: the bits are the same.
template <class R>
struct ComplexLanes {
  using T = Complex<R>;
  using L = Lanes<R>;
  using V = typename L::V;
  static constexpr int W = L::W / 2, kParts = 2;
  struct Factor {
    V real, imag;
  };
  using Sum = Factor;  // what the factor's real and imaginary parts have added up to

  // In a register: two multiply-adds would each load it as their operand.
  static inline V loaded(V v) {
#if defined(__x86_64__)
    asm("" : "+v"(v));
#endif
    return v;
  }

  static inline V load(const T* p) { return loaded(L::load(&p->real)); }
  static inline V load(const T* p, int n) { return L::load(&p->real, 2 * n); }
#if defined(__AVX512F__)
  using Spread = typename L::Spread;
  static inline Spread spread_of(int k, int lanes) { return L::spread_of(2 * k, 2 * lanes); }
  static inline V spread(V v, const Spread& to) { return L::spread(v, to); }
  using Order = typename L::Order;
  static inline Factor factor_parts(V x) {
    constexpr typename MakeIndices<W>::Type lanes;
    return factors(x, x, lanes);
  }
  static inline Factor ordered(Factor x, Order order) { return {L::ordered(x.real, order), L::ordered(x.imag, order)}; }
  static inline void order_by(int rows, Order* orders) { L::order_by(rows, orders, 2); }
  static inline V load_at(V old, const T* p, int first, int n) { return L::load_at(old, &p->real, 2 * first, 2 * n); }
#endif
  static inline void store(T* p, V v) { L::store(&p->real, v); }
  static inline void store(T* p, V v, int n) { L::store(&p->real, v, 2 * n); }
  static inline V widen(const T* p, int n) { return n == W ? load(p) : load(p, n); }
  static inline V add(V a, V b) { return a + b; }
  static inline Factor splat(T x) { return {L::splat(x.real), L::splat(x.imag)}; }
  // For lane by lane products of x and another vector: those of equal parts, and those of one part with the other.
  static inline Factor factor(V x) { return {x, exchanged(x, typename MakeIndices<2 * W>::Type{})}; }
  template <int... i>
  static inline Factor factors(V a, V b, Indices<i...> indices) {
    return factors_over(a, b, indices, typename MakeIndices<2 * W>::Type{});
  }
  static inline Sum fma(Factor x, V v, Sum sum) { return {L::fma(x.real, v, sum.real), L::fma(x.imag, v, sum.imag)}; }
  static inline Sum keep(Sum sum, Sum old, int n) {
    return {L::keep(sum.real, old.real, 2 * n), L::keep(sum.imag, old.imag, 2 * n)};
  }
  static inline V total(Sum sum) {
    constexpr typename MakeIndices<2 * W>::Type lanes;
    return difference_and_sum(sum.real, exchanged(sum.imag, lanes), lanes);
  }
  static inline V paired_total(Sum sum) { return paired_total_over(sum, typename MakeIndices<2 * W>::Type{}); }  // of `factor`
  static inline Sum load_sum(const T* p, int64_t apart) { return {load(p), load(p + apart)}; }
  static inline Sum load_sum(const T* p, int64_t apart, int n) { return {load(p, n), load(p + apart, n)}; }
  static inline void store_sum(T* p, int64_t apart, Sum sum) {
    store(p, sum.real);
    store(p + apart, sum.imag);
  }
  static inline void store_sum(T* p, int64_t apart, Sum sum, int n) {
    store(p, sum.real, n);
    store(p + apart, sum.imag, n);
  }

  template <int... i>
  static inline V shuffled(V a, V b, Indices<i...> indices) {
    return shuffled_over(a, b, indices, typename MakeIndices<2 * W>::Type{});
  }

 private:
  template <int... j>
  static inline V exchanged(V x, Indices<j...>) {
    return __builtin_shufflevector(x, x, (j ^ 1)...);
  }
  // Differences where real parts lie, sums elsewhere.
  template <int... j>
  static inline V difference_and_sum(V a, V b, Indices<j...>) {
    return __builtin_shufflevector(a - b, a + b, (j & 1 ? 2 * W + j : j)...);
  }
  template <int... j>
  static inline V paired_total_over(Sum sum, Indices<j...> lanes) {
    return difference_and_sum(__builtin_shufflevector(sum.real, sum.imag, (j & 1 ? 2 * W + j - 1 : j)...),
                              __builtin_shufflevector(sum.real, sum.imag, (j & 1 ? 2 * W + j : j + 1)...), lanes);
  }
  template <int... i, int... j>
  static inline Factor factors_over(V a, V b, Indices<i...>, Indices<j...>) {
    constexpr int lanes[] = {i...};
    return {__builtin_shufflevector(a, b, (2 * lanes[j / 2])...), __builtin_shufflevector(a, b, (2 * lanes[j / 2] + 1)...)};
  }
  template <int... i, int... j>
  static inline V shuffled_over(V a, V b, Indices<i...>, Indices<j...>) {
    constexpr int lanes[] = {i...};
    return __builtin_shufflevector(a, b, (2 * lanes[j / 2] + j % 2)...);
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
