// The kernels of matrix products as templates: register tiles, packing, matrix times vector. See gemm_kernels.h.
#pragma once

#include "gemm_kernels.h"
#include "gemm_lanes.h"

namespace weft {
namespace {

#if defined(__AVX512F__)
constexpr int kHeight = 14, kVectors = 2;  // 28 of 32 registers accumulate; every tile from 8 x 32 on reaches the peak
#elif defined(__AVX2__)
constexpr int kHeight = 6, kVectors = 2;  // 12 of 16
#else
constexpr int kHeight = 8, kVectors = 2;  // 16 of 32, four lanes
#endif
template <class E>
constexpr int kTileHeight = kHeight / E::kParts;
constexpr int kAhead = 16;  // steps of k by which packed columns are prefetched: 3 to 8 % of large products

constexpr int kRowVectors = 8;  // of a row that are fetched together
constexpr int kRowsAhead = 24;  // of an operand that is packed: its rows lie in different pages

constexpr int kRowsCarried = 16;  // ahead of which rows are fetched that are copied during tiles

enum class Mode { packed, strided, storing, carrying };

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Keeps the compiler from deriving a value from others, or others from it: what it would keep in registers instead.
template <class T>
inline void hide(T& value) {
  asm volatile("" : "+r"(value));
}

// Step k of rows of an operand: packed, or a stride apart. There one pointer serves four rows: with a pointer or an index
// for every row, more than there are registers, tiles of 13 and 14 rows took 12 % longer.
template <class T, int height, bool packed>
struct RowWalk {
  static constexpr int kRowsOfPointer = 4, kPointers = packed ? 1 : (height + kRowsOfPointer - 1) / kRowsOfPointer;
  const char* rows[kPointers];
  int64_t row, rows3, step;  // bytes

