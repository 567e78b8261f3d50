// A matrix of contiguous columns by a vector, read in strips across all columns, as kernels of matrix products.
//
// A strip is some vectors of rows. In strips of lanes columns are read lane by lane, as the tree of lanes adds them, so that
// most of what waits for the tree is in registers. Nothing is fetched ahead: lines from the second and the third cache
// come soon enough by themselves on the processors that this is for (Zen 4); those from memory take twice as long so.
#pragma once

#include "gemm_few_columns.h"
#include "gemm_kernels.h"
#include "gemm_lanes.h"
#include "gemm_rows.h"

namespace weft {
namespace {

constexpr int kStrip = 8;  // vectors: of fewer much of what is fetched for the next strip is fetched again

// Functions of a strip of as many whole vectors as their index and one, or whose last one has `last` lanes.
struct StripFunctions {
  using Function = void (*)(const GemmVector& work, int64_t row, int last);
  Function whole[kStrip], masked[kStrip];
};

template <class E>
inline void each_strip(const GemmVector& work, const StripFunctions& functions) {
  each_tile(work, kStrip * E::W, [&](const GemmVector&, int64_t row, int64_t rows) {
    const int vectors = int((rows - 1) / E::W), last = int(rows - vectors * E::W);
    (last < E::W ? functions.masked : functions.whole)[vectors](work, row, last);
  });
}

template <class E, int vectors, bool masked>
inline __attribute__((always_inline)) void put_strip(const GemmVector& work, int64_t row, int last,
                                                     const typename E::V (&sums)[vectors]) {
  using T = typename E::T;
  T* y = reinterpret_cast<T*>(work.y) + row * work.y_row;
  if (work.y_row == 1) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      T* to = y + v * E::W;
      if (masked && v == vectors - 1) E::store(to, work.add ? E::load(to, last) + sums[v] : sums[v], last);
      else E::store(to, work.add ? E::load(to) + sums[v] : sums[v]);
    }
    return;
  }
  T each[vectors * E::W];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) E::store(each + v * E::W, sums[v]);
  put(y, work.y_row, each, (vectors - 1) * E::W + last, work.add);
}

#if defined(__AVX512F__)
constexpr int64_t kShallowStrip = 128;              // columns: up to so many, strips are faster wherever columns begin
constexpr int64_t kCrossingStripBytes = 256 << 10;  // bytes of a deeper matrix whose columns begin within cache lines

template <class E, int count>
struct Strip {
  typename E::V vectors[count];
};

// The sums of lane `lane` and every further one kLanes / `lanes` apart, added as a tree. Of the last vector `last` lanes
// are there if it is masked.
template <class E, int vectors, int lanes, bool masked>
inline __attribute__((always_inline)) Strip<E, vectors> sum_of_lanes(const GemmVector& work, const typename E::T* rows, int64_t lane,
                                                            int last) {
  using T = typename E::T;
  Strip<E, vectors> strip;
  if constexpr (lanes == 1) {
    typename E::Sum sums[vectors] = {};
    const T* a = rows + lane * work.a_k;
    const T* x = reinterpret_cast<const T*>(work.x) + lane * work.x_k;
    for (int64_t k = lane; k < work.k; k += kLanes<E>, a += kLanes<E> * work.a_k, x += kLanes<E> * work.x_k) {
      const typename E::Factor factor = E::splat(*x);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        const T* from = a + v * E::W;
        sums[v] = E::fma(factor, masked && v == vectors - 1 ? E::load(from, last) : E::load(from), sums[v]);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) strip.vectors[v] = E::total(sums[v]);
  } else {
    const Strip<E, vectors> low = sum_of_lanes<E, vectors, lanes / 2, masked>(work, rows, lane, last);
    const Strip<E, vectors> high = sum_of_lanes<E, vectors, lanes / 2, masked>(work, rows, lane + kLanes<E> / lanes, last);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) strip.vectors[v] = low.vectors[v] + high.vectors[v];
  }
  return strip;
}

template <class E, int vectors, bool masked>
void strip_of_lanes(const GemmVector& work, int64_t row, int last) {
  const typename E::T* rows = reinterpret_cast<const typename E::T*>(work.a) + row;
  put_strip<E, vectors, masked>(work, row, last, sum_of_lanes<E, vectors, kLanes<E>, masked>(work, rows, 0, last).vectors);
}

template <class E, int... i>
inline void all_strips_of_lanes(const GemmVector& work, Indices<i...>) {
  static constexpr StripFunctions functions = {{strip_of_lanes<E, i + 1, false>...}, {strip_of_lanes<E, i + 1, true>...}};
  each_strip<E>(work, functions);
}

// Whether this is the way to read a, which the third cache holds. Up to a term of each lane, or two complex ones, columns
// side by side are faster, unless they share sets of the first cache; and so are whole tiles of real columns whose
// vectors would cross lines all the time.
template <class E>
inline bool worth_strips_of_lanes(const GemmVector& work) {
  if (!work.in_strips) return false;
  const int64_t pitch = work.a_k * int64_t(sizeof(typename E::T));
  if (work.k <= kLanes<E> * E::kParts) return E::kParts == 1 && pitch % kAliasingPitch == 0;
  const bool crossing = pitch % kVectorBytes != 0;
  return E::kParts > 1 || !crossing || work.k <= kShallowStrip || work.k * pitch <= kCrossingStripBytes;
}

#endif

}  // namespace
}  // namespace weft
