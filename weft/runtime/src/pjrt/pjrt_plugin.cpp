// Plugins: the shared library is loaded and its table of functions checked; errors and events.
#include <dlfcn.h>
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "module.h"
#include "pjrt.h"

namespace weft {

using pjrt::Function;

namespace {

struct PluginObject {
  PyObject_HEAD
  Plugin* plugin;  // owned, and never freed: devices and arrays refer to it
};

PyTypeObject* g_plugin_type = nullptr;
std::atomic<bool> g_forked{false};
PyObject* g_error_types[2];  // owned: of all errors, of exhausted memory

struct Needed {
  Function entry;
  const char* name;
};
constexpr Needed kNeeded[] = {
    {Function::error_destroy, "PJRT_Error_Destroy"},
    {Function::error_message, "PJRT_Error_Message"},
    {Function::error_code, "PJRT_Error_GetCode"},
    {Function::plugin_initialize, "PJRT_Plugin_Initialize"},
    {Function::event_destroy, "PJRT_Event_Destroy"},
    {Function::event_is_ready, "PJRT_Event_IsReady"},
    {Function::event_error, "PJRT_Event_Error"},
    {Function::event_on_ready, "PJRT_Event_OnReady"},
    {Function::client_create, "PJRT_Client_Create"},
    {Function::client_platform_name, "PJRT_Client_PlatformName"},
    {Function::client_process_index, "PJRT_Client_ProcessIndex"},
    {Function::client_platform_version, "PJRT_Client_PlatformVersion"},
    {Function::client_devices, "PJRT_Client_Devices"},
    {Function::client_compile, "PJRT_Client_Compile"},
    {Function::buffer_from_host, "PJRT_Client_BufferFromHostBuffer"},
    {Function::description_id, "PJRT_DeviceDescription_Id"},
    {Function::description_process_index, "PJRT_DeviceDescription_ProcessIndex"},
    {Function::description_kind, "PJRT_DeviceDescription_Kind"},
    {Function::description_text, "PJRT_DeviceDescription_ToString"},
    {Function::device_description, "PJRT_Device_GetDescription"},
    {Function::device_is_addressable, "PJRT_Device_IsAddressable"},
    {Function::device_local_hardware_id, "PJRT_Device_LocalHardwareId"},
    {Function::program_destroy, "PJRT_Executable_Destroy"},
    {Function::program_output_count, "PJRT_Executable_NumOutputs"},
    {Function::executable_destroy, "PJRT_LoadedExecutable_Destroy"},
    {Function::executable_program, "PJRT_LoadedExecutable_GetExecutable"},
    {Function::executable_execute, "PJRT_LoadedExecutable_Execute"},
    {Function::buffer_destroy, "PJRT_Buffer_Destroy"},
    {Function::buffer_to_host, "PJRT_Buffer_ToHostBuffer"},
    {Function::buffer_ready_event, "PJRT_Buffer_ReadyEvent"},
};

PyObject* refuse(const char* path, const char* reason) {
  PyErr_Format(PyExc_RuntimeError, "[pjrt] %s is no usable plugin: %s", path, reason);
  return nullptr;
}

// Whether the table is one that this file can call; sets an error otherwise.
bool check_api(const pjrt::Api* api, const Plugin& plugin) {
  const char* path = plugin.path.c_str();
  if (api == nullptr) return refuse(path, "GetPjrtApi gave no table of functions");
  constexpr size_t kHead = offsetof(pjrt::Api, entries);
  if (api->struct_size < kHead + 8 || api->struct_size > (size_t{1} << 20) || api->struct_size % 8 != 0) {
    PyErr_Format(PyExc_RuntimeError, "[pjrt] %s is no usable plugin: its table says that it has %zu bytes", path,
                 api->struct_size);
    return false;
  }
  int major = api->version.major, minor = api->version.minor;
  if (major != pjrt::kMajor || minor < pjrt::kOldestMinor) {
    PyErr_Format(PyExc_RuntimeError,
                 "[pjrt] %s is no usable plugin: its PJRT C API has version %d.%d, and weft speaks %d.%d and later "
                 "versions of %d; install a release of the plugin that fits",
                 path, major, minor, pjrt::kMajor, pjrt::kOldestMinor, pjrt::kMajor);
    return false;
  }
  for (const Needed& needed : kNeeded) {
    if (plugin.has(needed.entry)) continue;
    PyErr_Format(PyExc_RuntimeError, "[pjrt] %s is no usable plugin: its table (version %d.%d, %zu bytes) lacks %s",
                 path, major, minor, api->struct_size, needed.name);
    return false;
  }
  return true;
}

PyObject* open_plugin(PyObject*, PyObject* argument) {
  const char* path = PyUnicode_AsUTF8(argument);
  if (path == nullptr) return nullptr;
  auto plugin = std::make_unique<Plugin>();
  plugin->path = path;
  void* library;
  std::string reason;
  PyThreadState* state = PyEval_SaveThread();
  library = dlopen(plugin->path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* text = dlerror();
    reason = text != nullptr ? text : "it cannot be loaded";
  }
  in_python<PyEval_RestoreThread>(state);
  if (library == nullptr) return refuse(path, reason.c_str());
  auto get_api = reinterpret_cast<const pjrt::Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) return refuse(path, "it has no function GetPjrtApi");
  plugin->api = get_api();
  if (!check_api(plugin->api, *plugin)) return nullptr;
  pjrt::Head head{};
  pjrt::Error* error = pjrt_call(*plugin, Function::plugin_initialize, head);
  if (error != nullptr) return set_pjrt_error(*plugin, error, path);
  auto* made = reinterpret_cast<PluginObject*>(g_plugin_type->tp_alloc(g_plugin_type, 0));
  if (made != nullptr) made->plugin = plugin.release();
  return reinterpret_cast<PyObject*>(made);
}

const Plugin& plugin_of(PyObject* self) { return *reinterpret_cast<PluginObject*>(self)->plugin; }

PyObject* get_attributes(PyObject* self, void*) {
  const Plugin& plugin = plugin_of(self);
  pjrt::PluginAttributesArgs args{};
  if (!plugin.has(Function::plugin_attributes)) return PyDict_New();
  pjrt::Error* error = pjrt_call(plugin, Function::plugin_attributes, args);
  if (error != nullptr) return set_pjrt_error(plugin, error, "attributes");
  return named_values(args.attributes, args.count);
}

PyObject* get_path(PyObject* self, void*) { return PyUnicode_FromString(plugin_of(self).path.c_str()); }
PyObject* get_version(PyObject* self, void*) {
  const pjrt::Version& version = plugin_of(self).api->version;
  return Py_BuildValue("(ii)", version.major, version.minor);
}

void plugin_dealloc(PyObject* self) {  // the plugin itself stays
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* create_client(PyObject* self, PyObject* arguments) {
  const char* name;
  PyObject* options;
  if (!PyArg_ParseTuple(arguments, "sO!:create", &name, &PyDict_Type, &options)) return nullptr;
  std::vector<pjrt::NamedValue> values;
  if (refuse_after_fork() || !read_options(options, &values)) return nullptr;
  const Plugin& plugin = plugin_of(self);
  pjrt::ClientCreateArgs args{};
  args.options = values.data();
  args.option_count = values.size();
  PyThreadState* state = PyEval_SaveThread();
  pjrt::Error* error = pjrt_call(plugin, Function::client_create, args);
  in_python<PyEval_RestoreThread>(state);
  if (error != nullptr) return set_pjrt_error(plugin, error, "its client was not made");
  return client_new(&plugin, args.client, name);
}

PyObject* make_topology(PyObject* self, PyObject* arguments) {
  const char* name;
  PyObject* options;
  if (!PyArg_ParseTuple(arguments, "sO!:topology", &name, &PyDict_Type, &options)) return nullptr;
  return topology_new(&plugin_of(self), name, options);
}

PyMethodDef kMethods[] = {
    {"topology", entry_point<make_topology>, METH_VARARGS,
     "topology(name, options) -> PjrtTopology: a machine to compile for, which need not be there."},
    {"create", entry_point<create_client>, METH_VARARGS,
     "create(name, options) -> PjrtClient; options: str, int, float or bool."},
    {},
};
PyGetSetDef kGetSet[] = {
    {"path", get_path, nullptr, "The library's path.", nullptr},
    {"version", get_version, nullptr, "Version of its PJRT C API.", nullptr},
    {"attributes", get_attributes, nullptr, "What the plugin says about itself.", nullptr},
    {},
};
PyType_Slot kSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(plugin_dealloc)},
    {Py_tp_methods, kMethods},
    {Py_tp_getset, kGetSet},
    {0, nullptr},
};
PyType_Spec kSpec = {"weft.runtime.PjrtPlugin", sizeof(PluginObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kSlots};

PyObject* set_error_types(PyObject*, PyObject* args) {
  PyObject *all, *memory;
  if (!PyArg_ParseTuple(args, "OO:set_pjrt_error_types", &all, &memory)) return nullptr;
  Py_XSETREF(g_error_types[0], Py_NewRef(all));
  Py_XSETREF(g_error_types[1], Py_NewRef(memory));
  Py_RETURN_NONE;
}

PyMethodDef kFunctions[] = {
    {"pjrt_open", entry_point<open_plugin>, METH_O, "pjrt_open(path) -> PjrtPlugin; RuntimeError says what is wrong."},
    {"set_pjrt_error_types", set_error_types, METH_VARARGS,
     "set_pjrt_error_types(all, memory): the classes of a plugin's errors."},
    {},
};

constexpr const char* kCodes[] = {
    "OK",          "CANCELLED",         "UNKNOWN",             "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
    "UNIMPLEMENTED", "INTERNAL",        "UNAVAILABLE",         "DATA_LOSS",        "UNAUTHENTICATED"};
constexpr int kExhausted = 8;

constexpr int kAskedBeforeWaiting = 200;

// What a waiting thread and the plugin's callback share.
struct Waiter {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  pjrt::Error* error = nullptr;
};

void on_ready(pjrt::Error* error, void* argument) {
  auto* shared = static_cast<std::shared_ptr<Waiter>*>(argument);
  {
    std::lock_guard<std::mutex> lock((*shared)->mutex);
    (*shared)->done = true;
    (*shared)->error = error;
    (*shared)->changed.notify_all();
  }
  delete shared;
}

void destroy_error(const Plugin& plugin, pjrt::Error* error) {
  pjrt::ErrorArgs args{};
  args.struct_size = sizeof args;
  args.error = error;
  reinterpret_cast<void (*)(pjrt::ErrorArgs*)>(plugin.api->entries[size_t(Function::error_destroy)])(&args);
}

}  // namespace

