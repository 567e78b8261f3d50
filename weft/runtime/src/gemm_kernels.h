// The inner kernels of matrix products, written by codegen/cpu/products for each vector width, and how they are found.
//
// Every element of a product is the same sum however the product is cut: the contracted dimension in blocks of
// kGemmBlock, each a chain of fused multiply-adds in index order from zero, the blocks' sums added in order. So tiles,
// packing, threads, strides and the machine's vector width may differ, and the bits stay the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft {

// Where one operand is a vector, as many such chains as 64 bytes hold sums, each of kGemmBlock terms, take the elements
// of equal index modulo their number; of 16, chains l and l + 8 are added, then l and l + 4 of these sums, ...
constexpr int64_t kGemmBlock = 512;
constexpr int kGemmLaneBytes = 64;

constexpr int64_t kGemmFoldedDepth = 256;  // terms of a row: in longer ones the sum of the lanes is a small part
constexpr int kGemmAliasedStreams = 8;     // columns read at a time, if their lines share sets of the first cache

constexpr int64_t kNearBytes = 40 << 10;  // bytes of the first cache that operands may fill

constexpr int64_t kGemmWaitingBytes = 8192;       // bytes of a column whose sums wait in memory
constexpr int64_t kGemmLongWaitingBytes = 32768;  // bytes, if the matrix comes from memory, which likes long reads
constexpr int kGemmWaiting = 21;  // such sums at most: a tree's, and those of 16 chains, or of 8 complex ones

// Rows of the columns that are next, on their way to where they are packed.
struct GemmCarry {
  const char* from;
  int64_t step;  // bytes from row to row
  char* to;      // `columns` of them, as whole vectors
  int columns;
  int64_t rows;  // 1 to the tile's k; for a matrix unit any number
  int64_t first, steps;  // for a matrix unit: `to` is the sliver's begin, the rows are those of its steps from `first`
};

// Terms of rows that lie one stride apart.
struct GemmRun {
  int64_t offset;  // bytes from the row's first element to the run's
  int64_t k;
};

// One tile of the result. Strides count elements.
struct GemmTile {
  const char* a;
  int64_t a_row, a_k;  // not looked at by packed kernels: there row r of step k is a[k * height + r]
  const char* b;
  int64_t b_k;
  char* c;
  int64_t c_row;
  int64_t k;
  const char* fetch;   // strided kernels fetch what lies here, one line at each step of k: the next product; or nullptr
  int64_t fetch_step;  // bytes, or 0
  char* store;    // storing kernels leave the columns of b here, packed
  const GemmCarry* carry;  // carrying kernels are packed ones that copy these meanwhile
  const GemmRun* runs;     // runs of terms of a, which kernels `in_runs` read where they lie; b is packed
  int64_t run_count;
  int rows;       // 1 to height
  int columns;    // of the result, 1 to vectors * lanes
  bool exchanged;  // the rows are the product's right operand
  bool b_padded;  // whole vectors of b may be read beyond the last column
  bool add;       // to what is in c, otherwise overwrite
  bool ahead;     // storing kernels: fetch further columns of the same rows, which are next
};
using GemmTileFunction = void (*)(const GemmTile& tile);

// Matrix times vector: y[i] (+)= sum over k of a[i, k] x[k] for rows of a; k is at most one block of each chain. Elements of
// a and x may be narrower than the sums.
struct GemmVector {
  const char* a;
  int64_t a_row, a_k;  // one of them is 1
  const char* x;
  int64_t x_k;
  char* y;
  int64_t y_row;
  int64_t rows, k;
  char* scratch;  // the chains' sums of a tile, kGemmWaiting times `waiting` bytes for those of few columns, or a copy of x
  int64_t waiting;  // bytes of a column whose sums wait there
  int64_t tile;   // rows whose sums are kept there when a's columns are contiguous; 0: they stay in registers
  bool in_strips;  // a's contiguous columns are read in strips of lanes where that is worth it
  bool in_parts;   // of few such columns that share sets of the first cache, lanes of many are read in parts
  bool far;       // a is about as large as the second cache, or larger
  bool by_chain;  // such a tile is read chain by chain but for the last part of each, from the last one if `backwards`
  bool backwards;
  bool add;
};

