// The type Array: creation and destruction, attributes, the buffer protocol, conversion from and to NumPy.
#include "array.h"

#include <cstring>
#include <new>
#include <vector>

#include "host_copy.h"
#include "module.h"
#include "numpy_api.h"
#include "pjrt.h"

namespace weft {

PyTypeObject* ArrayType = nullptr;
Array* free_arrays[kFreeArrays];
int free_array_count = 0;

namespace {

const char kBufferCapsule[] = "weft.buffer";

// Every Array object that has memory, so that live_arrays can find them. Changed only where the free list of objects is
// empty or full, which does not happen while the same calls repeat.
std::vector<Array*> all_arrays;

Array* as_array(PyObject* object) { return reinterpret_cast<Array*>(object); }
PyObject* as_object(Array* array) { return reinterpret_cast<PyObject*>(array); }

void array_dealloc(PyObject* self) {
  Array* array = as_array(self);
  if (array->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  array_drop_buffer(array);
  Py_DECREF(array->aval);
  if (free_array_count < kFreeArrays) {
    free_arrays[free_array_count++] = array;
    return;
  }
  all_arrays[array->index] = all_arrays.back();
  all_arrays[array->index]->index = array->index;
  all_arrays.pop_back();
  PyTypeObject* type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

Py_hash_t array_hash(PyObject*) {
  PyErr_SetString(PyExc_TypeError,
                  "unhashable type: 'weft.Array' (to key a dict by value, use x.tobytes() or x.item())");
  return -1;
}

// ---- attributes ----

PyObject* get_shape(PyObject* self, void*) { return Py_NewRef(as_array(self)->aval->shape); }
PyObject* get_dtype(PyObject* self, void*) { return Py_NewRef(as_array(self)->aval->dtype); }
PyObject* get_ndim(PyObject* self, void*) { return PyLong_FromLong(as_array(self)->aval->ndim); }
PyObject* get_size(PyObject* self, void*) { return PyLong_FromLongLong(as_array(self)->aval->size); }
PyObject* get_nbytes(PyObject* self, void*) { return PyLong_FromLongLong(as_array(self)->aval->nbytes); }
PyObject* get_itemsize(PyObject* self, void*) { return PyLong_FromLongLong(as_array(self)->aval->itemsize); }
PyObject* get_weak_type(PyObject* self, void*) { return PyBool_FromLong(as_array(self)->aval->weak_type); }

PyObject* is_deleted(PyObject* self, PyObject*) { return PyBool_FromLong(array_is_deleted(as_array(self))); }

PyObject* delete_array(PyObject* self, PyObject*) {
  array_drop_buffer(as_array(self));
  Py_RETURN_NONE;
}

PyObject* is_ready(PyObject* self, PyObject*) {
  Array* array = as_array(self);
  if (array->remote != nullptr) {
    int ready = remote_is_ready(array->remote);
    return ready < 0 ? nullptr : PyBool_FromLong(ready);
  }
  if (array->buffer == nullptr) return set_deleted_error(array);
  return PyBool_FromLong(buffer_is_ready(array->buffer));
}

PyObject* block_until_ready(PyObject* self, PyObject*) {
  if (as_array(self)->remote != nullptr) return remote_block(as_array(self)->remote) < 0 ? nullptr : Py_NewRef(self);
  return array_ready_buffer(as_array(self)) == nullptr ? nullptr : Py_NewRef(self);
}

// The address stays valid as long as this Array (or another holder of the buffer) exists and is not deleted.
PyObject* unsafe_buffer_pointer(PyObject* self, PyObject*) {
  Remote* remote = as_array(self)->remote;
  if (remote != nullptr && remote->memory != nullptr) {  // an address of its device
    void* address = remote->memory->data;
    return remote_block(remote) < 0 ? nullptr : PyLong_FromVoidPtr(address);
  }
  if (remote != nullptr) {
    PyErr_SetString(PyExc_NotImplementedError, "[unsafe_buffer_pointer] of an Array on the device of a plugin or across processes");
    return nullptr;
  }
  Buffer* buffer = array_ready_buffer(as_array(self));
  return buffer == nullptr ? nullptr : PyLong_FromVoidPtr(buffer->data);
}

// ---- buffer protocol ----

// struct-module format of a dtype, or nullptr if it has none.
const char* buffer_format(int type_number) {
  switch (type_number) {
    case NPY_BOOL: return "?";
    case NPY_BYTE: return "b";
    case NPY_UBYTE: return "B";
    case NPY_SHORT: return "h";
    case NPY_USHORT: return "H";
    case NPY_INT: return "i";
    case NPY_UINT: return "I";
    case NPY_LONG: return "l";
    case NPY_ULONG: return "L";
    case NPY_LONGLONG: return "q";
    case NPY_ULONGLONG: return "Q";
    case NPY_HALF: return "e";
    case NPY_FLOAT: return "f";
    case NPY_DOUBLE: return "d";
    case NPY_CFLOAT: return "Zf";
    case NPY_CDOUBLE: return "Zd";
    default: return nullptr;
  }
}

int fail_view(Py_buffer* view, PyObject* array, const char* reason) {
  view->obj = nullptr;
  Ref text = steal(aval_text(as_array(array)->aval, false));
  if (text) PyErr_Format(PyExc_BufferError, "[buffer] %U: %s", text.get(), reason);
  return -1;
}

// The view owns a reference to the Array (view->obj, for extents and strides) and one to the Buffer (view->internal),
// so that the memory outlives a delete() or a donation of the Array. numpy.asarray asks for a buffer first and discards
// the error if it gets none. An exception raised by a signal handler during our wait (KeyboardInterrupt) must not be
// lost: it is kept here, and the __array__ that follows raises it.
struct PendingError {
  PyObject* array = nullptr;  // owned, as are the others
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
} g_pending_error;

void keep_error(PyObject* array) {
  if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_RuntimeError) || PyErr_ExceptionMatches(PyExc_BufferError))
    return;
  PendingError old = g_pending_error;
  PyErr_Fetch(&g_pending_error.type, &g_pending_error.value, &g_pending_error.traceback);
  g_pending_error.array = Py_NewRef(array);
  PyErr_Restore(Py_XNewRef(g_pending_error.type), Py_XNewRef(g_pending_error.value), Py_XNewRef(g_pending_error.traceback));
  for (PyObject* object : {old.array, old.type, old.value, old.traceback}) Py_XDECREF(object);
}

bool raise_kept_error(PyObject* array) {
  if (g_pending_error.array != array) return false;
  PendingError kept = std::exchange(g_pending_error, PendingError{});
  PyErr_Restore(kept.type, kept.value, kept.traceback);
  Py_DECREF(kept.array);
  return true;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Array* array = as_array(self);
  view->obj = nullptr;
  if (array_is_deleted(array)) return fail_view(view, self, "the array has been deleted");
  if (flags & PyBUF_WRITABLE) return fail_view(view, self, "weft arrays are immutable, no writable view exists");
  const char* format = buffer_format(array->aval->type_number);
  if ((flags & PyBUF_FORMAT) && format == nullptr)
    return fail_view(view, self, "the buffer protocol has no format for this dtype; use numpy.asarray(x)");
  Buffer* buffer = array_ready_buffer(array);
  if (buffer == nullptr) {
    keep_error(self);
    return -1;
  }
  ShapedArray* aval = array->aval;
  bool with_shape = (flags & PyBUF_ND) == PyBUF_ND && format != nullptr;
  view->buf = buffer->data;
  view->len = aval->nbytes;
  view->readonly = 1;
  view->itemsize = with_shape ? aval->itemsize : 1;
  view->format = (flags & PyBUF_FORMAT) ? const_cast<char*>(format) : nullptr;
  view->ndim = with_shape ? aval->ndim : 1;
  view->shape = with_shape ? reinterpret_cast<Py_ssize_t*>(aval->extents) : nullptr;
  view->strides = with_shape && (flags & PyBUF_STRIDES) == PyBUF_STRIDES
                      ? reinterpret_cast<Py_ssize_t*>(const_cast<int64_t*>(aval->strides()))
                      : nullptr;
  view->suboffsets = nullptr;
  view->internal = buffer_retain(buffer);
  view->obj = Py_NewRef(self);
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) { buffer_release(static_cast<Buffer*>(view->internal)); }

// ---- NumPy ----

void release_capsule(PyObject* capsule) {
  buffer_release(static_cast<Buffer*>(PyCapsule_GetPointer(capsule, kBufferCapsule)));
}

// Owned ndarray on memory that something else owns.
PyObject* ndarray_over(ShapedArray* aval, char* data, bool writable) {
  static_assert(sizeof(npy_intp) == sizeof(int64_t));
  if (aval->type_number == kExtendedType) {
    PyErr_Format(PyExc_TypeError, "[__array__] an array of %S has no NumPy counterpart", aval->dtype);
    return nullptr;
  }
  Py_INCREF(aval->dtype);
  return PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr*>(aval->dtype), aval->ndim,
                              reinterpret_cast<npy_intp*>(aval->extents), nullptr, data,
                              NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (writable ? NPY_ARRAY_WRITEABLE : 0),
                              nullptr);
}

// Owned read-only ndarray on the array's memory, which it keeps alive.
PyObject* ndarray_view(Array* array) {
  Buffer* buffer = array_ready_buffer(array);
  if (buffer == nullptr) return nullptr;
  Ref view = steal(ndarray_over(array->aval, buffer->data, false));
  if (!view) return nullptr;
  PyObject* holder = PyCapsule_New(buffer_retain(buffer), kBufferCapsule, release_capsule);
  if (holder == nullptr) {
    buffer_release(buffer);
    return nullptr;
  }
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(view.get()), holder) < 0) return nullptr;  // steals holder
  return view.release();
}

