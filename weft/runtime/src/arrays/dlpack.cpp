// DLPack in both directions: Arrays are exported as views of their buffers, foreign tensors in host memory are
// imported.
//
// An exported tensor owns one reference to the buffer, so it outlives the Array. Consumers that know DLPack 1 see it
// marked read-only; older ones must know that weft arrays are immutable. On import, memory that is dense and 64-byte
// aligned is aliased (later writes by its producer are visible), anything else is copied.
#include <cstring>
#include <string>

#include "array.h"
#include "cuda_sharing.h"
#include "host_copy.h"
#include "module.h"
#include "numpy_api.h"
#include "pjrt.h"

namespace weft {
namespace {

// ---- the ABI of DLPack 1.1 ----

struct DLDevice {
  int32_t type;
  int32_t id;
};
struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor tensor;
};
constexpr int32_t kCpu = 1, kGpu = 2;
constexpr uint64_t kReadOnly = 1;
constexpr uint64_t kIsCopied = 2;
const char kName[] = "dltensor";
const char kUsedName[] = "used_dltensor";
const char kVersionedName[] = "dltensor_versioned";
const char kVersionedUsedName[] = "used_dltensor_versioned";

struct DtypeCode {
  const char* name;
  uint8_t code;
  uint8_t bits;
};
// clang-format off
constexpr DtypeCode kDtypes[] = {
    {"bool", 6, 8},        {"int8", 0, 8},         {"int16", 0, 16},         {"int32", 0, 32},
    {"int64", 0, 64},      {"uint8", 1, 8},        {"uint16", 1, 16},        {"uint32", 1, 32},
    {"uint64", 1, 64},     {"float16", 2, 16},     {"float32", 2, 32},       {"float64", 2, 64},
    {"bfloat16", 4, 16},   {"complex64", 5, 64},   {"complex128", 5, 128},   {"float8_e3m4", 7, 8},
    {"float8_e4m3", 8, 8}, {"float8_e4m3b11fnuz", 9, 8}, {"float8_e4m3fn", 10, 8}, {"float8_e4m3fnuz", 11, 8},
    {"float8_e5m2", 12, 8}, {"float8_e5m2fnuz", 13, 8}, {"float8_e8m0fnu", 14, 8},
};
// clang-format on

// ---- export ----

// What an exported tensor owns. One allocation: the extents and strides follow.
template <typename Managed>
struct Export {
  Managed managed;
  Buffer* buffer;  // owned
  int64_t extents[1];
};

template <typename Managed>
void delete_export(Managed* managed) {
  auto* exported = static_cast<Export<Managed>*>(managed->context);
  buffer_release(exported->buffer);
  std::free(exported);
}

template <typename Managed>
void destroy_capsule(PyObject* capsule) {
  const char* name = std::is_same_v<Managed, DLManagedTensor> ? kName : kVersionedName;
  if (!PyCapsule_IsValid(capsule, name)) return;  // consumed: the consumer calls the deleter
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter != nullptr) managed->deleter(managed);
}

// Owned exported tensor of the buffer (borrowed), or nullptr with MemoryError.
template <typename Managed>
Managed* export_tensor(ShapedArray* aval, Buffer* buffer, DLDataType dtype, DLDevice device) {
  size_t bytes = sizeof(Export<Managed>) + sizeof(int64_t) * 2 * aval->ndim;
  auto* exported = static_cast<Export<Managed>*>(std::calloc(1, bytes));
  if (exported == nullptr) {
    PyErr_NoMemory();
    return nullptr;
  }
  exported->buffer = buffer_retain(buffer);
  int64_t* strides = exported->extents + aval->ndim;
  for (int i = 0; i < aval->ndim; ++i) {
    exported->extents[i] = aval->extents[i];
    strides[i] = aval->strides()[i] / aval->itemsize;
  }
  Managed& managed = exported->managed;
  managed.tensor = {buffer->data, device, aval->ndim, dtype, exported->extents, strides, 0};
  managed.context = exported;
  managed.deleter = delete_export<Managed>;
  return &managed;
}

// Finds the DLPack code of the aval's dtype; false with BufferError set.
bool find_code(ShapedArray* aval, DLDataType* dtype) {
  Ref name = aval->type_number == kExtendedType ? Ref() : steal(in_python<PyObject_GetAttrString>(aval->dtype, "name"));
  if (!name && PyErr_Occurred()) return false;
  for (const DtypeCode& known : kDtypes)
    if (name && PyUnicode_CompareWithASCIIString(name.get(), known.name) == 0) {
      *dtype = {known.code, known.bits, 1};
      return true;
    }
  PyErr_Format(PyExc_BufferError, "[__dlpack__] dtype %S has no DLPack type", aval->dtype);
  return false;
}