// Where the rows, columns or terms of an operand lie: an index whose digits, innermost first, have extents and strides
// (in elements) of their own. Windows of an array may overlap.
constexpr int kGemmDigits = 8;
struct GemmDigits {
  int count = 1;
  int64_t extents[kGemmDigits] = {1}, strides[kGemmDigits] = {};

  // Fewer digits where some walk on past each other's end.
  void join() {
    int kept = 0;
    for (int digit = 1; digit < count; ++digit) {
      if (extents[digit] == 1) continue;
      const bool follows = extents[kept] == 1 || strides[digit] == extents[kept] * strides[kept];
      if (extents[kept] == 1) strides[kept] = strides[digit];
      if (follows) extents[kept] *= extents[digit];
      else extents[++kept] = extents[digit], strides[kept] = strides[digit];
    }
    count = kept + 1;
  }
  int64_t at(int64_t index) const {
    int64_t offset = 0;
    for (int digit = 0; digit < count - 1; index /= extents[digit++]) offset += index % extents[digit] * strides[digit];
    return offset + index * strides[count - 1];
  }
  // How many of the next `most` from an index on lie one stride apart.
  int64_t run(int64_t index, int64_t most) const {
    const int64_t left = count == 1 ? most : extents[0] - index % extents[0];
    return left < most ? left : most;
  }
  void list(int64_t index, int64_t many, int64_t* offsets) const {
    for (int64_t done = 0, n; done < many; done += n) {
      n = run(index + done, many - done);
      const int64_t first = at(index + done);
      for (int64_t i = 0; i < n; ++i) offsets[done + i] = first + i * strides[0];
    }
  }
};

// Rows of the left operand, or columns of the right one, as tiles of a matrix unit.
struct GemmPacking {
  const char* source;  // the product's first element
  const GemmDigits *terms, *lines;  // where its terms, and its rows or columns, lie
  int64_t k0, k;       // first term and their number
  int64_t x0, width;   // first row or column and their number
  bool left;
  char* to;  // 64 bytes aligned; whole vectors of rows or columns

  // Whether terms lie side by side, rather than rows or columns: where both do, what more of follow each other.
  bool is_along() const {
    return terms->strides[0] == 1 && (lines->strides[0] != 1 || terms->extents[0] > lines->extents[0]);
  }
};

// What kernels need that use the processor's matrix unit: their slivers begin at multiples of whole tiles, rows too.
struct GemmUnit {
  void (*pack)(const GemmPacking& work);
  void (*finish)(const GemmPacking& work);  // what was packed in passing
  void (*enter)();  // before tiles are multiplied by a thread
  void (*leave)();
  int64_t span;  // elements of k whose sum is rounded apart from the others
};

// to[step * pitch + x] = source[step, x] for x < width, zero up to `padded`. Strides in elements.
struct GemmPanel {
  const char* source;
  int64_t k_stride, x_stride;
  const int64_t* lines;  // offsets of all x, or nullptr: x_stride apart
  int64_t k, width, padded, pitch;
  char* to;
  int64_t line(int64_t x) const { return lines == nullptr ? x * x_stride : lines[x]; }
};

// Columns that are the terms of some chains, from one row on, read side by side.
struct GemmStreams {
  const char *a, *x;
  int64_t a_lane, a_term, x_lane, x_term;  // elements between columns, or factors, of two chains, and of two terms of one
  char* to;
  const char* waiting;  // sums for the tree, `apart` elements from one to the next; `levels` of them are added
  int64_t apart;
  char* chain;  // of a single chain that is read in parts: what it adds up to so far
  int64_t rows;
  int64_t before;  // in parts: rows before the first one whose elements begin a vector
  int levels;
  bool begun, ends;  // it is read there; it is not left there
};

using GemmVectorFunction = void (*)(const GemmVector& work);
using GemmStripFunction = void (*)(const GemmVector& work, int64_t row, int64_t last);
using GemmStreamsFunction = void (*)(const GemmStreams& streams);
using GemmGroupFunction = void (*)(const GemmVector& work, const char* orders, const char* terms, const char* factors,
                                   int64_t begin, char* each);

