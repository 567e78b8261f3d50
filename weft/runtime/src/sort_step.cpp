// Sorts of short rows as steps of a plan: a thread puts the positions of a row in order, then moves its values.
//
//   keys f32 [2, nan, -1]  ->  words c0000000, ffffffff, 407fffff  ->  positions 2 0 1  ->  values at these
//
// The order is that of operations/sort.py. One key of at most 32 bits is sorted together with its positions, as words
// of 64 bits by NumPy's own sort; others are compared word by word, the positions last. Positions of bytes are counted.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "numpy_api.h"
#include "plan.h"
#include "pool.h"
#include "stream.h"
#include "value_sort.h"

namespace weft {
namespace {

constexpr double kCompareNs = 4;
constexpr int64_t kCounted = 64;  // bytes of a row from which counting them takes less time

struct Key {
  Place place;
  char order;        // of the bits: u(nsigned), i(nteger) or f(loat)
  int bytes;         // of a word
  int64_t distance;  // bytes from one element to the next in memory
  uint64_t infinity;
};

struct Moved {
  Place from, to;
  int bytes;
};

class SortStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    if (is_alone) return run_alone(frame);
    Job job{this, &frame};
    if (pool_worth(cost_ns())) pool_run(some, &job, rows, 1, cost_ns());
    else some(&job, 0, rows);
    trim_thread_scratch();
    return job.status.load();
  }
  double cost_ns() const override {
    if (is_alone) return sort_values_cost_ns(rows, n);
    return double(rows * n) * std::log2(double(n) + 1) * kCompareNs;
  }

  int64_t rows = 0, n = 0;  // elements of a row
  int64_t inner = 0;        // rows side by side: elements of a row are so far apart
  int64_t kept = 0;         // of every row, the first ones
  bool largest = false;     // descending, NaN first, and 0.0 before -0.0
  bool has_positions = false;
  Place positions{};
  std::vector<Key> keys;
  std::vector<Moved> values;
  PyArray_SortFunc* sort_words = nullptr;  // NumPy's, of uint64
  bool is_alone = false;                   // one key, which is all that is moved: its order is in `alone`
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

  static void some(void* context, int64_t low, int64_t high) {
    Job& job = *static_cast<Job*>(context);
    int64_t n = job.step->n, n_words = n * int64_t(job.step->keys.size());
    auto* words = static_cast<uint64_t*>(thread_scratch(n_words * 8 + n * 4));
    if (words == nullptr) job.status.store(Status::no_memory);
    for (int64_t row = low; row < high && job.status.load() == Status::ok; ++row) {
      if (stream_cancelled(job.frame->number)) job.status.store(Status::cancelled);
      else job.step->sort_row(*job.frame, row, words, reinterpret_cast<uint32_t*>(words + n_words));
    }
  }

  void sort_row(const Frame& frame, int64_t row, uint64_t* words, uint32_t* order) const {
    int64_t from = row / inner * n * inner + row % inner, to = row / inner * kept * inner + row % inner;
    for (size_t i = 0; i < keys.size(); ++i) read(keys[i], frame, from, words + int64_t(i) * n);
    if (keys.size() > 1 || keys[0].bytes == 8) sort_compared(words, order);
    else if (keys[0].bytes == 1 && n >= kCounted) count_bytes(words, order);
    else sort_packed(words, order);
    for (const Moved& moved : values) move(moved, frame, from, to, order);
    if (!has_positions) return;
    auto* places = reinterpret_cast<uint32_t*>(positions.address(frame)) + to;
    for (int64_t i = 0; i < kept; ++i) places[i * inner] = order[i];
  }

  template <typename Word>
  void read_words(const Key& key, const char* from, uint64_t* words) const {
    constexpr Word kSign = Word(1) << (8 * sizeof(Word) - 1);
    for (int64_t i = 0; i < n; ++i) {
      Word bits;
      std::memcpy(&bits, from + i * inner * key.distance, sizeof(Word));
      if (key.order == 'i') {
        bits ^= kSign;
      } else if (key.order == 'f') {
        Word size = bits & Word(~kSign);
        if (size > key.infinity) bits = Word(~Word(0));
        else if (size == 0 && !largest) bits = kSign;
        else bits = bits & kSign ? Word(~bits) : Word(bits | kSign);
      }
      words[i] = largest ? Word(~bits) : bits;
    }
  }

  void read(const Key& key, const Frame& frame, int64_t first, uint64_t* words) const {
    const char* from = key.place.address(frame) + first * key.distance;
    if (key.bytes == 1) read_words<uint8_t>(key, from, words);
    else if (key.bytes == 2) read_words<uint16_t>(key, from, words);
    else if (key.bytes == 4) read_words<uint32_t>(key, from, words);
    else read_words<uint64_t>(key, from, words);
  }

  bool is_few() const { return kept <= n / 8; }

  void count_bytes(const uint64_t* words, uint32_t* order) const {
    uint32_t places[256] = {}, at = 0;
    for (int64_t i = 0; i < n; ++i) ++places[words[i]];
    for (uint32_t& place : places) at += std::exchange(place, at);
    for (int64_t i = 0; i < n; ++i) order[places[words[i]]++] = uint32_t(i);
  }

