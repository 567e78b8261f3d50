// Sorts of rows as steps of a plan: the positions of a row are sorted by the keys, then its values are moved.
//
//   keys f32 [2, nan, -1]  ->  words c0000000, ffffffff, 407fffff  ->  positions 2 0 1  ->  values at these
//
// The order is that of operations/sort.py. If one key and its position fit into a word of 32 or 64 bits, these words
// are sorted by NumPy's sort. Otherwise, a 64-bit key uses NumPy's unstable argsort, and the positions of equal keys
// are sorted afterwards; several keys are compared word by word, positions last. Long rows of bytes are sorted by
// counting. A few long rows of words are sorted one after the other, each on all threads (value_sort.h).
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "figures.h"
#include "numpy_api.h"
#include "fields.h"
#include "plan.h"
#include "pool.h"
#include "stream.h"
#include "value_sort.h"

namespace weft {
namespace {

constexpr int64_t kCounted = 64;  // rows of at least so many bytes are sorted by counting
// parts of such a row, counted separately: equal neighbours would wait for each other's count
constexpr int64_t kParts = 4;
constexpr int64_t kShared = 1 << 15;  // rows of at least so many words are shared between threads
constexpr int64_t kLongest = 1 << 22;  // longer rows are always shared: interrupts are handled between their pieces
constexpr int64_t kGrain = 1 << 14;   // elements of such a row that one thread reads or moves at least

struct Key {
  Location location;
  char order;  // how bits are compared: u(nsigned), i(nteger) or f(loat)
  int bytes;         // of a word
  int64_t distance;  // bytes from one element to the next in memory
  uint64_t infinity;
};

struct Moved {
  Location from, to;
  int bytes;
};

class SortStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    if (is_alone) return run_alone(frame);
    if (is_shared()) return run_shared(frame);
    Job job{this, &frame};
    if (pool_worth(cost_ns())) pool_run(some, &job, rows, 1, cost_ns());
    else some(&job, 0, rows);
    trim_thread_scratch();
    return job.status.load();
  }
  double cost_ns() const override {
    if (is_alone) return sort_values_cost_ns(rows, n);
    return double(rows * n) * std::log2(double(n) + 1) * (way() == Way::compared ? figures.compare_ns : figures.vector_compare_ns);
  }

  int64_t rows = 0, n = 0;  // rows, and elements of a row
  int64_t inner = 0;  // stride of the elements of a row, in elements
  int64_t kept = 0;  // how many elements of every row are kept
  bool largest = false;     // descending from NaN to -NaN, and 0.0 before -0.0
  int position_bytes = 0;  // 4, 8, or 0 if no positions are stored
  Location positions{};
  std::vector<Key> keys;
  std::vector<Moved> values;
  PyArray_SortFunc *sort_halves = nullptr, *sort_words = nullptr;  // NumPy's, of uint32 and uint64
  PyArray_ArgSortFunc* rank_words = nullptr;  // NumPy's argsort of uint64, equal ones in any order
  bool is_alone = false;  // one key, and only its values are moved: its order is in `alone`
  ValueOrder alone{};

 private:
  struct Job {
    const SortStep* step;
    const Frame* frame;
    std::atomic<Status> status{Status::ok};
  };

  Status run_alone(const Frame& frame) const {
    return sort_values(alone, {values[0].from.address(frame), values[0].to.address(frame), rows, n, inner},
                       frame.number);
  }

  bool is_shared() const {
    return n >= kShared && (rows < pool_threads() || n > kLongest) && !is_few() && way() == Way::words;
  }

  Status run_shared(const Frame& frame) const {
    Buffer* space = buffer_allocate(n * 12);
    if (space == nullptr) return Status::no_memory;
    Status status = Status::ok;
    auto* words = reinterpret_cast<uint64_t*>(space->data);
    for (int64_t row = 0; row < rows && status == Status::ok; ++row)
      status = sort_shared(frame, row, words, reinterpret_cast<uint32_t*>(words + n));
    buffer_release(space);
    return status;
  }

  Status sort_shared(const Frame& frame, int64_t row, uint64_t* words, uint32_t* order) const {
    int64_t from = row / inner * n * inner + row % inner, to = row / inner * kept * inner + row % inner;
    in_chunks(n, figures.sort_read_ns, [&](int64_t low, int64_t high) { read(keys[0], frame, from, words, 32, low, high); });
    auto* bytes = reinterpret_cast<char*>(words);
    Status status = sort_values(value_order('u', 8, 0), {bytes, bytes, 1, n, 1}, frame.number);
    if (status != Status::ok) return status;
    in_chunks(kept, figures.sort_move_ns, [&](int64_t low, int64_t high) {
      for (int64_t i = low; i < high; ++i) order[i] = uint32_t(words[i]);
      for (const Moved& moved : values) move(moved, frame, from, to, order, low, high);
      put_positions(frame, to, order, low, high);
    });
    return Status::ok;
  }