// The kernels of a matrix and a vector: rows.py and columns.py of codegen/cpu/products write them, gemm_columns.cpp chooses
// among them.
struct GemmVectorKernels {
  GemmVectorFunction rows[4];       // [far, k > kGemmFoldedDepth]: rows of contiguous terms
  GemmVectorFunction wide_rows[4];  // those of elements as wide as their sums
  GemmVectorFunction short_rows;    // of at most half a vector, as wide as their sums; or nullptr
  const GemmStripFunction* strips;  // [vectors - 1]: of whole vectors, then those whose last vector is a part
  // The others are for contiguous columns of elements as wide as their sums, or nullptr.
  const GemmStripFunction* lane_strips;  // chain by chain
  const GemmStreamsFunction* single;     // [chains - 1], each of one column
  // By the chains that have all terms, where the others have one less:
  const GemmStreamsFunction* const* several;    // [terms - 2]
  const GemmStreamsFunction* const* aliased;    // [terms - 2], at most kGemmAliasedStreams columns at a time
  const GemmStreamsFunction *parts, *near_parts;  // [terms - 1] of one chain, at most `streams`; unfetched ones
  const GemmVectorFunction* narrow;      // [rows - 1] of a matrix without gaps
  const GemmGroupFunction* grouped;      // [vectors - 1]
  void (*add_groups)(char* each, int64_t rows);  // adds up the chains' sums of all rows
  void (*put)(char* y, int64_t y_row, const char* sums, int64_t count, int64_t add);
  void (*widen)(const GemmPanel& panel);  // copies elements side by side, as wide as their sums: no pairs
  int streams, narrow_rows, grouped_vectors, strip_vectors;
};

struct GemmKernels {
  int height, vectors, lanes;  // a whole tile has height rows and vectors * lanes columns
  int source_bytes;            // of an operand's element
  int packed_bytes;            // of a packed element
  int result_bytes;
  int sum_bytes;  // of an element while its terms are added: complex ones are two
  int depth;  // elements along k that one packed step holds: 1, or 2 where products are added in pairs
  const GemmTileFunction* packed;  // [(rows - 1) * vectors + (vectors of the tile - 1)]
  const GemmTileFunction* strided;  // for operands where they lie, or nullptr: they must be packed
  const GemmTileFunction* broad;  // [rows - 1], strided ones of a vector more; or nullptr
  const GemmTileFunction* half;   // of half a vector more; or nullptr
  int broad_height;
  const GemmTileFunction* carrying;  // or nullptr
  const GemmTileFunction* storing;  // a packed, b in place: they pack it in passing; or nullptr
  void (*pack)(const GemmPanel& panel);
  const GemmVectorKernels* by_vector;  // or nullptr
  double flops_per_ns;                     // of one thread
  const GemmUnit* unit;                    // or nullptr
  const GemmTileFunction* in_runs;         // a where it lies, the terms of b packed; or nullptr
  const GemmTileFunction* thin;  // [terms - 1], of any number of rows and at most `lanes` columns; or nullptr
  int thin_terms;
};

// Whether kernels for x86-64-v4 are used: the processor runs them, and WEFT_TARGET does not name another target.
bool takes_v4();

// The kernels of a unit of codegen/cpu/products, for the rest of the process; nullptr, with or without a Python error, if it
// cannot be made or there is none of this name. GIL held, here and in what follows.
const GemmKernels* gemm_unit(const std::string& name);

// Kernels for operands and results of these dtypes (NumPy's characters; 'E' is bfloat16), or nullptr likewise.
const GemmKernels* gemm_kernels(char source, char result);
// Those for products of so many rows, columns and terms.
const GemmKernels* gemm_kernels(char source, char result, int64_t rows, int64_t columns, int64_t terms);

// A matrix and a vector, by the kernels of one table.
void gemm_by_vector(const GemmKernels& kernels, const GemmVector& work);

const GemmKernels* gemm_kernels_amx(char source);

// The records above are laid out in codegen/cpu/products too.
static_assert(offsetof(GemmTile, ahead) == 123 && offsetof(GemmVector, add) == 101 && offsetof(GemmPanel, to) == 64);
static_assert(offsetof(GemmCarry, rows) == 32 && sizeof(GemmRun) == 16);
static_assert(offsetof(GemmStreams, ends) == 101 && sizeof(GemmVectorKernels) == 184 && sizeof(GemmKernels) == 144);

}  // namespace weft
