// What Python asks of GPUs: which there are, their memory, and modules with kernels.
#include "cuda_module.h"

#include <algorithm>
#include <map>

#include "module.h"
#include "pjrt.h"

namespace weft {

PyTypeObject* DeviceModuleType = nullptr;

// A module's image, and what it became in the contexts of devices.
struct Images {
  struct Loaded {
    cuda::Handle module;
    std::map<std::string, int64_t> shared_bytes;  // that entries were allowed: the most that was asked for
  };

  std::string image;
  std::vector<std::string> entries;
  std::mutex mutex;  // guards
  std::map<CudaDevice*, Loaded> loaded;

  ~Images() {
    for (const auto& [device, own] : loaded) device->unload(own.module);
  }
};

cuda::Handle module_function(DeviceModule* module, CudaDevice& device, const std::string& entry, int64_t shared_bytes) {
  Images& images = *module->images;
  std::lock_guard<std::mutex> lock(images.mutex);
  auto known = images.loaded.find(&device);
  if (known == images.loaded.end()) {
    const cuda::Handle module = device.load(images.image);
    if (module == nullptr) return nullptr;
    known = images.loaded.emplace(&device, Images::Loaded{module, {}}).first;
  }
  // other sizes launch the same entry, and what it is allowed last holds for all of them
  int64_t& allowed = known->second.shared_bytes[entry];
  const cuda::Handle found = device.function(known->second.module, entry, std::max(allowed, shared_bytes));
  if (found != nullptr) allowed = std::max(allowed, shared_bytes);
  return found;
}

bool module_has(const DeviceModule* module, const std::string& entry) {
  const auto& entries = module->images->entries;
  return std::find(entries.begin(), entries.end(), entry) != entries.end();
}

CudaDevice* cuda_device(Device* device) { return dynamic_cast<CudaDevice*>(device); }

namespace {

PyObject* module_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"image", "entries", nullptr};
  PyObject *image, *given;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "SO:DeviceModule", const_cast<char**>(names), &image, &given))
    return nullptr;
  Ref entries = steal(in_python<PySequence_Tuple>(given));
  if (!entries) return nullptr;
  auto images = std::make_unique<Images>();
  images->image.assign(PyBytes_AS_STRING(image), size_t(PyBytes_GET_SIZE(image)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries.get()); ++i) {
    const char* entry = PyUnicode_AsUTF8(PyTuple_GET_ITEM(entries.get(), i));
    if (entry == nullptr) return nullptr;
    images->entries.emplace_back(entry);
  }
  auto* made = reinterpret_cast<DeviceModule*>(type->tp_alloc(type, 0));
  if (made != nullptr) made->images = images.release();
  return reinterpret_cast<PyObject*>(made);
}

