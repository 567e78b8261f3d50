// A matrix by a vector, as a kernel of matrix products: which of the kernels of a table reads which part of the matrix.
//
// A lane is here one of the chains of kGemmBlock terms that the tree adds up. Their sums that wait for the tree, or those of
// rows of them, are in the scratch memory of the work.
#include <algorithm>
#include <cstring>

#include "gemm_kernels.h"

namespace weft {

namespace {

constexpr int kTreeLevels = 5;           // sums of lanes that wait for others: of 1, 2, 4, 8, and all 16
constexpr int64_t kAliasingPitch = 4096; // bytes from lane to lane: then lines share a set of the first cache
constexpr int kMostTerms = 16;           // terms of a lane: more are not few columns
constexpr int64_t kStreamedBytes = 384;  // bytes of a column for each term of a lane; strips are faster for fewer
constexpr int64_t kNarrowDepth = 64;     // terms: with fewer, the sum of the lanes is the larger part
constexpr int kMostGrouped = 64;            // rows of a matrix that is read in groups of a column for each chain
constexpr int64_t kGroupedDepth = 256;      // terms from which on the sum of the lanes is a small part
constexpr int64_t kGroupedBytes = 3 << 19;  // bytes that are read several times, from the second cache
constexpr int kStripLines = 4;              // whole cache lines of a column, beyond which strips are as fast
constexpr int64_t kShallowStrip = 128;      // columns: up to so many, strips are faster wherever columns begin
constexpr int64_t kCrossingStripBytes = 256 << 10;  // bytes of a deeper matrix whose columns begin within cache lines
constexpr int kMostLanes = 16;  // those of elements of four bytes, or of two times four
constexpr int kShortRow = 64;  // elements of narrower rows, up to which their last vectors are a large part
static_assert(kTreeLevels + kMostLanes <= kGemmWaiting, "the sums of a tree, and of chains or of half as many complex ones");

// The lanes in the order in which the tree of their sums needs the fewest waiting: their bits are mirrored.
int lane_after(int lane, int lanes) {
  int bit = lanes / 2;
  for (; lane & bit; bit /= 2) lane ^= bit;
  return lane ^ bit;
}

// A product as these functions see it.
struct ByVector {
  const GemmKernels& kernels;
  const GemmVectorKernels& table;
  const GemmVector& work;
  const int64_t item, lanes, width, vector_bytes;
  const int parts, lane_bits, width_bits;  // bits: of the powers of two by which is divided

  ByVector(const GemmKernels& kernels, const GemmVector& work)
      : kernels(kernels), table(*kernels.by_vector), work(work), item(kernels.result_bytes), lanes(kGemmLaneBytes >> bits(item)),
        width(kernels.lanes), vector_bytes(width * item), parts(kernels.sum_bytes > kernels.result_bytes ? 2 : 1),
        lane_bits(bits(lanes)), width_bits(bits(width)) {}
  static int bits(int64_t power) { return __builtin_ctzll(uint64_t(power)); }

  const char* a(int64_t row, int64_t k) const { return work.a + (row * work.a_row + k * work.a_k) * item; }
  const char* x(int64_t k) const { return work.x + k * work.x_k * item; }
  char* y(int64_t row) const { return work.y + row * work.y_row * item; }

  // The vector as wide as the sums, in the scratch, side by side.
  GemmVector with_factors() const {
    GemmVector made = work;
    if (work.x_k == 1) table.widen({work.x, 0, 1, nullptr, 1, work.k, work.k, work.k, work.scratch});
    else table.widen({work.x, work.x_k, 1, nullptr, work.k, 1, 1, 1, work.scratch});
    made.x = work.scratch;
    made.x_k = 1;
    return made;
  }

  // Contiguous rows.

