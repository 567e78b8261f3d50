// The kernels of bfloat16 matrix products for processors with AVX512_BF16, which add products in pairs.
#if defined(__AVX512BF16__)
#include "gemm_tiles.h"

namespace weft {
namespace {

// A packed element is a pair of bfloat16: of an even index of k in the low half, of the next one in the high half.
struct Pairs : Lanes<uint32_t> {
  static inline V fma(V a, V b, V c) { return V(_mm512_dpbf16_ps(__m512(c), __m512bh(a), __m512bh(b))); }
  static inline V add(V a, V b) { return V(_mm512_add_ps(__m512(a), __m512(b))); }
};

// n elements of two rows, interleaved; high may be nullptr.
inline Pairs::V interleaved(const uint16_t* low, const uint16_t* high, int n) {
  const __mmask16 mask = __mmask16((1u << n) - 1);
  __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, low));
  if (high == nullptr) return Pairs::V(even);
  __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, high));
  return Pairs::V(_mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
}

// n elements that follow each other, as pairs; the rest is zero.
inline Pairs::V following(const uint16_t* from, int64_t n) {
  const __mmask32 mask = n >= 32 ? ~__mmask32{0} : __mmask32((uint32_t{1} << n) - 1);
  return Pairs::V(_mm512_maskz_loadu_epi16(mask, from));
}

void pack_pairs(const GemmPanel& panel) {
  using E = Pairs;
  constexpr int W = E::W;
  const int64_t k_stride = panel.k_stride, k = panel.k, width = panel.width, padded = panel.padded, pitch = panel.pitch;
  const uint16_t* from = reinterpret_cast<const uint16_t*>(panel.source);
  uint32_t* out = reinterpret_cast<uint32_t*>(panel.to);
  const int64_t steps = (k + 1) / 2;
  if (panel.x_stride == 1 && panel.lines == nullptr) {
    for (int64_t step = 0; step < steps; ++step) {
      const uint16_t* low = from + 2 * step * k_stride;
      const uint16_t* high = 2 * step + 1 < k ? low + k_stride : nullptr;
      for (int64_t x = 0; x < padded; x += W) {
        __builtin_prefetch(low + kRowsAhead * k_stride + x);
        const int n = int(least(W, width - x));
        E::V v = n > 0 ? interleaved(low + x, high == nullptr ? nullptr : high + x, n) : E::V{};
        E::store(out + step * pitch + x, v, int(least(W, padded - x)));
      }
    }
    return;
  }
  if (k_stride == 1) {
    for (int64_t x = 0; x < padded; x += W)
      for (int64_t step = 0; step < steps; step += W) {
        E::V rows[W];
        for (int r = 0; r < W; ++r)
          rows[r] = x + r < width ? following(from + panel.line(x + r) + 2 * step, k - 2 * step) : E::V{};
        turn<E>(rows);
        for (int r = 0; r < least(W, steps - step); ++r)
          E::store(out + (step + r) * pitch + x, rows[r], int(least(W, padded - x)));
      }
    return;
  }
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t x = 0; x < padded; ++x) {
      const uint16_t* low = from + 2 * step * k_stride + (x < width ? panel.line(x) : 0);
      uint32_t even = x < width ? *low : 0, odd = x < width && 2 * step + 1 < k ? low[k_stride] : 0;
      out[step * pitch + x] = even | odd << 16;
    }
}

}  // namespace

const GemmKernels* gemm_kernels_v4_bfloat16() {
  static const GemmKernels kernels = {kHeight, kVectors, Pairs::W, 2, 4, 4, 4, 2, tiles_of<Pairs, Mode::packed, true>(),
                                      nullptr, nullptr, 0, nullptr, nullptr, pack_pairs,
                                      multiply_vector<Lanes<float>, Bfloat16>, 230, nullptr, nullptr, nullptr, 0};
  return &kernels;
}

}  // namespace weft
#endif
