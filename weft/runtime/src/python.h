// The C-API and the one smart pointer of the native layer. Include this first in every source.
//
// A function that returns PyObject* returns an owned reference, or nullptr with a Python error set, unless its
// comment says "borrowed". A parameter is borrowed unless its comment says "steals".
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstdint>
#include <utility>

namespace weft {

// One owned reference (or none). T is a struct that begins with PyObject_HEAD.
template <typename T = PyObject>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned(Owned&& other) noexcept : pointer_(other.release()) {}
  Owned& operator=(Owned&& other) noexcept {
    T* old = pointer_;
    pointer_ = other.release();
    Py_XDECREF(reinterpret_cast<PyObject*>(old));
    return *this;
  }
  ~Owned() { Py_XDECREF(reinterpret_cast<PyObject*>(pointer_)); }

  static Owned steal(T* pointer) {
    Owned result;
    result.pointer_ = pointer;
    return result;
  }
  static Owned borrow(T* pointer) {
    Py_XINCREF(reinterpret_cast<PyObject*>(pointer));
    return steal(pointer);
  }

  T* get() const { return pointer_; }
  PyObject* object() const { return reinterpret_cast<PyObject*>(pointer_); }
  T* operator->() const { return pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }
  // The caller owns the result.
  T* release() { return std::exchange(pointer_, nullptr); }

 private:
  T* pointer_ = nullptr;
};

using Ref = Owned<PyObject>;

inline Ref steal(PyObject* pointer) { return Ref::steal(pointer); }
inline Ref borrow(PyObject* pointer) { return Ref::borrow(pointer); }

}  // namespace weft
