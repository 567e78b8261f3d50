// Sorts of values alone, without positions: rows of one array into another, of any length, along any axis.
#pragma once

#include <cstdint>

#include "numpy_api.h"
#include "plan.h"

namespace weft {

// How the bits of elements are compared.
struct ValueOrder {
  char order;  // u(nsigned), i(nteger) or f(loat)
  int bytes;   // 1, 2, 4 or 8
  uint64_t infinity;
  // NumPy's sort of the numbers, or, for floats that NumPy cannot sort, of unsigned integers
  PyArray_SortFunc* numbers;
};

// GIL held.
ValueOrder value_order(char order, int bytes, uint64_t infinity);

struct SortedRows {
  const char* from;
  char* to;  // `from` itself, or memory that does not overlap it
  int64_t rows, n;
  int64_t inner;  // stride of the elements of a row, in elements
};

// Sorts rows: numbers ascend, NaN is last; zeros keep their order among themselves, and so do NaN. An interrupt of the
// task with this number is noticed every tenth of a second. No GIL needed.
Status sort_values(const ValueOrder& order, const SortedRows& rows, uint64_t number);

double sort_values_cost_ns(int64_t rows, int64_t n);

}  // namespace weft
