// Copies of small arrays outside of programs, by views of their memory; each function gives up where a program is better.
#include "views.h"

#include <algorithm>
#include <cstring>

#include "module.h"

namespace weft {
namespace {

// A program copies more bytes than this on several threads, at most twice as fast; making one for a new shape takes
// fifty times as long as this copy.
constexpr int64_t kMostBytes = 256 << 10;
constexpr int64_t kMostPieces = 2048;  // runs of elements that are next to each other: each takes a call
constexpr int64_t kMostScattered = 8192;  // elements that are copied one by one

// A view in memory: the first element, and extents and strides (in bytes) of the dimensions.
struct Layout {
  const char* first;
  int ndim = 0;
  int64_t extents[kMaxRank];
  int64_t strides[kMaxRank];

  bool add(int64_t extent, int64_t stride) {
    if (ndim == kMaxRank) return false;
    extents[ndim] = extent;
    strides[ndim++] = stride;
    return true;
  }
};

// Whether the elements can be read now.
bool is_readable(Array* array) {
  const ShapedArray* aval = array->aval;
  if (aval->itemsize == 0 || aval->nbytes < 0 || aval->sharding != Py_None || aval->memory_space != Py_None) return false;
  if (is_spread(array->place)) return false;  // a program says how its result lies on the devices
  return array->buffer != nullptr && buffer_is_ready(array->buffer) && buffer_wait(array->buffer) == 0;
}

template <typename Word>
void copy_row(char* to, const char* from, int64_t count, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * int64_t(sizeof(Word)), from + i * stride, sizeof(Word));
}

void copy_row_of_any(char* to, const char* from, int64_t count, int64_t stride, int64_t item) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * item, from + i * stride, size_t(item));
}

void copy_rows(const Layout& view, int dim, const char* from, char*& to, int64_t item) {
  int64_t extent = view.extents[dim], stride = view.strides[dim];
  if (dim + 1 < view.ndim) {
    for (int64_t i = 0; i < extent; ++i) copy_rows(view, dim + 1, from + i * stride, to, item);
    return;
  }
  if (stride == item) std::memcpy(to, from, size_t(extent * item));
  else if (item == 4) copy_row<uint32_t>(to, from, extent, stride);
  else if (item == 8) copy_row<uint64_t>(to, from, extent, stride);
  else if (item == 1) copy_row<uint8_t>(to, from, extent, stride);
  else copy_row_of_any(to, from, extent, stride, item);
  to += extent * item;
}

// The same elements in fewer dimensions: those of one element left out, those that follow each other in memory joined.
Layout joined(const Layout& view) {
  Layout found{view.first};
  for (int dim = 0; dim < view.ndim; ++dim) {
    if (view.extents[dim] == 1) continue;
    int last = found.ndim - 1;
    if (last >= 0 && found.strides[last] == view.extents[dim] * view.strides[dim]) {
      found.extents[last] *= view.extents[dim];
      found.strides[last] = view.strides[dim];
    } else {
      found.add(view.extents[dim], view.strides[dim]);
    }
  }
  return found;
}

// Owned Array with a copy of the view's elements; nullptr, also without an error, if it is too large.
PyObject* copied(const Array* array, const Layout& view) {
  ShapedArray* source = array->aval;
  int64_t item = source->itemsize, size = 1;
  for (int dim = 0; dim < view.ndim; ++dim)
    if (__builtin_mul_overflow(size, view.extents[dim], &size)) return nullptr;
  if (size > kMostBytes / item) return nullptr;
  Layout dense = joined(view);
  int64_t run = dense.ndim > 0 && dense.strides[dense.ndim - 1] == item ? dense.extents[dense.ndim - 1] : 1;
  bool is_run = dense.ndim == 0 || (dense.ndim == 1 && dense.strides[0] == item);
  if (!is_run && size > 0 && size / run > (run == 1 ? kMostScattered : kMostPieces)) return nullptr;
  auto aval = Owned<ShapedArray>::steal(aval_intern(view.ndim, view.extents, source->dtype, source->weak_type));
  if (!aval) return nullptr;
  auto result = Owned<Array>::steal(array_allocate(aval.get(), "view", "a copy of some elements"));
  if (!result) return nullptr;
  result->place = array->place;
  char* to = result->buffer->data;
  if (size > 0 && is_run) std::memcpy(to, dense.first, size_t(size * item));
  else if (size > 0) copy_rows(dense, 0, dense.first, to, item);
  return reinterpret_cast<PyObject*>(result.release());
}