int pjrt_code(const Plugin& plugin, const pjrt::Error* error) {
  pjrt::ErrorCodeArgs args{};
  args.error = error;
  if (pjrt::Error* second = pjrt_call(plugin, Function::error_code, args)) destroy_error(plugin, second);
  return args.code;
}

void report_pjrt_error(const Plugin& plugin, pjrt::Error* error, const char* what) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  set_pjrt_error(plugin, error, what);
  in_python<PyErr_WriteUnraisable>(nullptr);
  PyErr_Restore(type, value, traceback);
}

PyObject* set_pjrt_error(const Plugin& plugin, pjrt::Error* error, const char* what) {
  pjrt::ErrorMessageArgs message{};
  message.struct_size = sizeof message;
  message.error = error;
  reinterpret_cast<void (*)(pjrt::ErrorMessageArgs*)>(plugin.api->entries[size_t(Function::error_message)])(&message);
  int code = pjrt_code(plugin, error);
  std::string text(message.message != nullptr ? message.message : "", message.message_size);
  destroy_error(plugin, error);
  const char* name = code >= 0 && size_t(code) < std::size(kCodes) ? kCodes[code] : "UNKNOWN";
  PyObject* type = g_error_types[code == kExhausted];
  Ref words = steal(PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "replace"));
  if (words) PyErr_Format(type != nullptr ? type : PyExc_RuntimeError, "%s: %U [pjrt: %s]", name, words.get(), what);
  return nullptr;
}

