// Memory of GPUs that is given to other libraries and taken from them. See cuda_sharing.h.
//
// Each side works on streams of its own. Memory that is given away is ready when the other stream gets there. Memory that
// comes back is used again only when the legacy stream has done what it was asked for until then.
#include "cuda_sharing.h"

#include <cstring>

#include "cuda_device.h"
#include "module.h"
#include "numpy_api.h"

namespace weft {

namespace {

cuda::Handle const kLegacy = reinterpret_cast<cuda::Handle>(1);  // the stream of those who name none

CudaDevice* gpu_of(const Remote* remote) {
  return remote->memory == nullptr ? nullptr : cuda_device(plugin_devices()[remote->number]->native);
}

CudaDevice* gpu_at(int32_t ordinal) {
  for (const auto& entry : plugin_devices()) {
    CudaDevice* device = entry == nullptr ? nullptr : cuda_device(entry->native);
    if (device != nullptr && device->facts.ordinal == ordinal) return device;
  }
  return nullptr;
}

// False with an error set if the number of a stream has no meaning.
bool let_follow(CudaDevice& device, PyObject* stream) {
  cuda::Handle other = kLegacy;
  if (stream != Py_None) {
    const long long number = PyLong_AsLongLong(stream);
    if (number == -1 && PyErr_Occurred()) return false;
    if (number == -1) return true;  // the consumer asks for no order
    if (number == 0 || number < -1) {
      PyErr_Format(PyExc_ValueError, "[__dlpack__] stream %lld has no meaning: 1 is the legacy stream, 2 that of each "
                   "thread, -1 asks for no order, others are a stream's address", number);
      return false;
    }
    other = reinterpret_cast<cuda::Handle>(static_cast<uintptr_t>(number));
  }
  if (device.wait_before(other) == Status::ok) return true;
  if (!PyErr_Occurred() && !device.explain("__dlpack__")) set_runtime_error("[__dlpack__] the other stream cannot wait");
  return false;
}

struct Given {
  CudaDevice* device;
  Buffer* memory;  // owned

  static void release(void* object) {
    auto* given = static_cast<Given*>(object);
    if (!is_forked_child()) {
      given->device->wait_for(kLegacy);
      buffer_release(given->memory);
    }
    delete given;
  }
};

struct Taken {
  CudaDevice* device;
  void (*let_go)(void*);
  void* owner;

