// A matrix of contiguous columns by a vector, as kernels of matrix products: columns are added up, times their factors.
#pragma once

#include "gemm_few_columns.h"
#include "gemm_kernels.h"
#include "gemm_lanes.h"
#include "gemm_rows.h"
#include "gemm_strips.h"

namespace weft {
namespace {

constexpr int kStepsAhead = 4;

// Lanes whose sums grow together in `vectors` vectors each: one chain of additions alone is as slow as an addition.
template <class E>
constexpr int lanes_together(int vectors) {
  int lanes = kLanes<E>;
  while (lanes > 1 && lanes * vectors * E::kParts > (kVectorBytes == 32 ? 8 : 16)) lanes /= 2;
  return lanes;
}

// sums[j][v] += the products of columns k + j d, k + j d + kLanes, ... before `end` and their factors, d = kLanes / together,
// in vectors along rows; of the last one `last` lanes are there. a and x point at column k, their steps are those of d.
template <class E, class S, int together, int vectors, bool masked>
inline __attribute__((always_inline)) void add_columns(typename E::Sum (&sums)[together][vectors], const S* a,
                                                       int64_t a_step, const typename E::T* x, int64_t x_step,
                                                       int64_t k, int64_t end, int last) {
  const auto add = [&](int lane) __attribute__((always_inline)) {
    const typename E::Factor factor = E::splat(*x);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const S* from = a + v * E::W;
      if (vectors > 1) __builtin_prefetch(from + kStepsAhead * a_step);  // a tenth: rows cross lines, and are far apart
      sums[lane][v] = E::fma(factor, E::widen(from, masked && v == vectors - 1 ? last : E::W), sums[lane][v]);
    }
    a += a_step;
    x += x_step;
  };
  constexpr int distance = kLanes<E> / together;
  for (; k + kLanes<E> - distance < end; k += kLanes<E>)
#pragma GCC unroll 16
    for (int lane = 0; lane < together; ++lane) add(lane);
#pragma GCC unroll 16
  for (int lane = 0; lane < together - 1; ++lane)
    if (k + lane * distance < end) add(lane);
}

// Rows along lanes of vectors, for a contiguous along its columns: their sums stay in registers.
template <class E, class S, int vectors, bool masked>
inline void vector_strip(const GemmVector& work, int64_t row, int last) {
  using T = typename E::T;
  constexpr int together = lanes_together<E>(vectors), distance = kLanes<E> / together;
  const S* a = reinterpret_cast<const S*>(work.a) + row;
  const T* x = reinterpret_cast<const T*>(work.x);
  const int64_t a_step = distance * work.a_k, x_step = distance * work.x_k;
  typename E::V waiting[kTreeLevels][vectors], totals[vectors];
  for (int i = 0, first = 0; i < distance; ++i, first = lane_after<distance>(first)) {
    typename E::Sum sums[together][vectors] = {};
    add_columns<E, S, together, vectors, masked>(sums, a + first * work.a_k, a_step, x + first * work.x_k, x_step, first,
                                              work.k, last);
    typename E::V lanes[together][vectors];
#pragma GCC unroll 16
    for (int lane = 0; lane < together; ++lane)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) lanes[lane][v] = E::total(sums[lane][v]);
#pragma GCC unroll 4
    for (int width = together / 2; width > 0; width /= 2)
#pragma GCC unroll 8
      for (int lane = 0; lane < width; ++lane)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) lanes[lane][v] = lanes[lane][v] + lanes[lane + width][v];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) totals[v] = lanes[0][v];
    if constexpr (distance > 1) {
      const int levels = waiting_levels(i);
      for (int level = 0; level < levels; ++level)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) totals[v] = waiting[level][v] + totals[v];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) waiting[levels][v] = totals[v];
    }
  }
  put_strip<E, vectors, masked>(work, row, last, totals);
}

template <class E, class S, int... i>
inline void all_fetched_strips(const GemmVector& work, Indices<i...>) {
  static constexpr StripFunctions functions = {{vector_strip<E, S, i + 1, false>...}, {vector_strip<E, S, i + 1, true>...}};
  each_strip<E>(work, functions);
}

// Columns with the sums of all lanes in memory, so that a is read as it lies. The columns of one lane are whole cache
// lines apart: its sums begin as far from a line as they do, so that all but the ends of columns is read aligned.

