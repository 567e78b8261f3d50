// Replay: the key of a call of a jitted function under a trace, and the user's line that made the call.
//
// weft/dispatch/calls/replay.py says what the key is for. Every call of a weft.numpy function under a trace makes one.
#include "array.h"
#include "module.h"
#include "numpy_api.h"
#include "record.h"

namespace weft {
namespace {

constexpr Py_ssize_t kMostOperands = 64;  // each operand is compared with all before it

PyObject* g_scalars = nullptr;  // types of scalars, which are part of the key by value
PyObject* g_complex = nullptr;  // the complex ones among them: either part may be -0.0

enum Noted { kFailed = -1, kNever = 0, kNoted = 1 };  // error set; the call cannot be replayed; added to the key

struct Call {
  PyObject* trace;  // borrowed
  Ref key, operands;

  Noted append(PyObject* item) { return PyList_Append(key.get(), item) < 0 ? kFailed : kNoted; }
  Noted append(PyObject* first, PyObject* second) { return append(first) == kFailed ? kFailed : append(second); }
  Noted operand(PyObject* value) { return PyList_Append(operands.get(), value) < 0 ? kFailed : kNoted; }
};

// Adds a traced operand to the key: its type, or, if it came before, its position among the operands.
Noted note_tracer(Call& call, PyObject* value) {
  const TracerFields fields = tracer_fields(value);
  const Py_ssize_t count = PyList_GET_SIZE(call.operands.get());
  if (fields.trace != call.trace || fields.val == nullptr || fields.aval == nullptr || count >= kMostOperands)
    return kNever;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* seen = PyList_GET_ITEM(call.operands.get(), i);
    if (seen == value) {
      Ref index = steal(PyLong_FromSsize_t(i));
      return index ? call.append(index.get()) : kFailed;
    }
    if (is_tracer(seen) && tracer_fields(seen).val == fields.val) return kNever;
  }
  if (is_literal(fields.val)) return kNever;
  return call.operand(value) == kFailed ? kFailed : call.append(fields.aval);
}

// Adds an array with values, which becomes a constant of the program.
Noted note_array(Call& call, PyObject* value) {
  const Py_ssize_t count = PyList_GET_SIZE(call.operands.get());
  if (count >= kMostOperands) return kNever;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (PyList_GET_ITEM(call.operands.get(), i) == value) return kNever;
  if (call.operand(value) == kFailed) return kFailed;
  PyObject* kind = reinterpret_cast<PyObject*>(Py_TYPE(value));
  if (is_array(value)) return call.append(kind, reinterpret_cast<PyObject*>(reinterpret_cast<Array*>(value)->aval));
  Ref dtype = steal(in_python<PyObject_GetAttrString>(value, "dtype")), shape = steal(in_python<PyObject_GetAttrString>(value, "shape"));
  if (!dtype || !shape || call.append(kind) == kFailed) return kFailed;
  return call.append(dtype.get(), shape.get());
}

// Whether an equal scalar may differ in bits: 0.0 equals -0.0, also as a real or imaginary part.
int is_ambiguous(PyObject* value, PyObject* kind) {
  if (PyLong_CheckExact(value)) return 0;
  if (PyFloat_CheckExact(value)) return PyFloat_AS_DOUBLE(value) == 0;
  const int parts = PySet_Contains(g_complex, kind);
  if (parts != 0) return parts;
  Ref zero = steal(PyLong_FromLong(0));
  return zero ? in_python<PyObject_RichCompareBool>(value, zero.get(), Py_EQ) : -1;
}

Noted note_scalar(Call& call, PyObject* value, PyObject* kind) {
  const int ambiguous = is_ambiguous(value, kind);
  if (ambiguous < 0) return kFailed;
  Ref told = ambiguous ? steal(in_python<PyObject_Repr>(value)) : borrow(value);
  return told ? call.append(kind, told.get()) : kFailed;
}

// Adds a scalar or a static argument by type and value, an array by its type.
Noted note_value(Call& call, PyObject* value, bool is_static) {
  if (value == Py_None) return call.append(value);
  PyObject* kind = reinterpret_cast<PyObject*>(Py_TYPE(value));
  const int scalar = PySet_Contains(g_scalars, kind);
  if (scalar < 0) return kFailed;
  if (scalar) return note_scalar(call, value, kind);
  if (!is_static) {
    const bool dense = PyArray_CheckExact(value) && PyArray_NDIM(reinterpret_cast<PyArrayObject*>(value)) > 0;
    return dense || is_array(value) ? note_array(call, value) : kNever;
  }
  if (PyCallable_Check(value) && Py_TYPE(value) != &PyType_Type) return kNever;
  return call.append(kind, value);
}

Noted note(Call& call, PyObject* value, int is_static) {
  if (is_static < 0) return kFailed;
  return is_tracer(value) && !is_static ? note_tracer(call, value) : note_value(call, value, is_static);
}

int holds_number(PyObject* numbers, Py_ssize_t number) {
  if (PyTuple_GET_SIZE(numbers) == 0) return 0;
  Ref value = steal(PyLong_FromSsize_t(number));
  return value ? in_python<PySequence_Contains>(numbers, value.get()) : -1;
}

Noted note_all(Call& call, PyObject* args, PyObject* kwargs, PyObject* static_argnums, PyObject* static_argnames) {
  Noted noted = kNoted;
  for (Py_ssize_t i = 0; noted == kNoted && i < PyTuple_GET_SIZE(args); ++i)
    noted = note(call, PyTuple_GET_ITEM(args, i), holds_number(static_argnums, i));
  PyObject *name, *value;
  Py_ssize_t position = 0;
  while (noted == kNoted && PyDict_Next(kwargs, &position, &name, &value)) {
    Ref kept = borrow(value);  // a comparison may run code that changes the dict
    noted = call.append(name);
    if (noted == kNoted) noted = note(call, kept.get(), in_python<PySequence_Contains>(static_argnames, name));
  }
  return noted;
}

PyObject* install_replay(PyObject*, PyObject* args) {
  PyObject *scalars, *with_parts;
  if (!PyArg_ParseTuple(args, "O!O!:install_replay", &PyFrozenSet_Type, &scalars, &PyFrozenSet_Type, &with_parts))
    return nullptr;
  Py_XSETREF(g_scalars, Py_NewRef(scalars));
  Py_XSETREF(g_complex, Py_NewRef(with_parts));
  Py_RETURN_NONE;
}

PyObject* call_key(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 6 || !PyTuple_CheckExact(args[2]) || !PyDict_CheckExact(args[3]) || !PyTuple_CheckExact(args[4]) ||
      g_scalars == nullptr)
    return PyErr_Format(PyExc_TypeError, "[call_key] expected a trace, a token, args, kwargs and static names");
  Call call{args[0], steal(PyList_New(0)), steal(PyList_New(0))};
  if (!call.key || !call.operands || call.append(args[1]) == kFailed) return nullptr;
  const Noted noted = note_all(call, args[2], args[3], args[4], args[5]);
  if (noted == kFailed) return nullptr;
  if (noted == kNever) Py_RETURN_NONE;
  Ref key = steal(PyList_AsTuple(call.key.get()));
  return key ? PyTuple_Pack(2, key.get(), call.operands.get()) : nullptr;
}