PyObject* convert_view(PyObject* view, PyArray_Descr* descr, PyObject* copy) {
  if (PyArray_EquivTypes(descr, PyArray_DESCR(reinterpret_cast<PyArrayObject*>(view)))) {
    if (copy != Py_True) return Py_NewRef(view);
  } else if (copy == Py_False) {
    PyErr_SetString(PyExc_ValueError, "[__array__] a change of dtype cannot avoid a copy (copy=False)");
    return nullptr;
  }
  return converted_ndarray(reinterpret_cast<PyArrayObject*>(view), descr);
}

PyObject* dunder_array(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"dtype", "copy", nullptr};
  PyObject *dtype = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", const_cast<char**>(names), &dtype, &copy))
    return nullptr;
  if (raise_kept_error(self)) return nullptr;
  Ref view = steal(ndarray_view(as_array(self)));
  if (!view) return nullptr;
  if (copy != Py_None) {
    int truth = in_python<PyObject_IsTrue>(copy);
    if (truth < 0) return nullptr;
    copy = truth ? Py_True : Py_False;
  }
  if (dtype == Py_None && copy != Py_True) return view.release();
  PyArray_Descr* descr = nullptr;
  if (dtype == Py_None) descr = reinterpret_cast<PyArray_Descr*>(Py_NewRef(as_array(self)->aval->dtype));
  else if (PyArray_DescrConverter(dtype, &descr) == NPY_FAIL) return nullptr;
  Ref owned = steal(reinterpret_cast<PyObject*>(descr));
  return convert_view(view.get(), descr, copy);
}