// True if the caller understands DLPack 1; false with an error set if max_version is malformed (*fine becomes false).
bool wants_versioned(PyObject* max_version, bool* fine) {
  *fine = true;
  if (max_version == Py_None) return false;
  Ref major = steal(in_python<PySequence_GetItem>(max_version, 0));
  long value = major ? PyLong_AsLong(major.get()) : -1;
  *fine = !(value == -1 && PyErr_Occurred());
  return value >= 1;
}

// Where an array's memory is; type 0: on a device for which DLPack has no number.
DLDevice device_of(const Array* array) {
  if (array->remote == nullptr || array->remote->block != nullptr) return {kCpu, 0};
  const PluginDevice& device = *plugin_devices()[array->remote->number];
  return {device.memory_type, device.memory_id};
}

void set_no_device_error(const Array* array, const char* name) {
  PyErr_Format(PyExc_BufferError,
               "[%s] the array is on %s, and DLPack has no number for its memory: share a copy on the host, "
               "weft.device_put(x, weft.devices('cpu')[0])",
               name, plugin_devices()[array->remote->number]->name.c_str());
}

// Reads the device that is asked for, by default the array's own: that or the host; false with BufferError set.
bool asked_device(PyObject* device, const Array* array, DLDevice* asked) {
  DLDevice own = device_of(array);
  *asked = own;
  if (device == Py_None) {
    if (own.type == 0) set_no_device_error(array, "__dlpack__");
    return own.type != 0;
  }
  Ref pair = steal(in_python<PySequence_Tuple>(device));
  if (!pair || !PyArg_ParseTuple(pair.get(), "ii", &asked->type, &asked->id)) return false;
  if (asked->type == kCpu) asked->id = 0;
  if (asked->type == kCpu || (asked->type == own.type && asked->id == own.id)) return true;
  if (own.type == kCpu)
    PyErr_Format(PyExc_BufferError, "[__dlpack__] cannot export to device (%d, %d), the array is in host memory",
                 asked->type, asked->id);
  else
    PyErr_Format(PyExc_BufferError, "[__dlpack__] cannot export to device (%d, %d), the array is on (%d, %d)",
                 asked->type, asked->id, own.type, own.id);
  return false;
}

// Owned capsule. copied: the buffer was made for this export and may be written to.
PyObject* make_capsule(ShapedArray* aval, Buffer* buffer, bool versioned, bool copied, DLDevice device = {kCpu, 0}) {
  DLDataType dtype;
  if (!find_code(aval, &dtype)) return nullptr;
  if (!versioned) {
    auto* managed = export_tensor<DLManagedTensor>(aval, buffer, dtype, device);
    if (managed == nullptr) return nullptr;
    PyObject* capsule = PyCapsule_New(managed, kName, destroy_capsule<DLManagedTensor>);
    if (capsule == nullptr) managed->deleter(managed);
    return capsule;
  }
  auto* managed = export_tensor<DLManagedTensorVersioned>(aval, buffer, dtype, device);
  if (managed == nullptr) return nullptr;
  managed->major = 1;
  managed->minor = 1;
  managed->flags = copied ? kIsCopied : kReadOnly;
  PyObject* capsule = PyCapsule_New(managed, kVersionedName, destroy_capsule<DLManagedTensorVersioned>);
  if (capsule == nullptr) managed->deleter(managed);
  return capsule;
}

// Owned capsule on the device's own memory; nullptr, without an error if the plugin does not show it.
PyObject* on_device_memory(Array* array, bool versioned, DLDevice device, PyObject* stream) {
  Remote* remote = remote_retain(array->remote);  // the array may be deleted meanwhile
  const bool own = remote->memory != nullptr && device.type == kGpu;
  Buffer* buffer = own ? gpu_memory_for(remote, array->aval, stream) : remote_memory(remote, array->aval);
  remote_release(remote);
  if (buffer == nullptr) return nullptr;
  PyObject* capsule = make_capsule(array->aval, buffer, versioned, false, device);
  buffer_release(buffer);
  return capsule;
}

