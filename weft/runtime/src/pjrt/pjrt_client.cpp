// Clients: the devices that a plugin found, their facts, and the programs it compiles for them.
#include <cstring>

#include "device.h"
#include "module.h"
#include "pjrt.h"

namespace weft {

using pjrt::Function;

namespace {

PyTypeObject* g_client_type = nullptr;

struct ClientObject {
  PyObject_HEAD
  const Plugin* plugin;    // both exist until the process ends
  pjrt::Client* client;
  PyObject* devices;       // owned list of tuples, see list_devices
};

ClientObject* as_client(PyObject* self) { return reinterpret_cast<ClientObject*>(self); }

PyObject* client_text(PyObject* self, Function entry) {
  if (refuse_after_fork()) return nullptr;
  ClientObject* object = as_client(self);
  pjrt::ClientTextArgs args{};
  args.client = object->client;
  pjrt::Error* error = pjrt_call(*object->plugin, entry, args);
  if (error != nullptr) return set_pjrt_error(*object->plugin, error, "a client's name");
  return PyUnicode_DecodeUTF8(args.text, Py_ssize_t(args.text_size), "replace");
}

PyObject* get_platform(PyObject* self, void*) { return client_text(self, Function::client_platform_name); }
PyObject* get_version(PyObject* self, void*) { return client_text(self, Function::client_platform_version); }

PyObject* get_process_index(PyObject* self, void*) {
  if (refuse_after_fork()) return nullptr;
  pjrt::ClientProcessIndexArgs args{};
  args.client = as_client(self)->client;
  pjrt::Error* error = pjrt_call(*as_client(self)->plugin, Function::client_process_index, args);
  if (error != nullptr) return set_pjrt_error(*as_client(self)->plugin, error, "process index");
  return PyLong_FromLong(args.process_index);
}

// The number that DLPack has for the memory of a client's devices; 0 if it has none, or the plugin does not tell.
int32_t memory_type(const Plugin& plugin, pjrt::Client* client) {
  pjrt::ClientTextArgs args{};
  args.client = client;
  if (pjrt::Error* error = pjrt_call(plugin, Function::client_platform_name, args)) {
    report_pjrt_error(plugin, error, "a client's name");
    return 0;
  }
  std::string platform(args.text, args.text_size);
  return platform == "cpu" ? kHostMemory : platform == "cuda" ? 2 : platform == "rocm" ? 10 : 0;
}

// (number, id, process index, local hardware id, kind, text) of a device; number 0 if this process cannot use it.
PyObject* list_device(ClientObject* self, pjrt::Device* device, const char* name) {
  DeviceFacts facts{*self->plugin};
  pjrt::DeviceDescription* description = facts.description(device);
  int id = facts.number(description, Function::description_id);
  int process = facts.number(description, Function::description_process_index);
  std::string kind = facts.text(description, Function::description_kind);
  std::string text = facts.text(description, Function::description_text);
  bool here = facts.addressable(device);
  int local = here ? facts.local_id(device) : -1;
  if (facts.error != nullptr) return set_pjrt_error(*self->plugin, facts.error, "facts of a device");
  size_t number = 0;
  if (here) {
    auto& devices = plugin_devices();
    number = devices.size();
    int32_t type = memory_type(*self->plugin, self->client);
    devices.push_back(std::make_unique<PluginDevice>(
        PluginDevice{self->plugin, self->client, device, name + (":" + std::to_string(id)), type,
                     type == kHostMemory ? 0 : local}));
  }
  return Py_BuildValue("(niiiss)", Py_ssize_t(number), id, process, local, kind.c_str(), text.c_str());
}

PyObject* list_devices(ClientObject* self, const char* name) {
  pjrt::ClientDevicesArgs args{};
  args.client = self->client;
  pjrt::Error* error = pjrt_call(*self->plugin, Function::client_devices, args);
  if (error != nullptr) return set_pjrt_error(*self->plugin, error, "devices");
  Ref list = steal(PyList_New(0));
  for (size_t i = 0; list && i < args.count; ++i) {
    Ref facts = steal(list_device(self, args.devices[i], name));
    if (!facts || PyList_Append(list.get(), facts.get()) < 0) return nullptr;
  }
  return list.release();
}

void client_dealloc(PyObject* self) {
  Py_XDECREF(as_client(self)->devices);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// The client of a device's number, or nullptr with an error set if it is another's.
PluginDevice* device_of_client(ClientObject* self, unsigned int number) {
  PluginDevice* device = device_of_place(number << 1);
  if (device != nullptr && device->client != self->client) {
    PyErr_Format(PyExc_ValueError, "[pjrt] device %u belongs to another client", number);
    return nullptr;
  }
  return device;
}

PyObject* compile(PyObject* self, PyObject* args) {
  const char *code, *options;
  Py_ssize_t code_size, options_size;
  unsigned int number;
  if (!PyArg_ParseTuple(args, "y#y#I:compile", &code, &code_size, &options, &options_size, &number)) return nullptr;
  PluginDevice* device = device_of_client(as_client(self), number);
  if (device == nullptr) return nullptr;
  pjrt::ProgramText program{};
  program.struct_size = sizeof program;
  program.code = const_cast<char*>(code);
  program.code_size = size_t(code_size);
  program.format = "mlir";
  program.format_size = 4;
  pjrt::ClientCompileArgs call{};
  call.client = device->client;
  call.program = &program;
  call.options = options;
  call.options_size = size_t(options_size);
  PyThreadState* state = PyEval_SaveThread();
  pjrt::Error* error = pjrt_call(*device->plugin, Function::client_compile, call);
  in_python<PyEval_RestoreThread>(state);
  if (error != nullptr) return set_pjrt_error(*device->plugin, error, "compile");
  return device_program_new(number, call.executable);
}

PyObject* deserialize(PyObject* self, PyObject* args) {
  const char *bytes, *options;
  Py_ssize_t size, options_size;
  unsigned int number;
  if (!PyArg_ParseTuple(args, "y#y#I:deserialize", &bytes, &size, &options, &options_size, &number)) return nullptr;
  PluginDevice* device = device_of_client(as_client(self), number);
  if (device == nullptr) return nullptr;
  if (!device->plugin->has(Function::executable_deserialize)) {
    PyErr_SetString(PyExc_NotImplementedError, "[pjrt] this plugin cannot load compiled programs");
    return nullptr;
  }
  pjrt::ExecutableDeserializeArgs call{};
  call.client = device->client;
  call.bytes = bytes;
  call.size = size_t(size);
  call.options = options;
  call.options_size = size_t(options_size);
  PyThreadState* state = PyEval_SaveThread();
  pjrt::Error* error = pjrt_call(*device->plugin, Function::executable_deserialize, call);
  in_python<PyEval_RestoreThread>(state);
  if (error != nullptr) return set_pjrt_error(*device->plugin, error, "load a compiled program");
  return device_program_new(number, call.executable);
}

PyObject* memory_stats(PyObject* self, PyObject* argument) {
  unsigned long number = PyLong_AsUnsignedLong(argument);
  if (PyErr_Occurred()) return nullptr;
  PluginDevice* device = device_of_client(as_client(self), unsigned(number));
  if (device == nullptr) return nullptr;
  if (!device->plugin->has(Function::device_memory_stats)) Py_RETURN_NONE;
  pjrt::DeviceMemoryStatsArgs args{};
  args.device = device->device;
  pjrt::Error* error = pjrt_call(*device->plugin, Function::device_memory_stats, args);
  if (error != nullptr) {
    bool unknown = pjrt_code(*device->plugin, error) == kUnimplemented;
    set_pjrt_error(*device->plugin, error, "memory statistics");
    if (!unknown) return nullptr;
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  Ref dict = steal(PyDict_New());
  Ref in_use = steal(PyLong_FromLongLong(args.bytes_in_use));
  if (!dict || !in_use || PyDict_SetItemString(dict.get(), "bytes_in_use", in_use.get()) < 0) return nullptr;
  for (int i = 0; i < pjrt::kMemoryFacts; ++i) {
    if (!args.facts[i].is_set) continue;
    Ref value = steal(PyLong_FromLongLong(args.facts[i].value));
    if (!value || PyDict_SetItemString(dict.get(), pjrt::kMemoryNames[i], value.get()) < 0) return nullptr;
  }
  return dict.release();
}

PyMethodDef kMethods[] = {
    {"compile", entry_point<compile>, METH_VARARGS, "compile(mlir, options, device number) -> PjrtProgram."},
    {"deserialize", entry_point<deserialize>, METH_VARARGS,
     "deserialize(bytes, options, device number) -> PjrtProgram that serialize gave the bytes of."},
    {"memory_stats", entry_point<memory_stats>, METH_O, "memory_stats(device number) -> dict, or None."},
    {},
};
PyMemberDef kMembers[] = {
    {"devices", T_OBJECT, offsetof(ClientObject, devices), READONLY,
     "(number, id, process index, local hardware id, kind, text) of each device; number 0: of another process."},
    {},
};
PyGetSetDef kGetSet[] = {
    {"platform", get_platform, nullptr, "Name of the platform.", nullptr},
    {"platform_version", get_version, nullptr, "The plugin's text about its version.", nullptr},
    {"process_index", get_process_index, nullptr, "Number of this process.", nullptr},
    {},
};
PyType_Slot kSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(client_dealloc)},
    {Py_tp_methods, kMethods},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kGetSet},
    {0, nullptr},
};
PyType_Spec kSpec = {"weft.runtime.PjrtClient", sizeof(ClientObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kSlots};

}  // namespace

std::vector<std::unique_ptr<PluginDevice>>& plugin_devices() {
  static auto* devices = [] {  // never destroyed: arrays may outlive static destructors
    auto* made = new std::vector<std::unique_ptr<PluginDevice>>;
    made->push_back(nullptr);
    return made;
  }();
  return *devices;
}

PluginDevice* device_of_place(uint32_t place) {
  auto& devices = plugin_devices();
  size_t number = device_number(place);
  if (number == 0 || number >= devices.size()) {
    PyErr_Format(PyExc_ValueError, "[pjrt] there is no device %zu", number);
    return nullptr;
  }
  return refuse_after_fork() ? nullptr : devices[number].get();
}

Device* native_device(uint32_t number) {
  auto& devices = plugin_devices();
  return number > 0 && number < devices.size() ? devices[number]->native : nullptr;
}

PyObject* client_new(const Plugin* plugin, pjrt::Client* client, const char* name) {
  Ref made = steal(g_client_type->tp_alloc(g_client_type, 0));
  if (!made) return nullptr;
  ClientObject* self = as_client(made.get());
  self->plugin = plugin;
  self->client = client;
  self->devices = list_devices(self, name);
  return self->devices == nullptr ? nullptr : made.release();
}

int register_pjrt_clients(PyObject* module) {
  g_client_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (g_client_type == nullptr) return -1;
  return PyModule_AddObjectRef(module, "PjrtClient", reinterpret_cast<PyObject*>(g_client_type));
}

}  // namespace weft
