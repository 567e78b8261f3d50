// The kernels of matrix products as templates: register tiles, packing, and the table of all. See gemm_kernels.h.
#pragma once

#include "gemm_columns.h"
#include "gemm_kernels.h"
#include "gemm_lanes.h"
#include "gemm_rows.h"
#include "gemm_thin.h"

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

constexpr int kRowVectors = 8;  // vectors of a row that are fetched together
constexpr int kRowsAhead = 24;  // rows fetched ahead of those that are packed: rows lie in different pages

constexpr int kRowsCarried = 16;  // rows: those copied during tiles are fetched so far ahead

enum class Mode { packed, strided, storing, carrying, in_runs };

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

// Accumulates where the terms of a lie in runs, and b is packed.
template <class E, int height, int vectors>
inline void accumulate_runs(const GemmTile& tile, typename E::Sum (&sums)[height][vectors]) {
  using T = typename E::T;
  const T* b = reinterpret_cast<const T*>(tile.b);
  const int64_t b_k = tile.b_k;
  for (const GemmRun *run = tile.runs, *end = run + tile.run_count; run != end; ++run) {
    RowWalk<T, height, false> a(reinterpret_cast<const T*>(tile.a + run->offset), tile.a_row, tile.a_k);
    for (int64_t k = run->k; k > 0; --k) {
      typename E::V columns[vectors];
      for (int v = 0; v < vectors; ++v) {
        columns[v] = E::load(b + v * E::W);
        __builtin_prefetch(b + kAhead * b_k + v * E::W);
      }
#pragma GCC unroll 16
      for (int r = 0; r < height; ++r) {
        const typename E::Factor x = E::splat(a[r]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sums[r][v] = E::fma(x, columns[v], sums[r][v]);
      }
      a.advance();
      b += b_k;
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
  if constexpr (mode == Mode::in_runs) accumulate_runs<E, height, vectors>(tile, sums);
  else if (last == E::W || tile.b_padded) accumulate<E, height, vectors, mode, false>(tile, sums);
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

#if defined(__AVX512F__)
// A tile whose last columns fill half a vector: it takes half the time where 512 bits are two halves. A
// function of its own: tiles of `accumulate` have one type of vector.
template <class E, int height>
void multiply_half_tile(const GemmTile& tile) {
  using T = typename E::T;
  RowWalk<T, height, false> a(reinterpret_cast<const T*>(tile.a), tile.a_row, tile.a_k);
  const T* b = reinterpret_cast<const T*>(tile.b);
  const char* fetch = tile.fetch;
  const int last = tile.columns - kVectors * E::W;
  typename E::V sums[height][kVectors] = {};
  typename E::HalfV halves[height] = {};
  for (int64_t k = tile.k; k > 0; --k, b += tile.b_k, fetch += tile.fetch_step) {
    typename E::V columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = E::load(b + v * E::W);
    const typename E::HalfV half = E::load_half(b + kVectors * E::W, last);
    if (fetch != nullptr) __builtin_prefetch(fetch, 0, 2);
#pragma GCC unroll 16
    for (int r = 0; r < height; ++r) {
      const typename E::V x = E::splat(a[r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = E::fma(x, columns[v], sums[r][v]);
      halves[r] = E::fma_half(x, half, halves[r]);
    }
    a.advance();
  }
  T* row = reinterpret_cast<T*>(tile.c);
#pragma GCC unroll 16
  for (int r = 0; r < height; ++r, row += tile.c_row) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      E::store(row + v * E::W, tile.add ? E::add(E::load(row + v * E::W), sums[r][v]) : sums[r][v]);
    T* end = row + kVectors * E::W;
    E::store_half(end, tile.add ? E::load_half(end, last) + halves[r] : halves[r], last);
  }
}
#endif

template <class E, int height>
void multiply_broad_tile(const GemmTile& tile) {
#if defined(__AVX512F__)
  if constexpr (E::kParts == 1)
    if (tile.columns <= kVectors * E::W + E::W / 2) return multiply_half_tile<E, height>(tile);
#endif
  multiply_tile<E, height, kVectors + 1, Mode::strided>(tile);
}

template <class E, int... i>
struct BroadTiles {
  static constexpr GemmTileFunction functions[] = {multiply_broad_tile<E, i + 1>...};
};
template <class E, bool wanted, int... i>
constexpr const GemmTileFunction* broad_tiles_of(Indices<i...>) {
  if constexpr (wanted) return BroadTiles<E, i...>::functions;
  else return nullptr;
}

// See GemmKernels::pack.
template <class E, class S>
void pack(const GemmPanel& panel) {
  using T = typename E::T;
  constexpr int W = E::W;
  const int64_t k_stride = panel.k_stride, k = panel.k, width = panel.width, padded = panel.padded, pitch = panel.pitch;
  const S* from = reinterpret_cast<const S*>(panel.source);
  T* out = reinterpret_cast<T*>(panel.to);
  if (panel.x_stride == 1 && panel.lines == nullptr) {
    for (int64_t step = 0; step < k; ++step)
      for (int64_t x = 0; x < padded; x += W) {
        __builtin_prefetch(from + (step + kRowsAhead) * k_stride + x);
        int n = int(least(W, width - x));
        typename E::V v = n > 0 ? E::widen(from + step * k_stride + x, n) : typename E::V{};
        if (padded - x >= W) E::store(out + step * pitch + x, v);
        else E::store(out + step * pitch + x, v, int(padded - x));
      }
    return;
  }
  if (k_stride == 1) {
    for (int64_t x = 0; x < padded; x += W) {
      int n = int(least(W, width - x)), stored = int(least(W, padded - x));
      const S* lines[W];
      for (int r = 0; r < n; ++r) lines[r] = from + panel.line(x + r);
      for (int64_t step = 0; step < k; step += W) {
        int steps = int(least(W, k - step));
        typename E::V rows[W];
        if (n == W && steps == W) {
          for (int r = 0; r < W; ++r) rows[r] = E::widen(lines[r] + step, W);
        } else {
          for (int r = 0; r < W; ++r) {
            rows[r] = typename E::V{};
            if (r < n) rows[r] = E::widen(lines[r] + step, steps);
          }
        }
        turn<E>(rows);
        for (int r = 0; r < steps; ++r) {
          if (stored == W) E::store(out + (step + r) * pitch + x, rows[r]);
          else E::store(out + (step + r) * pitch + x, rows[r], stored);
        }
      }
    }
    return;
  }
  for (int64_t step = 0; step < k; ++step)
    for (int64_t x = 0; x < padded; ++x) {
      typename E::V v{};
      if (x < width) v = E::widen(from + step * k_stride + panel.line(x), 1);
      E::store(out + step * pitch + x, v, 1);
    }
}

template <class E, class S>
void multiply_vector(const GemmVector& work) {
  if (work.a_k == 1) return multiply_rows<E, S>(work);
  if constexpr (sizeof(S) == sizeof(typename E::T)) multiply_columns<E>(work);
  else multiply_widened_columns<E, S>(work);
}

template <class E, Mode mode, bool wanted>
constexpr const GemmTileFunction* tiles_of() {
  if constexpr (wanted) return Tiles<E, mode>::all();
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
                                      multiply_vector<E, S>,
                                      flops_per_ns,
                                      nullptr,
                                      tiles_of<E, Mode::in_runs, floats>(),
                                      thin_of<E>(typename MakeIndices<kThinTerms<E>>::Type{}),
                                      kThinTerms<E>};
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
