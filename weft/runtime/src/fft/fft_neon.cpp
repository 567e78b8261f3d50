// The kernels of Fourier transforms for AArch64.
#if defined(__aarch64__)
#include "fft_lanes.h"

namespace weft {
template <>
const FftKernels<float>& fft_kernels_neon() {
  return kFftKernels<float>;
}
template <>
const FftKernels<double>& fft_kernels_neon() {
  return kFftKernels<double>;
}
}  // namespace weft
#endif
