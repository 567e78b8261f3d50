// The kernels of large products for processors with AMX, whose unit multiplies tiles of bfloat16 and adds in float32.
//
// A float32 is h + m + l exactly, three bfloat16 of eight bits; float16 is h + m. A product is the sum of h l, h m, m m,
// m h, l h and h h of its parts, in this order; what is left out is below 2^-24 of it. An instruction multiplies 32 terms:
// it adds those of even places, and those of odd ones, each as a chain of fused multiply-adds from zero, adds both sums
// and then adds that to the tile. Its sums are nearer to the exact ones than a chain of float32 is.
//
// The unit takes subnormal numbers as zero, and infinities have no parts. Sums where either could matter are computed in
// float32. Sources: Intel's Architecture Instruction Set Extensions Programming Reference, chapter 3; for the parts, Henry,
// Tang and Heinecke, Leveraging the bfloat16 Artificial Intelligence Datatype for Higher-Precision Computations (2019).
#if defined(__AMX_BF16__)
#include <cstring>

#include "gemm_kernels.h"
#include "gemm_lanes.h"

namespace weft {
namespace {

using Words = Lanes<uint32_t>;
using Floats = Lanes<float>;

constexpr int kSide = 16, kTile = kSide * kSide;        // rows of a tile, its words of 32 bits
constexpr int kDepth = 2 * kSide;                       // terms of a step: a word is two of them
constexpr int kHeight = 2 * kSide, kWidth = 2 * kSide;  // two by two tiles are summed at a time

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline __mmask16 first(int64_t n) { return __mmask16(n >= kSide ? 0xffff : (1u << n) - 1); }
inline __mmask32 first_pairs(int64_t n) { return __mmask32(n >= kDepth ? ~uint32_t{0} : (uint32_t{1} << n) - 1); }

// Terms whose sum stays in the unit: their parts fill a quarter of a second-level cache.
template <int parts>
constexpr int64_t kSpan = 2048 >> (parts - 1);

// What a row or column takes for each step of k, in bytes: parts, room for the elements themselves, its share of Extremes.
template <int parts>
constexpr int kPartBytes = parts * kSide * 4;
template <int parts>
constexpr int kPackedBytes = parts == 1 ? kPartBytes<parts> : kPartBytes<parts> + kDepth * 4 + 4;

// Bits without the sign of a sliver's elements: those of the smallest that is not zero, less one, and of the largest.
struct Extremes {
  uint32_t low = ~uint32_t{0}, high = 0;
  int low_exponent() const { return low == ~uint32_t{0} ? 1 << 10 : int((low + 1) >> 24); }
  int high_exponent() const { return int(high >> 24); }
  bool has_parts() const { return low_exponent() >= 127 - 100 && high_exponent() < 127 + 126; }
};

using Square = Words::V[kSide];  // one kind of part of 16 rows or columns: [16][16 pairs of terms], or turned

// 32 terms (at most) of 16 rows or columns (at most): the offsets, in elements, of those whose terms follow each other, or
// of the terms in which they do.
struct Piece {
  const char* at;
  const int64_t* lines;
  int64_t k, x;
};

inline __m512i widened(const float* p, __mmask16 mask) { return _mm512_maskz_loadu_epi32(mask, p); }
inline __m512i widened(const Half* p, __mmask16 mask) {
  return __m512i(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p)));
}
inline __m512i widened(const Bfloat16* p, __mmask16 mask) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
}

// The nearest bfloat16, as a float32.
inline __m512i rounded(__m512i x) {
  const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(int(0xffff0000));
  return _mm512_and_si512(_mm512_add_epi32(x, half), upper);
}
inline __m512i below(__m512i x, __m512i part) {  // exact
  return __m512i(_mm512_sub_ps(__m512(x), __m512(part)));
}

