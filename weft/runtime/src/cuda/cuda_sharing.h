// The memory of GPUs shared with other libraries in this process, by DLPack and __cuda_array_interface__.
#pragma once

#include "array.h"
#include "pjrt.h"

namespace weft {

// Owned Buffer on the memory of an Array on a GPU, for somebody else, whose stream comes after what was asked for so far.
// `stream`: None, or a number as the array API has them. nullptr with an error set.
Buffer* gpu_memory_for(Remote* remote, ShapedArray* aval, PyObject* stream);

// Memory of a GPU that somebody else owns; `release(owner)` gives it up, with the GIL held.
struct ForeignMemory {
  int32_t ordinal;       // of the GPU
  char* data;
  const int64_t* strides;  // in elements; nullptr: row-major
  void (*release)(void* owner);
  void* owner;
};

// Owned Array on that memory, or on a copy if it is not row-major or `copy` is Py_True; nullptr with an error set.
// *taken: the memory belongs to the Array, which gives it up.
PyObject* array_of_gpu_memory(ShapedArray* aval, const ForeignMemory& memory, PyObject* copy, bool* taken);

// The stream that the producer of a GPU's memory is told of, as a number; 0: there is no such GPU here.
unsigned long long gpu_stream(int32_t ordinal);

}  // namespace weft
