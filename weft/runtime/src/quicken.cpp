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

// A code object and those of the functions that it makes; gives how many are hastened, which is each of them once.
Py_ssize_t hasten_code(PyObject* object) {
  auto* code = reinterpret_cast<PyCodeObject*>(object);
  if (code->co_warmup >= kNextCall) return 0;
  code->co_warmup = kNextCall;
  Py_ssize_t hastened = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); ++i) {
    PyObject* value = PyTuple_GET_ITEM(code->co_consts, i);
    if (PyCode_Check(value)) hastened += hasten_code(value);
  }
  return hastened;
}

Py_ssize_t hasten_namespace(PyObject* names, PyObject* module);

// The functions behind an object that a module or a class has under a name; -1 with an error set.
Py_ssize_t hasten(PyObject* object, PyObject* module) {
  if (PyFunction_Check(object)) return hasten_code(PyFunction_GET_CODE(object));
  if (PyType_Check(object)) {
    auto* type = reinterpret_cast<PyTypeObject*>(object);
    PyObject* home = type->tp_flags & Py_TPFLAGS_HEAPTYPE ? PyDict_GetItemString(type->tp_dict, "__module__") : nullptr;
    const int own = home == nullptr ? 0 : PyObject_RichCompareBool(home, module, Py_EQ);
    return own <= 0 ? own : hasten_namespace(type->tp_dict, module);
  }
  Ref inner;
  if (Py_TYPE(object) == &PyProperty_Type) {
    inner = steal(PyObject_GetAttrString(object, "fget"));
  } else if (Py_TYPE(object) == &PyStaticMethod_Type || Py_TYPE(object) == &PyClassMethod_Type) {
    inner = steal(PyObject_GetAttrString(object, "__func__"));
  } else if (Py_TYPE(object) == JitFunctionType) {
    inner = steal(PyObject_GetAttrString(object, "__wrapped__"));
    if (!inner) PyErr_Clear();
  }
  if (!inner) return PyErr_Occurred() ? -1 : 0;
  return PyFunction_Check(inner.get()) ? hasten_code(PyFunction_GET_CODE(inner.get())) : 0;
}

Py_ssize_t hasten_namespace(PyObject* names, PyObject* module) {
  PyObject *name, *value;
  Py_ssize_t position = 0, hastened = 0;
  while (PyDict_Next(names, &position, &name, &value)) {
    const Py_ssize_t found = hasten(value, module);
    if (found < 0) return -1;
    hastened += found;
  }
  return hastened;
}
#endif

PyObject* quicken(PyObject*, PyObject* args) {
  PyObject *names, *module;
  if (!PyArg_ParseTuple(args, "O!U:quicken", &PyDict_Type, &names, &module)) return nullptr;
#if PY_VERSION_HEX < 0x030C0000
  const Py_ssize_t hastened = hasten_namespace(names, module);
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