  void all_rows(const GemmVector& part, const GemmVectorFunction* functions, int64_t source_bytes) const {
    const int64_t bytes = part.a_row * source_bytes;
    const bool crossing = (bytes & (vector_bytes - 1)) != 0 && part.rows * bytes > kNearBytes;
    functions[(crossing || part.far ? 2 : 0) + (part.k > kGemmFoldedDepth)](part);
  }
  void wide_rows(const GemmVector& part) const {
    if (table.short_rows != nullptr && part.k <= width / 2) table.short_rows(part);
    else all_rows(part, table.wide_rows, item);
  }
  void rows() const {
    const bool widened = kernels.source_bytes != item;
    const GemmVector part = work.x_k != 1 || widened ? with_factors() : work;
    if (!widened) return wide_rows(part);
    if (work.k <= kShortRow && (work.k & (width - 1)) != 0 && work.a_row == work.k) return widened_rows(part);
    all_rows(part, table.rows, kernels.source_bytes);
  }
  // Short rows that follow each other in memory: whole vectors of them are widened at a time, then multiplied.
  void widened_rows(GemmVector part) const {
    alignas(64) char wide[32 * kShortRow * 4];
    const int64_t most = int64_t(sizeof(wide)) / item / work.k >> width_bits << width_bits;
    part.a = wide;
    for (int64_t row = 0; row < work.rows; row += most) {
      part.rows = std::min(most, work.rows - row);
      part.y = y(row);
      const int64_t count = part.rows * work.k;
      table.widen({work.a + row * work.k * kernels.source_bytes, 0, 1, nullptr, 1, count, count, count, wide});
      wide_rows(part);
    }
  }

  // Contiguous columns.

  // Calls function(row, rows) for tiles of so many rows, from the last one if `backwards`.
  template <class Function>
  void each_tile(int64_t tile, Function function) const {
    if (work.rows <= tile) return function(int64_t{0}, work.rows);
    const int64_t tiles = (work.rows + tile - 1) / tile;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t row = (work.backwards ? tiles - 1 - i : i) * tile;
      function(row, std::min(tile, work.rows - row));
    }
  }
  void strips(const GemmVector& part, const GemmStripFunction* functions) const {
    each_tile(table.strip_vectors * width, [&](int64_t row, int64_t rows) {
      const int64_t vectors = (rows - 1) >> width_bits, last = rows - vectors * width;
      functions[vectors + (last < width ? table.strip_vectors : 0)](part, row, last);
    });
  }

  // Whether strips of lanes are the way to read a, which the third cache holds. Up to a term of each lane, or two complex
  // ones, columns side by side are faster, unless they share sets of the first cache; and so are whole tiles of real columns
  // whose vectors would cross lines all the time.
  bool worth_strips_of_lanes() const {
    if (!work.in_strips) return false;
    const int64_t pitch = work.a_k * item;
    if (work.k <= lanes * parts) return parts == 1 && pitch % kAliasingPitch == 0;
    const bool crossing = (pitch & (vector_bytes - 1)) != 0;
    return parts > 1 || !crossing || work.k <= kShallowStrip || work.k * pitch <= kCrossingStripBytes;
  }

  bool worth_grouping() const {
    const int64_t bytes = work.rows * item;
    if (work.k < kGroupedDepth || work.rows > kMostGrouped || work.k * bytes > kGroupedBytes) return false;
    return (bytes & (vector_bytes - 1)) != 0 || (parts == 1 && bytes <= kStripLines * vector_bytes);
  }
  template <class Index>
  void order_by(int64_t rows, char* orders) const {
    Index* to = reinterpret_cast<Index*>(orders);
    for (int64_t lane = 0; lane < width * parts; lane += parts)
      for (int64_t i = 0; i < rows * parts; ++i) *to++ = Index(lane);
  }
  void grouped() const {
    alignas(64) char each[kMostGrouped * 64], terms[kMostGrouped * 64] = {}, factors[64] = {}, orders[kMostGrouped * 64];
    const int64_t rows = work.rows, most = table.grouped_vectors;
    const int64_t chunks = (rows + most - 1) / most, left = work.k & (lanes - 1);
    if (item / parts == 4) order_by<int32_t>(rows, orders);
    else order_by<int64_t>(rows, orders);
    std::memcpy(terms, work.a + (work.k - left) * rows * item, size_t(left * rows * item));
    std::memcpy(factors, work.x + (work.k - left) * item, size_t(left * item));
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
      table.grouped[end - begin - 1](work, orders, terms, factors, begin, each);
    }
    table.add_groups(each, rows);
    table.put(work.y, work.y_row, each, rows, work.add);
  }

