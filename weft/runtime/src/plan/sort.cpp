// Functions for Python that sort rows of NumPy arrays, on all threads of the pool.
//
//   sort_words(words, order): floats, signed or unsigned integers, by their bits (value_sort.h).
//   sort_positions(packed, keys, shift): sorts positions, in the low halves of words, by 32 bits of their keys.
//   order_bytes(keys): the positions that sort bytes.
//   take_rows(values, positions): the values at the positions.
//
// How the work is cut depends on the number of words alone. An interrupt of the running stream task is noticed every
// kBlock words; the sort then stops and KeyboardInterrupt is raised.
#include "python.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "figures.h"
#include "module.h"
#include "numpy_api.h"
#include "pool.h"
#include "stream.h"
#include "value_sort.h"

namespace weft {
namespace {

constexpr int64_t kShared = 1 << 16;  // rows of at least so many words are shared between threads
constexpr int64_t kParts = 8;  // parts of a shared row
constexpr int64_t kBlock = 1 << 16;  // words between two checks for an interrupt

// Calls body(i) for low <= i < high, unless the task with this number is interrupted.
template <typename Body>
void in_blocks(uint64_t number, int64_t low, int64_t high, Body body) {
  for (int64_t i = low; i < high && !stream_cancelled(number);)
    for (int64_t stop = std::min(high, i + kBlock); i < stop; ++i) body(i);
}

// A row of words, sorted stably by their upper halves.
struct Row {
  static constexpr int kDigitBits = 11;
  static constexpr int64_t kDigits = 1 << kDigitBits;

  uint64_t* words;
  uint64_t* spare;
  int64_t* counts;  // by part and digit; later where the next word of that part and digit goes
  int64_t n, parts;
  uint64_t number;  // number of the stream task
  int shift = 0;

  static int64_t parts_of(int64_t n, bool shared) { return shared && n >= kShared ? kParts : 1; }
  static int64_t scratch(int64_t n, bool shared) { return (parts_of(n, shared) * kDigits + n) * 8; }

  Row(uint64_t* words, int64_t n, bool shared, uint64_t number, void* scratch)
      : words(words), n(n), parts(parts_of(n, shared)), number(number) {
    counts = static_cast<int64_t*>(scratch);
    spare = reinterpret_cast<uint64_t*>(counts + parts * kDigits);
  }

  int64_t digit(uint64_t word) const { return int64_t(word >> shift) & (kDigits - 1); }
  int64_t begin(int64_t part) const { return n / parts * part; }
  int64_t end(int64_t part) const { return part + 1 == parts ? n : begin(part + 1); }

  static void count(void* context, int64_t low, int64_t high) {
    Row& row = *static_cast<Row*>(context);
    for (int64_t part = low; part < high; ++part) {
      int64_t* counts = row.counts + part * kDigits;
      std::fill_n(counts, kDigits, 0);
      in_blocks(row.number, row.begin(part), row.end(part), [&](int64_t i) { ++counts[row.digit(row.words[i])]; });
    }
  }

  static void move(void* context, int64_t low, int64_t high) {
    Row& row = *static_cast<Row*>(context);
    for (int64_t part = low; part < high; ++part) {
      int64_t* next = row.counts + part * kDigits;
      in_blocks(row.number, row.begin(part), row.end(part),
                [&](int64_t i) { row.spare[next[row.digit(row.words[i])]++] = row.words[i]; });
    }
  }

  void in_parts(ChunkFunction function) {
    if (parts == 1) function(this, 0, 1);
    else pool_run(function, this, parts, 1, double(n) * figures.sort_word_ns);
  }

  // Turns counts into positions: within a digit, parts follow each other. False if all words have the same digit.
  bool to_positions() {
    int64_t at = 0;
    for (int64_t digit = 0; digit < kDigits; ++digit) {
      int64_t first = at;
      for (int64_t part = 0; part < parts; ++part) at += std::exchange(counts[part * kDigits + digit], at);
      if (at - first == n) return false;
    }
    return true;
  }

