// The loader for Python: load_kernel maps an object file, link_kernel returns the relocated image without mapping it.
#include "kernel.h"

#include <new>

namespace weft {

PyTypeObject* KernelType = nullptr;

namespace {

void kernel_dealloc(PyObject* self) {
  Kernel* kernel = reinterpret_cast<Kernel*>(self);
  if (kernel->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  delete kernel->blob;
  Py_XDECREF(kernel->symbol);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* kernel_repr(PyObject* self) {
  Kernel* kernel = reinterpret_cast<Kernel*>(self);
  return PyUnicode_FromFormat("<Kernel %U, %zd bytes>", kernel->symbol, Py_ssize_t(kernel->blob->mapped_bytes()));
}

PyObject* kernel_nbytes(PyObject* self, void*) {
  return PyLong_FromSize_t(reinterpret_cast<Kernel*>(self)->blob->mapped_bytes());
}

PyMemberDef kMembers[] = {
    {"symbol", T_OBJECT, offsetof(Kernel, symbol), READONLY, "Name of the function in its object."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Kernel, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef kGetSet[] = {
    {"nbytes", kernel_nbytes, nullptr, "Bytes of mapped code and constants.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot kSlots[] = {
    {Py_tp_doc, const_cast<char*>("Loaded machine code of one loop nest.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(kernel_dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(kernel_repr)},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kGetSet},
    {0, nullptr},
};
PyType_Spec kSpec = {"weft.runtime.Kernel", sizeof(Kernel), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                     kSlots};

// Calls action() and converts C++ exceptions to Python errors.
template <class Action>
PyObject* guarded(Action action) {
  try {
    return action();
  } catch (const LoadError& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
  return nullptr;
}

PyObject* load_kernel(PyObject*, PyObject* args) {
  Py_buffer object;
  PyObject* symbol;
  if (!PyArg_ParseTuple(args, "y*U", &object, &symbol)) return nullptr;
  const char* name = PyUnicode_AsUTF8(symbol);
  PyObject* result = name == nullptr ? nullptr : guarded([&]() -> PyObject* {
    Image image = link_object(static_cast<const uint8_t*>(object.buf), size_t(object.len), name);
    CodeBlob* blob = new CodeBlob(image);
    Kernel* kernel = PyObject_New(Kernel, KernelType);
    if (kernel == nullptr) {
      delete blob;
      return nullptr;
    }
    kernel->blob = blob;
    kernel->function = reinterpret_cast<KernelFunction>(blob->entry());
    kernel->symbol = Py_NewRef(symbol);
    kernel->weakrefs = nullptr;
    return reinterpret_cast<PyObject*>(kernel);
  });
  PyBuffer_Release(&object);
  return result;
}

PyObject* link_kernel(PyObject*, PyObject* args) {
  Py_buffer object;
  const char* symbol;
  if (!PyArg_ParseTuple(args, "y*s", &object, &symbol)) return nullptr;
  PyObject* result = guarded([&]() -> PyObject* {
    Image image = link_object(static_cast<const uint8_t*>(object.buf), size_t(object.len), symbol);
    const char* bytes = reinterpret_cast<const char*>(image.bytes.data());
    return Py_BuildValue("(y#n)", bytes, Py_ssize_t(image.bytes.size()), Py_ssize_t(image.entry));
  });
  PyBuffer_Release(&object);
  return result;
}

PyMethodDef kMethods[] = {
    {"load_kernel", load_kernel, METH_VARARGS,
     "load_kernel(object_bytes, symbol) -> Kernel: map a relocatable object."},
    {"link_kernel", link_kernel, METH_VARARGS,
     "link_kernel(object_bytes, symbol) -> (bytes, entry): the relocated image, of any machine, not mapped."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_kernel(PyObject* module) {
  KernelType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (KernelType == nullptr || PyModule_AddFunctions(module, kMethods) < 0) return -1;
  return PyModule_AddObjectRef(module, "Kernel", reinterpret_cast<PyObject*>(KernelType));
}

}  // namespace weft