  // Few columns.

  // Those of the lanes of a tile of rows that are `groups` apart.
  GemmStreams streams_of(int groups, int64_t rows) const {
    GemmStreams group{};
    group.a_lane = groups * work.a_k;
    group.a_term = lanes * work.a_k;
    group.x_lane = groups * work.x_k;
    group.x_term = lanes * work.x_k;
    group.waiting = work.scratch;
    group.apart = ((rows + width - 1) >> width_bits << width_bits) + width;
    group.rows = rows;
    group.ends = true;
    return group;
  }
  // Calls add(streams, lane) for each group of lanes that are `groups` apart, in the order of the tree.
  template <class Add>
  void each_group(int groups, int64_t row, int64_t rows, Add add) const {
    const bool straight = work.y_row == 1 && !work.add;
    GemmStreams group = streams_of(groups, rows);
    for (int i = 0, lane = 0; i < groups; ++i, lane = lane_after(lane, groups)) {
      group.levels = __builtin_ctz(~unsigned(i));
      group.to = straight && i + 1 == groups ? y(row) : work.scratch + group.levels * group.apart * item;
      add(group, lane);
    }
    if (!straight) table.put(y(row), work.y_row, group.to, rows, work.add);
  }
  // Where `together` lanes of `terms` columns are read at a time; or all columns.
  void few_columns(const GemmStreamsFunction* functions, int64_t together, int64_t terms, int64_t row, int64_t rows) const {
    const int groups = int(lanes >> bits(together));
    const int64_t full = work.k - (terms - 1) * lanes;
    each_group(groups, row, rows, [&](GemmStreams& group, int lane) {
      group.a = a(row, lane);
      group.x = x(lane);
      functions[(full - lane + groups - 1) >> bits(groups)](group);
    });
  }
  // The same, where the columns of one lane are more than are read at a time. Few columns are read lane by lane. Many are read
  // pass by pass for all lanes, so that what is read follows in memory, or, if so asked, lane by lane but for the last pass, in
  // which the tree adds the lanes. Their sums begin as far from a whole vector as their columns do, so that all but the ends of
  // columns is read aligned.
  void in_parts(int64_t terms, bool fetched, int64_t row, int64_t rows) const {
    const bool aliased = lanes * work.a_k * item % kAliasingPitch == 0, many = terms > kMostTerms;
    const int64_t most = aliased && (fetched || work.far) ? kGemmAliasedStreams : table.streams;
    const int64_t last_of_all = (terms - 1) / most;
    const auto add = [&](GemmStreams& group, int64_t lane, int64_t pass, int64_t last) {
      const int64_t all = (work.k - lane + lanes - 1) >> lane_bits, begin = all * pass / (last + 1);
      const int64_t end = pass == last ? all : all * (pass + 1) / (last + 1);
      group.a = a(row, lane + begin * lanes);
      group.x = x(lane + begin * lanes);
      const int64_t after = int64_t(reinterpret_cast<uintptr_t>(group.a) & uintptr_t(vector_bytes - 1)) >> bits(item);
      group.before = (width - after) & (width - 1);
      group.chain = work.scratch + ((kTreeLevels + (many ? lane * parts : 0)) * group.apart + after) * item;
      group.begun = pass > 0;
      group.ends = pass == last;
      (fetched ? table.parts : table.near_parts)[end - begin - 1](group);
    };
    GemmStreams group = streams_of(int(lanes), rows);
    if (many && work.by_chain) {
      for (int64_t lane = 0; lane < lanes; ++lane)
        for (int64_t pass = 0; pass < last_of_all; ++pass) add(group, work.backwards ? lanes - 1 - lane : lane, pass, last_of_all);
    } else if (many) {
      for (int64_t pass = 0; pass < last_of_all; ++pass)
        for (int64_t lane = 0; lane < lanes; ++lane) add(group, lane, pass, last_of_all);
    }
    each_group(int(lanes), row, rows, [&](GemmStreams& some, int lane) {
      const int64_t last = many ? last_of_all : (work.k - lane - 1) / (lanes * most);
      for (int64_t pass = many ? last : 0; pass <= last; ++pass) add(some, lane, pass, last);
    });
  }
  // The lanes of so many terms each that are at most so many columns: kernels were made for as many (lanes_of_streams).
  int64_t lanes_of(int64_t terms, int64_t streams) const {
    int64_t count = lanes;
    while (count > 1 && count * terms > streams) count /= 2;
    return count;
  }
  // Where columns share sets of the first cache, fewer are fetched than it has ways. A whole lane is mostly faster
  // unfetched: its sums need not wait for its other part.
  void few_columns(int64_t terms, int64_t row, int64_t rows) const {
    const int64_t many = table.streams, few = kGemmAliasedStreams;
    if (terms == 1) return few_columns(table.single - 1, lanes, 1, row, rows);
    const bool aliased = many > few && (lanes >> bits(lanes_of(terms, many))) * work.a_k * item % kAliasingPitch == 0;
    if (aliased && terms > few && !work.in_parts) return few_columns(table.near_parts + terms - 2, 1, terms, row, rows);
    if (terms > (aliased ? few : many)) return in_parts(terms, true, row, rows);
    const int64_t together = lanes_of(terms, aliased ? few : many);
    few_columns((aliased ? table.aliased : table.several)[terms - 2], together, terms, row, rows);
  }
  // Whether a has so few columns, and such long ones, that they were multiplied side by side.
  bool all_few_columns() const {
    const int64_t terms = (work.k + lanes - 1) >> lane_bits;
    if (terms > kMostTerms || (terms > 1 && work.rows * item < kStreamedBytes * terms)) return false;
    const bool at_once = terms == 1 && work.y_row == 1 && !work.add && !work.backwards;  // nothing waits
    if (at_once) {
      GemmStreams all;
      all.a = work.a;
      all.x = work.x;
      all.a_lane = work.a_k;
      all.x_lane = work.x_k;
      all.to = work.y;
      all.rows = work.rows;
      table.single[work.k - 1](all);
    } else {
      each_tile(work.waiting / item, [&](int64_t row, int64_t rows) { few_columns(terms, row, rows); });
    }
    return true;
  }

  void columns() const {
    if (kernels.source_bytes != item) return strips(with_factors(), table.strips);
    const bool whole = work.a_k == work.rows && work.x_k == 1;
    if (whole && work.k >= kNarrowDepth && work.rows <= table.narrow_rows) return table.narrow[work.rows - 1](work);
    if (table.grouped != nullptr && whole && worth_grouping()) return grouped();
    if (table.lane_strips != nullptr && worth_strips_of_lanes()) return strips(work, table.lane_strips);
    if (all_few_columns()) return;
    if (work.tile == 0 || work.rows < table.strip_vectors * width) return strips(work, table.strips);
    const int64_t terms = (work.k + lanes - 1) >> lane_bits;
    const bool fetched = parts > 1 && work.far && !work.by_chain;
    each_tile(work.tile, [&](int64_t row, int64_t rows) { in_parts(terms, fetched, row, rows); });
  }
};

}  // namespace

void gemm_by_vector(const GemmKernels& kernels, const GemmVector& work) {
  const ByVector product(kernels, work);
  if (work.a_k == 1) product.rows();
  else product.columns();
}

}  // namespace weft