PyObject* dunder_dlpack(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", const_cast<char**>(names), &stream, &max_version,
                                   &device, &copy))
    return nullptr;
  bool fine;
  bool versioned = wants_versioned(max_version, &fine);
  int copies = copy == Py_None ? 0 : in_python<PyObject_IsTrue>(copy);
  auto* array = reinterpret_cast<Array*>(self);
  DLDevice asked;
  if (!fine || copies < 0 || !asked_device(device, array, &asked)) return nullptr;
  if (array->remote != nullptr && array->remote->block == nullptr && !copies && asked.type == device_of(array).type) {
    PyObject* capsule = on_device_memory(array, versioned, asked, stream);
    if (capsule != nullptr || PyErr_Occurred()) return capsule;
  }
  if (asked.type != kCpu) {
    PyErr_Format(PyExc_BufferError, "[__dlpack__] the memory of %s is not shared%s",
                 plugin_devices()[array->remote->number]->name.c_str(),
                 copies ? " as a copy: copy the array first" : ": its plugin does not show it in row-major order");
    return nullptr;
  }
  Buffer* buffer = array_ready_buffer(array);
  if (buffer == nullptr) return nullptr;
  if (!copies) return make_capsule(array->aval, buffer, versioned, false);
  Owned<Array> fresh = Owned<Array>::steal(array_allocate(array->aval, "__dlpack__", "a copy"));
  if (!fresh) return nullptr;
  buffer_retain(buffer);  // the array may be deleted meanwhile
  int status = copy_bytes(fresh->buffer->data, buffer->data, fresh->aval->nbytes);
  buffer_release(buffer);
  return status < 0 ? nullptr : make_capsule(fresh->aval, fresh->buffer, versioned, true);
}

PyObject* dunder_dlpack_device(PyObject* self, PyObject*) {
  auto* array = reinterpret_cast<Array*>(self);
  DLDevice device = device_of(array);
  if (device.type == 0) return set_no_device_error(array, "__dlpack_device__"), nullptr;
  return Py_BuildValue("(ii)", device.type, device.id);
}

// ---- import ----

template <typename Managed>
void release_import(void* owner) {
  auto* managed = static_cast<Managed*>(owner);
  if (managed->deleter == nullptr || !Py_IsInitialized()) return;
  PyGILState_STATE state = in_python<PyGILState_Ensure>();  // producers differ in whether they take the GIL themselves
  managed->deleter(managed);
  PyGILState_Release(state);
}

// Owned aval of a foreign tensor; nullptr with an error set if weft cannot hold it.
ShapedArray* aval_of(const DLTensor& tensor) {
  if (tensor.device.type != kCpu && tensor.device.type != kGpu)
    return PyErr_Format(PyExc_BufferError,
                        "[from_dlpack] tensor is on device type %d, only host memory (1) and GPUs (2) can be read",
                        tensor.device.type),
           nullptr;
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank || (tensor.ndim > 0 && tensor.shape == nullptr))
    return PyErr_Format(PyExc_BufferError, "[from_dlpack] tensor of rank %d", tensor.ndim), nullptr;
  for (int i = 0; i < tensor.ndim; ++i)
    if (tensor.shape[i] < 0) return PyErr_Format(PyExc_BufferError, "[from_dlpack] negative extent"), nullptr;
  for (const DtypeCode& known : kDtypes) {
    if (known.code != tensor.dtype.code || known.bits != tensor.dtype.bits || tensor.dtype.lanes != 1) continue;
    Ref module = steal(in_python<PyImport_ImportModule>("ml_dtypes"));  // registers the small float types with NumPy
    Ref name = module ? steal(PyUnicode_FromString(known.name)) : Ref();
    Ref dtype = name ? steal(canonical_dtype(name.get())) : Ref();
    return dtype ? aval_intern(tensor.ndim, tensor.shape, dtype.get(), false) : nullptr;
  }
  return PyErr_Format(PyExc_BufferError, "[from_dlpack] type code %d of %d bits and %d lanes is not supported",
                      tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes),
         nullptr;
}

bool is_dense(const DLTensor& tensor, const ShapedArray* aval) {
  if (tensor.strides == nullptr || aval->size <= 1) return true;
  for (int i = 0; i < tensor.ndim; ++i)
    if (tensor.shape[i] != 1 && tensor.strides[i] * aval->itemsize != aval->strides()[i]) return false;
  return true;
}

