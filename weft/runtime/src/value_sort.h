// Sorts of values alone, without positions: rows of one array into another, of any length, along any axis.
#pragma once

#include <cstdint>

#include "numpy_api.h"
#include "plan.h"

namespace weft {

// How elements are ordered by their bits.
struct ValueOrder {
  char order;  // u(nsigned), i(nteger) or f(loat)
  int bytes;   // 1, 2, 4 or 8
  uint64_t infinity;
  PyArray_SortFunc* numbers;  // NumPy's: of the numbers, or, where it has none of such floats, of unsigned integers
};

// GIL held.
ValueOrder value_order(char order, int bytes, uint64_t infinity);

struct SortedRows {
  const char* from;
  char* to;  // as `from`, or apart from it
  int64_t rows, n;
  int64_t inner;  // rows side by side: elements of a row are so far apart
};

// Sorts rows: numbers ascend, zeros and NaN keep their order among themselves, NaN is last. An interrupt of the task
// with this number is seen every tenth of a second. No GIL needed.
Status sort_values(const ValueOrder& order, const SortedRows& rows, uint64_t number);

double sort_values_cost_ns(int64_t rows, int64_t n);

}  // namespace weft
