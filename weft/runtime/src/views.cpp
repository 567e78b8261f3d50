#include "views.h"

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

// A program copies more than this on several threads, or in blocks. Starting one takes as long as this copy.
constexpr int64_t kMostBytes = 32 << 10;
constexpr int64_t kMostScattered = 2048;  // elements that are not next to each other

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
  if (array->place >= kHostPlaces) return false;  // a program says how its result lies on the devices
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
  bool is_run = dense.ndim == 0 || (dense.ndim == 1 && dense.strides[0] == item);
  if (!is_run && size > kMostScattered) return nullptr;
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

PyObject* raveled_view(Array* array, PyObject* const*, Py_ssize_t count) {
  if (count != 0 || !is_readable(array)) return nullptr;
  Layout view{array->buffer->data};
  view.add(array->aval->size, array->aval->itemsize);
  return copied(array, view);
}

}  // namespace

View view_named(const char* name) {
  if (std::strcmp(name, "index") == 0) return index_view;
  if (std::strcmp(name, "ravel") == 0) return raveled_view;
  if (std::strcmp(name, "reshape") == 0) return reshaped_view;
  return std::strcmp(name, "transpose") == 0 ? transposed_view : nullptr;
}

}  // namespace weft