// Columns side by side, whose factors stay in registers: each sum is read and written once for them.
template <class E>
constexpr int kColumnsOfLane = kVectorBytes == 32 ? 8 / E::kParts : E::kParts == 1 ? 16 : 14;

// Those from the third cache that share sets of the first one: fewer streams.
constexpr int kFarColumns = 8;

constexpr int kLaneAhead = 8;  // vectors of complex columns, 4 % of what the third cache holds: its prefetching ends with a page

// Where the sums of a lane are, and how many rows come before its first aligned one.
template <class E>
struct LaneSums {
  typename E::T* sums;
  int64_t apart;
  int before;
};

// Adds the products of `deep` columns, a_step apart, and their factors, x_step apart, to the sums of their lane, or to 0.
template <class E, int deep>
void add_to_lane(const LaneSums<E>& lane, const typename E::T* a, int64_t a_step, const typename E::T* x, int64_t x_step,
                 int64_t rows, bool first) {
  typename E::Factor factors[deep + 1];
#pragma GCC unroll 16
  for (int d = 0; d < deep; ++d) factors[d] = E::splat(x[d * x_step]);
  const auto add = [&](int64_t row, auto... n) __attribute__((always_inline)) {
    typename E::Sum sum{};
    if (!first) sum = E::load_sum(lane.sums + row, lane.apart, n...);
#pragma GCC unroll 16
    for (int d = 0; d < deep; ++d) {
      const typename E::T* from = a + d * a_step + row;
      if (E::kParts > 1) __builtin_prefetch(from + kLaneAhead * E::W);
      sum = E::fma(factors[d], E::load(from, n...), sum);
    }
    E::store_sum(lane.sums + row, lane.apart, sum, n...);
  };
  int64_t row = least(lane.before, rows);
  if (row > 0) add(0, int(row));
  for (; row + E::W <= rows; row += E::W) add(row);
  if (row < rows) add(row, int(rows - row));
}

template <class E, int... deep>
inline void add_columns_of_lane(int64_t count, const LaneSums<E>& lane, const typename E::T* a, int64_t a_step,
                                const typename E::T* x, int64_t x_step, int64_t rows, bool first, Indices<deep...>) {
  static constexpr decltype(&add_to_lane<E, 0>) functions[] = {add_to_lane<E, deep>...};
  functions[count](lane, a, a_step, x, x_step, rows, first);
}

template <class E>
inline void vector_columns(const GemmVector& work, int64_t row, int64_t rows) {
  using T = typename E::T;
  constexpr int lanes = kLanes<E>, most = kColumnsOfLane<E>;
  const T* a = reinterpret_cast<const T*>(work.a) + row;
  const T* x = reinterpret_cast<const T*>(work.x);
  T* y = reinterpret_cast<T*>(work.y) + row * work.y_row;
  const int64_t apart = (rows + E::W - 1) / E::W * E::W + E::W;
  LaneSums<E> lane[lanes];
  for (int l = 0; l < lanes; ++l) {
    const int64_t after = int64_t(reinterpret_cast<uintptr_t>(a + l * work.a_k) % kVectorBytes / sizeof(T));
    lane[l] = {reinterpret_cast<T*>(work.scratch) + l * E::kParts * apart + after, apart, int((E::W - after) % E::W)};
  }
  const bool aliased = lanes * work.a_k * int64_t(sizeof(T)) % kAliasingPitch == 0;
  const int64_t together = work.far && aliased ? least(most, kFarColumns) : most;
  const int64_t passes = (work.k + lanes * together - 1) / (lanes * together);
  const auto add = [&](int64_t pass, int l) {
    const int64_t columns = (work.k - l + lanes - 1) / lanes, begin = columns * pass / passes, k = begin * lanes + l;
    add_columns_of_lane(columns * (pass + 1) / passes - begin, lane[l], a + k * work.a_k, lanes * work.a_k,
                        x + k * work.x_k, lanes * work.x_k, rows, pass == 0, typename MakeIndices<most + 1>::Type{});
  };
  if (work.by_chain) {
    for (int i = 0; i < lanes; ++i)
      for (int64_t pass = 0; pass < passes; ++pass) add(pass, work.backwards ? lanes - 1 - i : i);
  } else {
    for (int64_t pass = 0; pass < passes; ++pass)
      for (int l = 0; l < lanes; ++l) add(pass, l);
  }
  for (row = 0; row < rows; row += E::W) {
    typename E::V totals[lanes];
#pragma GCC unroll 16
    for (int l = 0; l < lanes; ++l) totals[l] = E::total(E::load_sum(lane[l].sums + row, apart));
#pragma GCC unroll 4
    for (int width = lanes / 2; width > 0; width /= 2)
#pragma GCC unroll 8
      for (int l = 0; l < width; ++l) totals[l] = totals[l] + totals[l + width];
    T each[E::W];
    E::store(each, totals[0]);
    put(y + row * work.y_row, work.y_row, each, least(E::W, rows - row), work.add);
  }
}

