// Sorting of rows: stable radix sorts of words, on all threads of the pool.
//
//   sort_words(words, order): floats, signed or unsigned integers, by their bits.
//   f32 [2, nan, -0., 0.]  ->  aside: nan, the signs of zeros  ->  words in order  ->  [-0., 0., 2, nan]
//
// Numbers ascend, zeros and NaN keep their order among themselves, NaN is last. What a thread does depends on the
// number of words alone.
#include "python.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "module.h"
#include "numpy_api.h"
#include "pool.h"

namespace weft {
namespace {

constexpr int64_t kShared = 1 << 16;  // words of one row from which threads share it
constexpr int64_t kParts = 8;         // of a shared row
constexpr double kWordNs = 1.5;       // of one pass

enum class Order { kUnsigned, kSigned, kFloat };

template <typename Word>
struct Row {
  static constexpr int kBits = 8 * sizeof(Word);
  static constexpr int kDigitBits = kBits <= 16 ? 8 : 11;
  static constexpr int64_t kDigits = 1 << kDigitBits;
  static constexpr Word kSign = Word(1) << (kBits - 1);

  Word* words;
  Word* spare;
  int64_t* counts;  // by part and digit, then where the next word of a part with a digit goes
  uint8_t* signs;   // of zeros, in their order
  int64_t n, parts;
  int shift = 0;

  static int64_t parts_of(int64_t n, bool shared) { return shared && n >= kShared ? kParts : 1; }
  static int64_t scratch(int64_t n, bool shared) {
    return parts_of(n, shared) * kDigits * int64_t(sizeof(int64_t)) + n * int64_t(sizeof(Word) + 1);
  }

  Row(Word* words, int64_t n, bool shared, void* scratch)
      : words(words), n(n), parts(parts_of(n, shared)) {
    counts = static_cast<int64_t*>(scratch);
    spare = reinterpret_cast<Word*>(counts + parts * kDigits);
    signs = reinterpret_cast<uint8_t*>(spare + n);
  }

  int64_t digit(Word word) const { return int64_t(word >> shift) & (kDigits - 1); }
  int64_t begin(int64_t part) const { return n / parts * part; }
  int64_t end(int64_t part) const { return part + 1 == parts ? n : begin(part + 1); }

  static void count(void* context, int64_t low, int64_t high) {
    Row& row = *static_cast<Row*>(context);
    for (int64_t part = low; part < high; ++part) {
      int64_t* counts = row.counts + part * kDigits;
      std::fill_n(counts, kDigits, 0);
      for (int64_t i = row.begin(part), stop = row.end(part); i < stop; ++i) ++counts[row.digit(row.words[i])];
    }
  }

  static void move(void* context, int64_t low, int64_t high) {
    Row& row = *static_cast<Row*>(context);
    for (int64_t part = low; part < high; ++part) {
      int64_t* places = row.counts + part * kDigits;
      for (int64_t i = row.begin(part), stop = row.end(part); i < stop; ++i)
        row.spare[places[row.digit(row.words[i])]++] = row.words[i];
    }
  }

  void in_parts(ChunkFunction function) {
    if (parts == 1) function(this, 0, 1);
    else pool_run(function, this, parts, 1, double(n) * kWordNs);
  }

  // From counts to places: those of a digit follow each other part by part. False if all words have one digit.
  bool place() {
    int64_t at = 0;
    for (int64_t digit = 0; digit < kDigits; ++digit) {
      int64_t first = at;
      for (int64_t part = 0; part < parts; ++part) at += std::exchange(counts[part * kDigits + digit], at);
      if (at - first == n) return false;
    }
    return true;
  }

  // By the bits from `low` on.
  void sort(int low) {
    Word* home = words;
    for (shift = low; shift < kBits; shift += kDigitBits) {
      in_parts(count);
      if (!place()) continue;
      in_parts(move);
      std::swap(words, spare);
    }
    if (words == home) return;
    std::memcpy(home, words, size_t(n) * sizeof(Word));
    std::swap(words, spare);
  }

  static Word turned(Word bits) { return bits ^ (Word(-Word(bits >> (kBits - 1))) | kSign); }
  static Word turned_back(Word word) { return word ^ (Word(Word(word >> (kBits - 1)) - 1) | kSign); }

  void sort_integers() {
    for (int64_t i = 0; i < n; ++i) words[i] ^= kSign;
    sort(0);
    for (int64_t i = 0; i < n; ++i) words[i] ^= kSign;
  }