  void sort() {
    uint64_t* home = words;
    for (shift = 32; shift < 64 && !stream_cancelled(number); shift += kDigitBits) {
      in_parts(count);
      if (stream_cancelled(number) || !to_positions()) continue;  // after an interrupt the counts are incomplete
      in_parts(move);
      std::swap(words, spare);
    }
    if (words == home) return;
    std::memcpy(home, words, size_t(n) * sizeof(uint64_t));
    std::swap(words, spare);
  }
};

struct Job {
  uint64_t* words;
  int64_t rows, n;
  uint64_t number = stream_running();
  std::atomic<bool> out_of_memory{false};

  void run(int64_t row, bool shared) {
    if (stream_cancelled(number)) return;
    if (void* scratch = thread_scratch(Row::scratch(n, shared)))
      Row(words + row * n, n, shared, number, scratch).sort();
    else out_of_memory = true;
  }

  static void some(void* context, int64_t low, int64_t high) {
    for (int64_t row = low; row < high; ++row) static_cast<Job*>(context)->run(row, false);
  }

  void run_all() {
    if (n >= kShared && rows < pool_threads()) {
      for (int64_t row = 0; row < rows; ++row) run(row, true);
    } else {
      pool_run(some, this, rows, 1, double(rows) * double(n) * figures.sort_word_ns * 8);
    }
    trim_thread_scratch();
  }
};

PyObject* sort_words(PyObject*, PyObject* args) {
  PyObject* object;
  const char* order;
  unsigned long long infinity = 0;
  if (!PyArg_ParseTuple(args, "O!s|K:sort_words", &PyArray_Type, &object, &order, &infinity)) return nullptr;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  int ndim = PyArray_NDIM(array), bytes = int(PyArray_ITEMSIZE(array));
  bool known = PyArray_DESCR(array)->kind == 'u' && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
  if (!known || ndim == 0 || !PyArray_ISCARRAY(array)) {
    PyErr_SetString(PyExc_TypeError, "sort_words() takes a writable C-contiguous array of unsigned integers");
    return nullptr;
  }
  std::string name = order;
  if (name != "u" && name != "i" && name != "f") {
    PyErr_Format(PyExc_ValueError, "sort_words() has no order %R", PyTuple_GET_ITEM(args, 1));
    return nullptr;
  }
  if (PyArray_SIZE(array) == 0) Py_RETURN_NONE;
  auto* data = static_cast<char*>(PyArray_DATA(array));
  int64_t n = PyArray_DIM(array, ndim - 1);
  ValueOrder values = value_order(name[0], bytes, infinity);
  SortedRows rows{data, data, PyArray_SIZE(array) / n, n, 1};
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = sort_values(values, rows, stream_running());
  Py_END_ALLOW_THREADS;
  if (status == Status::no_memory) return PyErr_NoMemory();
  if (status == Status::cancelled) return PyErr_SetNone(PyExc_KeyboardInterrupt), nullptr;
  Py_RETURN_NONE;
}

// Rows of positions and the array of the same shape that they belong to; false with TypeError set.
bool are_rows(PyArrayObject* positions, PyArrayObject* values, char kind) {
  bool known = PyArray_DESCR(positions)->kind == kind && PyArray_ITEMSIZE(positions) == 8 &&
               PyArray_ISCARRAY_RO(positions) && PyArray_ISCARRAY_RO(values) && PyArray_NDIM(values) > 0 &&
               PyArray_SAMESHAPE(positions, values);
  if (!known) PyErr_SetString(PyExc_TypeError, "positions are 64-bit integers in C order, as many as values");
  return known;
}

// Calls body(position, offset of the row, value) for each element of rows of positions.
template <typename Body>
struct Walk {
  int64_t n;
  uint64_t number;
  Body body;