bool pjrt_is_ready(const Plugin& plugin, pjrt::Event* event) {
  pjrt::EventIsReadyArgs args{};
  args.event = event;
  pjrt::Error* error = pjrt_call(plugin, Function::event_is_ready, args);
  if (error != nullptr) destroy_error(plugin, error);
  return error != nullptr || args.is_ready;
}

void pjrt_destroy_event(const Plugin& plugin, pjrt::Event* event) {
  pjrt::EventArgs args{};
  args.event = event;
  if (pjrt::Error* error = pjrt_call(plugin, Function::event_destroy, args)) destroy_error(plugin, error);
}

int pjrt_wait(const Plugin& plugin, pjrt::Event* event, const char* what) {
  pjrt::Error* error = nullptr;
  bool ready = false;  // waking this thread takes longer than most copies of small arrays
  for (int asked = 0; !ready && asked < kAskedBeforeWaiting; ++asked) ready = pjrt_is_ready(plugin, event);
  if (ready) {
    pjrt::EventArgs args{};
    args.event = event;
    error = pjrt_call(plugin, Function::event_error, args);
  } else {
    auto waiter = std::make_shared<Waiter>();
    pjrt::EventOnReadyArgs args{};
    args.event = event;
    args.callback = on_ready;
    args.argument = new std::shared_ptr<Waiter>(waiter);
    error = pjrt_call(plugin, Function::event_on_ready, args);
    if (error != nullptr) delete static_cast<std::shared_ptr<Waiter>*>(args.argument);
    for (bool done = error != nullptr; !done;) {
      PyThreadState* state = PyEval_SaveThread();
      {
        std::unique_lock<std::mutex> lock(waiter->mutex);
        waiter->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return waiter->done; });
        done = waiter->done;
        error = waiter->error;
      }
      in_python<PyEval_RestoreThread>(state);
      if (!done && in_python<PyErr_CheckSignals>() < 0) return kInterrupted;
    }
  }
  pjrt_destroy_event(plugin, event);
  if (error == nullptr) return 0;
  set_pjrt_error(plugin, error, what);
  return -1;
}

