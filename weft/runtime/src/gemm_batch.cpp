// The batch dimensions of a matrix product: see gemm_batch.h.
#include "gemm_batch.h"

namespace weft {

bool invalid_gemm(const char* message) {
  PyErr_SetString(PyExc_ValueError, message);
  return false;
}

bool GemmBatch::read(PyObject* batch) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(batch); ++i) {
    long long extent, a, b, c;
    if (!PyTuple_Check(PyTuple_GET_ITEM(batch, i)) ||
        !PyArg_ParseTuple(PyTuple_GET_ITEM(batch, i), "LLLL", &extent, &a, &b, &c)) {
      PyErr_Clear();
      return invalid_gemm("[gemm] a batch dimension is (extent, stride of a, of b, of c)");
    }
    if (extent < 0 || a < 0 || b < 0 || c < 0 || __builtin_mul_overflow(count, int64_t(extent), &count))
      return invalid_gemm("[gemm] a batch dimension has a wrong extent or stride");
    dims.push_back({extent, a, b, c});
  }
  return true;
}

int64_t GemmBatch::reach(const GemmDigits& rows, const GemmDigits& columns, int64_t itemsize,
                         int64_t Dim::* stride) const {
  __int128 bytes = itemsize;
  for (const GemmDigits* digits : {&rows, &columns})
    for (int digit = 0; digit < digits->count; ++digit) {
      if (digits->extents[digit] == 0) return 0;
      bytes += __int128(digits->extents[digit] - 1) * digits->strides[digit] * itemsize;
    }
  for (const Dim& dim : dims) {
    if (dim.extent == 0) return 0;
    bytes += __int128(dim.extent - 1) * (dim.*stride);
  }
  return bytes > INT64_MAX ? -1 : int64_t(bytes);
}

}  // namespace weft