  void run(int64_t total) {
    double cost = double(total) * 2 * figures.sort_word_ns;
    if (pool_worth(cost)) pool_run(some, this, total, 1, cost);
    else some(this, 0, total);
  }
  static void some(void* context, int64_t low, int64_t high) {
    Walk& walk = *static_cast<Walk*>(context);
    for (int64_t row = low / walk.n; row * walk.n < high; ++row)
      in_blocks(walk.number, std::max(low, row * walk.n), std::min(high, (row + 1) * walk.n),
                [&](int64_t i) { walk.body(row * walk.n, i); });
  }
};

// Calls body(base of the row, index) for all elements of rows of n; false with KeyboardInterrupt after an interrupt.
template <typename Body>
bool for_all(int64_t total, int64_t n, Body body) {
  uint64_t number = stream_running();
  Py_BEGIN_ALLOW_THREADS;
  Walk<Body>{n, number, body}.run(total);
  Py_END_ALLOW_THREADS;
  if (stream_cancelled(number)) PyErr_SetNone(PyExc_KeyboardInterrupt);
  return !stream_cancelled(number);
}

template <typename Word>
bool put_keys(PyArrayObject* packed, PyArrayObject* keys, int shift, int64_t n) {
  auto* to = static_cast<uint64_t*>(PyArray_DATA(packed));
  auto* from = static_cast<const Word*>(PyArray_DATA(keys));
  return for_all(PyArray_SIZE(packed), n, [=](int64_t base, int64_t i) {
    uint64_t position = to[i] & 0xffffffffu;
    to[i] = uint64_t(from[base + int64_t(position)]) >> shift << 32 | position;
  });
}

PyObject* sort_positions(PyObject*, PyObject* args) {
  PyObject *packed_object, *keys_object;
  int shift = 0;
  if (!PyArg_ParseTuple(args, "O!O!|i:sort_positions", &PyArray_Type, &packed_object, &PyArray_Type, &keys_object,
                        &shift))
    return nullptr;
  auto* packed = reinterpret_cast<PyArrayObject*>(packed_object);
  auto* keys = reinterpret_cast<PyArrayObject*>(keys_object);
  if (!are_rows(packed, keys, 'u')) return nullptr;
  int bytes = int(PyArray_ITEMSIZE(keys));
  if (!PyArray_ISWRITEABLE(packed) || PyArray_DESCR(keys)->kind != 'u' || shift < 0 || shift >= 8 * bytes) {
    PyErr_SetString(PyExc_TypeError,
                    "sort_positions() takes writable positions, unsigned keys and a shift within them");
    return nullptr;
  }
  if (PyArray_SIZE(packed) == 0) Py_RETURN_NONE;
  int64_t n = PyArray_DIM(packed, PyArray_NDIM(packed) - 1);
  bool put = bytes == 1   ? put_keys<uint8_t>(packed, keys, shift, n)
             : bytes == 2 ? put_keys<uint16_t>(packed, keys, shift, n)
             : bytes == 4 ? put_keys<uint32_t>(packed, keys, shift, n)
                          : put_keys<uint64_t>(packed, keys, shift, n);
  if (!put) return nullptr;
  Job job{static_cast<uint64_t*>(PyArray_DATA(packed)), PyArray_SIZE(packed) / n, n};
  Py_BEGIN_ALLOW_THREADS;
  job.run_all();
  Py_END_ALLOW_THREADS;
  if (job.out_of_memory) return PyErr_NoMemory();
  if (stream_cancelled(job.number)) return PyErr_SetNone(PyExc_KeyboardInterrupt), nullptr;
  Py_RETURN_NONE;
}

// For rows of bytes: where each value starts in the sorted row, then the positions in order.
struct ByteOrder {
  const uint8_t* keys;
  int64_t* positions;
  int64_t n;
  uint64_t number = stream_running();

