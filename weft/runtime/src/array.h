// Array: an immutable dense row-major array, an aval and a buffer. Not tracked by the cycle collector: it holds
// nothing that could refer back to it.
#pragma once

#include <string>

#include "aval.h"
#include "buffer.h"

namespace weft {

struct Array {
  PyObject_HEAD
  ShapedArray* aval;  // owned
  Buffer* buffer;     // owned; nullptr once deleted or donated
  PyObject* weakrefs;
  size_t place;  // index in the list of all Array objects, which includes unused ones kept for reuse
};

extern PyTypeObject* ArrayType;

constexpr int kFreeArrays = 512;
extern Array* free_arrays[kFreeArrays];  // unused objects, each still owning its reference to the type
extern int free_array_count;

Array* array_new_object();  // owned uninitialised object, or nullptr with MemoryError set

inline bool is_array(PyObject* object) { return Py_TYPE(object) == ArrayType; }

// Owned Array. Borrows aval, steals buffer (also when it fails).
inline Array* array_new(ShapedArray* aval, Buffer* buffer) {
  Array* array;
  if (free_array_count > 0) {
    array = free_arrays[--free_array_count];
    Py_SET_REFCNT(reinterpret_cast<PyObject*>(array), 1);
  } else {
    array = array_new_object();
    if (array == nullptr) {
      buffer_release(buffer);
      return nullptr;
    }
  }
  Py_INCREF(aval);
  array->aval = aval;
  array->buffer = buffer;
  array->weakrefs = nullptr;
  return array;
}

// Owned NumPy array of a type without bytes (float0). Borrows aval, steals buffer.
PyObject* array_without_bytes(ShapedArray* aval, Buffer* buffer);

// Owned result of a program: an Array; of float0, which no operation takes, a NumPy array, as in JAX.
inline PyObject* result_new(ShapedArray* aval, Buffer* buffer) {
  if (aval->itemsize == 0) return array_without_bytes(aval, buffer);
  return reinterpret_cast<PyObject*>(array_new(aval, buffer));
}

// As set_memory_error, for an array of this type: `who` had no memory for `what` ("the copy of an argument", "result
// 0"). Returns nullptr.
PyObject* set_array_memory_error(ShapedArray* aval, const char* who, std::string what);

// Owned Array with uninitialised contents. MemoryError, which names `who` and `what`, if there is no memory.
Array* array_allocate(ShapedArray* aval, const char* who, const char* what);

// Sets RuntimeError("Array has been deleted with shape=float32[3].") and returns nullptr.
PyObject* set_deleted_error(const Array* array);

// Sets RuntimeError: the Array is donated to a call, and is another argument of the call too.
void set_donated_twice_error(const char* program, const Array* array);

// Gives up the array's buffer (donation, delete); other holders keep the buffer.
inline void array_drop_buffer(Array* array) {
  if (Buffer* buffer = std::exchange(array->buffer, nullptr)) buffer_release(buffer);
}

// Borrowed buffer, ready for the host to read, or nullptr with a Python error set. GIL held.
inline Buffer* array_ready_buffer(Array* array) {
  if (array->buffer == nullptr) {
    set_deleted_error(array);
    return nullptr;
  }
  // Other threads run during the wait, and one of them may delete the array: check again.
  if (array->buffer->pending != nullptr) {
    Buffer* buffer = buffer_retain(array->buffer);
    int status = buffer_wait(buffer);
    bool still_there = array->buffer == buffer;
    buffer_release(buffer);
    if (status < 0) return nullptr;
    if (!still_there) {
      set_deleted_error(array);
      return nullptr;
    }
  }
  return array->buffer;
}

// Owned Array with a copy of the ndarray's elements; aval's shape and dtype must be the ndarray's.
Array* array_from_numpy(PyObject* ndarray, ShapedArray* aval);

}  // namespace weft