  void sort_packed(uint64_t* words, uint32_t* order) const {
    for (int64_t i = 0; i < n; ++i) words[i] = words[i] << 32 | uint64_t(i);
    if (is_few()) std::partial_sort(words, words + kept, words + n);
    else sort_words(words, n, nullptr);
    for (int64_t i = 0; i < kept; ++i) order[i] = uint32_t(words[i]);
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
  void move_elements(const char* from, char* to, const uint32_t* order) const {
    auto* source = reinterpret_cast<const Element*>(from);
    auto* target = reinterpret_cast<Element*>(to);
    for (int64_t i = 0; i < kept; ++i) target[i * inner] = source[int64_t(order[i]) * inner];
  }

  void move(const Moved& moved, const Frame& frame, int64_t from_first, int64_t to_first, const uint32_t* order) const {
    struct Wide {
      uint64_t halves[2];
    };
    const char* from = moved.from.address(frame) + from_first * moved.bytes;
    char* to = moved.to.address(frame) + to_first * moved.bytes;
    if (moved.bytes == 1) move_elements<uint8_t>(from, to, order);
    else if (moved.bytes == 2) move_elements<uint16_t>(from, to, order);
    else if (moved.bytes == 4) move_elements<uint32_t>(from, to, order);
    else if (moved.bytes == 8) move_elements<uint64_t>(from, to, order);
    else move_elements<Wide>(from, to, order);
  }
};

bool invalid_sort(const char* message) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, message);
  return false;
}

bool is_size(int bytes, int most) { return bytes > 0 && bytes <= most && (bytes & (bytes - 1)) == 0; }

bool read_keys(PyObject* keys, const PlaceReader& places, SortStep* step) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) {
    Key key{};
    PyObject *place, *item = PyTuple_GET_ITEM(keys, i);
    int order;
    long long distance;
    unsigned long long infinity;
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "OCiLK", &place, &order, &key.bytes, &distance, &infinity))
      return invalid_sort("[executable] a key is (place, order, bytes, distance, infinity)");
    if (!is_size(key.bytes, 8) || distance < key.bytes || distance > 16 ||
        (order != 'u' && order != 'i' && order != 'f'))
      return invalid_sort("[executable] a key has an unknown order or size");
    key.order = char(order);
    key.distance = distance;
    key.infinity = infinity;
    if (!places.place(place, (step->rows * step->n - 1) * distance + key.bytes, &key.place)) return false;
    step->keys.push_back(key);
  }
  return !step->keys.empty() || invalid_sort("[executable] a sort without keys");
}

bool is_same(const Place& a, const Place& b) {
  return a.slot == b.slot && a.dynamic == b.dynamic && a.offset == b.offset;
}

bool is_alone(const SortStep& step) {
  return step.keys.size() == 1 && step.values.size() == 1 && !step.has_positions && step.kept == step.n &&
         !step.largest && step.keys[0].bytes == step.values[0].bytes &&
         is_same(step.keys[0].place, step.values[0].from);
}

bool read_moved(PyObject* values, const PlaceReader& places, SortStep* step) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); ++i) {
    Moved moved{};
    PyObject *from, *to, *item = PyTuple_GET_ITEM(values, i);
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "OOi", &from, &to, &moved.bytes) || !is_size(moved.bytes, 16))
      return invalid_sort("[executable] what is sorted is (from, to, bytes of an element)");
    if (!places.place(from, step->rows * step->n * moved.bytes, &moved.from) ||
        !places.place(to, step->rows * step->kept * moved.bytes, &moved.to))
      return false;
    step->values.push_back(moved);
  }
  return true;
}

}  // namespace

std::unique_ptr<Step> make_sort_step(PyObject* fields, const PlaceReader& places) {
  constexpr int64_t kMostOfRow = int64_t{1} << 31, kMost = int64_t{1} << 56;
  auto step = std::make_unique<SortStep>();
  long long rows, n, inner, kept;
  int largest;
  PyObject *keys, *values, *positions;
  if (!PyArg_ParseTuple(fields, "LLLLpO!O!O;[executable] order has 8 fields after its name", &rows, &n, &inner, &kept,
                        &largest, &PyTuple_Type, &keys, &PyTuple_Type, &values, &positions))
    return nullptr;
  if (rows < 1 || n < 1 || inner < 1 || kept < 0 || kept > n || n > kMostOfRow || rows > kMost / n ||
      rows % inner != 0) {
    invalid_sort("[executable] a sort has a wrong extent");
    return nullptr;
  }
  step->rows = rows;
  step->n = n;
  step->inner = inner;
  step->kept = kept;
  step->largest = largest != 0;
  step->has_positions = positions != Py_None;
  if (!read_keys(keys, places, step.get()) || !read_moved(values, places, step.get()) ||
      (step->has_positions && !places.place(positions, rows * kept * 4, &step->positions)))
    return nullptr;
  step->sort_words = numpy_sort(NPY_UINT64);
  step->is_alone = is_alone(*step);
  const Key& key = step->keys[0];
  if (step->is_alone) step->alone = value_order(key.order, key.bytes, key.infinity);
  return step;
}

}  // namespace weft
