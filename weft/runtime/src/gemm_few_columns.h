// A matrix of few contiguous columns, however long, by a vector, as kernels of matrix products.
//
// Up to kStreams columns, or one of each lane, are read side by side, each from end to end, which is what the processor
// fetches ahead best. They are all terms of some lanes. What these lanes add up to waits in memory until the tree of lanes
// wants it.
#pragma once

#include "gemm_kernels.h"
#include "gemm_lanes.h"
#include "gemm_rows.h"

namespace weft {
namespace {

constexpr int kTreeLevels = 5;  // sums of lanes that wait for others: of 1, 2, 4, 8, and all 16

// The lanes in the order in which the tree of their sums needs the fewest waiting: their bits are mirrored.
template <int lanes>
inline int lane_after(int lane) {
  int bit = lanes / 2;
  for (; lane & bit; bit /= 2) lane ^= bit;
  return lane ^ bit;
}
// How many of them the sum of lane `index` in this order is added to.
inline int waiting_levels(int index) { return __builtin_ctz(~unsigned(index)); }

constexpr int kStreams = kVectorBytes == 64 ? 16 : 8;  // columns read at a time, if lanes have several
constexpr int kAliasedStreams = 8;                     // columns, if their lines share sets of the first cache
constexpr int64_t kAliasingPitch = 4096;               // bytes from lane to lane: then lines share a set

constexpr int kMostTerms = 16;           // terms of a lane: more are not few columns
constexpr int kStreamAhead = 8;          // vectors of a column that are fetched: prefetching begins anew with each page
constexpr int64_t kStreamedBytes = 384;  // bytes of a column for each term of a lane; strips are faster for fewer

// Columns that are the terms of some lanes, from one row on.
template <class E>
struct Streams {
  using T = typename E::T;
  const T* a;
  const T* x;
  int64_t a_lane, a_term, x_lane, x_term;  // elements between columns, or factors, of two lanes, and of two terms of one
  int full;                                // lanes that have a last term
  T* to;
  const T* waiting;  // sums for the tree, `apart` elements from one to the next; `levels` of them are added
  int64_t apart;
  int levels;
  T* chain;          // of a single lane that is read in parts: what it adds up to so far
  bool begun, ends;  // it is read there; it is not left there
};

// Adds up `rows` rows of `together` lanes of `terms` columns each, but of one less from lane `full` on; `known` is `full`
// where it is known at compile time, or else 0. Lines are fetched `ahead` vectors before they are read, if it is not 0.
template <class E, int together, int terms, int known, int ahead>
void add_streams(const Streams<E>& group, int64_t rows) {
  const int full = known > 0 ? known : group.full;
  typename E::Factor factors[together][terms];
#pragma GCC unroll 16
  for (int lane = 0; lane < together; ++lane)
#pragma GCC unroll 16
    for (int term = 0; term < terms; ++term) {
      const bool there = term + 1 < terms || lane < full;
      factors[lane][term] = E::splat(group.x[there ? lane * group.x_lane + term * group.x_term : 0]);
    }
  const auto total = [&](int64_t row, auto... n) __attribute__((always_inline)) {
    typename E::V lanes[together];
#pragma GCC unroll 16
    for (int lane = 0; lane < together; ++lane) {
      const typename E::T* from = group.a + row + lane * group.a_lane;
      typename E::Sum sum{};
      if (together == 1 && group.begun) sum = E::load_sum(group.chain + row, group.apart, n...);
#pragma GCC unroll 16
      for (int term = 0; term < terms; ++term, from += group.a_term) {
        if (term + 1 == terms && lane >= full) continue;
        if (ahead > 0) __builtin_prefetch(from + ahead * E::W);
        sum = E::fma(factors[lane][term], E::load(from, n...), sum);
      }
      if (together == 1 && !group.ends) E::store_sum(group.chain + row, group.apart, sum, n...);
      lanes[lane] = E::total(sum);
    }
#pragma GCC unroll 4
    for (int width = kLanes<E> / 2; width > 0; width /= 2)
#pragma GCC unroll 8
      for (int lane = 0; lane < width; ++lane)
        if (lane + width < together) lanes[lane] = lanes[lane] + lanes[lane + width];
    for (int level = 0; level < group.levels; ++level)
      lanes[0] = E::load(group.waiting + level * group.apart + row, n...) + lanes[0];
    if (terms == 1 && known > 0 && known < kLanes<E>) lanes[0] = lanes[0] + typename E::V{};  // the other lanes, of nothing
    return lanes[0];
  };
  const bool kept = together > 1 || group.ends;
  int64_t row = 0;
  for (; row + E::W <= rows; row += E::W) {
    const typename E::V sum = total(row);
    if (kept) E::store(group.to + row, sum);
  }
  if (row == rows) return;
  const int last = int(rows - row);
  const typename E::V sum = total(row, last);
  if (kept) E::store(group.to + row, sum, last);
}

// Calls add(group, lane) for each group of lanes that are `groups` apart, from `lane` on, in the order of the tree.
template <class E, int groups, class Add>
inline void each_group(const GemmVector& work, int64_t row, int64_t rows, Add add) {
  using T = typename E::T;
  const bool straight = work.y_row == 1 && !work.add;
  T* y = reinterpret_cast<T*>(work.y) + row * work.y_row;
  T* waiting = reinterpret_cast<T*>(work.scratch);
  Streams<E> group{};
  group.a_lane = groups * work.a_k;
  group.a_term = kLanes<E> * work.a_k;
  group.x_lane = groups * work.x_k;
  group.x_term = kLanes<E> * work.x_k;
  group.waiting = waiting;
  group.apart = straight && groups == 1 ? 0 : (rows + E::W - 1) / E::W * E::W;
  group.chain = waiting + kTreeLevels * group.apart;
  group.ends = true;
  for (int i = 0, lane = 0; i < groups; ++i, lane = lane_after<groups>(lane)) {
    group.levels = waiting_levels(i);
    group.to = straight && i + 1 == groups ? y : waiting + group.levels * group.apart;
    add(group, lane);
  }
  if (!straight) put(y, work.y_row, group.to, rows, work.add);
}

template <class E>
inline void begin_at(Streams<E>* group, const GemmVector& work, int64_t row, int64_t k) {
  group->a = reinterpret_cast<const typename E::T*>(work.a) + row + k * work.a_k;
  group->x = reinterpret_cast<const typename E::T*>(work.x) + k * work.x_k;
}

using FewColumns = void (*)(const GemmVector& work, int64_t row, int64_t rows);

// Rows `row` to `row` + `rows`, where `together` lanes of `terms` columns are read at a time; or all columns, `known`.
template <class E, int together, int terms, int known, int ahead = kStreamAhead>
void few_columns(const GemmVector& work, int64_t row, int64_t rows) {
  constexpr int groups = known > 0 ? 1 : kLanes<E> / together;
  const int64_t full = work.k - (terms - 1) * kLanes<E>;
  each_group<E, groups>(work, row, rows, [&](Streams<E>& group, int lane) {
    begin_at(&group, work, row, lane);
    group.full = int((full - lane + groups - 1) / groups);
    add_streams<E, together, terms, known, ahead>(group, rows);
  });
}

// A lane in parts has more than kAliasedStreams columns or just as many, so that each part has at least half as many.
template <class E, int... i>
inline void add_part(const Streams<E>& group, int64_t terms, int64_t rows, Indices<i...>) {
  constexpr int least_terms = kAliasedStreams / 2;
  using Add = void (*)(const Streams<E>& group, int64_t rows);
  static constexpr Add functions[] = {add_streams<E, 1, least_terms + i, 1, kStreamAhead>...};
  functions[terms - least_terms](group, rows);
}

// The same, where the columns of one lane are more than are read at a time.
template <class E>
void few_columns_in_parts(const GemmVector& work, int64_t row, int64_t rows) {
  each_group<E, kLanes<E>>(work, row, rows, [&](Streams<E>& group, int lane) {
    const int64_t terms = (work.k - lane + kLanes<E> - 1) / kLanes<E>;
    const int64_t parts = (terms + kAliasedStreams - 1) / kAliasedStreams;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = terms * part / parts, end = terms * (part + 1) / parts;
      begin_at(&group, work, row, lane + begin * kLanes<E>);
      group.begun = part > 0;
      group.ends = part + 1 == parts;
      add_part<E>(group, end - begin, rows, typename MakeIndices<kAliasedStreams / 2 + 1>::Type{});
    }
  });
}

// The lanes of so many terms each that are at most so many columns.
template <class E>
constexpr int lanes_of(int terms, int streams) {
  int lanes = kLanes<E>;
  while (lanes > 1 && lanes * terms > streams) lanes /= 2;
  return lanes;
}

template <class E, int... i>
inline FewColumns by_column(int64_t columns, Indices<i...>) {
  static constexpr FewColumns functions[] = {few_columns<E, i + 1, 1, i + 1>...};
  return functions[columns - 1];
}
template <class E, int streams, int... i>
inline FewColumns by_terms(int64_t terms, Indices<i...>) {
  static constexpr FewColumns functions[] = {few_columns<E, lanes_of<E>(i + 2, streams), i + 2, 0>...};
  return functions[terms - 2];
}

// The function for more than kAliasedStreams columns of a single lane.
template <class E, int... i>
inline FewColumns by_terms_unfetched(int64_t terms, Indices<i...>) {
  static constexpr FewColumns functions[] = {few_columns<E, 1, kAliasedStreams + 1 + i, 0, 0>...};
  return functions[terms - kAliasedStreams - 1];
}

// The function for columns that have `terms` in each lane. Of those that share sets of the first cache, fewer are fetched
// than it has ways. A whole lane is mostly faster unfetched: its sums need not wait for its other part.
template <class E>
inline FewColumns function_for(const GemmVector& work, int64_t terms) {
  constexpr int many = kStreams, few = kAliasedStreams;
  if (terms == 1) return by_column<E>(work.k, typename MakeIndices<kLanes<E>>::Type{});
  const int64_t pitch = kLanes<E> / lanes_of<E>(int(terms), many) * work.a_k * int64_t(sizeof(typename E::T));
  const bool aliased = many > few && pitch % kAliasingPitch == 0;
  if constexpr (many > few) {
    if (aliased && terms > few && !work.in_parts)
      return by_terms_unfetched<E>(terms, typename MakeIndices<many - few>::Type{});
  }
  if (terms > (aliased ? few : many)) return few_columns_in_parts<E>;
  if (aliased) return by_terms<E, few>(terms, typename MakeIndices<few - 1>::Type{});
  return by_terms<E, many>(terms, typename MakeIndices<many - 1>::Type{});
}

static_assert(kTreeLevels + 2 <= kGemmWaiting, "the sums of a tree and of a complex chain");

// Calls function(work, row, rows) for tiles of so many rows, from the last one if `backwards`.
template <class Function>
inline void each_tile(const GemmVector& work, int64_t tile, Function function) {
  const int64_t tiles = (work.rows + tile - 1) / tile;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t row = (work.backwards ? tiles - 1 - i : i) * tile;
    function(work, row, least(tile, work.rows - row));
  }
}

// Whether a has so few columns, and such long ones, that they were multiplied side by side.
template <class E>
inline bool all_few_columns(const GemmVector& work) {
  constexpr int64_t item = sizeof(typename E::T);
  const int64_t terms = (work.k + kLanes<E> - 1) / kLanes<E>;
  if (terms > kMostTerms || (terms > 1 && work.rows * item < kStreamedBytes * terms)) return false;
  const bool at_once = terms == 1 && work.y_row == 1 && !work.add && !work.backwards;  // nothing waits
  each_tile(work, at_once ? work.rows : work.waiting / item, function_for<E>(work, terms));
  return true;
}

}  // namespace
}  // namespace weft