// Whether a file belongs to weft: looked up in `known`, a cache of the answers of `ask`. -1 with an error set.
int is_internal(PyObject* filename, PyObject* known, PyObject* ask) {
  PyObject* found = PyDict_GetItemWithError(known, filename);
  if (found != nullptr) return in_python<PyObject_IsTrue>(found);
  if (PyErr_Occurred()) return -1;
  Ref answer = steal(in_python<PyObject_CallOneArg>(ask, filename));
  return answer ? in_python<PyObject_IsTrue>(answer.get()) : -1;
}

PyObject* user_position(PyObject*, PyObject* const* args, Py_ssize_t count) {
  static PyObject* const filename = PyUnicode_InternFromString("co_filename");
  if (count != 4 || !PyFrame_Check(args[0]) || !PyDict_CheckExact(args[1]))
    return PyErr_Format(PyExc_TypeError, "[user_position] expected a frame, a dict, a function and names");
  Owned<PyFrameObject> frame = Owned<PyFrameObject>::borrow(reinterpret_cast<PyFrameObject*>(args[0]));
  while (frame) {
    Owned<PyCodeObject> code = Owned<PyCodeObject>::steal(PyFrame_GetCode(frame.get()));
    Ref file = steal(in_python<PyObject_GetAttr>(code.object(), filename));
    const int internal = file ? is_internal(file.get(), args[1], args[2]) : -1;
    if (internal < 0) return nullptr;
    if (!internal) return Py_BuildValue("OiO", code.object(), PyFrame_GetLasti(frame.get()), args[3]);
    frame = Owned<PyFrameObject>::steal(PyFrame_GetBack(frame.get()));
  }
  Py_RETURN_NONE;
}

PyMethodDef kFunctions[] = {
    {"install_replay", install_replay, METH_VARARGS,
     "install_replay(types of scalars, those with a real and an imaginary part), both frozensets."},
    {"call_key", reinterpret_cast<PyCFunction>(call_key), METH_FASTCALL,
     "call_key(trace, token, args, kwargs, static_argnums, static_argnames) -> (key, operands) of a call under a "
     "trace, or None if it holds more than traced values of it, arrays, scalars and static arguments."},
    {"user_position", reinterpret_cast<PyCFunction>(user_position), METH_FASTCALL,
     "user_position(frame, known, is_internal, names) -> (code, instruction, names) of the nearest frame outwards "
     "whose file is not internal, or None."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_replay(PyObject* module) { return PyModule_AddFunctions(module, kFunctions); }

}  // namespace weft