// ---- x[...]

bool is_number(PyObject* entry) { return entry == Py_None || PyLong_CheckExact(entry); }

// Adds what one item of an index takes of dimension `dim`, which moves on; false if a program has to take it.
bool take_item(const ShapedArray* aval, PyObject* item, int* dim, Layout* view) {
  if (item == Py_None) return view->add(1, 0);
  if (*dim >= aval->ndim) return false;
  int64_t extent = aval->extents[*dim], stride = aval->strides()[*dim];
  if (PyLong_CheckExact(item)) {
    int overflow;
    long long at = PyLong_AsLongLongAndOverflow(item, &overflow);
    if (overflow != 0 || at != int32_t(at) || extent == 0) return false;  // programs take int32
    at = std::clamp<int64_t>(at < 0 ? at + extent : at, 0, extent - 1);  // as programs clamp
    view->first += at * stride;
    ++*dim;
    return true;
  }
  if (!PySlice_Check(item)) return false;
  auto* slice = reinterpret_cast<PySliceObject*>(item);
  if (!is_number(slice->start) || !is_number(slice->stop) || !is_number(slice->step)) return false;
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(item, &start, &stop, &step) < 0) {
    PyErr_Clear();
    return false;
  }
  int64_t count = PySlice_AdjustIndices(extent, &start, &stop, step);
  if (count > 0) view->first += start * stride;
  ++*dim;
  return view->add(count, step * stride);
}

PyObject* index_view(Array* array, PyObject* const* args, Py_ssize_t count) {
  if (count != 1 || !is_readable(array)) return nullptr;
  PyObject* whole[1] = {args[0]};
  bool is_tuple = PyTuple_CheckExact(args[0]);
  PyObject* const* items = is_tuple ? &PyTuple_GET_ITEM(args[0], 0) : whole;
  Py_ssize_t n_items = is_tuple ? PyTuple_GET_SIZE(args[0]) : 1;
  const ShapedArray* aval = array->aval;
  int named = 0, dim = 0;
  for (Py_ssize_t i = 0; i < n_items; ++i) named += items[i] != Py_None && items[i] != Py_Ellipsis;
  Layout view{array->buffer->data};
  bool is_open = false;
  for (Py_ssize_t i = 0; i < n_items; ++i) {
    if (items[i] != Py_Ellipsis) {
      if (!take_item(aval, items[i], &dim, &view)) return nullptr;
      continue;
    }
    if (is_open || named > aval->ndim) return nullptr;
    is_open = true;
    for (int stop = dim + aval->ndim - named; dim < stop; ++dim)
      if (!view.add(aval->extents[dim], aval->strides()[dim])) return nullptr;
  }
  for (; dim < aval->ndim; ++dim)
    if (!view.add(aval->extents[dim], aval->strides()[dim])) return nullptr;
  return copied(array, view);
}

// ---- x.T, x.reshape(...)

PyObject* transposed_view(Array* array, PyObject* const*, Py_ssize_t count) {
  const ShapedArray* aval = array->aval;
  if (count != 0 || aval->ndim < 2 || !is_readable(array)) return nullptr;
  Layout view{array->buffer->data};
  for (int dim = aval->ndim - 1; dim >= 0; --dim) view.add(aval->extents[dim], aval->strides()[dim]);
  return copied(array, view);
}

PyObject* reshaped_view(Array* array, PyObject* const* args, Py_ssize_t count) {
  bool is_tuple = count == 1 && PyTuple_CheckExact(args[0]);
  PyObject* const* extents = is_tuple ? &PyTuple_GET_ITEM(args[0], 0) : args;
  Py_ssize_t ndim = is_tuple ? PyTuple_GET_SIZE(args[0]) : count;
  if ((count == 0 && !is_tuple) || ndim > kMaxRank || !is_readable(array)) return nullptr;
  Layout view{array->buffer->data, int(ndim)};
  int64_t size = 1, open = -1;
  for (Py_ssize_t dim = 0; dim < ndim; ++dim) {
    if (!PyLong_CheckExact(extents[dim])) return nullptr;
    int overflow;
    view.extents[dim] = PyLong_AsLongLongAndOverflow(extents[dim], &overflow);
    if (overflow != 0 || view.extents[dim] < -1 || (view.extents[dim] == -1 && open >= 0)) return nullptr;
    if (view.extents[dim] == -1) open = dim;
    else if (__builtin_mul_overflow(size, view.extents[dim], &size)) return nullptr;
  }
  const ShapedArray* aval = array->aval;
  if (open >= 0) {
    if (size == 0 || aval->size % size != 0) return nullptr;
    view.extents[open] = aval->size / size;
    size = aval->size;
  }
  if (size != aval->size) return nullptr;
  int64_t stride = aval->itemsize;
  for (Py_ssize_t dim = ndim - 1; dim >= 0; --dim) {
    view.strides[dim] = stride;
    stride *= view.extents[dim];
  }
  return copied(array, view);
}