// Whether every element lies at an address that user memory can have: products and sums do not overflow, and stay in
// the lower half of the address space. Whether the producer owns what is there, nobody can ask.
bool is_addressable(const DLTensor& tensor, const ShapedArray* aval) {
  if (aval->size == 0) return true;
  __int128 low = 0, high = aval->itemsize;
  for (int i = 0; i < tensor.ndim; ++i) {
    __int128 stride = tensor.strides == nullptr ? aval->strides()[i] / aval->itemsize : tensor.strides[i];
    __int128 reach = stride * (tensor.shape[i] - 1);  // of two factors below 2**63
    if (reach > INT64_MAX / 16 || reach < INT64_MIN / 16) return false;
    (reach < 0 ? low : high) += reach * aval->itemsize;
  }
  __int128 start = static_cast<__int128>(reinterpret_cast<uintptr_t>(tensor.data)) + tensor.byte_offset;
  return start + low > 0 && start + high <= INT64_MAX;
}

// Copies a strided tensor into dense memory; returns the address after the last element written.
char* copy_strided(const DLTensor& tensor, int64_t itemsize, int axis, const char* from, char* to) {
  if (axis == tensor.ndim) {
    std::memcpy(to, from, itemsize);
    return to + itemsize;
  }
  int64_t step = tensor.strides[axis] * itemsize;
  for (int64_t i = 0; i < tensor.shape[axis]; ++i) to = copy_strided(tensor, itemsize, axis + 1, from + i * step, to);
  return to;
}

// Owned Array of the tensor. *taken becomes true if the Array now owns the managed tensor.
template <typename Managed>
void let_go(void* owner) {
  auto* managed = static_cast<Managed*>(owner);
  if (managed->deleter != nullptr) managed->deleter(managed);
}

template <typename Managed>
Array* array_of(Managed* managed, PyObject* copy, bool* taken) {
  const DLTensor& tensor = managed->tensor;
  Owned<ShapedArray> aval = Owned<ShapedArray>::steal(aval_of(tensor));
  if (!aval) return nullptr;
  if (aval->nbytes < 0 || (tensor.data == nullptr && aval->size > 0)) {
    PyErr_Format(PyExc_BufferError, "[from_dlpack] %R without memory behind it", aval.get());
    return nullptr;
  }
  if (!is_addressable(tensor, aval.get())) {
    PyErr_Format(PyExc_BufferError, "[from_dlpack] the offset or the strides of %R lead outside of memory", aval.get());
    return nullptr;
  }
  char* data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  if (tensor.device.type == kGpu) {
    ForeignMemory memory{tensor.device.id, data, tensor.strides, let_go<Managed>, managed};
    return reinterpret_cast<Array*>(array_of_gpu_memory(aval.get(), memory, copy, taken));
  }
  bool dense = is_dense(tensor, aval.get());
  bool aligned = tensor.data != nullptr && reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
  if (copy != Py_True && dense && aligned) {
    Buffer* buffer = buffer_wrap(data, aval->nbytes, release_import<Managed>, managed);
    if (buffer == nullptr) return PyErr_NoMemory(), nullptr;
    *taken = true;
    return array_new(aval.get(), buffer);
  }
  if (copy == Py_False) {
    PyErr_Format(PyExc_ValueError, "[from_dlpack] copy=False, but the tensor's memory is not %s; a copy is needed",
                 dense ? "aligned to 64 bytes" : "dense and row-major");
    return nullptr;
  }
  Owned<Array> array = Owned<Array>::steal(array_allocate(aval.get(), "from_dlpack", "a copy of the tensor"));
  if (!array) return nullptr;
  if (dense && copy_bytes(array->buffer->data, data, aval->nbytes) < 0) return nullptr;
  if (!dense && aval->size > 0) copy_strided(tensor, aval->itemsize, 0, data, array->buffer->data);
  return array.release();
}

template <typename Managed>
PyObject* consume(PyObject* capsule, const char* name, const char* used_name, PyObject* copy) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed == nullptr) return nullptr;
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>)
    if (managed->major != 1) return PyErr_Format(PyExc_BufferError, "[from_dlpack] DLPack version %u", managed->major);
  bool taken = false;
  Array* array = array_of(managed, copy, &taken);
  if (taken && PyCapsule_SetName(capsule, used_name) < 0) return Py_XDECREF(array), nullptr;
  return reinterpret_cast<PyObject*>(array);  // if not taken, the capsule's destructor frees the tensor
}

