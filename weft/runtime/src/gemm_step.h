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
#include "stream.h"

namespace weft {

constexpr int64_t kRowsOfTask = 128;     // 128 x 512 packed float32: a quarter of a second-level cache
constexpr int64_t kColumnsOfTask = 128;  // columns of the packed operand, walked while the other one is cached
constexpr int64_t kFinishElements = 16 << 10;  // elements of a part that an epilogue is run on
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
  Location a{}, b{}, c{};
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
  // A block of k of a task's columns of a wide product, and where they are packed.
  struct Unit {
    int64_t column, columns, k0, depth;
    char* packed;
  };
  // A range of rows times a range of columns, and of their terms: all of a product, or what one task multiplies. Each
  // operand is read where it lies, or packed block by block of the terms, or was packed for all tasks.
  struct Part {
    int64_t row0, row1, column0, column1, k0, k1;
    bool a_lies, b_lies;
    char* sums = nullptr;          // where these terms' sums go, instead of being added to the result
    const char* shared = nullptr;  // the operand that was packed for all tasks, from the first of the terms on
  };
  // Tiles of one block of the terms.
  struct Block {
    const char *a, *b;  // its first elements
    int64_t b_sliver;   // bytes from one tile's columns to the next
    int64_t row0, rows, column0, columns, k0, k;
    bool a_packed, b_packed;  // otherwise they lie as the operand does
    char* sums;               // as a part has it
    const GemmRun* runs = nullptr;  // of k, where a is read in runs
    int64_t run_count = 0;
    char* store = nullptr;       // b is not packed yet: the first sliver leaves it here
    const Unit* next = nullptr;  // whose columns are packed meanwhile
  };

  int64_t tile_columns() const { return kernels->vectors * kernels->lanes; }
  // Slivers of packed rows: of balanced heights, but for a matrix unit.
  int64_t row_of_sliver(int64_t rows, int64_t sliver) const {
    if (kernels->unit != nullptr) return std::min(rows, sliver * kernels->height);
    return rows * sliver / pieces_of(rows, kernels->height);
  }
  int64_t packed_rows(int64_t rows) const { return kernels->unit != nullptr ? up(rows, kernels->height) : rows; }
  int64_t packed_columns(int64_t columns) const {
    return columns / tile_columns() * tile_columns() + up(columns % tile_columns(), kernels->lanes);
  }
  int64_t steps_of(int64_t depth) const { return pieces_of(depth, kernels->depth); }
  int64_t depth_of_block() const { return vector ? kGemmBlock * (kGemmLaneBytes / kernels->result_bytes) : span; }
  bool widens() const { return kernels->source_bytes != kernels->packed_bytes; }