PyObject* set_runtime_error(const std::string& text) {
  PyErr_SetString(g_error_types[0] != nullptr ? g_error_types[0] : PyExc_RuntimeError, text.c_str());
  return nullptr;
}

bool is_forked_child() { return g_forked.load(std::memory_order_relaxed); }

bool refuse_after_fork() {
  if (!is_forked_child()) return false;
  PyErr_SetString(PyExc_RuntimeError,
                  "[devices] a forked child cannot use its parent's devices, GPUs and plugins, which are not in the child: start "
                  "processes with multiprocessing's 'spawn' instead");
  return true;
}

int register_pjrt(PyObject* module) {
  pthread_atfork(nullptr, nullptr, [] {
    if (plugin_devices().size() > 1) g_forked = true;
  });
  g_plugin_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (g_plugin_type == nullptr) return -1;
  if (PyModule_AddObjectRef(module, "PjrtPlugin", reinterpret_cast<PyObject*>(g_plugin_type)) < 0) return -1;
  if (PyModule_AddFunctions(module, kFunctions) < 0) return -1;
  if (register_pjrt_clients(module) < 0 || register_pjrt_topologies(module) < 0) return -1;
  if (register_pjrt_memory(module) < 0) return -1;
  return register_pjrt_arrays(module) < 0 ? -1 : register_pjrt_programs(module);
}

}  // namespace weft