void module_dealloc(PyObject* self) {
  delete reinterpret_cast<DeviceModule*>(self)->images;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* module_nbytes(PyObject* self, void*) {
  return PyLong_FromSize_t(reinterpret_cast<DeviceModule*>(self)->images->image.size());
}

PyGetSetDef kAttributes[] = {{"nbytes", module_nbytes, nullptr, "Bytes of the image.", nullptr}, {}};

PyType_Slot kSlots[] = {
    {Py_tp_getset, kAttributes},
    {Py_tp_doc, const_cast<char*>("DeviceModule(image, entries): kernels of a GPU, as PTX or as machine code; it is "
                                  "loaded into a device when one is first launched there.")},
    {Py_tp_new, reinterpret_cast<void*>(entry_point<module_new>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(module_dealloc)},
    {0, nullptr},
};
PyType_Spec kSpec = {"weft.runtime.DeviceModule", sizeof(DeviceModule), 0, Py_TPFLAGS_DEFAULT, kSlots};

PyObject* text_of(const std::string& text) { return PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "replace"); }

// (ordinal, name, (major, minor), bytes, multiprocessors, why it is not used)
PyObject* facts_of(const cuda::Facts& facts) {
  Ref name = steal(text_of(facts.name)), refused = steal(text_of(facts.refused));
  if (!name || !refused) return nullptr;
  return Py_BuildValue("(iO(ii)LiO)", facts.ordinal, name.get(), facts.major, facts.minor, (long long)facts.bytes,
                       facts.multiprocessors, refused.get());
}

PyObject* cuda_facts(PyObject*, PyObject*) {
  if (refuse_after_fork()) return nullptr;
  std::vector<cuda::Facts> found;
  std::string reason;
  PyThreadState* state = PyEval_SaveThread();
  const cuda::Driver* driver = cuda::driver(&reason);
  if (driver != nullptr) cuda::list_devices(&found, &reason);
  in_python<PyEval_RestoreThread>(state);
  Ref devices = steal(PyList_New(0)), why = steal(text_of(reason));
  for (const cuda::Facts& facts : found) {
    Ref each = devices ? steal(facts_of(facts)) : Ref();
    if (!each || PyList_Append(devices.get(), each.get()) < 0) return nullptr;
  }
  if (!devices || !why) return nullptr;
  return Py_BuildValue("{s:i,s:s,s:O,s:O}", "driver", driver == nullptr ? 0 : driver->version, "path",
                       driver == nullptr ? "" : driver->path.c_str(), "devices", devices.get(), "reason", why.get());
}

// has_cuda() -> whether there is a driver to be opened, or one was asked for by name: nothing is said of GPUs
PyObject* has_cuda(PyObject*, PyObject*) { return PyBool_FromLong(cuda::is_present()); }

// make_cuda_devices(fraction) -> the numbers of new devices, one for each GPU that can be used, with its ordinal
PyObject* make_cuda_devices(PyObject*, PyObject* argument) {
  const double fraction = PyFloat_AsDouble(argument);
  if (PyErr_Occurred() || refuse_after_fork()) return nullptr;
  std::vector<cuda::Facts> found;
  std::vector<CudaDevice*> opened;
  std::string reason;
  auto& devices = plugin_devices();
  PyThreadState* state = PyEval_SaveThread();
  cuda::list_devices(&found, &reason);
  uint32_t number = uint32_t(devices.size());
  for (const cuda::Facts& facts : found) {
    std::string why = facts.refused;
    CudaDevice* device = why.empty() ? CudaDevice::open(number, facts, fraction, &why) : nullptr;
    if (device != nullptr) opened.push_back(device), ++number;
    else reason = facts.name + ": " + why;
  }
  in_python<PyEval_RestoreThread>(state);
  if (opened.empty()) return set_runtime_error(reason);
  Ref list = steal(PyList_New(0));
  for (CudaDevice* device : opened) {
    auto entry = std::make_unique<PluginDevice>();
    constexpr int32_t kCudaMemory = 2;  // in DLPack
    entry->name = device->name;
    entry->memory_type = kCudaMemory;
    entry->memory_id = device->facts.ordinal;
    entry->native = device;
    devices.push_back(std::move(entry));
    Ref facts = steal(facts_of(device->facts));
    Ref made = facts ? steal(Py_BuildValue("(IO)", device->number, facts.get())) : Ref();
    if (!list || !made || PyList_Append(list.get(), made.get()) < 0) return nullptr;
  }
  return list.release();
}

// The GPU of a number that Python gave; nullptr with an error set.
CudaDevice* asked_device(PyObject* argument) {
  const unsigned long number = PyLong_AsUnsignedLong(argument);
  if (PyErr_Occurred() || refuse_after_fork()) return nullptr;
  CudaDevice* device = cuda_device(native_device(uint32_t(number)));
  if (device == nullptr) PyErr_Format(PyExc_ValueError, "[devices] device %lu is no GPU", number);
  return device;
}

PyObject* cuda_memory_stats(PyObject*, PyObject* argument) {
  CudaDevice* device = asked_device(argument);
  if (device == nullptr) return nullptr;
  const cuda::PoolStats stats = device->stats();
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "num_allocs", (long long)stats.num_allocs, "bytes_in_use",
                       (long long)stats.bytes_in_use, "peak_bytes_in_use", (long long)stats.peak_bytes_in_use,
                       "largest_alloc_size", (long long)stats.largest_alloc_size, "bytes_limit",
                       (long long)device->bytes_limit(), "pool_bytes", (long long)stats.pool_bytes, "peak_pool_bytes",
                       (long long)stats.peak_pool_bytes);
}