PyObject* reshaped_copy(PyObject*, PyObject* args) {
  PyObject *object, *shape;
  if (!PyArg_ParseTuple(args, "OO!", &object, &PyTuple_Type, &shape)) return nullptr;
  PyObject* made = is_array(object) ? reshaped_view(reinterpret_cast<Array*>(object), &shape, 1) : nullptr;
  if (made == nullptr && !PyErr_Occurred()) Py_RETURN_NONE;
  return made;
}

PyObject* raveled_view(Array* array, PyObject* const*, Py_ssize_t count) {
  if (count != 0 || !is_readable(array)) return nullptr;
  Layout view{array->buffer->data};
  view.add(array->aval->size, array->aval->itemsize);
  return copied(array, view);
}

// An integer of Python; -1 for another object, and for one that does not fit.
int64_t extent_of(PyObject* number) {
  int overflow = 0;
  long long value = PyLong_CheckExact(number) ? PyLong_AsLongLongAndOverflow(number, &overflow) : -1;
  return overflow == 0 ? value : -1;
}

// ---- concatenate, stack, rev

// Whether the arrays can be read now, and differ in their extent along `axis` alone (stacked: in nothing).
bool can_join(PyObject* arrays, int axis, bool stacked) {
  Array* first = nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arrays); ++i) {
    PyObject* item = PyTuple_GET_ITEM(arrays, i);
    if (!is_array(item)) return false;
    Array* array = reinterpret_cast<Array*>(item);
    if (!is_readable(array)) return false;
    if (first == nullptr) first = array;
    const ShapedArray *one = first->aval, *other = array->aval;
    if (one->dtype != other->dtype || one->weak_type != other->weak_type || one->ndim != other->ndim) return false;
    if (first->place != array->place) return false;
    for (int dim = 0; dim < one->ndim; ++dim)
      if (one->extents[dim] != other->extents[dim] && (stacked || dim != axis)) return false;
  }
  return first != nullptr && axis >= 0 && axis < first->aval->ndim + stacked;
}

PyObject* joined_copy(PyObject*, PyObject* args) {
  PyObject* arrays;
  int axis, stacked;
  if (!PyArg_ParseTuple(args, "O!ip", &PyTuple_Type, &arrays, &axis, &stacked)) return nullptr;
  if (!can_join(arrays, axis, stacked != 0)) Py_RETURN_NONE;
  const Array* first = reinterpret_cast<Array*>(PyTuple_GET_ITEM(arrays, 0));
  const ShapedArray* source = first->aval;
  int64_t count = PyTuple_GET_SIZE(arrays), along = 0, total = 0, rows = 1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const ShapedArray* aval = reinterpret_cast<Array*>(PyTuple_GET_ITEM(arrays, i))->aval;
    if (aval->nbytes > kMostBytes || (total += aval->nbytes) > kMostBytes) Py_RETURN_NONE;
    along += stacked ? 1 : aval->extents[axis];
  }
  int ndim = source->ndim + (stacked ? 1 : 0);
  int64_t extents[kMaxRank];
  if (ndim > kMaxRank) Py_RETURN_NONE;
  for (int dim = 0, from = 0; dim < ndim; ++dim) {
    bool here = dim == axis;
    extents[dim] = here ? along : source->extents[from];
    from += !here || !stacked;
    if (dim < axis) rows *= extents[dim];
  }
  if (rows * count > kMostPieces) Py_RETURN_NONE;
  auto aval = Owned<ShapedArray>::steal(aval_intern(ndim, extents, source->dtype, source->weak_type));
  if (!aval) return nullptr;
  auto result = Owned<Array>::steal(array_allocate(aval.get(), "join", "small arrays put together"));
  if (!result) return nullptr;
  result->place = first->place;
  char* to = result->buffer->data;
  for (int64_t row = 0; row < rows; ++row) {
    for (Py_ssize_t i = 0; i < count; ++i) {
      const Array* array = reinterpret_cast<Array*>(PyTuple_GET_ITEM(arrays, i));
      size_t run = size_t(array->aval->nbytes / rows);
      if (run > 0) std::memcpy(to, array->buffer->data + row * int64_t(run), run);
      to += run;
    }
  }
  return reinterpret_cast<PyObject*>(result.release());
}