// Calls put(part, words) for the parts of elements: of terms 2 i and 2 i + 1 for word i, in two vectors, or of one term
// and the next.
template <int parts, bool along, class Put>
inline void split(__m512i x, __m512i y, const Put& put) {
  static constexpr uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                       33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i odds = _mm512_loadu_si512(odd);
#pragma GCC unroll 4
  for (int part = 0; part < parts; ++part) {
    const bool exact = part == parts - 1;
    const __m512i p = exact ? x : rounded(x), q = exact ? y : rounded(y);
    put(part, along ? _mm512_permutex2var_epi16(p, odds, q) : _mm512_or_si512(_mm512_srli_epi32(p, 16), q));
    if (exact) return;
    x = below(x, p);
    y = below(y, q);
  }
}

inline void note(__m512i x, __m512i& low, __m512i& high) {
  const __m512i twice = _mm512_slli_epi32(x, 1);
  low = _mm512_min_epu32(low, _mm512_sub_epi32(twice, _mm512_set1_epi32(1)));
  high = _mm512_max_epu32(high, twice);
}

// `along`: rows of the squares are x and their columns k; otherwise the other way.
template <class S, int parts, bool along>
inline void load_squares(const Piece& piece, Square (&squares)[parts], __m512i& low, __m512i& high) {
  const S* from = reinterpret_cast<const S*>(piece.at);
#pragma GCC unroll 2
  for (int row = 0; row < kSide; ++row) {
    __m512i x{}, y{};
    if (along && row < piece.x) {
      const S* p = from + piece.lines[row];
      x = widened(p, first(piece.k));
      if (piece.k > kSide) y = widened(p + kSide, first(piece.k - kSide));
    }
    if (!along && 2 * row < piece.k) {
      x = widened(from + piece.lines[2 * row], first(piece.x));
      if (2 * row + 1 < piece.k) y = widened(from + piece.lines[2 * row + 1], first(piece.x));
    }
    note(x, low, high);
    note(y, low, high);
    split<parts, along>(x, y, [&](int part, __m512i words) { squares[part][row] = Words::V(words); });
  }
}
// bfloat16 is its only part.
template <bool along>
inline void load_squares(const Piece& piece, Square& square) {
  const Bfloat16* from = reinterpret_cast<const Bfloat16*>(piece.at);
  const auto across = [&](int64_t k) {
    return k < piece.k ? widened(from + piece.lines[k], first(piece.x)) : _mm512_setzero_si512();
  };
  for (int row = 0; row < kSide; ++row) {
    __m512i words{};
    if (!along) words = _mm512_or_si512(across(2 * row), _mm512_slli_epi32(across(2 * row + 1), 16));
    else if (row < piece.x) words = _mm512_maskz_loadu_epi16(first_pairs(piece.k), from + piece.lines[row]);
    square[row] = Words::V(words);
  }
}

// Where the terms of a step and the rows or columns of a sliver lie.
struct Offsets {
  int64_t terms[kDepth], lines[kWidth];
};

// Copies elements from wherever they lie to [k][kSide].
template <class S>
inline void gather(const GemmPacking& work, const Offsets& at, int64_t k, int64_t x0, int64_t x, S* to) {
  const S* from = reinterpret_cast<const S*>(work.source);
  for (int64_t j = 0; j < k; ++j)
    for (int64_t i = 0; i < x; ++i) to[j * kSide + i] = from[at.terms[j] + at.lines[x0 + i]];
}

inline void copy(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += kSide) _mm512_mask_storeu_ps(to + i, first(n - i), _mm512_maskz_loadu_ps(first(n - i), from + i));
}
template <class S>
inline void copy(const S* from, int64_t n, S* to) {
  _mm512_mask_storeu_epi16(to, first_pairs(n), _mm512_maskz_loadu_epi16(first_pairs(n), from));
}