// 0 if the ndarray's shape and dtype are the aval's; -1 with an error set.
int check_matches(PyArrayObject* ndarray, ShapedArray* aval) {
  if (aval->type_number == kExtendedType) {
    if (PyArray_NBYTES(ndarray) == aval->nbytes) return 0;
    PyErr_Format(PyExc_ValueError, "[array] %R has %zd bytes, %R needs %lld", PyArray_DESCR(ndarray),
                 static_cast<Py_ssize_t>(PyArray_NBYTES(ndarray)), aval, static_cast<long long>(aval->nbytes));
    return -1;
  }
  bool same_shape =
      PyArray_NDIM(ndarray) == aval->ndim &&
      (aval->ndim == 0 || std::memcmp(PyArray_DIMS(ndarray), aval->extents, sizeof(int64_t) * aval->ndim) == 0);
  if (!same_shape) {
    Ref shape = steal(in_python<PyObject_GetAttrString>(reinterpret_cast<PyObject*>(ndarray), "shape"));
    if (shape) PyErr_Format(PyExc_ValueError, "[array] ndarray of shape %S given for %R", shape.get(), aval);
    return -1;
  }
  Ref dtype = steal(canonical_dtype(reinterpret_cast<PyObject*>(PyArray_DESCR(ndarray))));
  if (!dtype) return -1;
  if (dtype.get() != aval->dtype) {
    PyErr_Format(PyExc_TypeError, "[array] ndarray of dtype %S given for %R", dtype.get(), aval);
    return -1;
  }
  return 0;
}