// The arguments of __dlpack__ for a producer: the newest version, and for a GPU's memory the stream that will read it.
// Empty with an error set.
Ref asked_of(PyObject* producer) {
  Ref kwargs = steal(Py_BuildValue("{s:(ii)}", "max_version", 1, 1));
  Ref method = steal(in_python<PyObject_GetAttrString>(producer, "__dlpack_device__"));
  int type, ordinal;
  if (!method) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return Ref();
    PyErr_Clear();
    return kwargs;
  }
  Ref device = steal(in_python<PyObject_CallNoArgs>(method.get()));
  Ref pair = device ? steal(in_python<PySequence_Tuple>(device.get())) : Ref();
  if (!kwargs || !pair || !PyArg_ParseTuple(pair.get(), "ii", &type, &ordinal)) return Ref();
  const unsigned long long address = type == kGpu ? gpu_stream(ordinal) : 0;
  Ref stream = address == 0 ? Ref() : steal(PyLong_FromUnsignedLongLong(address));
  if (stream && PyDict_SetItemString(kwargs.get(), "stream", stream.get()) < 0) return Ref();
  return kwargs;
}

// Owned capsule from the producer, of the newest version it knows.
PyObject* request_capsule(PyObject* producer) {
  Ref method = steal(in_python<PyObject_GetAttrString>(producer, "__dlpack__"));
  if (!method) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    return PyErr_Format(PyExc_TypeError, "[from_dlpack] %s has no __dlpack__ method", Py_TYPE(producer)->tp_name);
  }
  Ref empty = steal(PyTuple_New(0)), kwargs = asked_of(producer);
  if (!empty || !kwargs) return nullptr;
  PyObject* capsule = in_python<PyObject_Call>(method.get(), empty.get(), kwargs.get());
  if (capsule != nullptr || !PyErr_ExceptionMatches(PyExc_TypeError)) return capsule;
  PyErr_Clear();
  if (PyDict_DelItemString(kwargs.get(), "max_version") < 0) return nullptr;
  return in_python<PyObject_Call>(method.get(), empty.get(), kwargs.get());
}

PyObject* py_from_dlpack(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"obj", "copy", nullptr};
  PyObject *producer, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:from_dlpack", const_cast<char**>(names), &producer, &copy))
    return nullptr;
  if (copy != Py_None) {
    int truth = in_python<PyObject_IsTrue>(copy);
    if (truth < 0) return nullptr;
    copy = truth ? Py_True : Py_False;
  }
  Ref capsule = steal(request_capsule(producer));
  if (!capsule) return nullptr;
  if (PyCapsule_IsValid(capsule.get(), kVersionedName))
    return consume<DLManagedTensorVersioned>(capsule.get(), kVersionedName, kVersionedUsedName, copy);
  if (PyCapsule_IsValid(capsule.get(), kName)) return consume<DLManagedTensor>(capsule.get(), kName, kUsedName, copy);
  return PyErr_Format(PyExc_BufferError, "[from_dlpack] __dlpack__ returned %R, not an unused DLPack capsule",
                      capsule.get());
}

PyMethodDef kFunctions[] = {
    {"from_dlpack", reinterpret_cast<PyCFunction>(entry_point<py_from_dlpack>), METH_VARARGS | METH_KEYWORDS,
     "from_dlpack(obj, copy=None) -> Array; aliases dense 64-byte aligned host memory unless copy=True."},
    {},
};

PyMethodDef kArrayMethods[] = {
    {"__dlpack__", reinterpret_cast<PyCFunction>(entry_point<dunder_dlpack>), METH_VARARGS | METH_KEYWORDS,
     "A DLPack capsule on this array's memory (copy=True: on a copy)."},
    {"__dlpack_device__", dunder_dlpack_device, METH_NOARGS, "(device type, device id)."},
    {},
};

}  // namespace

// Runs after register_array, whose type it completes.
int register_dlpack(PyObject* module) {
  for (PyMethodDef* method = kArrayMethods; method->ml_name != nullptr; ++method) {
    Ref descriptor = steal(PyDescr_NewMethod(ArrayType, method));
    if (!descriptor) return -1;
    if (in_python<PyObject_SetAttrString>(reinterpret_cast<PyObject*>(ArrayType), method->ml_name, descriptor.get()) < 0)
      return -1;
  }
  return PyModule_AddFunctions(module, kFunctions);
}

}  // namespace weft