  RowWalk(const T* a, int64_t a_row, int64_t a_k)
      : row(a_row * int64_t(sizeof(T))), rows3(3 * row), step((packed ? height : a_k) * int64_t(sizeof(T))) {
#pragma GCC unroll 4
    for (int i = 0; i < kPointers; ++i) {
      rows[i] = reinterpret_cast<const char*>(a) + i * kRowsOfPointer * row;
      if (!packed) hide(rows[i]);
    }
    if (!packed) hide(rows3);
  }
  inline T operator[](int r) const {
    if constexpr (packed) return reinterpret_cast<const T*>(rows[0])[r];
    const int i = r % kRowsOfPointer;
    return *reinterpret_cast<const T*>(rows[r / kRowsOfPointer] + (i == 3 ? rows3 : i * row));
  }
  inline void advance() {
#pragma GCC unroll 4
    for (int i = 0; i < kPointers; ++i) {
      rows[i] += step;
      if (!packed) hide(rows[i]);
    }
  }
};

// Copies a row of the next columns and fetches a later one.
template <class E>
inline void carry_row(GemmCarry& carry) {
  using T = typename E::T;
  const T* row = reinterpret_cast<const T*>(carry.from);
  T* to = reinterpret_cast<T*>(carry.to);
#pragma GCC unroll 2
  for (int left = carry.columns; left > 0; left -= E::W, row += E::W, to += E::W) {
    __builtin_prefetch(reinterpret_cast<const char*>(row) + kRowsCarried * carry.step);
    E::store(to, left >= E::W ? E::load(row) : E::load(row, left));
  }
  carry.from += carry.step;
  carry.to = reinterpret_cast<char*>(to);
}

// The sum over k for a tile of `height` x `vectors` vectors.
template <class E, int height, int vectors, Mode mode, bool masked>
inline void accumulate(const GemmTile& tile, typename E::Sum (&sums)[height][vectors]) {
  using T = typename E::T;
  constexpr bool packed = mode == Mode::packed || mode == Mode::carrying;
  RowWalk<T, height, mode != Mode::strided> a(reinterpret_cast<const T*>(tile.a), tile.a_row, tile.a_k);
  const T* b = reinterpret_cast<const T*>(tile.b);
  T* store = reinterpret_cast<T*>(tile.store);
  const char* fetch = tile.fetch;
  const int64_t b_k = tile.b_k;
  const int last = tile.columns - (vectors - 1) * E::W;
  GemmCarry carry{};
  int64_t every = 0, wait = 0;  // steps from one row that is carried to the next; until it
  if constexpr (mode == Mode::carrying) {
    carry = *tile.carry;
    every = tile.k / carry.rows;
    wait = 1;
  }
  for (int64_t k = tile.k; k > 0; --k) {
    if (mode == Mode::carrying && --wait == 0) {
      carry_row<E>(carry);
      wait = --carry.rows > 0 ? every : tile.k;
    }
    typename E::V columns[vectors];
    for (int v = 0; v < vectors; ++v) {
      if (masked && v == vectors - 1) columns[v] = E::load(b + v * E::W, last);
      else columns[v] = E::load(b + v * E::W);
      if (packed) __builtin_prefetch(b + kAhead * b_k + v * E::W);
      if (mode == Mode::strided && v == 0 && fetch != nullptr) __builtin_prefetch(fetch, 0, 2);
      if (mode == Mode::storing) {
        __builtin_prefetch(b + kRowsAhead * b_k + v * E::W);
        E::store(store + v * E::W, columns[v]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < height; ++r) {
      const typename E::Factor x = E::splat(a[r]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = E::fma(x, columns[v], sums[r][v]);
    }
    a.advance();
    b += b_k;
    fetch += tile.fetch_step;
    if (mode == Mode::storing) {
      store += vectors * E::W;
      if (tile.ahead)  // memory likes long contiguous reads: the tiles to the right find theirs in the second cache
        for (int v = vectors; v < kRowVectors; ++v) __builtin_prefetch(b + kRowsAhead * b_k + v * E::W, 0, 2);
    }
  }
}

template <class E, int height, int vectors, Mode mode>
void multiply_tile(const GemmTile& tile) {
  using T = typename E::T;
  T* c = reinterpret_cast<T*>(tile.c);
  const int64_t c_row = tile.c_row;
  const int last = tile.columns - (vectors - 1) * E::W;
  if (tile.add)
#pragma GCC unroll 16
    for (int r = 0; r < height; ++r)
      for (int v = 0; v < vectors; ++v) __builtin_prefetch(c + r * c_row + v * E::W, 1);
  typename E::Sum sums[height][vectors] = {};
  if (last == E::W || tile.b_padded) accumulate<E, height, vectors, mode, false>(tile, sums);
  else accumulate<E, height, vectors, mode, true>(tile, sums);
  hide(c);  // else the addresses of its rows are kept since they were prefetched
#pragma GCC unroll 16
  for (int r = 0; r < height; ++r) {
    T* row = c + r * c_row;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      typename E::V sum = E::total(sums[r][v]);
      if (v < vectors - 1 || last == E::W) {
        if (tile.add) sum = E::add(E::load(row + v * E::W), sum);
        E::store(row + v * E::W, sum);
      } else {
        if (tile.add) sum = E::add(E::load(row + v * E::W, last), sum);
        E::store(row + v * E::W, sum, last);
      }
    }
  }
}

template <class E, Mode mode>
struct Tiles {
  template <int... i>
  struct Table {
    static constexpr GemmTileFunction functions[] = {
        multiply_tile<E, i / kVectors + 1, i % kVectors + 1, mode>...};
  };
  template <int... i>
  static constexpr const GemmTileFunction* table(Indices<i...>) {
    return Table<i...>::functions;
  }
  static constexpr const GemmTileFunction* all() { return table(typename MakeIndices<kTileHeight<E> * kVectors>::Type{}); }
};

// Tiles of one vector more and fewer rows: for a last vector, which alone is bound by its loads.
template <class E>
constexpr int kBroadHeight = kTileHeight<E> * kVectors / (kVectors + 1);
template <class E, int... i>
struct BroadTiles {
  static constexpr GemmTileFunction functions[] = {multiply_tile<E, i + 1, kVectors + 1, Mode::strided>...};
};
template <class E, bool wanted, int... i>
constexpr const GemmTileFunction* broad_tiles_of(Indices<i...>) {
  if constexpr (wanted) return BroadTiles<E, i...>::functions;
  else return nullptr;
}

// See GemmKernels::pack.
template <class E, class S>
void pack(const char* source, int64_t k_stride, int64_t x_stride, int64_t k, int64_t width, int64_t padded, char* to) {
  using T = typename E::T;
  constexpr int W = E::W;
  const S* from = reinterpret_cast<const S*>(source);
  T* out = reinterpret_cast<T*>(to);
  if (x_stride == 1) {
    for (int64_t step = 0; step < k; ++step)
      for (int64_t x = 0; x < padded; x += W) {
        __builtin_prefetch(from + (step + kRowsAhead) * k_stride + x);
        int n = int(least(W, width - x));
        typename E::V v = n > 0 ? E::widen(from + step * k_stride + x, n) : typename E::V{};
        if (padded - x >= W) E::store(out + step * padded + x, v);
        else E::store(out + step * padded + x, v, int(padded - x));
      }
    return;
  }
  if (k_stride == 1) {
    for (int64_t x = 0; x < padded; x += W) {
      int n = int(least(W, width - x)), stored = int(least(W, padded - x));
      for (int64_t step = 0; step < k; step += W) {
        int steps = int(least(W, k - step));
        typename E::V rows[W];
        if (n == W && steps == W) {
          for (int r = 0; r < W; ++r) rows[r] = E::widen(from + (x + r) * x_stride + step, W);
        } else {
          for (int r = 0; r < W; ++r) {
            rows[r] = typename E::V{};
            if (r < n) rows[r] = E::widen(from + (x + r) * x_stride + step, steps);
          }
        }
        turn<E>(rows);
        for (int r = 0; r < steps; ++r) {
          if (stored == W) E::store(out + (step + r) * padded + x, rows[r]);
          else E::store(out + (step + r) * padded + x, rows[r], stored);
        }
      }
    }
    return;
  }
  for (int64_t step = 0; step < k; ++step)
    for (int64_t x = 0; x < padded; ++x) {
      typename E::V v{};
      if (x < width) v = E::widen(from + step * k_stride + x * x_stride, 1);
      E::store(out + step * padded + x, v, 1);
    }
}

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

constexpr int64_t kFoldedDepth = 256;  // of longer rows the fold is a small part, and many are too many streams

template <class T>
inline void put(T* y, int64_t y_row, const T* sums, int64_t count, bool add) {
  for (int64_t i = 0; i < count; ++i) y[i * y_row] = add ? y[i * y_row] + sums[i] : sums[i];
}

constexpr int kVectorsAhead = 4;  // of rows that cross cache lines or come from the third cache; others are slower for it

// `count` rows that are contiguous along k, as x is.
template <class E, int count, bool fetch>
inline void vector_rows(const GemmVector& work, const typename E::T* x, int64_t row) {
  using T = typename E::T;
  const T* a = reinterpret_cast<const T*>(work.a) + row * work.a_row;
  T* y = reinterpret_cast<T*>(work.y) + row * work.y_row;
  typename E::Sum sums[count][kFolds<E>] = {};
  int64_t k = 0;
  for (; k + kLanes<E> <= work.k; k += kLanes<E>)
    for (int v = 0; v < kFolds<E>; ++v) {
      const typename E::Factor factor = E::factor(E::load(x + k + v * E::W));
      const T* from = a + k + v * E::W;
#pragma GCC unroll 16
      for (int r = 0; r < count; ++r) {
        sums[r][v] = E::fma(factor, E::load(from), sums[r][v]);
        if (fetch) __builtin_prefetch(from + kVectorsAhead * E::W);
        from += work.a_row;
      }
    }
  for (int v = 0; v < kFolds<E> && k + v * E::W < work.k; ++v) {
    const int n = int(least(E::W, work.k - k - v * E::W));
    const typename E::Factor factor = E::factor(E::load(x + k + v * E::W, n));
    for (int r = 0; r < count; ++r)
      sums[r][v] = E::keep(E::fma(factor, E::load(a + r * work.a_row + k + v * E::W, n), sums[r][v]), sums[r][v], n);
  }
  typename E::V rows[E::W];  // all of them, again and again
#pragma GCC unroll 16
  for (int r = 0; r < E::W; ++r) {
    typename E::V totals[kFolds<E>];
    for (int v = 0; v < kFolds<E>; ++v) totals[v] = E::paired_total(sums[r % count][v]);
    for (int width = kFolds<E> / 2; width > 0; width /= 2)
      for (int v = 0; v < width; ++v) totals[v] = totals[v] + totals[v + width];
    rows[r] = totals[0];
  }
  const typename E::V total = fold_together<E, E::W>(rows);
  if (work.y_row == 1) return E::store(y, work.add ? E::load(y, count) + total : total, count);
  T each[E::W];
  E::store(each, total);
  put(y, work.y_row, each, count, work.add);
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

// All rows from `row` on, as many at once as are left, at most `count`.
template <class E, int count, bool fetch>
inline void all_rows(const GemmVector& work, const typename E::T* x, int64_t row) {
  for (; row + count <= work.rows; row += count) vector_rows<E, count, fetch>(work, x, row);
  if constexpr (count > 1) all_rows<E, count / 2, fetch>(work, x, row);
}

template <class E, int count>
inline void all_rows(const GemmVector& work, const typename E::T* x) {
  const int64_t bytes = work.a_row * int64_t(sizeof(typename E::T));
  const bool crossing = bytes % kVectorBytes != 0 && work.rows * bytes > kNearBytes;
  if (crossing || work.far) all_rows<E, count, true>(work, x, 0);
  else all_rows<E, count, false>(work, x, 0);
}

constexpr int kStrip = 8;        // vectors along rows whose sums are in registers
constexpr int kLevels = 5;       // sums of the tree that wait for others: of 1, 2, 4, 8 lanes, and all 16

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
template <class E, int together, int vectors, bool masked>
inline __attribute__((always_inline)) void add_columns(typename E::Sum (&sums)[together][vectors], const typename E::T* a,
                                                       int64_t a_step, const typename E::T* x, int64_t x_step,
                                                       int64_t k, int64_t end, int last) {
  const auto add = [&](int lane) __attribute__((always_inline)) {
    const typename E::Factor factor = E::splat(*x);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const typename E::T* from = a + v * E::W;
      if (vectors > 1) __builtin_prefetch(from + kStepsAhead * a_step);  // a tenth: rows cross lines, and are far apart
      sums[lane][v] = E::fma(factor, masked && v == vectors - 1 ? E::load(from, last) : E::load(from), sums[lane][v]);
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

// The lanes in the order in which the tree of their sums needs the fewest waiting: their bits are mirrored.
template <int lanes>
inline int lane_after(int lane) {
  int bit = lanes / 2;
  for (; lane & bit; bit /= 2) lane ^= bit;
  return lane ^ bit;
}
inline int waiting_levels(int index) { return __builtin_ctz(~unsigned(index)); }

// Rows along lanes of vectors, for a contiguous along its columns: their sums stay in registers.
template <class E, int vectors, bool masked>
inline void vector_strip(const GemmVector& work, int64_t row, int last) {
  using T = typename E::T;
  constexpr int together = lanes_together<E>(vectors), distance = kLanes<E> / together;
  const T* a = reinterpret_cast<const T*>(work.a) + row;
  const T* x = reinterpret_cast<const T*>(work.x);
  T* y = reinterpret_cast<T*>(work.y) + row * work.y_row;
  const int64_t a_step = distance * work.a_k, x_step = distance * work.x_k;
  typename E::V waiting[kLevels][vectors], totals[vectors];
  for (int i = 0, first = 0; i < distance; ++i, first = lane_after<distance>(first)) {
    typename E::Sum sums[together][vectors] = {};
    add_columns<E, together, vectors, masked>(sums, a + first * work.a_k, a_step, x + first * work.x_k, x_step, first,
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
  if (work.y_row == 1) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      T* to = y + v * E::W;
      if (masked && v == vectors - 1) E::store(to, work.add ? E::load(to, last) + totals[v] : totals[v], last);
      else E::store(to, work.add ? E::load(to) + totals[v] : totals[v]);
    }
    return;
  }
  T each[vectors * E::W];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) E::store(each + v * E::W, totals[v]);
  put(y, work.y_row, each, (vectors - 1) * E::W + last, work.add);
}

// The same with the sums of all lanes in memory, so that a is read as it lies. The columns of one lane are whole cache
// lines apart: its sums begin as far from a line as they do, so that all but the ends of columns is read aligned.

// Columns side by side, whose factors stay in registers: each sum is read and written once for them.
template <class E>
constexpr int kColumnsOfLane = kVectorBytes == 32 ? 8 / E::kParts : E::kParts == 1 ? 16 : 14;

constexpr int kFarColumns = 8;  // the same where they come from the third cache: fewer streams

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
  const int64_t together = work.far ? least(most, kFarColumns) : most;
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

// The strips from `row` on, which are fewer vectors than `vectors` + 1.
template <class E, int vectors>
inline void last_strip(const GemmVector& work, int64_t row) {
  if constexpr (vectors > 0) {
    const int last = int(work.rows - row - (vectors - 1) * E::W);
    if (last <= 0) last_strip<E, vectors - 1>(work, row);
    else if (last < E::W) vector_strip<E, vectors, true>(work, row, last);
    else vector_strip<E, vectors, false>(work, row, last);
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

constexpr int64_t kNarrowDepth = 64;  // of less the sum of the lanes is the larger part

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
constexpr int64_t kGroupedDepth = 256;      // from where on the sum of the lanes is a small part
constexpr int64_t kGroupedBytes = 3 << 19;  // that are read several times, from the second cache
constexpr int kStripLines = 4;              // of a column of whole cache lines, from where on strips are as fast

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
void multiply_vector(const GemmVector& work) {
  using T = typename E::T;
  if (work.a_k != 1) {
    constexpr int narrow = 8 / (E::kParts * kFolds<E>);
    const bool whole = work.a_k == work.rows && work.x_k == 1;
    if (whole && work.k >= kNarrowDepth && all_narrow_columns<E, narrow>(work)) return;
#if defined(__AVX512F__)
    if (whole && worth_grouping<E>(work))
      return all_grouped_columns<E>(work, typename MakeIndices<(E::kParts == 1 ? 16 : 10)>::Type{});
#endif
    int64_t row = 0;
    if (work.tile > 0) {
      const int64_t tiles = (work.rows + work.tile - 1) / work.tile;
      for (int64_t i = 0; i < tiles; ++i) {
        row = (work.backwards ? tiles - 1 - i : i) * work.tile;
        vector_columns<E>(work, row, least(work.tile, work.rows - row));
      }
      return;
    }
    for (; row + kStrip * E::W < work.rows; row += kStrip * E::W) vector_strip<E, kStrip, false>(work, row, E::W);
    last_strip<E, kStrip>(work, row);
    return;
  }
  const T* x = reinterpret_cast<const T*>(work.x);
  if (work.x_k != 1) {
    T* copy = reinterpret_cast<T*>(work.scratch);
    for (int64_t k = 0; k < work.k; ++k) copy[k] = x[k * work.x_k];
    x = copy;
  }
  // registers that sums may take
  constexpr int kFree = (kVectorBytes == 32 ? 8 : 16) / (E::kParts * kFolds<E>), kRows = kFree < E::W ? kFree : E::W;
#if defined(__AVX512F__)
  if (work.k <= E::W / 2) return all_short_rows<E, E::W / 2>(work, x);
#endif
  if (work.k <= kFoldedDepth) all_rows<E, kRows>(work, x);
  else all_rows<E, (kRows < 8 ? kRows : 8)>(work, x);
}

template <class E, Mode mode, bool wanted>
constexpr const GemmTileFunction* tiles_of() {
  if constexpr (wanted) return Tiles<E, mode>::all();
  else return nullptr;
}
template <class E, bool wanted>
constexpr auto vector_of() -> void (*)(const GemmVector&) {
  if constexpr (wanted) return multiply_vector<E>;
  else return nullptr;
}

// The table for elements S that are multiplied as lanes of E.
template <class E, class S>
const GemmKernels* kernels_of(double flops_per_ns) {
  using T = typename E::T;
  constexpr bool same = sizeof(S) == sizeof(T), floats = same && !kSame<T, uint32_t> && !kSame<T, uint64_t>;
  static const GemmKernels kernels = {kTileHeight<E>,
                                      kVectors,
                                      E::W,
                                      int(sizeof(S)),
                                      int(sizeof(T)),
                                      int(sizeof(T)),
                                      int(sizeof(T)) * E::kParts,
                                      1,
                                      tiles_of<E, Mode::packed, true>(),
                                      tiles_of<E, Mode::strided, floats>(),
                                      broad_tiles_of<E, floats>(typename MakeIndices<kBroadHeight<E>>::Type{}),
                                      kBroadHeight<E>,
                                      tiles_of<E, Mode::carrying, floats>(),
                                      tiles_of<E, Mode::storing, floats>(),
                                      pack<E, S>,
                                      vector_of<E, same>(),
                                      flops_per_ns,
                                      nullptr};
  return &kernels;
}

// What the file's instruction set has for these dtypes, or nullptr.
inline const GemmKernels* kernels_for(char source, char result) {
  const double peak = kVectorBytes == 64 ? 115 : kVectorBytes == 32 ? 58 : 29;
  switch (result) {
    case 'f':
      if (source == 'f') return kernels_of<Lanes<float>, float>(peak);
      if (source == 'e') return kernels_of<Lanes<float>, Half>(peak);
      return source == 'E' ? kernels_of<Lanes<float>, Bfloat16>(peak) : nullptr;
    case 'd': return source == 'd' ? kernels_of<Lanes<double>, double>(peak / 2) : nullptr;
    case 'F': return source == 'F' ? kernels_of<ComplexLanes<float>, Complex<float>>(peak / 4) : nullptr;
    case 'D': return source == 'D' ? kernels_of<ComplexLanes<double>, Complex<double>>(peak / 8) : nullptr;
    case 'i':
    case 'I':
      if (source == 'i' || source == 'I') return kernels_of<Lanes<uint32_t>, uint32_t>(peak / 1.3);
      if (source == 'h') return kernels_of<Lanes<uint32_t>, int16_t>(peak / 1.3);
      if (source == 'H') return kernels_of<Lanes<uint32_t>, uint16_t>(peak / 1.3);
      if (source == 'b') return kernels_of<Lanes<uint32_t>, int8_t>(peak / 1.3);
      return source == 'B' || source == '?' ? kernels_of<Lanes<uint32_t>, uint8_t>(peak / 1.3) : nullptr;
    case 'l':
    case 'L': return source == 'l' || source == 'L' ? kernels_of<Lanes<uint64_t>, uint64_t>(peak / 8) : nullptr;
    default: return nullptr;
  }
}

}  // namespace
}  // namespace weft