  static void release(void* object) {
    auto* taken = static_cast<Taken*>(object);
    if (Py_IsInitialized() && !is_forked_child()) {
      taken->device->wait_before(kLegacy);
      PyGILState_STATE state = in_python<PyGILState_Ensure>();
      taken->let_go(taken->owner);
      PyGILState_Release(state);
    }
    delete taken;
  }
};

bool is_row_major(const ShapedArray* aval, const int64_t* strides) {
  if (strides == nullptr || aval->size <= 1) return true;
  for (int i = 0; i < aval->ndim; ++i)
    if (aval->extents[i] != 1 && strides[i] * aval->itemsize != aval->strides()[i]) return false;
  return true;
}

char* gather(const ShapedArray* aval, const int64_t* strides, int axis, const char* from, char* to) {
  if (axis == aval->ndim) return std::memcpy(to, from, size_t(aval->itemsize)), to + aval->itemsize;
  for (int64_t i = 0; i < aval->extents[axis]; ++i)
    to = gather(aval, strides, axis + 1, from + i * strides[axis] * aval->itemsize, to);
  return to;
}

// The elements in row-major order in `to`: all bytes between the first and the last come to the host for that.
Status copy_strided(CudaDevice& device, const ShapedArray* aval, const ForeignMemory& memory, char* to) {
  int64_t low = 0, high = aval->itemsize;
  for (int i = 0; i < aval->ndim; ++i)
    (memory.strides[i] < 0 ? low : high) += memory.strides[i] * (aval->extents[i] - 1) * aval->itemsize;
  Buffer* span = buffer_allocate(high - low);
  Buffer* rows = span == nullptr ? nullptr : buffer_allocate(aval->nbytes);
  Status status = rows == nullptr ? Status::no_memory : device.fetch(span->data, memory.data + low, high - low);
  if (status == Status::ok) {
    gather(aval, memory.strides, 0, span->data - low, rows->data);
    status = device.upload(to, rows->data, aval->nbytes);
  }
  if (rows != nullptr) buffer_release(rows);
  if (span != nullptr) buffer_release(span);
  return status;
}

Remote* copied(CudaDevice& device, ShapedArray* aval, const ForeignMemory& memory, bool row_major) {
  Buffer* own = device.allocate(aval->nbytes);
  Status status = own == nullptr ? Status::no_memory : Status::ok;
  if (status == Status::ok && aval->nbytes > 0)
    status = row_major ? device.copy(own->data, memory.data, aval->nbytes) : copy_strided(device, aval, memory, own->data);
  // the owner may use the memory again when this returns
  if (status == Status::ok) status = device.wait_before(kLegacy);
  if (status == Status::ok) return remote_new_native(device.number, own);
  if (own != nullptr) buffer_release(own);
  if (!PyErr_Occurred() && !device.explain("from_dlpack"))
    set_memory_error_text(("RESOURCE_EXHAUSTED: Out of memory: [from_dlpack] a copy: " + requested_text(aval->nbytes) +
                           " requested on " + device.name + device.memory_text())
                              .c_str());
  return nullptr;
}

}  // namespace

Buffer* gpu_memory_for(Remote* remote, ShapedArray* aval, PyObject* stream) {
  CudaDevice* device = gpu_of(remote);
  if (refuse_after_fork() || !let_follow(*device, stream)) return nullptr;
  auto* given = new Given{device, buffer_retain(remote->memory)};
  Buffer* buffer = buffer_wrap(remote->memory->data, aval->nbytes, Given::release, given);
  if (buffer != nullptr) return buffer;
  Given::release(given);
  PyErr_NoMemory();
  return nullptr;
}

PyObject* array_of_gpu_memory(ShapedArray* aval, const ForeignMemory& memory, PyObject* copy, bool* taken) {
  CudaDevice* device = gpu_at(memory.ordinal);
  if (refuse_after_fork()) return nullptr;
  if (device == nullptr)
    return PyErr_Format(PyExc_BufferError,
                        "[from_dlpack] the tensor is on GPU %d, which this process does not use: weft.devices('cuda') "
                        "lists those that it does",
                        int(memory.ordinal));
  const bool row_major = is_row_major(aval, memory.strides);
  const bool aligned = aval->itemsize == 0 || reinterpret_cast<uintptr_t>(memory.data) % size_t(aval->itemsize) == 0;
  const uint32_t place = device->number << 1 | 1;
  if (copy != Py_True && row_major && aligned && aval->nbytes > 0) {
    auto* own = new Taken{device, memory.release, memory.owner};
    Buffer* buffer = buffer_wrap(memory.data, aval->nbytes, Taken::release, own);
    if (buffer == nullptr) {
      delete own;
      return PyErr_NoMemory();
    }
    *taken = true;
    Remote* remote = remote_new_native(device->number, buffer);
    remote->lent = true;
    return reinterpret_cast<PyObject*>(array_new_remote(aval, remote, place));
  }
  if (copy == Py_False && aval->nbytes > 0)
    return PyErr_Format(PyExc_ValueError, "[from_dlpack] copy=False, but the tensor's memory is not %s; a copy is needed",
                        row_major ? "aligned to its elements" : "dense and row-major");
  Remote* remote = copied(*device, aval, memory, row_major);
  return remote == nullptr ? nullptr : reinterpret_cast<PyObject*>(array_new_remote(aval, remote, place));
}

unsigned long long gpu_stream(int32_t ordinal) {
  CudaDevice* device = gpu_at(ordinal);
  return device == nullptr ? 0 : reinterpret_cast<uintptr_t>(device->stream());
}

namespace {

// Array.__cuda_array_interface__: its contents are computed when this returns, for those who look at no stream.
PyObject* get_interface(PyObject* self, void*) {
  auto* array = reinterpret_cast<Array*>(self);
  CudaDevice* device = array->remote == nullptr ? nullptr : gpu_of(array->remote);
  if (device == nullptr) {
    if (array_is_deleted(array)) return set_deleted_error(array);
    PyErr_SetString(PyExc_AttributeError, "__cuda_array_interface__ is only there for Arrays on a GPU");
    return nullptr;
  }
  ShapedArray* aval = array->aval;
  Ref text = aval->type_number == kExtendedType ? Ref() : steal(in_python<PyObject_GetAttrString>(aval->dtype, "str"));
  const char* type = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (type == nullptr || type[1] == 'V') {  // the types beyond NumPy's own have no letter
    PyErr_Clear();
    return PyErr_Format(PyExc_AttributeError, "__cuda_array_interface__ has no type for dtype %S; share by DLPack",
                        aval->dtype);
  }
  Remote* remote = remote_retain(array->remote);  // the array may be deleted meanwhile
  void* address = remote->memory->data;
  const int status = remote_block(remote);
  remote_release(remote);
  Ref shape = status < 0 ? Ref() : steal(PyTuple_New(aval->ndim));
  for (int i = 0; shape && i < aval->ndim; ++i) {
    PyObject* extent = PyLong_FromLongLong(aval->extents[i]);
    if (extent == nullptr) return nullptr;
    PyTuple_SET_ITEM(shape.get(), i, extent);
  }
  if (!shape) return nullptr;
  return Py_BuildValue("{s:O,s:O,s:(KO),s:O,s:i}", "shape", shape.get(), "typestr", text.get(), "data",
                       (unsigned long long)(aval->nbytes == 0 ? 0 : reinterpret_cast<uintptr_t>(address)), Py_False,
                       "strides", Py_None, "version", 3);
}

void release_object(void* owner) { Py_DECREF(static_cast<PyObject*>(owner)); }

// The ordinal of the GPU in whose memory an address is; the first one's if the driver does not say.
int32_t ordinal_of(unsigned long long address) {
  int found = 0;
  const auto ask = cuda::the_driver().cuPointerGetAttribute;
  return ask != nullptr && ask(&found, cuda::kPointerOrdinal, address) == cuda::kSuccess ? found : 0;
}

// from_cuda_array(aval, address, strides in elements or None, stream or None, owner, copy) -> Array
PyObject* from_cuda_array(PyObject*, PyObject* args) {
  PyObject *aval, *strides, *stream, *owner, *copy;
  unsigned long long address;
  if (!PyArg_ParseTuple(args, "O!KOOOO:from_cuda_array", ShapedArrayType, &aval, &address, &strides, &stream, &owner, &copy))
    return nullptr;
  const int32_t ordinal = ordinal_of(address);
  auto* shaped = reinterpret_cast<ShapedArray*>(aval);
  std::vector<int64_t> steps;
  for (Py_ssize_t i = 0; strides != Py_None && i < PyTuple_GET_SIZE(strides); ++i)
    steps.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i)));
  if (PyErr_Occurred()) return nullptr;
  if ((strides != Py_None && steps.size() != size_t(shaped->ndim)) || shaped->nbytes < 0)
    return PyErr_Format(PyExc_ValueError, "[array] %R has one stride for each dimension", aval);
  if (CudaDevice* device = gpu_at(ordinal)) {
    cuda::Handle other = stream == Py_None ? kLegacy : reinterpret_cast<cuda::Handle>(PyLong_AsVoidPtr(stream));
    if (PyErr_Occurred()) return nullptr;
    if (device->wait_for(other) != Status::ok && !device->explain("array")) return set_runtime_error("[array] a GPU failed");
  }
  ForeignMemory memory{ordinal, reinterpret_cast<char*>(address), strides == Py_None ? nullptr : steps.data(),
                       release_object, owner};
  bool taken = false;
  PyObject* made = array_of_gpu_memory(shaped, memory, copy, &taken);
  if (taken) Py_INCREF(owner);
  return made;
}

PyMethodDef kFunctions[] = {
    {"from_cuda_array", entry_point<from_cuda_array>, METH_VARARGS,
     "from_cuda_array(aval, address, strides, stream, owner, copy) -> Array on the memory of a GPU."},
    {},
};
PyGetSetDef kInterface = {"__cuda_array_interface__", get_interface, nullptr,
                          "Where the elements are on a GPU, as Numba's protocol has it; nobody may write there.", nullptr};

}  // namespace

// Runs after register_array, whose type it completes.
int register_cuda_sharing(PyObject* module) {
  Ref descriptor = steal(PyDescr_NewGetSet(ArrayType, &kInterface));
  if (!descriptor) return -1;
  if (in_python<PyObject_SetAttrString>(reinterpret_cast<PyObject*>(ArrayType), kInterface.name, descriptor.get()) < 0)
    return -1;
  return PyModule_AddFunctions(module, kFunctions);
}

}  // namespace weft
