// BinaryOperator, UnaryOperator and ViewOperator implement Array's methods. Arrays and scalars are passed to the jitted
// function directly, and small views are copied (views.h); everything else (tracers, foreign objects) goes to the Python
// fallback, which may return NotImplemented.
#include "jit.h"
#include "module.h"
#include "numpy_api.h"
#include "views.h"

namespace weft {
namespace {

struct Operator {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* function;  // owned: the jitted function; for a view, what says whether nothing watches operations now
  PyObject* fallback;  // owned
  PyObject* dict;
  PyObject* weakrefs;
  char arity;
  char reflected;
  View view;
  uint64_t unwatched;  // the last configuration under which nothing watched operations
};

bool is_plain(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return type == ArrayType || type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type ||
         type == &PyComplex_Type || type == &PyArray_Type || PyArray_IsScalar(object, Number) ||
         PyArray_IsScalar(object, Bool);
}

PyObject* operator_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* keywords) {
  Operator* self = reinterpret_cast<Operator*>(object);
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  if (count != self->arity || (keywords != nullptr && PyTuple_GET_SIZE(keywords) != 0)) {
    PyErr_Format(PyExc_TypeError, "expected %d positional arguments, got %zd", int(self->arity), count);
    return nullptr;
  }
  bool plain = !is_tracing() && is_plain(args[0]) && (count == 1 || is_plain(args[1]));
  if (!plain) return in_python<PyObject_Vectorcall>(self->fallback, args, size_t(count), nullptr);
  PyObject* swapped[2] = {args[count - 1], args[0]};
  PyObject* const* operands = self->reflected ? swapped : args;
  if (Py_TYPE(self->function) == JitFunctionType) return jit_call(self->function, operands, size_t(count), nullptr);
  return in_python<PyObject_Vectorcall>(self->function, operands, size_t(count), nullptr);
}

// Whether a view may be copied without an operation: nobody traces, or watches the results of operations. False with an
// error set (an interrupt) if that could not be asked.
bool may_copy(Operator* self) {
  if (is_tracing()) return false;
  if (config_token() == self->unwatched) return true;
  uint64_t token = config_token();
  Ref answer = steal(in_python<PyObject_CallNoArgs>(self->function));
  if (answer && answer.get() == Py_True) self->unwatched = token;
  return answer && answer.get() == Py_True;
}

PyObject* view_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* keywords) {
  Operator* self = reinterpret_cast<Operator*>(object);
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  if (keywords == nullptr && count > 0 && is_array(args[0]) && may_copy(self)) {
    PyObject* result = self->view(reinterpret_cast<Array*>(args[0]), args + 1, count - 1);
    if (result != nullptr || PyErr_Occurred()) return result;
  }
  if (PyErr_Occurred()) return nullptr;
  return in_python<PyObject_Vectorcall>(self->fallback, args, size_t(count), keywords);
}

PyObject* operator_new(PyTypeObject* type, PyObject* function, PyObject* fallback, int arity, int reflected) {
  if (!PyCallable_Check(function) || !PyCallable_Check(fallback)) {
    PyErr_SetString(PyExc_TypeError, "[Operator] the function and the fallback must be callable");
    return nullptr;
  }
  Operator* self = reinterpret_cast<Operator*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = operator_call;
  self->function = Py_NewRef(function);
  self->fallback = Py_NewRef(fallback);
  self->arity = char(arity);
  self->reflected = char(reflected);
  return reinterpret_cast<PyObject*>(self);
}

PyObject* binary_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"jit_function", "fallback", "reflected", nullptr};
  PyObject *function, *fallback;
  int reflected = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|p", const_cast<char**>(names), &function, &fallback, &reflected))
    return nullptr;
  return operator_new(type, function, fallback, 2, reflected);
}

PyObject* unary_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"jit_function", "fallback", nullptr};
  PyObject *function, *fallback;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", const_cast<char**>(names), &function, &fallback)) return nullptr;
  return operator_new(type, function, fallback, 1, 0);
}