// The squares of one step, as the tiles of rows (x by k) or columns (k by x) want them. What does not lie side by side is
// first copied so.
template <class S, int parts>
inline void make_squares(const GemmPacking& work, const Offsets& at, int64_t k0, int64_t x0, Square (&squares)[parts],
                         __m512i& low, __m512i& high) {
  S staged[kDepth * kSide];
  int64_t staged_lines[kDepth];
  const int64_t k = least(kDepth, work.k - k0), x = least(kSide, work.width - x0);
  const S* from = reinterpret_cast<const S*>(work.source);
  const bool along = work.is_along(), side_by_side = !along && work.lines->strides[0] == 1;
  const GemmDigits& inner = along ? *work.terms : *work.lines;
  const int64_t first = along ? work.k0 + k0 : work.x0 + x0, extent = along ? k : x, count = along ? x : k;
  const int64_t *lines = along ? at.lines + x0 : at.terms, *places = along ? at.terms : at.lines + x0;
  Piece piece{work.source + places[0] * int64_t(sizeof(S)), lines, k, x};
  if (!along && !side_by_side) gather(work, at, k, x0, x, staged);
  if ((!along && !side_by_side) || inner.run(first, extent) < extent) {
    const int64_t pitch = along ? kDepth : kSide;
    for (int64_t i = 0, n; (along || side_by_side) && i < extent; i += n) {
      n = inner.run(first + i, extent - i);
      for (int64_t j = 0; j < count; ++j) copy(from + lines[j] + places[i], n, staged + j * pitch + i);
    }
    for (int64_t j = 0; j < count; ++j) staged_lines[j] = j * pitch;
    piece = {reinterpret_cast<const char*>(staged), staged_lines, k, x};
  }
  if constexpr (parts == 1) {
    if (along) load_squares<true>(piece, squares[0]);
    else load_squares<false>(piece, squares[0]);
  } else {
    if (along) load_squares<S, parts, true>(piece, squares, low, high);
    else load_squares<S, parts, false>(piece, squares, low, high);
  }
  if (along != work.left)
    for (Square& square : squares) turn<Words>(square);
}

// The elements of a sliver as they are: [step][square][32 terms][16].
template <class S, int parts>
void store_elements(const GemmPacking& work, int64_t squares, int64_t steps, char* to) {
  S staged[kDepth * kSide] = {};
  Offsets at;
  work.lines->list(work.x0, work.width, at.lines);
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t x = 0; x < squares; ++x) {
      const int64_t k = least(kDepth, work.k - step * kDepth);
      work.terms->list(work.k0 + step * kDepth, k, at.terms);
      gather(work, at, k, x * kSide, least(kSide, work.width - x * kSide), staged);
      for (int j = 0; j < kDepth; ++j, to += kSide * 4)
        _mm512_storeu_si512(to, j < k ? widened(staged + j * kSide, first(work.width - x * kSide)) : __m512i{});
    }
}

// After its parts: the elements, where they are needed.
template <class S, int parts>
void finish(const GemmPacking& work) {
  if constexpr (parts > 1) {
    const int64_t squares = (work.width + kSide - 1) / kSide, steps = (work.k + kDepth - 1) / kDepth;
    const int64_t rows = squares * kSide * steps;
    Extremes extremes;
    std::memcpy(&extremes, work.to + rows * (kPackedBytes<parts> - 4), sizeof(extremes));
    if (!extremes.has_parts()) store_elements<S, parts>(work, squares, steps, work.to + rows * kPartBytes<parts>);
  }
}

