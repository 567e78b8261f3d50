// The batch dimensions of a matrix product: how they are read from a plan, walked and bounded.
#pragma once

#include <cstdint>
#include <vector>

#include "gemm_kernels.h"
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

  // Bytes from the first to past the last element of a matrix and of all of its batch; -1 if that does not fit.
  int64_t reach(const GemmDigits& rows, const GemmDigits& columns, int64_t itemsize, int64_t Dim::* stride) const;

  // The operands of one product after the other, from number `index` on.
  struct Walk {
    const std::vector<Dim>& dims;
    std::vector<int64_t> at;
    const char *a, *b;
    char* c;

    Walk(const GemmBatch& batch, int64_t index, const char* a, const char* b, char* c)
        : dims(batch.dims), at(batch.dims.size()), a(a), b(b), c(c) {
      for (size_t d = dims.size(); d-- > 0;) {
        at[d] = index % dims[d].extent;
        index /= dims[d].extent;
        move(dims[d], at[d]);
      }
    }
    void advance() {
      for (size_t d = dims.size(); d-- > 0;) {
        if (++at[d] < dims[d].extent) return move(dims[d], 1);
        move(dims[d], 1 - at[d]);
        at[d] = 0;
      }
    }

   private:
    void move(const Dim& dim, int64_t steps) {
      a += steps * dim.a;
      b += steps * dim.b;
      c += steps * dim.c;
    }
  };
};

bool invalid_gemm(const char* message);  // sets a ValueError; false

}  // namespace weft
