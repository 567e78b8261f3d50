// Kernel: the Python handle of one loaded machine-code function. The code is unmapped when the handle is freed, so
// whoever stores `function` must own a reference to the Kernel.
#pragma once

#include "loader.h"
#include "python.h"

namespace weft {

// range = {low0, high0, low_vector, high_vector, mode, address of the partial buffer, address of the stop word}. A
// routine gets zeros and, last, the address of the function that it asks whether to stop
using KernelFunction = void (*)(void* const* operands, const int64_t* params, const int64_t* range, void* scratch);

struct Kernel {
  PyObject_HEAD
  KernelFunction function;
  CodeBlob* blob;    // owned
  PyObject* symbol;  // owned str
  PyObject* weakrefs;
};

extern PyTypeObject* KernelType;

int register_kernel(PyObject* module);  // Kernel, load_kernel, link_kernel

}  // namespace weft