// A sliver of rows or columns as tiles: [step][part][16 of its rows or columns].
template <class S, int parts>
void pack_tiles(const GemmPacking& work) {
  const int64_t squares = (work.width + kSide - 1) / kSide, steps = (work.k + kDepth - 1) / kDepth;
  const int64_t rows = squares * kSide * steps;
  uint32_t* to = reinterpret_cast<uint32_t*>(work.to);
  __m512i low = _mm512_set1_epi32(-1), high = _mm512_setzero_si512();
  Square made[parts];
  Offsets at;
  work.lines->list(work.x0, work.width, at.lines);
  for (int64_t step = 0; step < steps; ++step, to += parts * squares * kTile) {
    work.terms->list(work.k0 + step * kDepth, least(kDepth, work.k - step * kDepth), at.terms);
    for (int64_t x = 0; x < squares; ++x) {
      make_squares<S, parts>(work, at, step * kDepth, x * kSide, made, low, high);
      for (int part = 0; part < parts; ++part)
#pragma GCC unroll 16
        for (int r = 0; r < kSide; ++r)
          _mm512_storeu_si512(to + (part * squares + x) * kTile + r * kSide, __m512i(made[part][r]));
    }
  }
  if constexpr (parts > 1) {
    const Extremes extremes{_mm512_reduce_min_epu32(low), _mm512_reduce_max_epu32(high)};
    std::memcpy(work.to + rows * (kPackedBytes<parts> - 4), &extremes, sizeof(extremes));
    finish<S, parts>(work);
  }
}

// Packs some steps of a sliver of the next columns, two terms of 16 of them at a time, while the unit multiplies.
template <class S, int parts>
struct Carrier {
  static constexpr int kRows = parts == 1 ? 8 : parts == 2 ? 4 : 2;  // rows at a time, out of the 16 of a square
  const GemmCarry& carry;
  const char* from;
  uint32_t* to;
  const int64_t squares, end;
  int64_t step, square = 0, left;  // terms
  int row = 0;
  __mmask16 mask;
  __m512i low = _mm512_set1_epi32(-1), high{};

  explicit Carrier(const GemmCarry& carry)
      : carry(carry),
        squares((carry.columns + kSide - 1) / kSide),
        end(carry.first + (carry.rows + kDepth - 1) / kDepth),
        step(carry.first),
        left(carry.rows) {
    place();
  }
  void place() {
    from = carry.from + (step - carry.first) * kDepth * carry.step + square * kSide * int64_t(sizeof(S));
    to = reinterpret_cast<uint32_t*>(carry.to) + (step * parts * squares + square) * kTile;
    mask = first(carry.columns - square * kSide);
  }
  __m512i term(int64_t k) const {
    const __mmask16 some = k < left ? mask : __mmask16(0);
    return widened(reinterpret_cast<const S*>(from + k * carry.step), some);
  }
  // The next rows of a square.
  inline void pack_some() {
    if (step >= end) return;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i, to += kSide) {
      const __m512i x = term(2 * (row + i)), y = term(2 * (row + i) + 1);
      if constexpr (parts == 1) {
        _mm512_storeu_si512(to, _mm512_or_si512(x, _mm512_slli_epi32(y, 16)));
      } else {
        note(x, low, high);
        note(y, low, high);
        split<parts, false>(x, y, [&](int part, __m512i words) { _mm512_storeu_si512(to + part * squares * kTile, words); });
      }
    }
    row += kRows;
    if (row < kSide) return;
    row = 0;
    if (++square == squares) {
      square = 0;
      left -= kDepth;
      ++step;
    }
    place();
  }
  void finish() {
    while (step < end) pack_some();
    if (parts == 1) return;
    char* at = carry.to + squares * kSide * carry.steps * (kPackedBytes<parts> - 4);
    Extremes all{_mm512_reduce_min_epu32(low), _mm512_reduce_max_epu32(high)}, before;
    if (carry.first > 0) {
      std::memcpy(&before, at, sizeof(before));
      all = {before.low < all.low ? before.low : all.low, before.high > all.high ? before.high : all.high};
    }
    std::memcpy(at, &all, sizeof(all));
  }
};
struct NoCarrier {
  void pack_some() {}
};

// How the unit sees its eight tiles: 16 rows of 64 bytes.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
void enter() {
  static constexpr Configuration configuration;
  _tile_loadconfig(&configuration);
}
void leave() { _tile_release(); }