  // Calls task(index) for all indices below `total`, on the pool if this product may.
  template <class Task>
  void each(const Product& product, int64_t total, const Task& task) const {
    struct Context {
      const Task& task;
      uint64_t number;
    } context{task, product.job->number};
    const ChunkFunction run = [](void* given, int64_t low, int64_t high) {
      const Context& all = *static_cast<const Context*>(given);
      for (int64_t index = low; index < high && !stream_cancelled(all.number); ++index) all.task(index);
    };
    if (product.job->threads > 1 && total > 1) pool_run(run, &context, total, 1, cost / double(batch.count));
    else run(&context, 0, total);
  }
  char* scratch(const Product& product, int64_t bytes) const {
    char* made = static_cast<char*>(thread_scratch(bytes));
    if (made == nullptr) product.job->failed.store(true, std::memory_order_relaxed);
    return made;
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

  // Small ones, on one thread (gemm_small.cpp).
  struct SmallTile {
    GemmTileFunction function;
    int64_t a, b, c;  // bytes from the product's
    int columns;
  };
  void plan_thin();
  void plan_small();
  void list_tile(int64_t sliver, int64_t slivers, int64_t column, int64_t width);
  void run_small(Job* job, int64_t low, int64_t high) const;
  void copy_columns(const Product& product, char* to) const;
  void widen_rows(const char* a, int64_t rows, char* to) const;
  void fetch_during(GemmTile& tile, const char* next_a, int64_t a_part, const char* next_b, int64_t b_part,
                    int64_t index) const;
  GemmTile small_tile() const;
  void multiply_small(const Product& product, GemmTile& tile, const char* next_a, const char* next_b) const;
  void multiply_thin(const Product& product) const;
  void thin_rows(const Product& product, int64_t row, int64_t end) const;

  // Large ones (gemm_blocks.cpp): how they are cut into parts, and these into blocks of the terms and tiles.
  void plan_blocks();
  void multiply_in_parts(const Product& product, const Part& whole, int64_t size, bool by_rows) const;
  void multiply_part(const Product& product, const Part& part) const;
  void multiply_block(const Product& product, const Block& block) const;
  void multiply_runs(const Product& product, const Part& part, Block block) const;
  void multiply_apart(GemmTile tile, GemmTileFunction function, int64_t row) const;
  void multiply_in_place(const Product& product) const;
  void multiply_packed(const Product& product) const;
  bool reads_runs() const;
  bool is_deep(const Product& product) const;
  void multiply_deep(const Product& product) const;
  void add_blocks(char* to, const char* from, int64_t pitch, int64_t blocks, int64_t count, bool first) const;
  void finish_parts(const Product& product, bool finished) const;

  // Packing, and products of few rows whose columns are packed in passing (gemm_packed.cpp).
  void pack_lines(const GemmPacking& work, int64_t padded) const;
  void pack_pieces(const GemmPacking& work, int64_t padded) const;
  void pack_columns(const Product& product, int64_t first, int64_t columns, int64_t k0, int64_t depth, char* to) const;
  void pack_rows(const Product& product, int64_t first, int64_t rows, int64_t k0, int64_t depth, char* to) const;
  void pack_sliver(const Product& product, int64_t first, int64_t rows, int64_t sliver, int64_t k0, int64_t depth,
                   char* to) const;
  void pack_shared(const Product& product, const Part& part) const;
  // Where a block of k begins in the operand that all tasks share.
  char* shared_block(const Part& part, int64_t k0) const {
    const int64_t width = wide ? packed_rows(m) : packed_columns(part.column1 - part.column0);
    return const_cast<char*>(part.shared) + (k0 - part.k0) / kernels->depth * width * kernels->packed_bytes;
  }
  void multiply_wide(const Product& product, const Part& part, int64_t size) const;
  void finish_columns(const Product& product, const Unit& unit) const;
  bool carry_part(const Product& product, const Unit& unit, int64_t piece, int64_t index, int64_t count, int64_t steps,
                  GemmCarry* carry) const;
  const char* column_of_b(const Product& product, int64_t column, int64_t k0) const {
    return product.b + (b_sum.at(k0) + b_columns.at(column)) * kernels->source_bytes;
  }

  // A vector and a matrix (gemm_vector.cpp; a block of k beside its hottest caller in gemm.cpp).
  int64_t matrix_row() const { return n == 1 ? a_row : b_column; }
  int64_t column_bytes() const { return std::max(m, n) * kernels->source_bytes; }
  double matrix_bytes() const { return double(column_bytes()) * double(k); }
  bool is_complex() const { return kernels->sum_bytes > kernels->result_bytes; }
  bool may_be_in_strips() const;
  void look_at_cache(Job* job) const;
  void multiply_vector(const Product& product) const;
  void multiply_short_vector(const Product& product) const;
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
  GemmTileFunction thin = nullptr;  // few terms, and at most a vector of columns
  bool in_run = false;  // products of a batch are small enough for `run_small`
  std::vector<SmallTile> small;
  bool copies_b = false;  // small products read a copy of b, whose columns do not lie side by side
  bool packs_small = false;  // or packed copies of both operands
  bool near = false;               // into the first cache
  int64_t a_part = 0, b_part = 0;  // bytes of the next product that each tile fetches
};

}  // namespace weft
