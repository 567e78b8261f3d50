// A matrix of contiguous columns by a vector, read in strips across all columns, as kernels of matrix products.
//
// A strip is some vectors of rows. Its columns are read lane by lane, in the order in which the tree of lanes adds them, so
// that most of what waits for the tree is in registers. Nothing is fetched ahead: lines from the second and the third cache
// come soon enough by themselves on the processors that this is for (Zen 4); those from memory do not, see gemm_pace.h.
#pragma once

#include "gemm_few_columns.h"
#include "gemm_kernels.h"
#include "gemm_lanes.h"
#include "gemm_rows.h"

#if defined(__AVX512F__)
namespace weft {
namespace {

constexpr int kStripVectors = 8;  // fewer leave much of what is fetched for the next strip to be fetched again
constexpr int64_t kShallowStrip = 128;              // columns, of which strips are faster wherever they begin
constexpr int64_t kCrossingStripBytes = 256 << 10;  // of a deeper matrix whose columns begin within cache lines

template <class E>
struct Strip {
  typename E::V vectors[kStripVectors];
};

// The sums of lane `lane` and every further one kLanes / `lanes` apart, added as a tree. Of the last vector `last` lanes
// are there if it is masked.
template <class E, int vectors, int lanes, bool masked>
inline __attribute__((always_inline)) Strip<E> sum_of_lanes(const GemmVector& work, const typename E::T* rows, int64_t lane,
                                                            int last) {
  using T = typename E::T;
  Strip<E> strip;
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
    const Strip<E> low = sum_of_lanes<E, vectors, lanes / 2, masked>(work, rows, lane, last);
    const Strip<E> high = sum_of_lanes<E, vectors, lanes / 2, masked>(work, rows, lane + kLanes<E> / lanes, last);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) strip.vectors[v] = low.vectors[v] + high.vectors[v];
  }
  return strip;
}

template <class E, int vectors, bool masked>
void strip_of_lanes(const GemmVector& work, int64_t row, int last) {
  using T = typename E::T;
  const T* rows = reinterpret_cast<const T*>(work.a) + row;
  T* y = reinterpret_cast<T*>(work.y) + row * work.y_row;
  const Strip<E> strip = sum_of_lanes<E, vectors, kLanes<E>, masked>(work, rows, 0, last);
  if (work.y_row == 1) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      T* to = y + v * E::W;
      if (masked && v == vectors - 1) E::store(to, work.add ? E::load(to, last) + strip.vectors[v] : strip.vectors[v], last);
      else E::store(to, work.add ? E::load(to) + strip.vectors[v] : strip.vectors[v]);
    }
    return;
  }
  T each[vectors * E::W];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) E::store(each + v * E::W, strip.vectors[v]);
  put(y, work.y_row, each, (vectors - 1) * E::W + last, work.add);
}

template <class E, int... i>
inline void last_strip_of_lanes(const GemmVector& work, int64_t row, Indices<i...>) {
  using Function = void (*)(const GemmVector& work, int64_t row, int last);
  static constexpr Function whole[] = {strip_of_lanes<E, i + 1, false>...}, masked[] = {strip_of_lanes<E, i + 1, true>...};
  const int vectors = int((work.rows - row - 1) / E::W), last = int(work.rows - row - vectors * E::W);
  (last < E::W ? masked : whole)[vectors](work, row, last);
}

template <class E>
inline void all_strips_of_lanes(const GemmVector& work) {
  constexpr int64_t step = kStripVectors * E::W;
  const int64_t strips = (work.rows + step - 1) / step;
  for (int64_t i = 0; i < strips; ++i) {
    const int64_t row = (work.backwards ? strips - 1 - i : i) * step;
    if (row + step <= work.rows) strip_of_lanes<E, kStripVectors, false>(work, row, E::W);
    else last_strip_of_lanes<E>(work, row, typename MakeIndices<kStripVectors>::Type{});
  }
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

}  // namespace
}  // namespace weft
#endif