  static void some(void* context, int64_t low, int64_t high) {
    ByteOrder& job = *static_cast<ByteOrder*>(context);
    for (int64_t row = low; row < high && !stream_cancelled(job.number); ++row) {
      const uint8_t* keys = job.keys + row * job.n;
      int64_t* positions = job.positions + row * job.n;
      int64_t next[256] = {}, at = 0;
      in_blocks(job.number, 0, job.n, [&](int64_t i) { ++next[keys[i]]; });
      for (int64_t& count : next) at += std::exchange(count, at);
      in_blocks(job.number, 0, job.n, [&](int64_t i) { positions[next[keys[i]]++] = i; });
    }
  }
};

PyObject* order_bytes(PyObject*, PyObject* object) {
  auto* keys = reinterpret_cast<PyArrayObject*>(object);
  if (!PyArray_Check(object) || PyArray_TYPE(keys) != NPY_UINT8 || !PyArray_ISCARRAY_RO(keys) ||
      PyArray_NDIM(keys) == 0) {
    PyErr_SetString(PyExc_TypeError, "order_bytes() takes a C-contiguous array of uint8 of at least one dimension");
    return nullptr;
  }
  Ref found = steal(PyArray_SimpleNew(PyArray_NDIM(keys), PyArray_DIMS(keys), NPY_INT64));
  if (!found || PyArray_SIZE(keys) == 0) return found.release();
  ByteOrder job{static_cast<const uint8_t*>(PyArray_DATA(keys)),
                static_cast<int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(found.get()))),
                PyArray_DIM(keys, PyArray_NDIM(keys) - 1)};
  int64_t rows = PyArray_SIZE(keys) / job.n;
  Py_BEGIN_ALLOW_THREADS;
  pool_run(ByteOrder::some, &job, rows, 1, double(PyArray_SIZE(keys)) * figures.sort_word_ns);
  Py_END_ALLOW_THREADS;
  if (stream_cancelled(job.number)) return PyErr_SetNone(PyExc_KeyboardInterrupt), nullptr;
  return found.release();
}

template <typename Element>
bool take(PyArrayObject* values, PyArrayObject* positions, PyObject* taken, int64_t n) {
  auto* to = static_cast<Element*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(taken)));
  auto* from = static_cast<const Element*>(PyArray_DATA(values));
  auto* at = static_cast<const int64_t*>(PyArray_DATA(positions));
  return for_all(PyArray_SIZE(values), n, [=](int64_t base, int64_t i) { to[i] = from[base + at[i]]; });
}

PyObject* take_rows(PyObject*, PyObject* args) {
  PyObject *values_object, *positions_object;
  if (!PyArg_ParseTuple(args, "O!O!:take_rows", &PyArray_Type, &values_object, &PyArray_Type, &positions_object))
    return nullptr;
  auto* values = reinterpret_cast<PyArrayObject*>(values_object);
  auto* positions = reinterpret_cast<PyArrayObject*>(positions_object);
  if (!are_rows(positions, values, 'i')) return nullptr;
  struct Wide {
    uint64_t halves[2];
  };
  int bytes = int(PyArray_ITEMSIZE(values));
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16) {
    PyErr_SetString(PyExc_TypeError, "take_rows() takes elements of 1, 2, 4, 8 or 16 bytes");
    return nullptr;
  }
  Ref taken = steal(PyArray_NewLikeArray(values, NPY_CORDER, nullptr, 0));
  if (!taken || PyArray_SIZE(values) == 0) return taken.release();
  int64_t n = PyArray_DIM(values, PyArray_NDIM(values) - 1);
  bool done = bytes == 1   ? take<uint8_t>(values, positions, taken.get(), n)
              : bytes == 2 ? take<uint16_t>(values, positions, taken.get(), n)
              : bytes == 4 ? take<uint32_t>(values, positions, taken.get(), n)
              : bytes == 8 ? take<uint64_t>(values, positions, taken.get(), n)
                           : take<Wide>(values, positions, taken.get(), n);
  return done ? taken.release() : nullptr;
}

PyMethodDef kMethods[] = {
    {"sort_words", sort_words, METH_VARARGS,
     "sort_words(words, order, infinity=0): sort the rows of an array of unsigned integers in place, as bits of "
     "unsigned "
     "('u') or signed integers ('i') or of floats with this infinity ('f')."},
    {"sort_positions", sort_positions, METH_VARARGS,
     "sort_positions(packed, keys, shift=0): order the positions that rows of uint64 have in their low halves, stably "
     "by "
     "32 bits of the key at each, those from `shift` on, which become the upper halves."},
    {"order_bytes", order_bytes, METH_O,
     "order_bytes(keys) -> the int64 positions of uint8 keys in their order along the last axis, of equal ones in "
     "theirs."},
    {"take_rows", take_rows, METH_VARARGS,
     "take_rows(values, positions) -> along the last axis, the values at int64 positions, which are not checked."},
    {},
};

}  // namespace

int register_sort(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