template <int high>
inline void load_rows(const uint32_t* a) {
  _tile_loadd(4, a, 64);
  if constexpr (high == 2) _tile_loadd(5, a + kTile, 64);
}
template <int wide>
inline void load_columns(const uint32_t* b) {
  _tile_loadd(6, b, 64);
  if constexpr (wide == 2) _tile_loadd(7, b + kTile, 64);
}
template <int high, int wide>
inline void multiply() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (wide == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (high == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (high == 2 && wide == 2) _tile_dpbf16ps(3, 5, 7);
}

// One step: h l, h m, m m, m h, l h, h h; if the operands are exchanged, the columns are the left one.
template <int parts, int high, int wide, bool exchanged, class Carry>
inline void add_step(const uint32_t* a, const uint32_t* b, Carry& carry) {
  const auto rows = [&](int part) { load_rows<high>(a + part * high * kTile); };
  const auto columns = [&](int part) { load_columns<wide>(b + part * wide * kTile); };
  const auto left = [&](int part) { exchanged ? columns(part) : rows(part); };
  const auto right = [&](int part) { exchanged ? rows(part) : columns(part); };
  const auto then = [&] {
    multiply<high, wide>();
    carry.pack_some();
  };
  left(0), right(parts - 1), then();
  if constexpr (parts == 3) right(1), then();
  if constexpr (parts >= 2) left(1), then();
  if constexpr (parts >= 2) right(0), then();
  if constexpr (parts == 3) left(2), then();
  if constexpr (parts >= 2) left(0), then();
}

// The sums over k, tiles 0 to 3.
template <int parts, int high, int wide, bool exchanged, class Carry>
inline void add_steps(const GemmTile& tile, Carry& carry) {
  const uint32_t* a = reinterpret_cast<const uint32_t*>(tile.a);
  const uint32_t* b = reinterpret_cast<const uint32_t*>(tile.b);
  _tile_zero(0);
  if constexpr (wide == 2) _tile_zero(1);
  if constexpr (high == 2) _tile_zero(2);
  if constexpr (high == 2 && wide == 2) _tile_zero(3);
  for (int64_t step = 0; step < tile.k; ++step, a += parts * high * kTile, b += parts * wide * kTile)
    add_step<parts, high, wide, exchanged>(a, b, carry);
}
template <class S, int parts, int high, int wide>
inline void add_products(const GemmTile& tile) {
  NoCarrier nothing;
  if (tile.carry != nullptr) {
    Carrier<S, parts> carrier(*tile.carry);
    if (parts > 1 && tile.exchanged) add_steps<parts, high, wide, true>(tile, carrier);
    else add_steps<parts, high, wide, false>(tile, carrier);
    carrier.finish();
  } else if (parts > 1 && tile.exchanged) {
    add_steps<parts, high, wide, true>(tile, nothing);
  } else {
    add_steps<parts, high, wide, false>(tile, nothing);
  }
}

template <int high, int wide>
inline void store_sums(float* c, int64_t row) {
  const size_t bytes = size_t(row) * 4;
  _tile_stored(0, c, bytes);
  if constexpr (wide == 2) _tile_stored(1, c + kSide, bytes);
  if constexpr (high == 2) _tile_stored(2, c + kSide * row, bytes);
  if constexpr (high == 2 && wide == 2) _tile_stored(3, c + kSide * row + kSide, bytes);
}

// The elements of one step and square, [32 terms][16], from their parts or as they are.
template <int parts, bool left>
inline void load_elements(const char* sliver, bool stored, int squares, int64_t steps, int64_t step, int square,
                          float (*to)[kSide]) {
  const char* from = sliver + squares * kSide * steps * kPartBytes<parts> + (step * squares + square) * kDepth * kSide * 4;
  if (stored) {
    std::memcpy(to, from, kDepth * kSide * 4);
    return;
  }
  const uint32_t* words = reinterpret_cast<const uint32_t*>(sliver) + (step * parts * squares + square) * kTile;
  const __m512i upper = _mm512_set1_epi32(int(0xffff0000));
  Square even, odd;
  for (int r = 0; r < kSide; ++r, words += kSide) {
    __m512 x{}, y{};
    for (int part = 0; part < parts; ++part) {
      const __m512i word = _mm512_loadu_si512(words + part * squares * kTile);
      x = _mm512_add_ps(x, __m512(_mm512_slli_epi32(word, 16)));
      y = _mm512_add_ps(y, __m512(_mm512_and_si512(word, upper)));
    }
    even[r] = Words::V(x);
    odd[r] = Words::V(y);
  }
  if (left) turn<Words>(even), turn<Words>(odd);
  for (int r = 0; r < kSide; ++r) {
    _mm512_storeu_si512(to[2 * r], __m512i(even[r]));
    _mm512_storeu_si512(to[2 * r + 1], __m512i(odd[r]));
  }
}

// The extremes of each of 16 rows or columns.
struct Lowest {
  __m512i low = _mm512_set1_epi32(-1), high{};
  Extremes of(int lane) const { return {reinterpret_cast<const uint32_t*>(&low)[lane], reinterpret_cast<const uint32_t*>(&high)[lane]}; }
};

// A tile's operands as they are, a step at a time, and what is in each of their rows and columns.
template <int parts>
struct Elements {
  alignas(64) float a[2][kDepth][kSide], b[2][kDepth][kSide];
  Lowest rows[2], columns[2];

  void load(const GemmTile& tile, int high, int wide, bool a_stored, bool b_stored, int64_t step) {
    for (int i = 0; i < high; ++i) load_elements<parts, true>(tile.a, a_stored, high, tile.k, step, i, a[i]);
    for (int i = 0; i < wide; ++i) load_elements<parts, false>(tile.b, b_stored, wide, tile.k, step, i, b[i]);
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < kDepth; ++k) {
        if (i < high) note(_mm512_load_si512(a[i][k]), rows[i].low, rows[i].high);
        if (i < wide) note(_mm512_load_si512(b[i][k]), columns[i].low, columns[i].high);
      }
  }
};