// Vector v of such columns: the factor of each of its lanes, of the kLanes that begin at x.
template <class E, int rows, int v, int... i>
inline typename E::Factor factors_of(const typename E::T* x, Indices<i...>) {
  constexpr int begin = v * E::W / rows, most = kLanes<E> - E::W, first = begin < most ? begin : most;
  const typename E::V near = E::load(x + first);
  return E::factors(near, near, Indices<((v * E::W + i) / rows - first)...>{});
}

// The columns of a few rows, which follow each other in memory, as whole vectors: `rows` of them are kLanes columns.
template <class E, int rows, int... v>
inline void narrow_columns(const GemmVector& work, Indices<v...>) {
  using T = typename E::T;
  constexpr int vectors = rows * kFolds<E>;
  constexpr typename MakeIndices<E::W>::Type lanes;
  const T* a = reinterpret_cast<const T*>(work.a);
  const T* x = reinterpret_cast<const T*>(work.x);
  typename E::Sum sums[vectors] = {};
  int64_t k = 0;
  for (; k + kLanes<E> <= work.k; k += kLanes<E>) {
    ((sums[v] = E::fma(factors_of<E, rows, v>(x + k, lanes), E::load(a + k * rows + v * E::W), sums[v])), ...);
  }
  T each[vectors * E::W], terms[vectors * E::W] = {}, last[kLanes<E>] = {};
  const int left = int(work.k - k);
  for (int i = 0; i < left * rows; ++i) terms[i] = a[k * rows + i];
  for (int i = 0; i < left; ++i) last[i] = x[k + i];
  const auto add_last = [&](int vector, typename E::Factor factor) {
    const int n = int(least(E::W, left * rows - vector * E::W));
    if (n <= 0) return;
    sums[vector] = E::keep(E::fma(factor, E::load(terms + vector * E::W), sums[vector]), sums[vector], n);
  };
  (add_last(v, factors_of<E, rows, v>(last, lanes)), ...);
  (E::store(each + v * E::W, E::total(sums[v])), ...);
  for (int width = kLanes<E> / 2; width > 0; width /= 2)
    for (int i = 0; i < width * rows; ++i) each[i] = each[i] + each[i + width * rows];
  put(reinterpret_cast<T*>(work.y), work.y_row, each, rows, work.add);
}

constexpr int64_t kNarrowDepth = 64;  // terms: with fewer, the sum of the lanes is the larger part

// Whether a has so few rows, 1 to `rows`, that they were multiplied as a whole.
template <class E, int rows>
inline bool all_narrow_columns(const GemmVector& work) {
  if constexpr (rows > 0) {
    if (work.rows != rows) return all_narrow_columns<E, rows - 1>(work);
    narrow_columns<E, rows>(work, typename MakeIndices<rows * kFolds<E>>::Type{});
    return true;
  }
  return false;
}

#if defined(__AVX512F__)
constexpr int kMostGrouped = 64;            // rows of a matrix that is read in groups of kLanes columns
constexpr int64_t kGroupedDepth = 256;      // terms from which on the sum of the lanes is a small part
constexpr int64_t kGroupedBytes = 3 << 19;  // bytes that are read several times, from the second cache
constexpr int kStripLines = 4;              // whole cache lines of a column, beyond which strips are as fast

