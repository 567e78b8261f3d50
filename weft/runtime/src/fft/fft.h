// Fourier transforms: how one of a given length is computed.
//
// A transform is one of (`FftWay`):
//   lanes   the length has small prime factors: Stockham passes over vectors whose lanes are different sequences
//   split   n = n1 n2: transforms of columns, factors in between, transforms of rows (Bailey 1990), so that one long
//           sequence fills the lanes, too
//   chirp   any other length, as a cyclic convolution of a length that has small factors (Bluestein 1970)
//
// Only the forward transform is computed: the inverse exchanges real and imaginary parts before and after it. The order
// of all sums depends on the length alone: not on the width of vectors, the number of sequences or threads.
#pragma once

#include <memory>
#include <vector>

#include "fft_kernels.h"

namespace weft {

enum class FftWay { lanes, split, chirp };

template <class R>
struct FftPlan {
  int64_t n;
  FftWay way = FftWay::lanes;
  FftPasses<R> passes;  // lanes
  FftSplit<R> split;
  std::shared_ptr<const FftPlan> longer;  // chirp: the transform of its convolution
  std::vector<R> chirp, filter;  // chirp: exp(-pi i k^2 / n), and the spectrum of its conjugate divided by the length
  double flops = 0;

  std::vector<std::vector<R>> tables;  // what the passes and the split point to
};

// Up to this length sequences are computed in lanes where many of them lie beside each other.
constexpr int64_t kFftMostInLanes = 8192;

// The plan of a length, shared by the programs that use it; `in_lanes` for sequences beside each other, of at most
// kFftMostInLanes elements. No GIL needed.
template <class R>
std::shared_ptr<const FftPlan<R>> fft_plan(int64_t n, bool in_lanes);

// exp(-2 pi i k / 2 h) for k up to h / 2: what makes the spectrum of 2 h real numbers of that of h complex ones.
template <class R>
std::vector<R> fft_half_factors(int64_t h);

}  // namespace weft