PyObject* reversed_copy(PyObject*, PyObject* args) {
  PyObject *object, *dims;
  if (!PyArg_ParseTuple(args, "OO!", &object, &PyTuple_Type, &dims)) return nullptr;
  if (!is_array(object) || !is_readable(reinterpret_cast<Array*>(object))) Py_RETURN_NONE;
  Array* array = reinterpret_cast<Array*>(object);
  const ShapedArray* aval = array->aval;
  Layout view{array->buffer->data};
  for (int dim = 0; dim < aval->ndim; ++dim) view.add(aval->extents[dim], aval->strides()[dim]);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(dims); ++i) {
    int64_t dim = extent_of(PyTuple_GET_ITEM(dims, i));
    if (dim < 0 || dim >= aval->ndim || view.strides[dim] < 0) Py_RETURN_NONE;
    if (view.extents[dim] > 0) view.first += (view.extents[dim] - 1) * view.strides[dim];
    view.strides[dim] = -view.strides[dim];
  }
  PyObject* made = copied(array, view);
  if (made == nullptr && !PyErr_Occurred()) Py_RETURN_NONE;
  return made;
}

// ---- full, arange

// Owned Array of the host's default place for these extents; nullptr, also without an error, if it is too large.
Owned<Array> small_array(PyObject* shape, PyObject* dtype, bool weak_type) {
  int64_t extents[kMaxRank], size = 1;
  Py_ssize_t ndim = PyTuple_GET_SIZE(shape);
  if (ndim > kMaxRank) return Owned<Array>();
  for (Py_ssize_t dim = 0; dim < ndim; ++dim) {
    extents[dim] = extent_of(PyTuple_GET_ITEM(shape, dim));
    if (extents[dim] < 0 || __builtin_mul_overflow(size, extents[dim], &size)) return Owned<Array>();
  }
  if (size > kMostBytes) return Owned<Array>();
  auto aval = Owned<ShapedArray>::steal(aval_intern(int(ndim), extents, dtype, weak_type));
  if (!aval || aval->nbytes < 0 || aval->nbytes > kMostBytes) return Owned<Array>();
  return Owned<Array>::steal(array_allocate(aval.get(), "fill", "a small array"));
}

PyObject* result_or_none(Owned<Array> array) {
  if (PyErr_Occurred()) return nullptr;
  if (!array) Py_RETURN_NONE;
  return reinterpret_cast<PyObject*>(array.release());
}

// Repeats the bytes of one element.
void fill(Array* array, const Py_buffer& element) {
  char* to = array->buffer->data;
  const int64_t item = element.len, bytes = array->aval->nbytes;
  if (bytes <= 0) return;
  std::memcpy(to, element.buf, size_t(item));
  for (int64_t done = item; done < bytes; done *= 2) std::memcpy(to + done, to, size_t(std::min(done, bytes - done)));
}

PyObject* filled_small(PyObject*, PyObject* args) {
  PyObject *shape, *dtype;
  Py_buffer element;
  int weak_type;
  if (!PyArg_ParseTuple(args, "O!Oy*p", &PyTuple_Type, &shape, &dtype, &element, &weak_type)) return nullptr;
  Owned<Array> made = small_array(shape, dtype, weak_type != 0);
  if (made && made->aval->itemsize != element.len) made = Owned<Array>();
  if (made) fill(made.get(), element);
  PyBuffer_Release(&element);
  return result_or_none(std::move(made));
}

template <typename Word>
void count_up(char* to, int64_t size, uint64_t first, uint64_t step) {
  for (int64_t i = 0; i < size; ++i) {
    Word word = Word(first + uint64_t(i) * step);
    std::memcpy(to + i * int64_t(sizeof(Word)), &word, sizeof(Word));
  }
}

