// Array: an immutable dense row-major array, an aval and memory: a buffer of the host's, or a device's. Not tracked by
// the cycle collector: it holds nothing that could refer back to it.
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
  struct Remote* remote;  // owned: its memory if that is on another device (pjrt.h); then buffer is nullptr
  uint32_t place;         // twice the device's number (0: the CPU), plus 1 if the Array is committed to the device
                          // (from kHostPlaces on: twice the number of a sharding over devices of the host;
                          // `device_number` has more)
  uint32_t index;         // in the list of all Array objects, which includes unused ones kept for reuse
};

extern PyTypeObject* ArrayType;

// Places from here on are shardings over virtual devices of the CPU, which Python numbers: one buffer of the host has
// the whole array.
constexpr uint32_t kHostPlaces = 1u << 30;
inline bool is_host_place(uint32_t place) { return place <= 1 || place >= kHostPlaces; }

// The low bits of a place in another memory are its device's number; above them is the number of a sharding over
// several such devices, 0 for none: the device has the whole array.
constexpr uint32_t kDeviceNumbers = 1u << 12;
inline uint32_t device_number(uint32_t place) { return (place >> 1) % kDeviceNumbers; }
inline bool is_spread(uint32_t place) { return place >> 1 >= kDeviceNumbers; }  // over devices, of the host or others

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
  array->remote = nullptr;
  array->place = 0;
  return array;
}

// Owned NumPy array of a type without bytes (float0). Borrows aval, steals buffer.
PyObject* array_without_bytes(ShapedArray* aval, Buffer* buffer);

// Owned result of a program: an Array, or, for float0 (which no operation takes), a NumPy array, as in JAX.
inline PyObject* result_new(ShapedArray* aval, Buffer* buffer) {
  if (aval->itemsize == 0) return array_without_bytes(aval, buffer);
  return reinterpret_cast<PyObject*>(array_new(aval, buffer));
}

// As set_memory_error, for an array of this type: `who` had no memory for `what` ("the copy of an argument", "result
// 0"). Returns nullptr.
PyObject* set_array_memory_error(ShapedArray* aval, const char* who, std::string what);

// Owned Array with uninitialised contents. MemoryError, which names `who` and `what`, if there is no memory.
Array* array_allocate(ShapedArray* aval, const char* who, const char* what);

// Sets RuntimeError("Array has been deleted with shape=float32[3].") and returns nullptr. For an Array on another
// device, which was given to a program of the CPU, it says that.
PyObject* set_deleted_error(const Array* array);

inline bool array_is_deleted(const Array* array) { return array->buffer == nullptr && array->remote == nullptr; }

// pjrt_arrays.cpp: borrowed copy on the host of an Array without a buffer, which exists as long as its device memory;
// nullptr with an error set. GIL held, released meanwhile.
Buffer* array_absent_buffer(Array* array);
void remote_release(struct Remote* remote);  // GIL held

// Sets RuntimeError: the Array is donated to a call, and is another argument of the call too.
void set_donated_twice_error(const char* program, const Array* array);

// Gives up the array's buffer (donation, delete); other holders keep the buffer.
inline void array_drop_buffer(Array* array) {
  if (Buffer* buffer = std::exchange(array->buffer, nullptr)) buffer_release(buffer);
  else if (struct Remote* remote = std::exchange(array->remote, nullptr)) remote_release(remote);
}

// Borrowed buffer, ready for the host to read, or nullptr with a Python error set. GIL held.
inline Buffer* array_ready_buffer(Array* array) {
  if (array->buffer == nullptr) return array_absent_buffer(array);
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
