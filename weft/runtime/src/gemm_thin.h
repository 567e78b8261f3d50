// Products of few terms and at most a vector of columns, as kernels of matrix products: the right operand is in registers.
//
// A tile of such a product is done in tens of cycles, and most of these are spent on calling it and on waiting for its
// chains. Here one call multiplies all rows, and the chains of many of them are in flight.
#pragma once

#include "gemm_kernels.h"
#include "gemm_lanes.h"
#include "gemm_rows.h"

namespace weft {
namespace {

template <class E>
constexpr int kThinTerms = (kVectorBytes == 32 ? 8 : 16) / E::kParts;  // whose columns are held in registers

// Row by row, each stored as a whole vector where the rows after it follow in memory and are written after it.
template <class E, int terms>
void multiply_thin(const GemmTile& tile) {
  using T = typename E::T;
  const T* a = reinterpret_cast<const T*>(tile.a);
  const T* b = reinterpret_cast<const T*>(tile.b);
  T* c = reinterpret_cast<T*>(tile.c);
  const int n = tile.columns;
  typename E::V columns[terms];
#pragma GCC unroll 16
  for (int k = 0; k < terms; ++k)
    columns[k] = n == E::W || tile.b_padded ? E::load(b + k * tile.b_k) : E::load(b + k * tile.b_k, n);
  const int64_t a_row = tile.a_row, a_k = tile.a_k, c_row = tile.c_row;
  const auto sum = [&]() __attribute__((always_inline)) {
    typename E::Sum chain{};
#pragma GCC unroll 16
    for (int k = 0; k < terms; ++k) chain = E::fma(E::splat(a[k * a_k]), columns[k], chain);
    a += a_row;
    return E::total(chain);
  };
  const int64_t last = n == E::W ? 0 : c_row == n ? (E::W + n - 1) / n - 1 : tile.rows;  // rows that end what is written
  int64_t row = 0;
  for (; row < tile.rows - last; ++row, c += c_row) E::store(c, sum());
  for (; row < tile.rows; ++row, c += c_row) E::store(c, sum(), n);
}

template <class E, int... i>
struct Thin {
  static constexpr GemmTileFunction functions[] = {multiply_thin<E, i + 1>...};
};
template <class E, int... i>
constexpr const GemmTileFunction* thin_of(Indices<i...>) {
  return Thin<E, i...>::functions;
}

}  // namespace
}  // namespace weft