bool is_plain(PyArrayObject* ndarray) {  // dense row-major in native byte order
  return PyArray_IS_C_CONTIGUOUS(ndarray) && PyArray_ISNOTSWAPPED(ndarray);
}

int copy_elements(PyArrayObject* from, ShapedArray* aval, char* to) {
  if (is_plain(from)) return copy_bytes(to, PyArray_BYTES(from), aval->nbytes);
  if (aval->type_number == kExtendedType) {
    Ref dense = steal(in_python([&] { return PyArray_NewCopy(from, NPY_CORDER); }));
    if (!dense) return -1;
    std::memcpy(to, PyArray_DATA(reinterpret_cast<PyArrayObject*>(dense.get())), aval->nbytes);
    return 0;
  }
  Ref target = steal(ndarray_over(aval, to, true));
  return target ? copy_ndarray(reinterpret_cast<PyArrayObject*>(target.get()), from) : -1;
}

void release_python_owner(void* owner) {
  if (!Py_IsInitialized()) return;  // the interpreter has already freed the object
  PyGILState_STATE state = in_python<PyGILState_Ensure>();
  Py_DECREF(static_cast<PyObject*>(owner));
  PyGILState_Release(state);
}

// Owned Array on the ndarray's own memory, which it keeps alive; ValueError if layout or alignment forbid that.
Array* alias_numpy(PyArrayObject* ndarray, ShapedArray* aval) {
  bool aligned = PyArray_ISALIGNED(ndarray);  // alignment of an element is enough for kernels
  if (!is_plain(ndarray) || !aligned) {
    PyErr_Format(PyExc_ValueError, "[array] copy=False, but the ndarray %s; a copy is needed",
                 aligned ? "is not dense row-major memory in native byte order" : "is not aligned to its elements");
    return nullptr;
  }
  PyObject* owner = Py_NewRef(reinterpret_cast<PyObject*>(ndarray));
  Buffer* buffer = buffer_wrap(PyArray_DATA(ndarray), aval->nbytes, release_python_owner, owner);
  if (buffer == nullptr) {
    Py_DECREF(owner);
    PyErr_NoMemory();
    return nullptr;
  }
  return array_new(aval, buffer);
}

PyObject* py_array_from_numpy(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"ndarray", "aval", "copy", nullptr};
  PyObject *ndarray, *aval;
  int copy = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!|p:array_from_numpy", const_cast<char**>(names), &PyArray_Type,
                                   &ndarray, ShapedArrayType, &aval, &copy))
    return nullptr;
  auto* shaped = reinterpret_cast<ShapedArray*>(aval);
  if (copy) return as_object(array_from_numpy(ndarray, shaped));
  if (check_matches(reinterpret_cast<PyArrayObject*>(ndarray), shaped) < 0) return nullptr;
  return as_object(alias_numpy(reinterpret_cast<PyArrayObject*>(ndarray), shaped));
}

