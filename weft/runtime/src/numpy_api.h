// NumPy's C-API, imported once by module.cpp (which defines WEFT_IMPORTS_NUMPY before including this).
#pragma once

#include "python.h"

#define PY_ARRAY_UNIQUE_SYMBOL weft_numpy_api
#ifndef WEFT_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
