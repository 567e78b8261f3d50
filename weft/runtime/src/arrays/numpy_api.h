// NumPy's C-API, imported once by module.cpp (which defines WEFT_IMPORTS_NUMPY before including this).
#pragma once

#include "python.h"

#define PY_ARRAY_UNIQUE_SYMBOL weft_numpy_api
#ifndef WEFT_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

namespace weft {

// NumPy's own sort of contiguous elements of one type; it uses vector instructions where the processor has them.
inline PyArray_SortFunc* numpy_sort(int type) {
  Ref dtype = steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type)));
  return PyDataType_GetArrFuncs(reinterpret_cast<PyArray_Descr*>(dtype.get()))->sort[NPY_QUICKSORT];
}

// NumPy's own argsort; equal elements come in any order.
inline PyArray_ArgSortFunc* numpy_argsort(int type) {
  Ref dtype = steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type)));
  return PyDataType_GetArrFuncs(reinterpret_cast<PyArray_Descr*>(dtype.get()))->argsort[NPY_QUICKSORT];
}

}  // namespace weft