PyObject* py_array_alias(PyObject*, PyObject* args) {
  PyObject *array_object, *aval_object;
  if (!PyArg_ParseTuple(args, "O!O!:array_alias", ArrayType, &array_object, ShapedArrayType, &aval_object))
    return nullptr;
  Array* array = as_array(array_object);
  auto* aval = reinterpret_cast<ShapedArray*>(aval_object);
  if (array_is_deleted(array)) return set_deleted_error(array);
  if (aval->nbytes != array->aval->nbytes) {
    PyErr_Format(PyExc_ValueError, "[array_alias] %R and %R differ in bytes", array->aval, aval);
    return nullptr;
  }
  if (array->remote != nullptr)
    return as_object(array_new_remote(aval, remote_retain(array->remote), array->place));
  Array* alias = array_new(aval, buffer_retain(array->buffer));
  if (alias != nullptr) alias->place = array->place;
  return as_object(alias);
}

// Number of references to the array's buffer: 1 means that only this Array holds it.
PyObject* py_buffer_references(PyObject*, PyObject* object) {
  if (!is_array(object)) return PyErr_Format(PyExc_TypeError, "[buffer_references] expected an Array, got %R", object);
  if (Remote* remote = as_array(object)->remote) return PyLong_FromLong(remote->references);
  Buffer* buffer = as_array(object)->buffer;
  return buffer == nullptr ? set_deleted_error(as_array(object)) : PyLong_FromLong(buffer->references.load());
}

PyMemberDef kMembers[] = {
    {"aval", T_OBJECT, offsetof(Array, aval), READONLY, nullptr},
    {"place", T_UINT, offsetof(Array, place), READONLY, "Twice the number of the device, plus 1 if committed to it."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Array, weakrefs), READONLY, nullptr},
    {},
};

PyGetSetDef kGetSet[] = {
    {"shape", get_shape, nullptr, "Extents of the dimensions.", nullptr},
    {"dtype", get_dtype, nullptr, "Type of the elements.", nullptr},
    {"ndim", get_ndim, nullptr, "Number of dimensions.", nullptr},
    {"size", get_size, nullptr, "Number of elements.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"weak_type", get_weak_type, nullptr, "True if the dtype came from a Python scalar and yields in promotion.",
     nullptr},
    {},
};

PyMethodDef kArrayMethods[] = {
    {"is_deleted", is_deleted, METH_NOARGS, "True after delete() or donation."},
    {"delete", delete_array, METH_NOARGS, "Gives the memory up; using the array afterwards raises RuntimeError."},
    {"is_ready", is_ready, METH_NOARGS, "True if the array has been computed."},
    {"block_until_ready", entry_point<block_until_ready>, METH_NOARGS,
     "Waits until the array has been computed; returns it."},
    {"unsafe_buffer_pointer", unsafe_buffer_pointer, METH_NOARGS, "Address of the first element."},
    {"__array__", reinterpret_cast<PyCFunction>(entry_point<dunder_array>), METH_VARARGS | METH_KEYWORDS,
     "A read-only ndarray on the same memory (copy=True: a writable copy)."},
    {},
};

PyType_Slot kSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(array_dealloc)},
    {Py_tp_hash, reinterpret_cast<void*>(array_hash)},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kGetSet},
    {Py_tp_methods, kArrayMethods},
    {Py_bf_getbuffer, reinterpret_cast<void*>(entry_point<get_buffer>)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
    {Py_tp_doc, const_cast<char*>("An immutable dense array.")},
    {0, nullptr},
};

PyType_Spec kSpec = {"weft.Array", sizeof(Array), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kSlots};

PyObject* py_live_arrays(PyObject*, PyObject*) {
  std::vector<Ref> live;  // making the list may run a garbage collection, which makes and frees Arrays
  for (Array* array : all_arrays) {
    if (Py_REFCNT(as_object(array)) > 0 && !array_is_deleted(array)) live.push_back(borrow(as_object(array)));
  }
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(live.size()));
  if (list == nullptr) return nullptr;
  for (size_t i = 0; i < live.size(); ++i) PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), live[i].release());
  return list;
}

PyMethodDef kFunctions[] = {
    {"array_from_numpy", reinterpret_cast<PyCFunction>(entry_point<py_array_from_numpy>), METH_VARARGS | METH_KEYWORDS,
     "array_from_numpy(ndarray, aval, copy=True) -> Array holding the elements; copy=False aliases or raises "
     "ValueError."},
    {"array_alias", entry_point<py_array_alias>, METH_VARARGS, "array_alias(array, aval) -> Array on the same buffer."},
    {"live_arrays", py_live_arrays, METH_NOARGS, "live_arrays() -> list of all Arrays that are not deleted."},
    {"buffer_references", py_buffer_references, METH_O, "Number of holders of the array's buffer."},
    {},
};

}  // namespace