// The same sums in float32: chains of fused multiply-adds in index order.
template <int parts>
void add_elements(const GemmTile& tile, int high, int wide, bool a_stored, bool b_stored, Elements<parts>& elements,
                  float (&sums)[kHeight][kWidth]) {
  constexpr int kRows = 8;
  std::memset(sums, 0, sizeof(sums));
  for (int64_t step = 0; step < tile.k; ++step) {
    elements.load(tile, high, wide, a_stored, b_stored, step);
    for (int r0 = 0; r0 < tile.rows; r0 += kRows)
      for (int v = 0; v < wide; ++v) {
        Floats::V total[kRows];
        for (int r = 0; r < kRows; ++r) total[r] = Floats::load(sums[r0 + r] + v * kSide);
        for (int k = 0; k < kDepth; ++k) {
          const float* factors = elements.a[r0 / kSide][k] + r0 % kSide;
          const Floats::V columns = Floats::load(elements.b[v][k]);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) total[r] = Floats::fma(Floats::splat(factors[r]), columns, total[r]);
        }
        for (int r = 0; r < kRows; ++r) Floats::store(sums[r0 + r] + v * kSide, total[r]);
      }
  }
}

// Whether terms and sums of a row and a column are what the unit takes them for. None is infinite but sums of what is.
inline bool bounded(const Extremes& a, const Extremes& b) {
  return a.has_parts() && b.has_parts() && a.high_exponent() + b.high_exponent() <= 2 * 127 + 114;
}
// Subnormal terms, or parts of terms, lose bits that do not count beside any term.
inline bool normal(const Extremes& a, const Extremes& b) { return a.low_exponent() + b.low_exponent() >= 2 * 127 - 92; }
// Subnormal terms lose less than 2^-113, which does not count beside the sum.
inline bool far_from_zero(float sum) { return __builtin_fabsf(sum) >= 0x1p-88f; }

