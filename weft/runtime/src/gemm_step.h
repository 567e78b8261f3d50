// A matrix product as a step of a plan: what all of its sources know.
//
// How a product is cut (rows or columns, packed or read in place, one thread or many) is free: every element is the
// same sum. Packed products pack one operand whole, all threads together, then each task packs its part of the other
// one. An epilogue, a kernel that is the only reader of the result, runs on each part of it that is done, or on all at
// the end.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "figures.h"
#include "gemm_batch.h"
#include "gemm_kernels.h"
#include "plan.h"
#include "pool.h"

namespace weft {

constexpr int64_t kRowsOfTask = 128;     // 128 x 512 packed float32: a quarter of a second-level cache
constexpr int64_t kColumnsOfTask = 128;  // columns of the packed operand, walked while the other one is cached
constexpr int64_t kMostLines = 64;  // rows or columns of a tile that are packed at a time

inline int64_t up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
inline int64_t pieces_of(int64_t extent, int64_t size) { return (extent + size - 1) / size; }

// What lies one stride apart, run by run, from an index on.
struct GemmRuns {
  const GemmDigits& digits;
  int64_t offset = 0, place[kGemmDigits];

  GemmRuns(const GemmDigits& digits, int64_t index) : digits(digits) {
    for (int digit = 0; digit < digits.count; ++digit) {
      const bool last = digit == digits.count - 1;
      place[digit] = last ? index : index % digits.extents[digit];
      offset += place[digit] * digits.strides[digit];
      if (!last) index /= digits.extents[digit];
    }
  }
  int64_t left(int64_t most) const { return digits.count == 1 ? most : std::min(most, digits.extents[0] - place[0]); }
  void advance(int64_t count) {
    place[0] += count;
    offset += count * digits.strides[0];
    for (int digit = 0; digit + 1 < digits.count && place[digit] == digits.extents[digit]; ++digit) {
      offset += digits.strides[digit + 1] - place[digit] * digits.strides[digit];
      place[digit] = 0;
      ++place[digit + 1];
    }
  }
};

class GemmStep final : public Step {
 public:
  // How an epilogue walks the result: one loop over all elements, rows by columns, whole rows, whole products of a
  // batch.
  enum class Form { none, flat, grid, rows, products };

  Status run(Frame& frame) const override;
  double cost_ns() const override { return cost; }
  bool is_kernel() const override { return epilogue != nullptr; }

  std::unique_ptr<Step> epilogue;  // or nullptr
  Form form = Form::none;
  const GemmKernels* kernels = nullptr;
  char result = 'f';  // its dtype
  int64_t m = 0, n = 0, k = 0;
  GemmDigits a_rows, a_sum, b_sum, b_columns, c_rows;  // c's columns are contiguous
  int64_t a_row = 0, a_k = 0, b_k = 0, b_column = 0, c_row = 0;  // their first strides: all, where operands are matrices
  bool in_chains = false;  // a vector is multiplied as NUMERICS.md has it, otherwise as a matrix
  Place a{}, b{}, c{};
  bool exchanged = false;  // a is the right operand of the product as it was written
  GemmBatch batch;
  double cost = 0;

  // Once the fields above are set: how it will be run.
  void plan();

 private:
  struct Job {
    const GemmStep* step;
    const Frame* frame;
    uint64_t number;  // the task's, for cancellation
    const char *a, *b;
    char* c;
    int threads;       // that one product may use
    bool finish_each;  // the epilogue follows each product of a batch
    bool far, turned, backwards;  // a matrix by a vector: see `look_at_cache`
    bool symmetric;               // c[i,j] is c[j,i]: only those up to the diagonal are computed, then copied
    std::atomic<bool> failed;
  };
  struct Product {
    Job* job;
    const char *a, *b;
    char* c;
  };
  struct SmallTile {
    GemmTileFunction function;
    int64_t a, b, c;  // bytes from the product's
    int columns;
  };
  // A block of k of a task's columns of a wide product, and where they are packed.
  struct Unit {
    int64_t column, columns, k0, depth;
    char* packed;
  };
  // A range of rows times a range of columns. a and b point at the range's first elements.
  struct Block {
    const char* a;
    int64_t a_row, a_k;  // elements; packed: not used, slivers of balanced heights follow each other
    const char* b;
    int64_t b_k;       // elements
    int64_t b_sliver;  // bytes from one tile's columns to the next
    char* c;           // row-major, `c_row` elements
    int64_t c_row;
    const GemmDigits* c_rows;  // c is the product's first row, and rows lie so; or nullptr
    int64_t rows, columns, k;
    char* store;  // b is not packed yet: the first sliver leaves it here
    const GemmRun* runs = nullptr;  // of k, where a is read in runs
    int64_t run_count = 0;
    const Unit* next = nullptr;  // whose columns are packed meanwhile
    bool a_packed, b_padded, add;
    bool last;              // of k: the epilogue may follow
    bool symmetric;         // columns beyond a row's own are not wanted
    int64_t row0, column0;  // of the product
  };
  struct Range {
    const GemmStep* step;
    const Product* product;
    int64_t size;  // rows (or columns) of one task
    bool rows;
    const char* shared = nullptr;      // the packed operand of all tasks
    int64_t column0 = 0, columns = 0;  // of the result
    int64_t k0 = 0, k1 = 0;
    std::atomic<int64_t>* claimed = nullptr;  // columns of a wide product
  };
  // A wave of blocks of k, whose sums lie `bytes` apart.
  struct Deep {
    const GemmStep* step;
    const Product* product;
    int64_t first, count, bytes;
    char* sums;
  };

