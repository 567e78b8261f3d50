// The kernels of matrix products for processors with AVX-512.
#if defined(__AVX512F__)
#include "gemm_tiles.h"

namespace weft {
const GemmKernels* gemm_kernels_v4(char source, char result) { return kernels_for(source, result); }
}  // namespace weft
#endif
