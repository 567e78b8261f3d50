// The batch dimensions of a matrix product: how they are read from a plan, walked and bounded.
#pragma once

#include <cstdint>
#include <vector>

#include "python.h"

namespace weft {

struct GemmBatch {
  struct Dim {
    int64_t extent, a, b, c;  // strides in bytes
  };
  std::vector<Dim> dims;
  int64_t count = 1;  // of products

  // From a tuple of (extent, stride of a, of b, of c); false with a Python error.
  bool read(PyObject* batch);

  // Bytes from the first to past the last element of a matrix, of `blocks` further ones, each `block` elements on, and
  // of all of its batch; -1 if that does not fit.
  int64_t reach(int64_t rows, int64_t columns, int64_t row, int64_t column, int64_t itemsize, int64_t Dim::* stride,
                int64_t blocks = 0, int64_t block = 0) const;

  // The operands of product number `index`.
  template <class A, class B, class C>
  void move(int64_t index, A*& a, B*& b, C*& c) const {
    for (size_t d = dims.size(); d-- > 0;) {
      int64_t at = index % dims[d].extent;
      index /= dims[d].extent;
      a += at * dims[d].a;
      b += at * dims[d].b;
      c += at * dims[d].c;
    }
  }
};

bool invalid_gemm(const char* message);  // sets a ValueError; false

}  // namespace weft
