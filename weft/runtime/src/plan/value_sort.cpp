// Sorts of values alone: each row by NumPy's sort, by counting, or in pieces on all threads, which are then merged.
//
// f32 [2, nan, -0., 0.]  ->  set aside: nan, the signs of zeros  ->  [2, 0., 0.] sorted  ->  [-0., 0., 2, nan]
//
// 4 and 8 bytes: NumPy's sort; a long row in pieces, which are merged. 1 and 2 bytes: by counting where a row is long,
// otherwise by NumPy's sort or (2 bytes) a radix sort in two passes. Equal numbers have equal bits, so that the result
// does not depend on the number of pieces. Along axes other than the last, neighbouring rows are sorted as one tile.
#include "value_sort.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "figures.h"
#include "pool.h"
#include "stream.h"

namespace weft {
namespace {

constexpr int64_t kLong = 1 << 15;  // rows of at least so many elements are shared between threads
constexpr int64_t kPiece = 1 << 22;  // elements that NumPy sorts at once, 50 ms: interrupts are handled in between
constexpr int64_t kBlock = 1 << 16;  // elements between two checks for an interrupt
constexpr int64_t kLooked = 1 << 11;  // elements that are inspected while they are in the L1 cache
// bytes of neighbouring rows that are sorted together, at least one cache line of each
constexpr int64_t kTile = 1 << 15;
constexpr int64_t kAhead = 16;  // rows of a tile that are prefetched, since their cache lines are far apart
constexpr int64_t kMostTile = 1 << 26;  // bytes
// shorter rows are faster otherwise
constexpr int64_t kCountedBytes = 64, kDigitsHalves = 1536, kCountedHalves = 1 << 17;
constexpr int64_t kMostParts = 8;  // parts of a row that is counted

template <typename Body>
void in_parallel(int64_t total, int64_t grain, double cost_ns, const Body& body) {
  auto run = [](void* context, int64_t low, int64_t high) { (*static_cast<const Body*>(context))(low, high); };
  pool_run(run, const_cast<void*>(static_cast<const void*>(&body)), total, grain, cost_ns);
}

// Two sorted runs, and where their merged elements go.
template <typename Number>
struct Runs {
  const Number *a, *a_end, *b, *b_end;
  Number* out;

  int64_t safe() const { return std::min(a_end - a, b_end - b); }

  void one() {
    bool second = *b < *a;
    const Number* from = second ? b : a;
    *out++ = *from;
    b += second;
    a += !second;
  }

  void finish() {
    for (int64_t count; (count = safe()) > 0;)
      for (int64_t i = 0; i < count; ++i) one();
    out = std::copy(a, a_end, out);
    std::copy(b, b_end, out);
  }

