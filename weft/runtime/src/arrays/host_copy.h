// Copies of host memory in blocks. Signals are handled between blocks, so that a large copy can be interrupted.
#pragma once

#include "numpy_api.h"

namespace weft {

// Copies bytes; other threads may run meanwhile. GIL held; 0, or -1 with an error set.
int copy_bytes(char* to, const char* from, int64_t nbytes);

// Copies the elements of an ndarray into one of the same shape, converted as astype does; 0, or -1 with an error set.
int copy_ndarray(PyArrayObject* to, PyArrayObject* from);

// Owned dense ndarray with the elements as another dtype; nullptr with an error set.
PyObject* converted_ndarray(PyArrayObject* from, PyArray_Descr* descr);

}  // namespace weft