  int64_t tile_columns() const { return kernels->vectors * kernels->lanes; }
  // Slivers of packed rows: of balanced heights, but for a matrix unit.
  int64_t row_of_sliver(int64_t rows, int64_t sliver) const {
    if (kernels->unit != nullptr) return std::min(rows, sliver * kernels->height);
    return rows * sliver / pieces_of(rows, kernels->height);
  }
  int64_t packed_rows(int64_t rows) const { return kernels->unit != nullptr ? up(rows, kernels->height) : rows; }
  int64_t steps_of(int64_t depth) const { return pieces_of(depth, kernels->depth); }
  int64_t depth_of_block() const { return vector ? kGemmBlock * (kGemmLaneBytes / kernels->result_bytes) : span; }

  // Calls function(context, low, high) over 0..total, on the pool if this product may.
  void each(const Product& product, ChunkFunction function, void* context, int64_t total) const {
    if (product.job->threads > 1 && total > 1) pool_run(function, context, total, 1, cost / double(batch.count));
    else function(context, 0, total);
  }

  // Any product, and its epilogue.
  static void run_products(void* context, int64_t low, int64_t high);
  void multiply(const Product& product) const;
  // Products of a batch that wait for their epilogue, which is one call for several.
  struct Unfinished {
    int64_t done;  // the products before this one, whose epilogue is run by number
    Product first{};
    int64_t rows = 0;
  };
  void finish_products(const Product& product, int64_t item, int64_t high, Unfinished* unfinished) const;
  void finish(const Product& product, int64_t row0, int64_t row1, int64_t column0, int64_t column1) const;
  void run_epilogue(const Product& product, const int64_t (&part)[4]) const;
  void finish_all(const Product& product) const;
  static void run_finish(void* context, int64_t low, int64_t high);
  void fill_zero(char* to) const;

  // Small ones, on one thread.
  void plan_small();
  void copy_columns(const Product& product, char* to) const;
  void list_tile(int64_t sliver, int64_t slivers, int64_t column, int64_t width);
  void fetch_during(GemmTile& tile, const char* next_a, int64_t a_part, const char* next_b, int64_t b_part,
                    int64_t index) const;
  void multiply_short_vector(const Product& product) const;
  void multiply_small(const Product& product, const char* next_a, const char* next_b) const;

  // Tiles of one block of k; products of operands as they lie.
  void multiply_block(const Block& block, const Product& product) const;
  void multiply_apart(const Block& block, GemmTile tile, GemmTileFunction function, int64_t row) const;
  void multiply_in_place(const Product& product) const;
  static void run_in_place(void* context, int64_t low, int64_t high);
  void rectangle(const Product& product, int64_t row0, int64_t row1, int64_t column0, int64_t column1) const;

  // Packing (gemm_packed.cpp).
  int64_t packed_columns(int64_t columns) const {
    return columns / tile_columns() * tile_columns() + up(columns % tile_columns(), kernels->lanes);
  }
  void pack_lines(const GemmPacking& work, int64_t padded) const;
  void pack_pieces(const GemmPacking& work, int64_t padded) const;
  void pack_columns(const Product& product, int64_t first, int64_t columns, int64_t k0, int64_t depth, char* to) const;
  void pack_rows(const Product& product, int64_t first, int64_t rows, int64_t k0, int64_t depth, char* to) const;
  void pack_sliver(const Product& product, int64_t first, int64_t rows, int64_t sliver, int64_t k0, int64_t depth,
                   char* to) const;
  bool carry_part(const Product& product, const Unit& unit, int64_t piece, int64_t index, int64_t count, int64_t steps,
                  GemmCarry* carry) const;
  const char* column_of_b(const Product& product, int64_t column, int64_t k0) const {
    return product.b + (b_sum.at(k0) + b_columns.at(column)) * kernels->source_bytes;
  }

