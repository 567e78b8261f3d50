// A matrix of contiguous rows by a vector, as kernels of matrix products: each element of the result is the sum of a row.
#pragma once

#include "gemm_kernels.h"
#include "gemm_lanes.h"

namespace weft {
namespace {

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Partial sums that a row is added up in, and the vectors that hold them.
template <class E>
constexpr int kLanes = kGemmLaneBytes / int(sizeof(typename E::T));
template <class E>
constexpr int kFolds = kLanes<E> / E::W;

// Of two vectors that hold a row in every g lanes: one that holds a row in every g / 2, lane l added to lane l + g / 2.
template <class E, int g, int... i>
inline typename E::V fold_pair(typename E::V a, typename E::V b, Indices<i...>) {
  constexpr int h = g / 2;
  return E::shuffled(a, b, Indices<(i / h * g + i % h)...>{}) + E::shuffled(a, b, Indices<(i / h * g + h + i % h)...>{});
}

// Lane r of the result is the fold of rows[r].
template <class E, int g>
inline typename E::V fold_together(typename E::V (&rows)[E::W]) {
  if constexpr (g == 1) {
    return rows[0];
  } else {
#pragma GCC unroll 8
    for (int r = 0; r < g / 2; ++r)
      rows[r] = fold_pair<E, g>(rows[2 * r], rows[2 * r + 1], typename MakeIndices<E::W>::Type{});
    return fold_together<E, g / 2>(rows);
  }
}

// terms of a row: in longer ones the fold is a small part, and many long rows are too many streams
constexpr int64_t kFoldedDepth = 256;

template <class T>
inline void put(T* y, int64_t y_row, const T* sums, int64_t count, bool add) {
  for (int64_t i = 0; i < count; ++i) y[i * y_row] = add ? y[i * y_row] + sums[i] : sums[i];
}

// vectors fetched ahead, in rows that cross cache lines or come from the third cache; it makes others slower
constexpr int kVectorsAhead = 4;

// The first n elements of a vector, n known at compile time: no masked store, which AVX2 has in microcode only.
template <class E, int n>
inline void store_first(typename E::T* p, typename E::V v) {
  if constexpr (n == E::W) {
    E::store(p, v);
  } else {
    typename E::T each[E::W];
    E::store(each, v);
    std::memcpy(p, each, n * sizeof(typename E::T));
  }
}

// The sums of the lanes of `count` rows of elements S, which are contiguous along k, as x is.
template <class E, class S, int count, bool fetch>
inline void lanes_of_rows(const GemmVector& work, const typename E::T* x, int64_t row, typename E::V* rows) {
  const S* a = reinterpret_cast<const S*>(work.a) + row * work.a_row;
  typename E::Sum sums[count][kFolds<E>] = {};
  int64_t k = 0;
  for (; k + kLanes<E> <= work.k; k += kLanes<E>)
    for (int v = 0; v < kFolds<E>; ++v) {
      const typename E::Factor factor = E::factor(E::load(x + k + v * E::W));
      const S* from = a + k + v * E::W;
#pragma GCC unroll 16
      for (int r = 0; r < count; ++r) {
        sums[r][v] = E::fma(factor, E::widen(from, E::W), sums[r][v]);
        if (fetch) __builtin_prefetch(from + kVectorsAhead * E::W);
        from += work.a_row;
      }
    }
  for (int v = 0; v < kFolds<E> && k + v * E::W < work.k; ++v) {
    const int n = int(least(E::W, work.k - k - v * E::W));
    const typename E::Factor factor = E::factor(E::load(x + k + v * E::W, n));
    for (int r = 0; r < count; ++r)
      sums[r][v] = E::keep(E::fma(factor, E::widen(a + r * work.a_row + k + v * E::W, n), sums[r][v]), sums[r][v], n);
  }
#pragma GCC unroll 16
  for (int r = 0; r < count; ++r) {
    typename E::V totals[kFolds<E>];
    for (int v = 0; v < kFolds<E>; ++v) totals[v] = E::paired_total(sums[r][v]);
    for (int width = kFolds<E> / 2; width > 0; width /= 2)
      for (int v = 0; v < width; ++v) totals[v] = totals[v] + totals[v + width];
    rows[r] = totals[0];
  }
}

// `all` rows; registers hold `count` of them at a time, and their lanes are folded together.
template <class E, class S, int count, int all, bool fetch>
inline void vector_rows(const GemmVector& work, const typename E::T* x, int64_t row) {
  using T = typename E::T;
  T* y = reinterpret_cast<T*>(work.y) + row * work.y_row;
  typename E::V rows[E::W];
#pragma GCC unroll 8
  for (int r = 0; r < all; r += count) lanes_of_rows<E, S, count, fetch>(work, x, row + r, rows + r);
#pragma GCC unroll 16
  for (int r = all; r < E::W; ++r) rows[r] = rows[r % all];  // again, what nobody reads
  const typename E::V total = fold_together<E, E::W>(rows);
  if (work.y_row == 1 && !work.add) return store_first<E, all>(y, total);
  T each[E::W];
  E::store(each, total);
  put(y, work.y_row, each, all, work.add);
}

#if defined(__AVX512F__)
// W rows of at most `lanes` elements, as many in a vector as there is room for. Their other lanes are sums of nothing, and
// what adding these would do, a sum of -0 becoming +0, is done once at the end.
template <class E, int lanes, bool all, int... i>
inline void short_rows(const GemmVector& work, const typename E::T* x, int64_t row, const typename E::Spread& spread,
                       Indices<i...>) {
  using T = typename E::T;
  constexpr int in_vector = E::W / lanes;
  const T* a = reinterpret_cast<const T*>(work.a) + row * work.a_row;
  T* y = reinterpret_cast<T*>(work.y) + row * work.y_row;
  const int k = int(work.k);
  const int count = all ? E::W : int(work.rows - row);
  const bool contiguous = work.a_row == k;
  const typename E::V once = E::load(x, k);
  const typename E::Factor factor = E::factor(E::shuffled(once, once, Indices<(i % lanes)...>{}));
  typename E::V rows[E::W];
#pragma GCC unroll 8
  for (int v = 0; v < lanes; ++v) {
    typename E::V elements{};
    const int left = all ? in_vector : int(least(in_vector, count - v * in_vector));  // of them in this vector
    if (!all && left <= 0) {
    } else if (all && contiguous && k == lanes) {
      elements = E::load(a + v * E::W);
    } else if (contiguous) {
      const T* from = a + v * in_vector * k;
      const bool followed = all && v < lanes - 1;  // by the rows of another vector, which are more than half of one
      elements = E::spread(followed ? E::load(from) : E::load(from, left * k), spread);
    } else {
#pragma GCC unroll 16
      for (int r = 0; r < in_vector; ++r)
        if (all || r < left) elements = E::load_at(elements, a + (v * in_vector + r) * work.a_row, r * lanes, k);
    }
    rows[v] = E::paired_total(E::fma(factor, elements, typename E::Sum{}));
  }
  const typename E::V total = fold_together<E, lanes>(rows) + typename E::V{};
  if (work.y_row == 1 && all) return E::store(y, work.add ? E::load(y) + total : total);
  if (work.y_row == 1) return E::store(y, work.add ? E::load(y, count) + total : total, count);
  T each[E::W];
  E::store(each, total);
  put(y, work.y_row, each, count, work.add);
}

template <class E, int lanes>
inline void all_short_rows(const GemmVector& work, const typename E::T* x) {
  if constexpr (lanes > 1)
    if (work.k <= lanes / 2) return all_short_rows<E, lanes / 2>(work, x);
  constexpr typename MakeIndices<E::W>::Type indices;
  const typename E::Spread spread = E::spread_of(int(work.k), lanes);
  int64_t row = 0;
  for (; row + E::W <= work.rows; row += E::W) short_rows<E, lanes, true>(work, x, row, spread, indices);
  if (row < work.rows) short_rows<E, lanes, false>(work, x, row, spread, indices);
}
#endif

// All rows from `row` on, as many at once as are left, at most `all`.
template <class E, class S, int count, int all, bool fetch>
inline void all_rows(const GemmVector& work, const typename E::T* x, int64_t row) {
  constexpr int held = count < all ? count : all;
  for (; row + all <= work.rows; row += all) vector_rows<E, S, held, all, fetch>(work, x, row);
  if constexpr (all > 1) all_rows<E, S, count, all / 2, fetch>(work, x, row);
}

template <class E, class S, int count>
inline void all_rows(const GemmVector& work, const typename E::T* x) {
  const int64_t bytes = work.a_row * int64_t(sizeof(S));
  const bool crossing = bytes % kVectorBytes != 0 && work.rows * bytes > kNearBytes;
  if (crossing || work.far) all_rows<E, S, count, E::W, true>(work, x, 0);
  else all_rows<E, S, count, E::W, false>(work, x, 0);
}

// The vector's elements S as those of the sums, in the scratch, side by side.
template <class E, class S>
inline const typename E::T* widened_factors(const GemmVector& work) {
  typename E::T* copy = reinterpret_cast<typename E::T*>(work.scratch);
  const S* x = reinterpret_cast<const S*>(work.x);
  int64_t k = 0;
  if (work.x_k == 1)
    for (; k + E::W <= work.k; k += E::W) E::store(copy + k, E::widen(x + k, E::W));
  for (; k < work.k; ++k) E::store(copy + k, E::widen(x + k * work.x_k, 1), 1);
  return copy;
}

constexpr int kShortRow = 64;  // elements of narrower rows, up to which their last vectors are a large part

template <class E, class S>
void multiply_widened_rows(const GemmVector& work);

template <class E, class S>
inline void multiply_rows(const GemmVector& work) {
  using T = typename E::T;
  constexpr bool widened = sizeof(S) != sizeof(T);
  if constexpr (widened)
    if (work.k <= kShortRow && work.k % E::W != 0 && work.a_row == work.k) return multiply_widened_rows<E, S>(work);
  const T* x = reinterpret_cast<const T*>(work.x);
  if (work.x_k != 1 || widened) x = widened_factors<E, S>(work);
  // registers that sums may take
  constexpr int kFree = (kVectorBytes == 32 ? 8 : 16) / (E::kParts * kFolds<E>), kRows = kFree < E::W ? kFree : E::W;
#if defined(__AVX512F__)
  if constexpr (!widened)
    if (work.k <= E::W / 2) return all_short_rows<E, E::W / 2>(work, x);
#endif
  if (work.k <= kFoldedDepth) all_rows<E, S, kRows>(work, x);
  else all_rows<E, S, (kRows < 8 ? kRows : 8)>(work, x);
}

// Short rows that follow each other in memory: whole vectors of them are widened at a time, then multiplied.
template <class E, class S>
void multiply_widened_rows(const GemmVector& work) {
  using T = typename E::T;
  constexpr int64_t room = 32 * kShortRow;
  alignas(64) T rows[room];
  GemmVector part = work;
  part.x = reinterpret_cast<const char*>(widened_factors<E, S>(work));
  part.x_k = 1;
  part.a = reinterpret_cast<const char*>(rows);
  const S* from = reinterpret_cast<const S*>(work.a);
  const int64_t most = room / work.k / E::W * E::W;
  for (int64_t row = 0; row < work.rows; row += most) {
    part.rows = least(most, work.rows - row);
    part.y = work.y + row * work.y_row * int64_t(sizeof(T));
    const int64_t count = part.rows * work.k;
    int64_t i = 0;
    for (; i + E::W <= count; i += E::W) E::store(rows + i, E::widen(from + row * work.k + i, E::W));
    if (i < count) E::store(rows + i, E::widen(from + row * work.k + i, int(count - i)), int(count - i));
    multiply_rows<E, T>(part);
  }
}

}  // namespace
}  // namespace weft
