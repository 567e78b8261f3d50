// Kernels of Fourier transforms: what each instruction set offers. Numbers are complex, interleaved, of parts R.
#pragma once

#include <cstdint>

namespace weft {

constexpr int kFftBlock = 16;  // columns of a split that share a base factor; no vector has more lanes
constexpr int kFftMostPasses = 48;

// A pass over n = before * radix * after elements. Factors: exp(-2 pi i j k / (radix * after)), k < after, 0 < j <
// radix, j fastest.
template <class R>
struct FftPass {
  int radix;
  int64_t before, after;
  const R* factors;
  const R* roots;  // odd radix: cosine and sine of 2 pi k / radix, k < radix
};

template <class R>
struct FftPasses {
  int64_t n = 1;
  int count = 0;
  FftPass<R> pass[kFftMostPasses];
};

// n1 transforms of rows after n2 of columns. w^(k j) = base[j / block][k] * within[j % block][k].
template <class R>
struct FftSplit {
  FftPasses<R> columns, rows;  // of length n1 and n2
  const R* base;
  const R* within;
};

// Where sequences lie, in complex elements: element j of sequence s is at s * lane + j * entry.
struct FftStrides {
  int64_t lane, entry;
};

// A kernel works on up to `lanes` sequences at a time, in `work`: vectors, four for each element of a sequence. `swap`
// exchanges real and imaginary parts of what is read or written.
template <class R>
struct FftKernels {
  int lanes;
  void (*transform)(const FftPasses<R>& passes, const R* in, FftStrides from, bool swap_in, R* out, FftStrides to,
                    bool swap_out, R scale, int count, R* work);
  // The halves of a split: one group of columns into `middle`, one group of its rows into the result.
  void (*columns)(const FftSplit<R>& split, const R* in, bool swap, int64_t group, R* middle, R* work);
  void (*rows)(const FftSplit<R>& split, const R* middle, int64_t group, R* out, bool swap, R scale, R* work);
  // out[i] = a[i] * b[i] for i < n, a being out or apart from it.
  void (*product)(const R* a, bool swap_in, const R* b, R* out, bool swap_out, R scale, int64_t n);
  // From the transform of h complex numbers the first h + 1 elements of that of 2 h real ones, in place; and back, the
  // result twice as large. Elements k and h - k belong together: `low <= k < high` of h / 2 + 1.
  void (*untangle)(R* row, const R* factors, int64_t h, int64_t low, int64_t high);
  void (*tangle)(const R* in, R* out, const R* factors, int64_t h, int64_t low, int64_t high);

  int64_t work_bytes(int64_t n) const { return n * lanes * 4 * int64_t(sizeof(R)); }
  static int64_t groups(int64_t n, int lanes) { return (n + lanes - 1) / lanes; }
  int64_t middle_bytes(const FftSplit<R>& split) const {
    return split.columns.n * groups(split.rows.n, lanes) * lanes * 2 * int64_t(sizeof(R));
  }
};

// For R float or double, and the processor's instruction set or the one that WEFT_TARGET names.
template <class R>
const FftKernels<R>& fft_kernels();
template <class R>
const FftKernels<R>& fft_kernels_v3();
template <class R>
const FftKernels<R>& fft_kernels_v4();
template <class R>
const FftKernels<R>& fft_kernels_neon();

}  // namespace weft
