// The kernels of Fourier transforms for x86 processors with AVX2 and FMA.
#if defined(__AVX2__) && !defined(__AVX512F__)
#include "fft_lanes.h"

namespace weft {
template <>
const FftKernels<float>& fft_kernels_v3() {
  return kFftKernels<float>;
}
template <>
const FftKernels<double>& fft_kernels_v3() {
  return kFftKernels<double>;
}
}  // namespace weft
#endif