  void sort_floats(Word infinity) {
    int64_t all = n, nans = 0, zeros = 0;
    n = 0;
    bool negative = false;
    for (int64_t i = 0; i < all; ++i) {
      Word bits = words[i], size = bits & Word(~kSign);
      spare[nans] = bits;
      nans += size > infinity;
      signs[zeros] = uint8_t(bits >> (kBits - 1));
      negative |= bits == kSign;
      zeros += size == 0;
      words[n] = turned(size == 0 ? size : bits);
      n += size <= infinity;
    }
    std::memcpy(words + n, spare, size_t(nans) * sizeof(Word));
    sort(0);
    if (negative) {
      Word* zero = std::lower_bound(words, words + n, kSign);
      for (int64_t i = 0; i < zeros; ++i) zero[i] = signs[i] ? turned(kSign) : kSign;
    }
    for (int64_t i = 0; i < n; ++i) words[i] = turned_back(words[i]);
  }
};

struct Job {
  char* data;
  int64_t rows, n;
  Order order;
  uint64_t infinity;
  int low;
  std::atomic<bool> out_of_memory{false};

  template <typename Word>
  void run(int64_t row, bool shared) {
    void* scratch = thread_scratch(Row<Word>::scratch(n, shared));
    if (scratch == nullptr) {
      out_of_memory = true;
      return;
    }
    Row<Word> words(reinterpret_cast<Word*>(data) + row * n, n, shared, scratch);
    if (order == Order::kFloat) words.sort_floats(Word(infinity));
    else if (order == Order::kSigned) words.sort_integers();
    else words.sort(low);
  }

  template <typename Word>
  static void some(void* context, int64_t low, int64_t high) {
    for (int64_t row = low; row < high; ++row) static_cast<Job*>(context)->run<Word>(row, false);
  }

  template <typename Word>
  void run_all() {
    if (n >= kShared && rows < pool_threads()) {
      for (int64_t row = 0; row < rows; ++row) run<Word>(row, true);
    } else {
      pool_run(some<Word>, this, rows, 1, double(rows) * double(n) * kWordNs * sizeof(Word));
    }
    trim_thread_scratch();
  }
};

PyObject* sort_words(PyObject*, PyObject* args) {
  PyObject* object;
  const char* order;
  unsigned long long infinity = 0;
  int low = 0;
  if (!PyArg_ParseTuple(args, "O!s|Ki:sort_words", &PyArray_Type, &object, &order, &infinity, &low)) return nullptr;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  int ndim = PyArray_NDIM(array), bytes = int(PyArray_ITEMSIZE(array));
  bool known = PyArray_DESCR(array)->kind == 'u' && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
  if (!known || ndim == 0 || !PyArray_ISCARRAY(array)) {
    PyErr_SetString(PyExc_TypeError, "sort_words() takes a writable C-contiguous array of unsigned integers");
    return nullptr;
  }
  std::string name = order;
  if ((name != "u" && name != "i" && name != "f") || low < 0 || low >= 8 * bytes || (low != 0 && name != "u")) {
    PyErr_Format(PyExc_ValueError, "sort_words() knows no order %R from bit %d on", PyTuple_GET_ITEM(args, 1), low);
    return nullptr;
  }
  Job job{static_cast<char*>(PyArray_DATA(array)), 0, PyArray_DIM(array, ndim - 1),
          name == "f" ? Order::kFloat : name == "i" ? Order::kSigned : Order::kUnsigned, infinity, low};
  if (PyArray_SIZE(array) == 0) Py_RETURN_NONE;
  job.rows = PyArray_SIZE(array) / job.n;
  Py_BEGIN_ALLOW_THREADS;
  if (bytes == 1) job.run_all<uint8_t>();
  else if (bytes == 2) job.run_all<uint16_t>();
  else if (bytes == 4) job.run_all<uint32_t>();
  else job.run_all<uint64_t>();
  Py_END_ALLOW_THREADS;
  if (job.out_of_memory) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

PyMethodDef kMethods[] = {
    {"sort_words", sort_words, METH_VARARGS,
     "sort_words(words, order, infinity=0, low=0): sort the rows of an array of unsigned integers in place, as bits of "
     "unsigned ('u', stably by the bits from `low` on) or signed integers ('i') or of floats with this infinity ('f')."},
    {},
};

}  // namespace

int register_sort(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