  template <typename Body>
  static void in_chunks(int64_t total, double element_ns, const Body& body) {
    auto run = [](void* context, int64_t low, int64_t high) { (*static_cast<const Body*>(context))(low, high); };
    pool_run(run, const_cast<void*>(static_cast<const void*>(&body)), total, kGrain, double(total) * element_ns);
  }

  enum class Way { counted, halves, words, ranked, compared };

  Way way() const {
    const Key& key = keys[0];
    if (keys.size() > 1 || (key.bytes == 8 && is_few())) return Way::compared;
    if (key.bytes == 8) return Way::ranked;
    if (key.bytes == 1 && n >= kCounted) return Way::counted;
    return n <= int64_t{1} << (32 - 8 * key.bytes) ? Way::halves : Way::words;
  }

  static void some(void* context, int64_t low, int64_t high) {
    Job& job = *static_cast<Job*>(context);
    int64_t n = job.step->n, n_words = n * (int64_t(job.step->keys.size()) + (job.step->way() == Way::ranked));
    auto* words = static_cast<uint64_t*>(thread_scratch(n_words * 8 + n * 4));
    if (words == nullptr) job.status.store(Status::no_memory);
    for (int64_t row = low; row < high && job.status.load() == Status::ok; ++row) {
      if (stream_cancelled(job.frame->number)) job.status.store(Status::cancelled);
      else job.step->sort_row(*job.frame, row, words, reinterpret_cast<uint32_t*>(words + n_words));
    }
  }

  void sort_row(const Frame& frame, int64_t row, uint64_t* words, uint32_t* spare) const {
    int64_t from = row / inner * n * inner + row % inner, to = row / inner * kept * inner + row % inner;
    const uint32_t* order = sort_keys(frame, from, words, spare);
    for (const Moved& moved : values) move(moved, frame, from, to, order, 0, kept);
    put_positions(frame, to, order, 0, kept);
  }

  // The positions of the kept elements, in `order` or in the memory of `words`.
  const uint32_t* sort_keys(const Frame& frame, int64_t from, uint64_t* words, uint32_t* order) const {
    if (way() == Way::counted) {
      auto* bytes = reinterpret_cast<uint8_t*>(words);
      read(keys[0], frame, from, bytes, 0);
      count_bytes(bytes, order);
    } else if (way() == Way::halves) {
      auto* halves = reinterpret_cast<uint32_t*>(words);
      read(keys[0], frame, from, halves, 32 - 8 * keys[0].bytes);
      sort_packed(halves, halves, 32 - 8 * keys[0].bytes, sort_halves);
      return halves;
    } else if (way() == Way::words) {
      read(keys[0], frame, from, words, 32);
      sort_packed(words, order, 32, sort_words);
    } else {
      for (size_t i = 0; i < keys.size(); ++i) read(keys[i], frame, from, words + int64_t(i) * n, 0);
      if (way() == Way::ranked) rank(words, reinterpret_cast<npy_intp*>(words + n), order);
      else sort_compared(words, order);
    }
    return order;
  }

  // Elements low to high of a row whose first element in the result is `to`.
  void put_positions(const Frame& frame, int64_t to, const uint32_t* order, int64_t low, int64_t high) const {
    char* out = position_bytes == 0 ? nullptr : positions.address(frame);
    if (position_bytes == 4) put_positions(reinterpret_cast<uint32_t*>(out) + to, order, low, high);
    if (position_bytes == 8) put_positions(reinterpret_cast<uint64_t*>(out) + to, order, low, high);
  }
  template <typename Position>
  void put_positions(Position* out, const uint32_t* order, int64_t low, int64_t high) const {
    if (inner == 1) std::copy(order + low, order + high, out + low);
    else
      for (int64_t i = low; i < high; ++i) out[i * inner] = order[i];
  }

  // Makes words that ascend as the elements do; with a shift, the word is shifted left and the position added below.
  template <typename Word, typename Wide, typename Step>
  void read_words(const Key& key, const char* from, Wide* words, int shift, Step step, int64_t low,
                  int64_t high) const {
    constexpr Word kSign = Word(1) << (8 * sizeof(Word) - 1);
    const Word flip = Word((key.order == 'i' ? kSign : 0) ^ (largest ? Word(~Word(0)) : 0));
    const Word infinity = Word(key.infinity), zero = largest ? Word(0) : kSign, turned = Word(largest ? ~Word(0) : 0);
    const bool is_float = key.order == 'f';
    const Word below = Word(largest ? kSign : 0);  // of a NaN with this bit, which is then the least of all
    const Wide positioned = shift ? Wide(~Wide(0)) : Wide(0);
    for (int64_t i = low; i < high; ++i) {
      Word bits;
      std::memcpy(&bits, from + i * step, sizeof(Word));
      if (is_float) {
        Word size = Word(bits & Word(~kSign)), ordered = Word(bits & kSign ? Word(~bits) : Word(bits | kSign));
        ordered = size == 0 && zero != 0 ? zero : ordered;
        bits = Word((size > infinity ? Word(bits & below ? 0 : ~Word(0)) : ordered) ^ turned);
      } else {
        bits = Word(bits ^ flip);
      }
      words[i] = Wide(Wide(Wide(bits) << shift) | (Wide(i) & positioned));
    }
  }

