// Fields: reads the named fields of a record that the compiler wrote (weft/compiler/plans/instructions.py).
//
// The first field that is missing or of a wrong type sets a Python error. From then on reads change nothing and ok() is
// false, so that a reader asks for all fields and checks ok() once.
#pragma once

#include <cstring>
#include <vector>

#include "python.h"

namespace weft {

class Fields {
 public:
  explicit Fields(PyObject* record) : record_(record) {}

  bool ok() const { return ok_; }
  // Owned; empty after an error.
  Ref object(const char* name) {
    if (!ok_) return Ref();
    Ref found = steal(in_python<PyObject_GetAttrString>(record_, name));
    ok_ = bool(found);
    return found;
  }
  Ref tuple(const char* name) {
    Ref found = object(name);
    if (found && !PyTuple_Check(found.get())) return wrong(name, "a tuple"), Ref();
    return found;
  }
  int64_t integer(const char* name) {
    Ref found = object(name);
    if (!found) return 0;
    long long value = in_python<PyLong_AsLongLong>(found.get());
    if (value == -1 && PyErr_Occurred()) ok_ = false;
    return value;
  }
  double real(const char* name) {
    Ref found = object(name);
    if (!found) return 0;
    double value = in_python<PyFloat_AsDouble>(found.get());
    if (value == -1 && PyErr_Occurred()) ok_ = false;
    return value;
  }
  bool flag(const char* name) {
    Ref found = object(name);
    if (!found) return false;
    int value = in_python<PyObject_IsTrue>(found.get());
    if (value < 0) ok_ = false;
    return value > 0;
  }
  // One ASCII character.
  char character(const char* name) {
    Ref found = object(name);
    if (!found) return 0;
    if (!PyUnicode_Check(found.get()) || PyUnicode_GET_LENGTH(found.get()) != 1 ||
        PyUnicode_READ_CHAR(found.get(), 0) >= 128)
      return wrong(name, "one character"), 0;
    return char(PyUnicode_READ_CHAR(found.get(), 0));
  }
  // The index of a word in a list of `count` words.
  int word(const char* name, const char* const* words, int count) {
    Ref found = object(name);
    if (!found) return 0;
    for (int i = 0; i < count; ++i)
      if (PyUnicode_Check(found.get()) && PyUnicode_CompareWithASCIIString(found.get(), words[i]) == 0) return i;
    return wrong(name, "a known word"), 0;
  }
  // Bytes as 64-bit words; the last word is padded with zeros.
  void words64(const char* name, std::vector<int64_t>* out) {
    Ref found = object(name);
    if (!found) return;
    char* data;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(found.get(), &data, &length) < 0) {
      ok_ = false;
      return;
    }
    out->resize(size_t(length + 7) / 8);
    if (length > 0) std::memcpy(out->data(), data, size_t(length));
  }

 private:
  void wrong(const char* name, const char* wanted) {
    PyErr_Format(PyExc_ValueError, "[executable] the field %s of a %s is not %s", name, Py_TYPE(record_)->tp_name,
                 wanted);
    ok_ = false;
  }

  PyObject* record_;  // borrowed
  bool ok_ = true;
};

}  // namespace weft