  // Large products (gemm_packed.cpp). Tall: b is packed for all, tasks are rows. Wide: a is packed for all, tasks are
  // columns.
  void multiply_packed(const Product& product) const;
  // Whether the tasks of a packed product make whole rows, and the epilogue wants these.
  bool rows_by_task(int64_t columns) const { return !wide && columns >= n && form != Form::none; }
  int64_t task_size(const Product& product, int64_t extent) const;
  // Where a block of k begins in the shared operand, which has `width` columns (wide: rows).
  char* shared_block(const Range& range, int64_t k0, int64_t width) const {
    return const_cast<char*>(range.shared) + (k0 - range.k0) / kernels->depth * width * kernels->packed_bytes;
  }
  static void pack_shared(void* context, int64_t low, int64_t high);
  int64_t units_of_block(const Range& range) const {
    return wide ? pieces_of(m, kernels->height) : pieces_of(range.columns, kColumnsOfTask);
  }
  static void run_packed(void* context, int64_t low, int64_t high);
  void multiply_rows(const Range& range, int64_t row, int64_t rows, char* own) const;
  bool reads_runs() const;
  void multiply_in_runs(const Range& range, int64_t row, int64_t rows) const;
  static void run_wide(void* context, int64_t low, int64_t high);
  void multiply_columns(const Range& range) const;
  Unit claim(const Range& range, char* to) const;
  void finish_columns(const Product& product, const Unit& unit) const;
  Block packed_block(const Range& range, int64_t row, int64_t column) const;

  // Few terms and columns (gemm_thin.cpp).
  void plan_thin();
  void multiply_thin(const Product& product) const;
  static void run_thin(void* context, int64_t low, int64_t high);
  void thin_rows(const Product& product, int64_t row, int64_t end) const;
  void widen_rows(int64_t rows, char* to, GemmTile* tile) const;
  void pack_thin_columns(const char* b, char* to) const;
  GemmTile thin_tile() const;
  bool thin_in_batch() const;
  struct ThinOperand;
  const char* widened_run(ThinOperand& operand, const char* from, int64_t item, int64_t high) const;
  void thin_product(const Product& product, ThinOperand& left, ThinOperand& right, int64_t item, int64_t high,
                    GemmTile& tile) const;
  void run_thin_products(Job* job, int64_t low, int64_t high) const;

  // Few elements, each a long sum, and symmetric products (gemm_deep.cpp).
  void plan_deep();
  bool is_deep(const Product& product) const;
  void multiply_deep(const Product& product) const;
  static void run_deep(void* context, int64_t low, int64_t high);
  void deep_block(const Product& product, int64_t k0, int64_t depth, char* c, int64_t row, bool add) const;
  static void run_add(void* context, int64_t low, int64_t high);
  void add_blocks(char* to, const char* from, int64_t pitch, int64_t blocks, int64_t count, bool first) const;
  void mirror(const Product& product) const;
  static void run_mirror(void* context, int64_t low, int64_t high);

  // A vector and a matrix (gemm_vector.cpp; a block of k beside its hottest caller in gemm.cpp).
  int64_t matrix_row() const { return n == 1 ? a_row : b_column; }
  int64_t column_bytes() const { return std::max(m, n) * kernels->source_bytes; }
  double matrix_bytes() const { return double(column_bytes()) * double(k); }
  bool is_complex() const { return kernels->sum_bytes > kernels->result_bytes; }
  bool may_be_in_strips() const;
  void look_at_cache(Job* job) const;
  void multiply_vector(const Product& product) const;
  static void run_vector(void* context, int64_t low, int64_t high);
  void vector_block(const Product& product, int64_t row, int64_t rows, int64_t k0, int64_t depth, char* y,
                    int64_t y_row, bool add) const;

  bool plain = false;  // the operands and the result are matrices
  bool vector = false, in_strips = false, in_place = false, wide = false;
  bool few_sums = false;  // the sums of a block of k are few beside its operands, which a cache holds
  bool a_as_it_lies = false, b_as_it_lies = false;  // such a block of them is not packed
  bool alike = false;  // a product of rows and the same rows, if both operands lie at the same place
  bool in_runs = false;  // b is packed, and a is read where it lies
  mutable std::atomic<unsigned> turns{0};  // runs that were read to and fro
  int64_t most_rows = 0;      // of a tile that reads rows in place
  int64_t span = kGemmBlock;  // elements of k whose sum is one chain
  bool by_part = false;       // the epilogue runs on tiles, otherwise on rows
  bool by_product = false;    // it runs on whole products of a batch
  std::vector<SmallTile> small;
  GemmTileFunction thin = nullptr;
  bool copies_b = false;  // these read a copy of b, whose columns do not lie side by side
  bool packs_small = false;  // or packed copies of both operands
  bool near = false;               // into the first cache
  int64_t a_part = 0, b_part = 0;  // bytes of the next product that each tile fetches
};

}  // namespace weft