  template <typename Word, typename Wide>
  void read_steps(const Key& key, const char* from, Wide* words, int shift, int64_t low, int64_t high) const {
    if (inner * key.distance != sizeof(Word)) read_words<Word>(key, from, words, shift, inner * key.distance, low, high);
    else read_words<Word>(key, from, words, shift, std::integral_constant<int64_t, sizeof(Word)>{}, low, high);
  }

  template <typename Wide>
  void read(const Key& key, const Frame& frame, int64_t first, Wide* words, int shift) const {
    read(key, frame, first, words, shift, 0, n);
  }
  template <typename Wide>
  void read(const Key& key, const Frame& frame, int64_t first, Wide* words, int shift, int64_t low,
            int64_t high) const {
    const char* from = key.location.address(frame) + first * key.distance;
    if (key.bytes == 1) return read_steps<uint8_t>(key, from, words, shift, low, high);
    if (key.bytes == 2) return read_steps<uint16_t>(key, from, words, shift, low, high);
    if (key.bytes == 4) return read_steps<uint32_t>(key, from, words, shift, low, high);
    read_steps<uint64_t>(key, from, words, shift, low, high);
  }

  bool is_few() const { return kept <= n / 8; }

  void count_bytes(const uint8_t* bytes, uint32_t* order) const {
    uint32_t next[kParts][256] = {}, at = 0;
    int64_t part = n / kParts;
    for (int64_t i = 0; i < part; ++i)
      for (int64_t k = 0; k < kParts; ++k) ++next[k][bytes[k * part + i]];
    for (int64_t i = kParts * part; i < n; ++i) ++next[kParts - 1][bytes[i]];
    for (int64_t value = 0; value < 256; ++value)
      for (int64_t k = 0; k < kParts; ++k) at += std::exchange(next[k][value], at);
    for (int64_t i = 0; i < part; ++i)
      for (int64_t k = 0; k < kParts; ++k) order[next[k][bytes[k * part + i]]++] = uint32_t(k * part + i);
    for (int64_t i = kParts * part; i < n; ++i) order[next[kParts - 1][bytes[i]]++] = uint32_t(i);
  }

  template <typename Word>
  void sort_packed(Word* words, uint32_t* order, int shift, PyArray_SortFunc* sort) const {
    if (is_few()) std::partial_sort(words, words + kept, words + n);
    else sort(words, n, nullptr);
    Word mask = Word((Word(1) << shift) - 1);
    for (int64_t i = 0; i < kept; ++i) order[i] = uint32_t(words[i] & mask);
  }

  void rank(uint64_t* words, npy_intp* ranked, uint32_t* order) const {
    std::iota(ranked, ranked + n, npy_intp{0});
    rank_words(words, ranked, n, nullptr);
    for (int64_t first = 0, end; first < kept; first = end) {
      uint64_t word = words[ranked[first]];
      for (end = first + 1; end < n && words[ranked[end]] == word;) ++end;
      if (end - first > 1) sort_words(ranked + first, end - first, nullptr);
    }
    for (int64_t i = 0; i < kept; ++i) order[i] = uint32_t(ranked[i]);
  }

  void sort_compared(const uint64_t* words, uint32_t* order) const {
    auto before = [words, end = words + n * int64_t(keys.size()), this](uint32_t a, uint32_t b) {
      for (const uint64_t* key = words; key != end; key += n)
        if (key[a] != key[b]) return key[a] < key[b];
      return a < b;
    };
    for (int64_t i = 0; i < n; ++i) order[i] = uint32_t(i);
    if (is_few()) std::partial_sort(order, order + kept, order + n, before);
    else std::sort(order, order + n, before);
  }

  template <typename Element>
  void move_elements(const char* from, char* to, const uint32_t* order, int64_t low, int64_t high) const {
    auto* source = reinterpret_cast<const Element*>(from);
    auto* target = reinterpret_cast<Element*>(to);
    for (int64_t i = low; i < high; ++i) target[i * inner] = source[int64_t(order[i]) * inner];
  }