// Vectors `begin` to `begin` + `vectors` of each such group: they are aligned if a is, and each of their lanes has its row.
template <class E, int vectors>
void grouped_columns(const GemmVector& work, const typename E::Order* orders, const typename E::T* terms,
                     const typename E::T* factors, int begin, typename E::T* each) {
  using T = typename E::T;
  const T* a = reinterpret_cast<const T*>(work.a) + begin * E::W;
  const T* x = reinterpret_cast<const T*>(work.x);
  typename E::Sum sums[vectors] = {};
  const int64_t step = work.rows * kLanes<E>;
  for (int64_t groups = work.k / kLanes<E>; groups > 0; --groups, a += step, x += kLanes<E>) {
    const typename E::Factor near = E::factor_parts(E::load(x));
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) sums[v] = E::fma(E::ordered(near, orders[begin + v]), E::load(a + v * E::W), sums[v]);
  }
  const int64_t left = work.k % kLanes<E> * work.rows - begin * E::W;
  const typename E::Factor near = E::factor_parts(E::load(factors));
  for (int v = 0; v < vectors; ++v) {
    const int n = int(least(E::W, left - v * E::W));
    const typename E::V last = E::load(terms + (begin + v) * E::W);
    if (n > 0) sums[v] = E::keep(E::fma(E::ordered(near, orders[begin + v]), last, sums[v]), sums[v], n);
    E::store(each + (begin + v) * E::W, E::total(sums[v]));
  }
}

template <class E>
inline bool worth_grouping(const GemmVector& work) {
  const int64_t bytes = work.rows * int64_t(sizeof(typename E::T));
  if (work.k < kGroupedDepth || work.rows > kMostGrouped || work.k * bytes > kGroupedBytes) return false;
  return bytes % kVectorBytes != 0 || (E::kParts == 1 && bytes <= kStripLines * kVectorBytes);
}

template <class E, int... i>
inline void all_grouped_columns(const GemmVector& work, Indices<i...>) {
  using T = typename E::T;
  constexpr int most = sizeof...(i);
  static constexpr decltype(&grouped_columns<E, 1>) functions[] = {grouped_columns<E, i + 1>...};
  alignas(64) T each[kMostGrouped * E::W], terms[kMostGrouped * E::W] = {}, factors[kLanes<E>] = {};
  alignas(64) typename E::Order orders[kMostGrouped];
  const int rows = int(work.rows), chunks = (rows + most - 1) / most, left = int(work.k % kLanes<E>);
  E::order_by(rows, orders);
  std::memcpy(terms, reinterpret_cast<const T*>(work.a) + (work.k - left) * rows, size_t(left * rows) * sizeof(T));
  std::memcpy(factors, reinterpret_cast<const T*>(work.x) + work.k - left, size_t(left) * sizeof(T));
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
    functions[end - begin - 1](work, orders, terms, factors, begin, each);
  }
  for (int width = kLanes<E> / 2; width > 0; width /= 2)
    for (int j = 0; j < width * rows; ++j) each[j] = each[j] + each[j + width * rows];
  put(reinterpret_cast<T*>(work.y), work.y_row, each, rows, work.add);
}
#endif

template <class E>
inline void multiply_columns(const GemmVector& work) {
  constexpr int narrow = 8 / (E::kParts * kFolds<E>);
  constexpr typename MakeIndices<kStrip>::Type strips;
  const bool whole = work.a_k == work.rows && work.x_k == 1;
  if (whole && work.k >= kNarrowDepth && all_narrow_columns<E, narrow>(work)) return;
#if defined(__AVX512F__)
  if (whole && worth_grouping<E>(work))
    return all_grouped_columns<E>(work, typename MakeIndices<(E::kParts == 1 ? 16 : 10)>::Type{});
  if (worth_strips_of_lanes<E>(work)) return all_strips_of_lanes<E>(work, strips);
#endif
  if (all_few_columns<E>(work)) return;
  if (work.tile > 0) return each_tile(work, work.tile, vector_columns<E>);
  all_fetched_strips<E, typename E::T>(work, strips);
}

// Matrices of elements S that are narrower than their sums.
template <class E, class S>
inline void multiply_widened_columns(const GemmVector& work) {
  GemmVector widened = work;
  widened.x = reinterpret_cast<const char*>(widened_factors<E, S>(work));
  widened.x_k = 1;
  all_fetched_strips<E, S>(widened, typename MakeIndices<kStrip>::Type{});
}

}  // namespace
}  // namespace weft