  // How many of the first k merged elements come from a.
  int64_t rank(int64_t k) const {
    int64_t low = std::max<int64_t>(0, k - (b_end - b)), high = std::min<int64_t>(k, a_end - a);
    while (low < high) {
      int64_t middle = (low + high) / 2;
      if (a[middle] < b[k - middle - 1]) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  Runs part(int64_t first, int64_t last) const {
    int64_t low = rank(first), high = rank(last);
    return {a + low, a + high, b + (first - low), b + (last - high), out + first};
  }
};

// Merges elements first to last. Four parts are merged in turns, so that the latency of one does not stall the others.
template <typename Number>
void merge(const Runs<Number>& runs, int64_t first, int64_t last) {
  int64_t n = last - first;
  Runs<Number> p = runs.part(first, first + n / 4), q = runs.part(first + n / 4, first + n / 2),
               r = runs.part(first + n / 2, last - n / 4), s = runs.part(last - n / 4, last);
  for (int64_t count; (count = std::min({p.safe(), q.safe(), r.safe(), s.safe()})) > 0;) {
    for (int64_t i = 0; i < count; ++i) {
      p.one();
      q.one();
      r.one();
      s.one();
    }
  }
  p.finish();
  q.finish();
  r.finish();
  s.finish();
}

template <typename Word, typename Number>
class Sorter {
 public:
  Sorter(const ValueOrder& order, const SortedRows& rows, uint64_t number)
      : order_(order), rows_(rows), number_(number), threads_(pool_threads()) {
    int64_t line = std::max(kLine, kTile / rows.n) / kBytes, most = std::max<int64_t>(1, kMostTile / kBytes / rows.n);
    int64_t outer = rows.rows / rows.inner;
    tile_ = std::clamp<int64_t>((rows.rows + threads_ - 1) / threads_, 1, std::min({line, most, rows.inner}));
    if (outer > threads_) tile_ = std::min({line, most, rows.inner});
    tiles_ = (rows.inner + tile_ - 1) / tile_;
    shared_ = rows.n >= kLong && threads_ > 1 && (rows.rows < threads_ || rows.n > kPiece);
  }

  Status run() {
    int64_t blocks = rows_.rows / rows_.inner * tiles_;
    double cost = sort_values_cost_ns(rows_.rows, rows_.n);
    auto body = [this](int64_t low, int64_t high) { some(low, high); };
    if (shared_ || !pool_worth(cost)) body(0, blocks);
    else in_parallel(blocks, 1, cost, body);
    trim_thread_scratch();
    return stream_cancelled(number_) ? Status::cancelled : status_.load();
  }

 private:
  static constexpr int64_t kBytes = sizeof(Word);
  static constexpr Word kSign = Word(Word(1) << (8 * sizeof(Word) - 1));
  static constexpr int64_t kValues = kBytes <= 2 ? int64_t{1} << (8 * (kBytes <= 2 ? kBytes : 1)) : 0;
  static constexpr Word kFlip = std::is_signed_v<Number> && kBytes <= 2 ? kSign : Word(0);

  struct Scratch {
    Word* spare;       // n
    uint8_t* signs;  // n: signs of the zeros, in their order
    uint32_t* counts;  // by part and value
    Word* tile;
  };

  bool floats() const { return order_.order == 'f'; }
  bool stopped() const { return stream_cancelled(number_); }
  int64_t parts() const { return shared_ ? std::min<int64_t>(threads_, kMostParts) : 1; }
  int64_t tile_row() const { return rows_.n + kLine / kBytes; }  // so that rows start in different sets of the cache

  Scratch scratch() {
    int64_t n = rows_.n, spare = (n * kBytes + 7) / 8 * 8, signs = floats() ? (n + 7) / 8 * 8 : 0;
    bool counted = kBytes == 1 ? n >= kCountedBytes : kBytes == 2 && n >= kCountedHalves;
    int64_t counts = counted ? parts() * kValues * 4 * int64_t(sizeof(uint32_t)) : 0;
    int64_t tile = rows_.inner > 1 ? tile_ * tile_row() * kBytes : 0;
    auto* at = static_cast<char*>(thread_scratch(spare + signs + counts + tile));
    if (at == nullptr) return {};
    return {reinterpret_cast<Word*>(at), reinterpret_cast<uint8_t*>(at + spare),
            reinterpret_cast<uint32_t*>(at + spare + signs), reinterpret_cast<Word*>(at + spare + signs + counts)};
  }

  void some(int64_t low, int64_t high) {
    Scratch space = scratch();
    if (space.spare == nullptr) status_.store(Status::no_memory);
    for (int64_t block = low; block < high && status_.load() == Status::ok && !stopped(); ++block) {
      if (rows_.inner == 1) sort_row_of(block, space);
      else sort_tile(block, space);
    }
  }

  void sort_row_of(int64_t row, const Scratch& space) {
    auto* from = reinterpret_cast<const Word*>(rows_.from) + row * rows_.n;
    auto* to = reinterpret_cast<Word*>(rows_.to) + row * rows_.n;
    bool special = (from != to || floats()) && copy(from, to);
    sort(to, special, space);
  }

  void sort_tile(int64_t block, const Scratch& space) {
    int64_t column = block % tiles_ * tile_, width = std::min(tile_, rows_.inner - column);
    int64_t first = block / tiles_ * rows_.n * rows_.inner + column, row = tile_row();
    auto* from = reinterpret_cast<const Word*>(rows_.from) + first;
    auto* to = reinterpret_cast<Word*>(rows_.to) + first;
    for (int64_t i = 0; i < rows_.n; ++i) {
      ahead(from + i * rows_.inner, width);
      for (int64_t k = 0; k < width; ++k) space.tile[k * row + i] = from[i * rows_.inner + k];
    }
    for (int64_t k = 0; k < width && !stopped(); ++k) {
      Word* words = space.tile + k * row;
      sort(words, floats() && copy(words, words), space);
    }
    for (int64_t i = 0; i < rows_.n; ++i) {
      ahead(to + i * rows_.inner, width);
      for (int64_t k = 0; k < width; ++k) to[i * rows_.inner + k] = space.tile[k * row + i];
    }
  }

  // Prefetches the cache lines of a later row of a tile; harmless where there is no such memory.
  void ahead(const Word* row, int64_t width) const {
    auto* later = reinterpret_cast<const char*>(uintptr_t(row) + uintptr_t(kAhead * rows_.inner * kBytes));
    for (int64_t at = 0; at < width * kBytes; at += kLine) __builtin_prefetch(later + at);
  }

  // Copies, and tells whether bits of an element do not follow from its position in the order (NaN, zeros).
  bool copy(const Word* from, Word* to) const {
    std::atomic<bool> found{false};
    auto part = [this, from, to, &found](int64_t low, int64_t high) {
      bool special = false;
      for (int64_t stop; low < high; low = stop) {
        stop = std::min(high, low + kLooked);
        if (from != to) std::memcpy(to + low, from + low, size_t(stop - low) * sizeof(Word));
        special = special || (floats() && is_special(to + low, stop - low));
      }
      if (special) found.store(true);
    };
    if (shared_) in_parallel(rows_.n, kBlock, double(rows_.n) * figures.value_pass_ns, part);
    else part(0, rows_.n);
    return found.load();
  }

  bool is_special(const Word* words, int64_t n) const {
    using Bits = std::make_signed_t<Word>;
    constexpr Bits kLeast = Bits(kSign);
    Bits infinity = Bits(order_.infinity), special = 0;
    for (int64_t i = 0; i < n; ++i) {
      Bits bits = Bits(words[i]);
      special |= Bits(-Bits(Bits(bits & Bits(~kLeast)) > infinity)) | Bits(-Bits(bits == kLeast));
    }
    return special != 0;
  }

  void sort(Word* words, bool special, const Scratch& space) {
    if (floats()) sort_floats(words, special, space);
    else sort_numbers(words, rows_.n, space);
  }

  // ---- floats

  static Word turned(Word bits) { return Word(bits ^ Word(Word(-Word(bits >> (8 * kBytes - 1))) | kSign)); }
  static Word turned_back(Word word) { return Word(word ^ Word(Word(Word(word >> (8 * kBytes - 1)) - 1) | kSign)); }

  void sort_floats(Word* words, bool special, const Scratch& space) {
    int64_t n = rows_.n, zeros = 0;
    bool negative = false;
    if (special) n = set_aside(words, space, &zeros, &negative);
    if (kBytes <= 2)
      for (int64_t i = 0; i < n; ++i) words[i] = turned(words[i]);
    sort_numbers(words, n, space);
    if (kBytes <= 2)
      for (int64_t i = 0; i < n; ++i) words[i] = turned_back(words[i]);
    if (!negative || stopped()) return;
    Word* zero = std::lower_bound(words, words + n, kSign, [](Word word, Word sign) { return turned(word) < sign; });
    for (int64_t i = 0; i < zeros; ++i) zero[i] = space.signs[i] ? kSign : Word(0);
  }

  // Moves NaN behind the numbers, records the signs of zeros and clears them; returns how many numbers there are.
  int64_t set_aside(Word* words, const Scratch& space, int64_t* zeros, bool* negative) const {
    int64_t n = 0, nans = 0;
    Word infinity = Word(order_.infinity);
    for (int64_t i = 0; i < rows_.n; ++i) {
      Word bits = words[i], size = Word(bits & Word(~kSign));
      space.spare[nans] = bits;
      nans += size > infinity;
      space.signs[*zeros] = uint8_t(bits >> (8 * kBytes - 1));
      *negative |= bits == kSign;
      *zeros += size == 0;
      words[n] = size == 0 ? size : bits;
      n += size <= infinity;
    }
    std::memcpy(words + n, space.spare, size_t(nans) * sizeof(Word));
    return n;
  }

  // ---- numbers

  void sort_numbers(Word* words, int64_t n, const Scratch& space) {
    if constexpr (kBytes == 1) {
      if (n >= kCountedBytes) return sort_counted(words, n, space.counts);
    } else if constexpr (kBytes == 2) {
      if (n >= kCountedHalves) return sort_counted(words, n, space.counts);
      if (n >= kDigitsHalves) return sort_digits(words, n, space.spare);
    } else if (shared_ || n > kPiece) {
      return sort_pieces(words, n, space.spare);
    }
    order_.numbers(words, n, nullptr);
  }

  // Radix sort, one byte per pass.
  void sort_digits(Word* words, int64_t n, Word* spare) const {
    uint32_t next[2][256] = {}, at[2] = {};
    for (int64_t i = 0; i < n; ++i) {
      ++next[0][words[i] & 255];
      ++next[1][Word(words[i] ^ kFlip) >> (8 * kBytes - 8)];
    }
    for (int digit = 0; digit < 256; ++digit)
      for (int pass = 0; pass < 2; ++pass) at[pass] += std::exchange(next[pass][digit], at[pass]);
    for (int64_t i = 0; i < n; ++i) spare[next[0][words[i] & 255]++] = words[i];
    for (int64_t i = 0; i < n; ++i) words[next[1][Word(spare[i] ^ kFlip) >> (8 * kBytes - 8)]++] = spare[i];
  }

  void sort_counted(Word* words, int64_t n, uint32_t* counts) const {
    int64_t n_parts = parts();
    // Four separate counts of each value: equal neighbours would wait for each other's count.
    auto count = [=, this](int64_t low, int64_t high) {
      for (int64_t part = low; part < high; ++part) {
        uint32_t* mine = counts + part * kValues * 4;
        std::fill_n(mine, kValues * 4, 0);
        int64_t i = n / n_parts * part, end = part + 1 == n_parts ? n : n / n_parts * (part + 1);
        while (i < end && !stopped()) {
          int64_t stop = std::min(end, i + kBlock);
          for (; i + 4 <= stop; i += 4)
            for (int64_t k = 0; k < 4; ++k) ++mine[Word(words[i + k] ^ kFlip) + k * kValues];
          for (; i < stop; ++i) ++mine[Word(words[i] ^ kFlip)];
        }
      }
    };
    if (n_parts == 1) count(0, 1);
    else in_parallel(n_parts, 1, double(n), count);
    if (stopped()) return;
    for (int64_t part = 1; part < 4 * n_parts; ++part)
      for (int64_t value = 0; value < kValues; ++value) counts[value] += counts[part * kValues + value];
    write_counted(words, words + n, counts);
  }

  // Writes each value as often as counted. Short runs are written longer, and the next value overwrites the excess.
  void write_counted(Word* to, const Word* end, const uint32_t* counts) const {
    constexpr int64_t kAtOnce = 32 / kBytes;
    for (int64_t value = 0; value < kValues; ++value) {
      int64_t count = counts[value];
      if (count == 0) continue;
      Word word = Word(Word(value) ^ kFlip);
      if (count <= kAtOnce && end - to >= kAtOnce) std::fill_n(to, kAtOnce, word);
      else std::fill_n(to, count, word);
      to += count;
    }
  }

  void sort_pieces(Word* words, int64_t n, Word* spare) {
    int64_t pieces = 1;
    int levels = 0;
    for (; pieces < (n >= kLong ? threads_ : 1) || n / pieces > kPiece; pieces *= 2) ++levels;
    double cost = sort_values_cost_ns(1, n);
    auto begin = [=](int64_t piece) { return int64_t(__int128(n) * piece / pieces); };
    Word *from = words, *to = spare;
    if (levels % 2 == 1) std::swap(from, to);
    in_parallel(pieces, 1, cost, [=, this](int64_t low, int64_t high) {
      for (int64_t piece = low; piece < high && !stopped(); ++piece) {
        int64_t first = begin(piece), count = begin(piece + 1) - first;
        if (from != words) std::memcpy(from + first, words + first, size_t(count) * sizeof(Word));
        order_.numbers(from + first, count, nullptr);
      }
    });
    for (int64_t width = 1; width < pieces && !stopped(); width *= 2) {
      in_parallel(n, kBlock / 4, double(n), [=, this](int64_t low, int64_t high) {
        int64_t pair = 0;
        while (begin(pair + 2 * width) <= low) pair += 2 * width;
        for (; low < high && !stopped(); pair += 2 * width) {
          int64_t first = begin(pair), middle = begin(pair + width), end = std::min(begin(pair + 2 * width), high);
          merge(runs(from, to, first, middle, begin(pair + 2 * width)), low - first, end - first);
          low = end;
        }
      });
      std::swap(from, to);
    }
  }

  static Runs<Number> runs(Word* from, Word* to, int64_t first, int64_t middle, int64_t end) {
    auto* numbers = reinterpret_cast<const Number*>(from);
    return {numbers + first, numbers + middle, numbers + middle, numbers + end, reinterpret_cast<Number*>(to) + first};
  }

  const ValueOrder& order_;
  const SortedRows& rows_;
  uint64_t number_;
  int64_t threads_, tile_, tiles_;
  bool shared_;
  std::atomic<Status> status_{Status::ok};
};

template <typename Word, typename Number>
Status sort_as(const ValueOrder& order, const SortedRows& rows, uint64_t number) {
  return Sorter<Word, Number>(order, rows, number).run();
}

}  // namespace

ValueOrder value_order(char order, int bytes, uint64_t infinity) {
  int type = bytes == 1 ? NPY_UINT8 : bytes == 2 ? NPY_UINT16 : bytes == 4 ? NPY_UINT32 : NPY_UINT64;
  if (order == 'i') type = bytes == 1 ? NPY_INT8 : bytes == 2 ? NPY_INT16 : bytes == 4 ? NPY_INT32 : NPY_INT64;
  if (order == 'f' && bytes >= 4) type = bytes == 4 ? NPY_FLOAT32 : NPY_FLOAT64;
  return {order, bytes, infinity, numpy_sort(type)};
}

double sort_values_cost_ns(int64_t rows, int64_t n) {
  return double(rows) * double(n) * std::log2(double(n) + 1) * figures.value_compare_ns;
}

Status sort_values(const ValueOrder& order, const SortedRows& rows, uint64_t number) {
  bool is_float = order.order == 'f', is_signed = order.order == 'i';
  if (order.bytes == 1) return (is_signed ? sort_as<uint8_t, int8_t> : sort_as<uint8_t, uint8_t>)(order, rows, number);
  if (order.bytes == 2)
    return (is_signed ? sort_as<uint16_t, int16_t> : sort_as<uint16_t, uint16_t>)(order, rows, number);
  if (order.bytes == 4)
    return (is_float    ? sort_as<uint32_t, float>
            : is_signed ? sort_as<uint32_t, int32_t>
                        : sort_as<uint32_t, uint32_t>)(order, rows, number);
  return (is_float    ? sort_as<uint64_t, double>
          : is_signed ? sort_as<uint64_t, int64_t>
                      : sort_as<uint64_t, uint64_t>)(order, rows, number);
}

}  // namespace weft