  void move(const Moved& moved, const Frame& frame, int64_t from_first, int64_t to_first, const uint32_t* order,
            int64_t low, int64_t high) const {
    struct Wide {
      uint64_t halves[2];
    };
    const char* from = moved.from.address(frame) + from_first * moved.bytes;
    char* to = moved.to.address(frame) + to_first * moved.bytes;
    if (moved.bytes == 1) move_elements<uint8_t>(from, to, order, low, high);
    else if (moved.bytes == 2) move_elements<uint16_t>(from, to, order, low, high);
    else if (moved.bytes == 4) move_elements<uint32_t>(from, to, order, low, high);
    else if (moved.bytes == 8) move_elements<uint64_t>(from, to, order, low, high);
    else move_elements<Wide>(from, to, order, low, high);
  }
};

bool invalid_sort(const char* message) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, message);
  return false;
}

bool is_size(int bytes, int most) { return bytes > 0 && bytes <= most && (bytes & (bytes - 1)) == 0; }

bool read_keys(PyObject* keys, const LocationReader& locations, SortStep* step) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) {
    Key key{};
    PyObject *location, *item = PyTuple_GET_ITEM(keys, i);
    int order;
    long long distance;
    unsigned long long infinity;
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "OCiLK", &location, &order, &key.bytes, &distance, &infinity))
      return invalid_sort("[executable] a key is (location, order, bytes, distance, infinity)");
    if (!is_size(key.bytes, 8) || distance < key.bytes || distance > 16 ||
        (order != 'u' && order != 'i' && order != 'f'))
      return invalid_sort("[executable] a key has an unknown order or size");
    key.order = char(order);
    key.distance = distance;
    key.infinity = infinity;
    if (!locations.location(location, (step->rows * step->n - 1) * distance + key.bytes, &key.location)) return false;
    step->keys.push_back(key);
  }
  return !step->keys.empty() || invalid_sort("[executable] a sort without keys");
}

bool is_same(const Location& a, const Location& b) {
  return a.slot == b.slot && a.dynamic == b.dynamic && a.offset == b.offset;
}

bool is_alone(const SortStep& step) {
  return step.keys.size() == 1 && step.values.size() == 1 && step.position_bytes == 0 && step.kept == step.n &&
         !step.largest && step.keys[0].bytes == step.values[0].bytes &&
         is_same(step.keys[0].location, step.values[0].from);
}

bool read_moved(PyObject* values, const LocationReader& locations, SortStep* step) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); ++i) {
    Moved moved{};
    PyObject *from, *to, *item = PyTuple_GET_ITEM(values, i);
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "OOi", &from, &to, &moved.bytes) || !is_size(moved.bytes, 16))
      return invalid_sort("[executable] what is sorted is (from, to, bytes of an element)");
    if (!locations.location(from, step->rows * step->n * moved.bytes, &moved.from) ||
        !locations.location(to, step->rows * step->kept * moved.bytes, &moved.to))
      return false;
    step->values.push_back(moved);
  }
  return true;
}

}  // namespace

std::unique_ptr<Step> make_sort_step(PyObject* record, const LocationReader& locations) {
  constexpr int64_t kMostOfRow = int64_t{1} << 31, kMost = int64_t{1} << 56;
  auto step = std::make_unique<SortStep>();
  Fields fields(record);
  const int64_t rows = fields.integer("rows"), n = fields.integer("n"), inner = fields.integer("inner"),
                kept = fields.integer("kept");
  step->largest = fields.flag("largest");
  Ref keys = fields.tuple("keys"), values = fields.tuple("values"), positions = fields.object("positions");
  step->position_bytes = int(fields.integer("position_bytes"));
  if (!fields.ok()) return nullptr;
  if (rows < 1 || n < 1 || inner < 1 || kept < 0 || kept > n || n > kMostOfRow || rows > kMost / n ||
      rows % inner != 0) {
    invalid_sort("[executable] a sort has a wrong extent");
    return nullptr;
  }
  step->rows = rows;
  step->n = n;
  step->inner = inner;
  step->kept = kept;
  if (step->position_bytes != 0 && step->position_bytes != 4 && step->position_bytes != 8) {
    invalid_sort("[executable] positions of a sort have 4 or 8 bytes");
    return nullptr;
  }
  if (!read_keys(keys.get(), locations, step.get()) || !read_moved(values.get(), locations, step.get()) ||
      (step->position_bytes && !locations.location(positions.get(), rows * kept * step->position_bytes, &step->positions)))
    return nullptr;
  step->sort_halves = numpy_sort(NPY_UINT32);
  step->sort_words = numpy_sort(NPY_UINT64);
  step->rank_words = numpy_argsort(NPY_UINT64);
  step->is_alone = is_alone(*step);
  const Key& key = step->keys[0];
  if (step->is_alone) step->alone = value_order(key.order, key.bytes, key.infinity);
  return step;
}

}  // namespace weft