PyObject* counted_small(PyObject*, PyObject* args) {
  PyObject *shape, *dtype;
  long long first, step;
  if (!PyArg_ParseTuple(args, "O!OLL", &PyTuple_Type, &shape, &dtype, &first, &step)) return nullptr;
  Owned<Array> made = small_array(shape, dtype, false);
  if (made) {
    char* to = made->buffer->data;
    int64_t size = made->aval->size;
    switch (made->aval->itemsize) {
      case 1: count_up<uint8_t>(to, size, uint64_t(first), uint64_t(step)); break;
      case 2: count_up<uint16_t>(to, size, uint64_t(first), uint64_t(step)); break;
      case 4: count_up<uint32_t>(to, size, uint64_t(first), uint64_t(step)); break;
      case 8: count_up<uint64_t>(to, size, uint64_t(first), uint64_t(step)); break;
      default: made = Owned<Array>();
    }
  }
  return result_or_none(std::move(made));
}

// Weighted means of the ends in the operations, and their order, of weft.numpy's program (even_spacing.py).
template <typename Real>
void space_out(char* to, int64_t size, Real start, Real stop, bool endpoint) {
  auto store = [to](int64_t i, Real value) { std::memcpy(to + i * int64_t(sizeof(Real)), &value, sizeof(Real)); };
  if (size == 1) return store(0, start);
  const int64_t steps = endpoint ? size - 1 : size;
  const Real divisor = Real(steps);
  for (int64_t i = 0; i < steps; ++i) {
    const Real weight = Real(i) / divisor;
    store(i, start * (Real(1) - weight) + stop * weight);
  }
  if (endpoint && size > 0) store(steps, stop);
}

PyObject* spaced_small(PyObject*, PyObject* args) {
  PyObject *shape, *dtype;
  double start, stop;
  int endpoint;
  if (!PyArg_ParseTuple(args, "O!Oddp", &PyTuple_Type, &shape, &dtype, &start, &stop, &endpoint)) return nullptr;
  Owned<Array> made = small_array(shape, dtype, false);
  if (made) {
    char* to = made->buffer->data;
    if (made->aval->itemsize == 4) space_out<float>(to, made->aval->size, float(start), float(stop), endpoint != 0);
    else space_out<double>(to, made->aval->size, start, stop, endpoint != 0);
  }
  return result_or_none(std::move(made));
}

// ---- roll, pad

// The array `object`, or nullptr if it cannot be read now, or its copy into rows along `axis` would be long.
Array* small_rows(PyObject* object, int axis, int64_t* rows, int64_t* inner) {
  if (!is_array(object) || !is_readable(reinterpret_cast<Array*>(object))) return nullptr;
  Array* array = reinterpret_cast<Array*>(object);
  const ShapedArray* aval = array->aval;
  if (axis < 0 || axis >= aval->ndim || aval->nbytes > kMostBytes) return nullptr;
  *rows = 1;
  *inner = aval->itemsize;
  for (int dim = 0; dim < axis; ++dim) *rows *= aval->extents[dim];
  for (int dim = axis + 1; dim < aval->ndim; ++dim) *inner *= aval->extents[dim];
  return *rows > kMostPieces ? nullptr : array;
}

PyObject* rolled_copy(PyObject*, PyObject* args) {
  PyObject* object;
  long long shift;
  int axis;
  if (!PyArg_ParseTuple(args, "OLi", &object, &shift, &axis)) return nullptr;
  int64_t rows, inner;
  Array* array = small_rows(object, axis, &rows, &inner);
  if (array == nullptr) Py_RETURN_NONE;
  ShapedArray* aval = array->aval;
  auto type = Owned<ShapedArray>::steal(aval_intern(aval->ndim, aval->extents, aval->dtype, aval->weak_type));
  if (!type) return nullptr;
  auto result = Owned<Array>::steal(array_allocate(type.get(), "roll", "a small array"));
  if (!result) return nullptr;
  result->place = array->place;
  const int64_t extent = aval->extents[axis];
  if (aval->nbytes > 0) {
    const int64_t moved = ((shift % extent) + extent) % extent * inner, whole = extent * inner;
    for (int64_t row = 0; row < rows; ++row) {
      const char* from = array->buffer->data + row * whole;
      char* to = result->buffer->data + row * whole;
      std::memcpy(to + moved, from, size_t(whole - moved));
      std::memcpy(to, from + whole - moved, size_t(moved));
    }
  }
  return reinterpret_cast<PyObject*>(result.release());
}