// Machine code of PTX by the driver's own assembler; empty: *reason says why.
std::string linked(CudaDevice& device, const char* text, size_t size, std::string* reason) {
  CudaDevice::InContext here(device);
  const cuda::Driver& driver = cuda::the_driver();
  char words[8192] = "";
  int options[] = {cuda::kErrorLog, cuda::kErrorLogBytes};
  void* values[] = {words, reinterpret_cast<void*>(sizeof words)};
  cuda::Handle state = nullptr;
  void* code = nullptr;
  size_t bytes = 0;
  std::string made;
  cuda::Result result = driver.cuLinkCreate_v2(2, options, values, &state);
  if (result == cuda::kSuccess)
    result = driver.cuLinkAddData_v2(state, cuda::kLinkPtx, text, size, "weft", 0, nullptr, nullptr);
  if (result == cuda::kSuccess) result = driver.cuLinkComplete(state, &code, &bytes);
  if (result == cuda::kSuccess) made.assign(static_cast<const char*>(code), bytes);
  words[sizeof words - 1] = 0;
  device.check(result, "the driver's assembler");  // which notes that the device has stopped, if it has
  if (result != cuda::kSuccess) *reason = driver.text(result) + (*words != 0 ? "\n" : "") + words;
  if (state != nullptr) driver.cuLinkDestroy(state);
  return made;
}

PyObject* assemble(PyObject*, PyObject* args) {
  PyObject *number, *text;
  if (!PyArg_ParseTuple(args, "OS:assemble", &number, &text)) return nullptr;
  CudaDevice* device = asked_device(number);
  if (device == nullptr) return nullptr;
  std::string reason, code;
  PyThreadState* state = PyEval_SaveThread();
  code = linked(*device, PyBytes_AS_STRING(text), size_t(PyBytes_GET_SIZE(text)) + 1, &reason);  // with its zero
  in_python<PyEval_RestoreThread>(state);
  if (code.empty() && device->refuse() != Status::ok) return device->explain(nullptr), nullptr;
  CudaDevice::forget_reason();
  if (code.empty()) return set_runtime_error("INTERNAL: [assemble] " + device->name + " takes no such PTX: " + reason);
  return PyBytes_FromStringAndSize(code.data(), Py_ssize_t(code.size()));
}

PyMethodDef kFunctions[] = {
    {"cuda_facts", entry_point<cuda_facts>, METH_NOARGS,
     "cuda_facts() -> dict: the driver's version and path, its devices (ordinal, name, capability, bytes, "
     "multiprocessors, why not used), and the reason why there are none."},
    {"has_cuda", has_cuda, METH_NOARGS, "has_cuda() -> whether this machine has NVIDIA's driver, which is not started."},
    {"make_cuda_devices", entry_point<make_cuda_devices>, METH_O,
     "make_cuda_devices(fraction) -> [(number, facts)] of new devices, one for each GPU that can be used. fraction: of its "
     "memory that arrays may take; 0: any."},
    {"cuda_memory_stats", entry_point<cuda_memory_stats>, METH_O, "cuda_memory_stats(number) -> dict of counts."},
    {"assemble", entry_point<assemble>, METH_VARARGS, "assemble(number, ptx) -> machine code for the device."},
    {},
};

}  // namespace

int register_cuda(PyObject* module) {
  DeviceModuleType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (DeviceModuleType == nullptr || PyModule_AddFunctions(module, kFunctions) < 0) return -1;
  return PyModule_AddObjectRef(module, "DeviceModule", reinterpret_cast<PyObject*>(DeviceModuleType));
}

}  // namespace weft