PyObject* view_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"name", "fallback", "unwatched", nullptr};
  const char* name;
  PyObject *fallback, *unwatched;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOO", const_cast<char**>(names), &name, &fallback, &unwatched))
    return nullptr;
  View view = view_named(name);
  if (view == nullptr) return PyErr_Format(PyExc_ValueError, "[ViewOperator] no view is called %s", name);
  PyObject* made = operator_new(type, unwatched, fallback, 0, 0);
  if (made == nullptr) return nullptr;
  Operator* self = reinterpret_cast<Operator*>(made);
  self->vectorcall = view_call;
  self->view = view;
  self->unwatched = kNoConfig;
  return made;
}

int operator_traverse(PyObject* object, visitproc visit, void* arg) {
  Operator* self = reinterpret_cast<Operator*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->function);
  Py_VISIT(self->fallback);
  Py_VISIT(self->dict);
  return 0;
}

int operator_clear(PyObject* object) {
  Operator* self = reinterpret_cast<Operator*>(object);
  Py_CLEAR(self->dict);
  Py_XSETREF(self->function, Py_NewRef(Py_None));
  Py_XSETREF(self->fallback, Py_NewRef(Py_None));
  return 0;
}

void operator_dealloc(PyObject* object) {
  Operator* self = reinterpret_cast<Operator*>(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  Py_XDECREF(self->function);
  Py_XDECREF(self->fallback);
  Py_XDECREF(self->dict);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* operator_get(PyObject* self, PyObject* instance, PyObject*) {
  return instance == nullptr || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

PyMemberDef kMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Operator, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Operator, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Operator, weakrefs), READONLY, nullptr},
    {"jit_function", T_OBJECT, offsetof(Operator, function), READONLY, "Called with plain operands."},
    {"fallback", T_OBJECT, offsetof(Operator, fallback), READONLY, "Called with anything else."},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef kGetSet[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

#define WEFT_OPERATOR_SLOTS(constructor)                            \
  {                                                                 \
      {Py_tp_new, reinterpret_cast<void*>(constructor)},            \
      {Py_tp_dealloc, reinterpret_cast<void*>(operator_dealloc)},   \
      {Py_tp_traverse, reinterpret_cast<void*>(operator_traverse)}, \
      {Py_tp_clear, reinterpret_cast<void*>(operator_clear)},       \
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},     \
      {Py_tp_descr_get, reinterpret_cast<void*>(operator_get)},     \
      {Py_tp_members, kMembers},                                    \
      {Py_tp_getset, kGetSet},                                      \
      {0, nullptr},                                                 \
  }

PyType_Slot kBinarySlots[] = WEFT_OPERATOR_SLOTS(binary_new);
PyType_Slot kUnarySlots[] = WEFT_OPERATOR_SLOTS(unary_new);
PyType_Slot kViewSlots[] = WEFT_OPERATOR_SLOTS(view_new);
constexpr unsigned kFlags =
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
PyType_Spec kBinarySpec = {"weft.runtime.BinaryOperator", sizeof(Operator), 0, kFlags, kBinarySlots};
PyType_Spec kUnarySpec = {"weft.runtime.UnaryOperator", sizeof(Operator), 0, kFlags, kUnarySlots};
PyType_Spec kViewSpec = {"weft.runtime.ViewOperator", sizeof(Operator), 0, kFlags, kViewSlots};

}  // namespace

int register_operators(PyObject* module) {
  struct Named {
    const char* name;
    PyType_Spec* spec;
  };
  for (Named named : {Named{"BinaryOperator", &kBinarySpec}, Named{"UnaryOperator", &kUnarySpec},
                      Named{"ViewOperator", &kViewSpec}}) {
    Ref type = steal(PyType_FromSpec(named.spec));
    if (!type || PyModule_AddObjectRef(module, named.name, type.get()) < 0) return -1;
  }
  return 0;
}

}  // namespace weft