Array* array_new_object() {
  Array* array = PyObject_New(Array, ArrayType);
  if (array == nullptr) return nullptr;
  array->index = uint32_t(all_arrays.size());
  array->buffer = nullptr;
  array->remote = nullptr;
  try {
    all_arrays.push_back(array);
  } catch (const std::bad_alloc&) {
    PyObject_Free(array);
    Py_DECREF(ArrayType);
    return reinterpret_cast<Array*>(PyErr_NoMemory());
  }
  return array;
}

void set_donated_twice_error(const char* program, const Array* array) {
  Ref type = steal(aval_text(array->aval, true));
  if (type)
    PyErr_Format(PyExc_RuntimeError,
                 "[%s] attempt to use an Array (%U) that was donated in the same call: two arguments are one Array, and "
                 "its memory cannot be given up while the other needs it. Pass x.copy() for one of them, or donate neither",
                 program, type.get());
}

PyObject* array_without_bytes(ShapedArray* aval, Buffer* buffer) {
  buffer_release(buffer);
  Py_INCREF(aval->dtype);
  npy_intp* extents = const_cast<npy_intp*>(reinterpret_cast<const npy_intp*>(aval->extents));
  return PyArray_Zeros(aval->ndim, extents, reinterpret_cast<PyArray_Descr*>(aval->dtype), 0);
}

PyObject* set_array_memory_error(ShapedArray* aval, const char* who, std::string what) {
  Ref type = steal(aval_text(aval, true));
  const char* text = type ? PyUnicode_AsUTF8(type.get()) : nullptr;
  PyErr_Clear();
  if (text != nullptr) what += std::string(", ") + text;
  return set_memory_error(aval->nbytes, who, what.c_str());
}

Array* array_allocate(ShapedArray* aval, const char* who, const char* what) {
  if (aval->nbytes < 0) {
    PyErr_Format(PyExc_MemoryError, "[allocate] %R has more bytes than can be addressed", aval);
    return nullptr;
  }
  Buffer* buffer = buffer_allocate(aval->nbytes);
  if (buffer == nullptr) {
    set_array_memory_error(aval, who, what);
    return nullptr;
  }
  return array_new(aval, buffer);
}

PyObject* set_deleted_error(const Array* array) {
  if (array->remote != nullptr && array->remote->block != nullptr)
    return PyErr_Format(PyExc_RuntimeError, "%R, which lies across processes, was given to a program of one", array->aval);
  if (array->remote != nullptr) {
    PyErr_Format(PyExc_RuntimeError, "%R, on %s, was given to a program of the CPU", array->aval,
                 plugin_devices()[array->remote->number]->name.c_str());
    return nullptr;
  }
  Ref text = steal(aval_text(array->aval, false));
  if (text)
    PyErr_Format(PyExc_RuntimeError,
                 "Array has been deleted with shape=%U. If it was donated to a jitted function, use the result of that "
                 "call in its place, or donate a copy.",
                 text.get());
  return nullptr;
}

Array* array_from_numpy(PyObject* object, ShapedArray* aval) {
  auto* ndarray = reinterpret_cast<PyArrayObject*>(object);
  if (check_matches(ndarray, aval) < 0) return nullptr;
  Owned<Array> array = Owned<Array>::steal(array_allocate(aval, "array", "a copy of host memory"));
  if (!array || copy_elements(ndarray, aval, array->buffer->data) < 0) return nullptr;
  return array.release();
}

int register_array(PyObject* module) {
  ArrayType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (ArrayType == nullptr || PyModule_AddFunctions(module, kFunctions) < 0) return -1;
  return PyModule_AddObjectRef(module, "Array", reinterpret_cast<PyObject*>(ArrayType));
}

}  // namespace weft
