// Python's C-API and the native layer's one smart pointer. Include this first in every source.
//
// A function that returns PyObject* returns an owned reference, or nullptr with a Python error set, unless its
// comment says "borrowed". A parameter is borrowed unless its comment says "steals".
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <unistd.h>

#include <cstdint>
#include <utility>

namespace weft {

// A call that may run Python code or wait for the GIL. It may be made on any thread but the one that ends the
// interpreter.
//
// Before Python 3.14, a daemon thread that asks for the GIL while the interpreter ends is ended by pthread_exit: its
// stack is unwound, and destructors in our frames would run without the GIL. Therefore the innermost of our frames
// stops the unwinding, and the thread sleeps there until the process exits. (Python 3.14 lets the thread sleep itself.)
// No other exception can come through here: what Python calls throws no C++ exceptions.
template <class Call>
auto in_python(Call call) -> decltype(call()) {
#if PY_VERSION_HEX < 0x030E0000
  try {
    return call();
  } catch (...) {
    for (;;) pause();
  }
#else
  return call();
#endif
}

// The same for a Python C-API function: in_python<PyObject_Hash>(key).
template <auto function, class... Args>
auto in_python(Args... args) {
  return in_python([&] { return function(args...); });
}

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
