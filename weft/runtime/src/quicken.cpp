// Quickening: CPython 3.11 adapts the bytecode of a function at its ninth call; here it is made to at the next one.
//
// What a call with new sizes runs, it runs once: unadapted, every name is looked up in tables that no cache holds.
// From 3.12 on the interpreter adapts functions at their second call by itself, and nothing is done here.
#include "jit.h"
#include "module.h"

namespace weft {
namespace {

#if PY_VERSION_HEX < 0x030C0000
constexpr short kNextCall = -1;  // PyCodeObject.co_warmup counts calls up to 0
constexpr int kDeepest = 2;         // classes may have each other as attributes

// A code object and those of the functions that it makes, of which it may have made many; gives how many are hastened.
Py_ssize_t hasten_code(PyObject* object) {
  auto* code = reinterpret_cast<PyCodeObject*>(object);
  Py_ssize_t hastened = code->co_warmup < kNextCall;
  if (hastened) code->co_warmup = kNextCall;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); ++i) {
    PyObject* value = PyTuple_GET_ITEM(code->co_consts, i);
    if (PyCode_Check(value)) hastened += hasten_code(value);
  }
  return hastened;
}

struct Module {
  PyObject *names, *name;  // borrowed

  // A function that was written in the module.
  Py_ssize_t hasten_function(PyObject* object) const {
    if (!PyFunction_Check(object) || PyFunction_GET_GLOBALS(object) != names) return 0;
    return hasten_code(PyFunction_GET_CODE(object));
  }

  // The functions behind an object that the module or a class of it has under a name; -1 with an error set.
  Py_ssize_t hasten(PyObject* object, int depth) const {
    if (PyFunction_Check(object)) return hasten_function(object);
    if (PyType_Check(object)) return hasten_class(reinterpret_cast<PyTypeObject*>(object), depth);
    Ref inner;
    if (Py_TYPE(object) == &PyProperty_Type) {
      inner = steal(PyObject_GetAttrString(object, "fget"));
    } else if (Py_TYPE(object) == &PyStaticMethod_Type || Py_TYPE(object) == &PyClassMethod_Type) {
      inner = steal(PyObject_GetAttrString(object, "__func__"));
    } else if (Py_TYPE(object) == JitFunctionType) {
      inner = steal(PyObject_GetAttrString(object, "__wrapped__"));
      if (!inner) PyErr_Clear();
    }
    if (inner) return hasten_function(inner.get());
    return PyErr_Occurred() ? -1 : 0;
  }

  Py_ssize_t hasten_class(PyTypeObject* type, int depth) const {
    if (depth == kDeepest || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return 0;
    PyObject* home = PyDict_GetItemString(type->tp_dict, "__module__");
    const int own = home == nullptr ? 0 : PyObject_RichCompareBool(home, name, Py_EQ);
    return own <= 0 ? own : hasten_names(type->tp_dict, depth + 1);
  }

  Py_ssize_t hasten_names(PyObject* among, int depth = 0) const {
    PyObject *key, *value;
    Py_ssize_t position = 0, hastened = 0;
    while (PyDict_Next(among, &position, &key, &value)) {
      const Py_ssize_t found = hasten(value, depth);
      if (found < 0) return -1;
      hastened += found;
    }
    return hastened;
  }
};
#endif

PyObject* quicken(PyObject*, PyObject* args) {
  PyObject *names, *module;
  if (!PyArg_ParseTuple(args, "O!U:quicken", &PyDict_Type, &names, &module)) return nullptr;
#if PY_VERSION_HEX < 0x030C0000
  const Py_ssize_t hastened = Module{names, module}.hasten_names(names);
  return hastened < 0 ? nullptr : PyLong_FromSsize_t(hastened);
#else
  return PyLong_FromLong(0);
#endif
}

PyMethodDef kFunctions[] = {
    {"quicken", quicken, METH_VARARGS,
     "quicken(names of a module, its name): let its functions, and methods of its classes, be adapted at their next "
     "call; gives how many."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_quicken(PyObject* module) { return PyModule_AddFunctions(module, kFunctions); }

}  // namespace weft
