// Copies of host memory in blocks. See host_copy.h.
#include "host_copy.h"

#include <algorithm>
#include <cstring>

#include "module.h"
#include "stream.h"

namespace weft {
namespace {

constexpr int64_t kWithGil = 1 << 20;
constexpr int64_t kBlock = 8 << 20;  // a fault of fresh pages for one block may take 40 ms when memory is short

int copy_array(PyArrayObject* to, PyArrayObject* from) {  // without the GIL if it is large
  return in_python([&] { return PyArray_CopyInto(to, from); });
}

// Copies array[low:high].
int copy_rows(PyObject* to, PyObject* from, npy_intp low, npy_intp high) {
  Ref target = steal(PySequence_GetSlice(to, low, high)), source = steal(PySequence_GetSlice(from, low, high));
  if (!target || !source) return -1;
  return copy_array(reinterpret_cast<PyArrayObject*>(target.get()), reinterpret_cast<PyArrayObject*>(source.get()));
}

// copy_ndarray for plain ndarrays.
int copy_in_blocks(PyArrayObject* to, PyArrayObject* from) {
  int64_t nbytes = PyArray_NBYTES(to);
  if (nbytes <= kBlock) return copy_array(to, from) < 0 ? -1 : stream_check_interrupt();
  PyObject *target = reinterpret_cast<PyObject*>(to), *source = reinterpret_cast<PyObject*>(from);
  npy_intp count = PyArray_DIM(to, 0);
  int64_t row_bytes = nbytes / count;
  npy_intp step = std::max<npy_intp>(1, kBlock / row_bytes);
  for (npy_intp low = 0; low < count; low += step) {
    if (row_bytes > kBlock) {
      Ref row = steal(in_python<PySequence_GetItem>(target, low));
      Ref given = steal(in_python<PySequence_GetItem>(source, low));
      if (!row || !given) return -1;
      if (copy_in_blocks(reinterpret_cast<PyArrayObject*>(row.get()), reinterpret_cast<PyArrayObject*>(given.get())) < 0)
        return -1;
      continue;
    }
    if (copy_rows(target, source, low, std::min(count, low + step)) < 0 || stream_check_interrupt() < 0) return -1;
  }
  return 0;
}

PyObject* convert_numpy(PyObject*, PyObject* args) {
  PyObject* ndarray;
  PyArray_Descr* descr = nullptr;
  if (!PyArg_ParseTuple(args, "O!O&:convert_numpy", &PyArray_Type, &ndarray, PyArray_DescrConverter, &descr))
    return nullptr;
  Ref owned = steal(reinterpret_cast<PyObject*>(descr));
  return converted_ndarray(reinterpret_cast<PyArrayObject*>(ndarray), descr);
}

PyObject* numpy_bytes(PyObject*, PyObject* object) {
  if (!PyArray_Check(object)) return PyErr_Format(PyExc_TypeError, "[numpy_bytes] expected an ndarray, got %R", object);
  Ref dense = steal(in_python([&] {
    return PyArray_FromArray(reinterpret_cast<PyArrayObject*>(object), nullptr, NPY_ARRAY_C_CONTIGUOUS);
  }));
  if (!dense) return nullptr;
  auto* array = reinterpret_cast<PyArrayObject*>(dense.get());
  Ref bytes = steal(PyBytes_FromStringAndSize(nullptr, PyArray_NBYTES(array)));
  if (!bytes || copy_bytes(PyBytes_AS_STRING(bytes.get()), PyArray_BYTES(array), PyArray_NBYTES(array)) < 0)
    return nullptr;
  return bytes.release();
}

PyMethodDef kMethods[] = {
    {"numpy_bytes", numpy_bytes, METH_O, "numpy_bytes(ndarray) -> its bytes in C order; it can be interrupted."},
    {"convert_numpy", convert_numpy, METH_VARARGS,
     "convert_numpy(ndarray, dtype) -> a new dense ndarray of that dtype, as astype makes it; it can be interrupted."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int copy_bytes(char* to, const char* from, int64_t nbytes) {
  if (nbytes < kWithGil) {
    if (nbytes > 0) std::memcpy(to, from, size_t(nbytes));
    return 0;
  }
  for (int64_t at = 0; at < nbytes; at += kBlock) {
    Py_BEGIN_ALLOW_THREADS;  // the caller's reference keeps the memory alive
    std::memcpy(to + at, from + at, size_t(std::min(kBlock, nbytes - at)));
    Py_END_ALLOW_THREADS;
    if (stream_check_interrupt() < 0) return -1;
  }
  return 0;
}

int copy_ndarray(PyArrayObject* to, PyArrayObject* from) {
  Ref plain = steal(PyArray_View(from, nullptr, &PyArray_Type));  // subclasses may redefine indexing
  return plain ? copy_in_blocks(to, reinterpret_cast<PyArrayObject*>(plain.get())) : -1;
}

PyObject* converted_ndarray(PyArrayObject* from, PyArray_Descr* descr) {
  if (PyArray_NBYTES(from) <= kBlock || PyDataType_ISFLEXIBLE(descr)) {
    Py_INCREF(descr);
    return in_python([&] { return PyArray_CastToType(from, descr, 0); });
  }
  Py_INCREF(descr);
  Ref made = steal(PyArray_NewLikeArray(from, NPY_CORDER, descr, 0));
  if (!made || copy_ndarray(reinterpret_cast<PyArrayObject*>(made.get()), from) < 0) return nullptr;
  return made.release();
}

int register_host_copy(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