void pad_rows(const ShapedArray* inside, const ShapedArray* whole, const int64_t* low, int dim, const char* from, char* to) {
  if (dim == inside->ndim) {
    std::memcpy(to, from, size_t(inside->itemsize));
    return;
  }
  const int64_t there = inside->strides()[dim], here = whole->strides()[dim];
  to += low[dim] * here;
  if (dim == inside->ndim - 1) {
    std::memcpy(to, from, size_t(inside->extents[dim] * inside->itemsize));
    return;
  }
  for (int64_t i = 0; i < inside->extents[dim]; ++i) pad_rows(inside, whole, low, dim + 1, from + i * there, to + i * here);
}

PyObject* padded_copy(PyObject*, PyObject* args) {
  PyObject *object, *lows, *shape;
  Py_buffer element;
  if (!PyArg_ParseTuple(args, "OO!O!y*", &object, &PyTuple_Type, &lows, &PyTuple_Type, &shape, &element)) return nullptr;
  int64_t rows = 0, inner = 0, low[kMaxRank];
  Array* array = is_array(object) ? small_rows(object, reinterpret_cast<Array*>(object)->aval->ndim - 1, &rows, &inner) : nullptr;
  bool fits = array != nullptr && array->aval->itemsize == element.len && PyTuple_GET_SIZE(lows) == array->aval->ndim &&
              PyTuple_GET_SIZE(shape) == array->aval->ndim;
  for (int dim = 0; fits && dim < array->aval->ndim; ++dim) {
    low[dim] = extent_of(PyTuple_GET_ITEM(lows, dim));
    const int64_t extent = extent_of(PyTuple_GET_ITEM(shape, dim));
    fits = low[dim] >= 0 && extent <= kMostBytes && low[dim] <= extent - array->aval->extents[dim];
  }
  Owned<Array> made = fits ? small_array(shape, array->aval->dtype, array->aval->weak_type) : Owned<Array>();
  if (made) {
    made->place = array->place;
    fill(made.get(), element);
    if (array->aval->size > 0) pad_rows(array->aval, made->aval, low, 0, array->buffer->data, made->buffer->data);
  }
  PyBuffer_Release(&element);
  return result_or_none(std::move(made));
}

PyMethodDef kMethods[] = {
    {"filled_small", entry_point<filled_small>, METH_VARARGS,
     "filled_small(shape, dtype, element, weak_type) -> Array or None: a small array of one element's bytes; None if it "
     "is large."},
    {"counted_small", entry_point<counted_small>, METH_VARARGS,
     "counted_small(shape, dtype, first, step) -> Array or None: first + i * step in integers; None if it is large."},
    {"spaced_small", entry_point<spaced_small>, METH_VARARGS,
     "spaced_small(shape, dtype, start, stop, endpoint) -> Array or None: float32 or float64 evenly spaced between finite "
     "ends; None if it is large."},
    {"rolled_copy", entry_point<rolled_copy>, METH_VARARGS,
     "rolled_copy(array, shift, axis) -> Array or None: a small array rolled along one axis; None as for joined_copy."},
    {"padded_copy", entry_point<padded_copy>, METH_VARARGS,
     "padded_copy(array, lows, shape, element) -> Array or None: a small array inside of a larger one, whose "
     "other elements have the bytes of `element`; None as for joined_copy."},
    {"joined_copy", entry_point<joined_copy>, METH_VARARGS,
     "joined_copy(arrays, axis, stacked) -> Array or None: small arrays one behind the other along an axis (stacked: "
     "along a new one); None if a program has to do it: large or not yet computed arrays, other types, a mistake."},
    {"reshaped_copy", entry_point<reshaped_copy>, METH_VARARGS,
     "reshaped_copy(array, shape) -> Array or None: a small array of another shape; None as for joined_copy."},
    {"reversed_copy", entry_point<reversed_copy>, METH_VARARGS,
     "reversed_copy(array, dims) -> Array or None: a small array with dimensions in reverse order; None as above."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_views(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

View view_named(const char* name) {
  if (std::strcmp(name, "index") == 0) return index_view;
  if (std::strcmp(name, "ravel") == 0) return raveled_view;
  if (std::strcmp(name, "reshape") == 0) return reshaped_view;
  return std::strcmp(name, "transpose") == 0 ? transposed_view : nullptr;
}

}  // namespace weft