inline void put(const GemmTile& tile, const float (&sums)[kHeight][kWidth]) {
  float* c = reinterpret_cast<float*>(tile.c);
  for (int r = 0; r < tile.rows; ++r, c += tile.c_row)
    for (int column = 0; column < tile.columns; column += kSide) {
      const __mmask16 mask = first(tile.columns - column);
      __m512 sum = _mm512_loadu_ps(sums[r] + column);
      if (tile.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c + column), sum);
      _mm512_mask_storeu_ps(c + column, mask, sum);
    }
}

// A tile where the unit may compute some sums differently (by their elements or terms). Each sum is the unit's or the
// chain's; its row and its column alone decide, so that it is the same in any tile.
template <class S, int parts, int high, int wide>
[[gnu::noinline]] void multiply_carefully(const GemmTile& tile, bool a_stored, bool b_stored) {
  alignas(64) float sums[kHeight][kWidth], chains[kHeight][kWidth];
  Elements<parts> elements;
  add_products<S, parts, high, wide>(tile);
  store_sums<high, wide>(sums[0], kWidth);
  add_elements<parts>(tile, high, wide, a_stored, b_stored, elements, chains);
  for (int r = 0; r < tile.rows; ++r) {
    const Extremes row = elements.rows[r / kSide].of(r % kSide);
    for (int c = 0; c < tile.columns; ++c) {
      const Extremes column = elements.columns[c / kSide].of(c % kSide);
      const bool right = bounded(row, column) && (normal(row, column) || far_from_zero(sums[r][c]));
      if (!right) sums[r][c] = chains[r][c];
    }
  }
  put(tile, sums);
}

template <class S, int parts, int high, int wide>
void multiply_tile(const GemmTile& tile) {
  if constexpr (parts > 1) {
    Extremes a, b;
    std::memcpy(&a, tile.a + high * kSide * tile.k * (kPackedBytes<parts> - 4), sizeof(a));
    std::memcpy(&b, tile.b + wide * kSide * tile.k * (kPackedBytes<parts> - 4), sizeof(b));
    if (!bounded(a, b) || !normal(a, b))
      return multiply_carefully<S, parts, high, wide>(tile, !a.has_parts(), !b.has_parts());
  }
  add_products<S, parts, high, wide>(tile);
  if (!tile.add && tile.rows == high * kSide && tile.columns == wide * kSide)
    return store_sums<high, wide>(reinterpret_cast<float*>(tile.c), tile.c_row);
  alignas(64) float sums[kHeight][kWidth];
  store_sums<high, wide>(sums[0], kWidth);
  put(tile, sums);
}

// By rows (1 to kHeight) and vectors of a tile.
template <class S, int parts, int... i>
struct Tiles {
  static constexpr GemmTileFunction functions[] = {multiply_tile<S, parts, i / 2 / kSide + 1, i % 2 + 1>...};
};
template <class S, int parts, int... i>
constexpr const GemmTileFunction* tiles(Indices<i...>) {
  return Tiles<S, parts, i...>::functions;
}

template <class S, int parts>
const GemmKernels* kernels_of(double flops_per_ns) {
  static const GemmUnit unit = {pack_tiles<S, parts>, finish<S, parts>, enter, leave, kSpan<parts>};
  constexpr const GemmTileFunction* functions = tiles<S, parts>(typename MakeIndices<kHeight * 2>::Type{});
  static const GemmKernels kernels = {kHeight, 2, kSide, int(sizeof(S)), kPackedBytes<parts>, 4, 4, kDepth,
                                      functions, nullptr, nullptr, nullptr, 0, functions, nullptr, nullptr, nullptr,
                                      flops_per_ns, &unit, nullptr, nullptr, 0};
  return &kernels;
}

}  // namespace

const GemmKernels* gemm_kernels_amx(char source) {
  if (source == 'f') return kernels_of<float, 3>(300);
  if (source == 'e') return kernels_of<Half, 2>(450);
  return source == 'E' ? kernels_of<Bfloat16, 1>(1200) : nullptr;
}

}  // namespace weft
#endif
