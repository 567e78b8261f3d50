// The kernels of matrix products for x86 processors with AVX2 and FMA.
#if defined(__AVX2__) && !defined(__AVX512F__)
#include "gemm_tiles.h"

namespace weft {
const GemmKernels* gemm_kernels_v3(char source, char result) { return kernels_for(source, result); }
}  // namespace weft
#endif
