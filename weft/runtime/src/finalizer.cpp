// Finalizers: functions that run when an object has died, and must run to their end.
//
// Python ignores what such a function raises. Signals are handled while it runs, so a Ctrl-C at that moment would be
// lost, and the function left half done. Here it runs once more, and the interrupt is raised in the program that goes on.
#include "python.h"

#include <csignal>

#include "module.h"

namespace weft {
namespace {

constexpr int kAttempts = 3;  // a user may press Ctrl-C more than once

// `function` is the finalizer's function, `dead` what it is called with: the weak reference whose object has died.
PyObject* finalize(PyObject* function, PyObject* dead) {
  PyObject* result = nullptr;
  bool interrupted = false;
  Py_INCREF(dead);  // Python lends it; the first attempt may drop the last reference of others
  for (int attempt = 0; result == nullptr && attempt < kAttempts; ++attempt) {
    result = in_python<PyObject_CallOneArg>(function, dead);
    if (result != nullptr || !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) break;
    interrupted = true;
    PyErr_Clear();
  }
  Py_DECREF(dead);
  if (interrupted) PyErr_SetInterruptEx(SIGINT);
  if (result == nullptr && !PyErr_Occurred()) Py_RETURN_NONE;
  return result;
}

PyMethodDef kFinalize = {"finalize", entry_point<finalize>, METH_O, nullptr};

PyObject* finalizer(PyObject*, PyObject* function) { return PyCFunction_New(&kFinalize, function); }

PyMethodDef kMethods[] = {
    {"finalizer", finalizer, METH_O,
     "finalizer(function): the callback of a weak reference that calls function(reference), again if a Ctrl-C ended it;\n"
     "the interrupt is raised afterwards. The function may be called twice, so it must bear that."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_finalizer(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
