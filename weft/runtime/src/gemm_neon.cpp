// The kernels of matrix products for AArch64.
#if defined(__aarch64__)
#include "gemm_tiles.h"

namespace weft {
const GemmKernels* gemm_kernels_neon(char source, char result) { return kernels_for(source, result); }
}  // namespace weft
#endif
