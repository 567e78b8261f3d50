// Topologies: machines that a plugin describes without their being there, and programs compiled ahead of time for them.
#include <cstring>

#include "module.h"
#include "pjrt.h"

namespace weft {

using pjrt::Function;

namespace {

PyTypeObject* g_topology_type = nullptr;
PyTypeObject* g_compiled_type = nullptr;

struct TopologyObject {
  PyObject_HEAD
  const Plugin* plugin;  // exists until the process ends
  pjrt::Topology* topology;  // owned
};

// A program for devices that are elsewhere.
struct CompiledObject {
  PyObject_HEAD
  const Plugin* plugin;
  pjrt::Program* program;  // owned
};

TopologyObject* as_topology(PyObject* self) { return reinterpret_cast<TopologyObject*>(self); }
CompiledObject* as_compiled(PyObject* self) { return reinterpret_cast<CompiledObject*>(self); }

void free_object(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

void topology_dealloc(PyObject* self) {
  TopologyObject* object = as_topology(self);
  if (object->topology != nullptr && !is_forked_child()) {
    pjrt::TopologyArgs args{};
    args.topology = object->topology;
    pjrt::Error* error = pjrt_call(*object->plugin, Function::topology_destroy, args);
    if (error != nullptr) report_pjrt_error(*object->plugin, error, "release of a topology");
  }
  free_object(self);
}

void compiled_dealloc(PyObject* self) {
  CompiledObject* object = as_compiled(self);
  if (object->program != nullptr && !is_forked_child()) program_destroy(*object->plugin, object->program);
  free_object(self);
}

template <Function entry>
PyObject* topology_text(PyObject* self, void*) {
  if (refuse_after_fork()) return nullptr;
  pjrt::TopologyTextArgs args{};
  args.topology = as_topology(self)->topology;
  pjrt::Error* error = pjrt_call(*as_topology(self)->plugin, entry, args);
  if (error != nullptr) return set_pjrt_error(*as_topology(self)->plugin, error, "a topology's name");
  return PyUnicode_DecodeUTF8(args.text, Py_ssize_t(args.text_size), "replace");
}

PyObject* get_attributes(PyObject* self, void*) {
  const Plugin& plugin = *as_topology(self)->plugin;
  if (refuse_after_fork()) return nullptr;
  if (!plugin.has(Function::topology_attributes)) return PyDict_New();
  pjrt::TopologyAttributesArgs args{};
  args.topology = as_topology(self)->topology;
  pjrt::Error* error = pjrt_call(plugin, Function::topology_attributes, args);
  if (error == nullptr) return named_values(args.attributes, args.count);
  return set_pjrt_error(plugin, error, "attributes of a topology");
}

// (id, process index, kind, text) of a device that is described.
PyObject* list_description(const Plugin& plugin, pjrt::DeviceDescription* description) {
  DeviceFacts facts{plugin};
  int id = facts.number(description, Function::description_id);
  int process = facts.number(description, Function::description_process_index);
  std::string kind = facts.text(description, Function::description_kind);
  std::string text = facts.text(description, Function::description_text);
  if (facts.error != nullptr) return set_pjrt_error(plugin, facts.error, "facts of a device");
  return Py_BuildValue("(iiss)", id, process, kind.c_str(), text.c_str());
}

PyObject* list_devices(PyObject* self, PyObject*) {
  const Plugin& plugin = *as_topology(self)->plugin;
  if (refuse_after_fork()) return nullptr;
  pjrt::TopologyDevicesArgs args{};
  args.topology = as_topology(self)->topology;
  pjrt::Error* error = pjrt_call(plugin, Function::topology_devices, args);
  if (error != nullptr) return set_pjrt_error(plugin, error, "devices of a topology");
  Ref list = steal(PyList_New(0));
  for (size_t i = 0; list && i < args.count; ++i) {
    Ref facts = steal(list_description(plugin, args.descriptions[i]));
    if (!facts || PyList_Append(list.get(), facts.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* compile(PyObject* self, PyObject* args) {
  const char *code, *options;
  Py_ssize_t code_size, options_size;
  if (!PyArg_ParseTuple(args, "y#y#:compile", &code, &code_size, &options, &options_size)) return nullptr;
  const Plugin* plugin = as_topology(self)->plugin;
  if (refuse_after_fork()) return nullptr;
  pjrt::ProgramText program{};
  program.struct_size = sizeof program;
  program.code = const_cast<char*>(code);
  program.code_size = size_t(code_size);
  program.format = "mlir";
  program.format_size = 4;
  pjrt::TopologyCompileArgs call{};
  call.topology = as_topology(self)->topology;
  call.program = &program;
  call.options = options;
  call.options_size = size_t(options_size);
  PyThreadState* state = PyEval_SaveThread();
  pjrt::Error* error = pjrt_call(*plugin, Function::topology_compile, call);
  in_python<PyEval_RestoreThread>(state);
  if (error != nullptr) return set_pjrt_error(*plugin, error, "compile");
  PyObject* made = g_compiled_type->tp_alloc(g_compiled_type, 0);
  if (made == nullptr) return program_destroy(*plugin, call.compiled), nullptr;
  as_compiled(made)->plugin = plugin;
  as_compiled(made)->program = call.compiled;
  return made;
}

template <PyObject* (*ask)(const Plugin&, pjrt::Program*)>
PyObject* about(PyObject* self, PyObject*) {
  return refuse_after_fork() ? nullptr : ask(*as_compiled(self)->plugin, as_compiled(self)->program);
}

PyMethodDef kTopologyMethods[] = {
    {"devices", entry_point<list_devices>, METH_NOARGS, "devices() -> list of (id, process index, kind, text)."},
    {"compile", entry_point<compile>, METH_VARARGS, "compile(mlir, options) -> PjrtCompiled."},
    {},
};
PyGetSetDef kTopologyGetSet[] = {
    {"platform", topology_text<Function::topology_platform_name>, nullptr, "Name of the platform.", nullptr},
    {"platform_version", topology_text<Function::topology_platform_version>, nullptr, "Version of its compiler.",
     nullptr},
    {"attributes", get_attributes, nullptr, "What the plugin says about it.", nullptr},
    {},
};
PyType_Slot kTopologySlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(topology_dealloc)},
    {Py_tp_methods, kTopologyMethods},
    {Py_tp_getset, kTopologyGetSet},
    {0, nullptr},
};
PyType_Spec kTopologySpec = {"weft.runtime.PjrtTopology", sizeof(TopologyObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kTopologySlots};

PyMethodDef kCompiledMethods[] = {
    {"serialize", entry_point<about<program_bytes>>, METH_NOARGS, "serialize() -> bytes, for deserialize of a client."},
    {"cost", entry_point<about<program_cost>>, METH_NOARGS, "cost() -> dict of the plugin's estimates."},
    {"memory", entry_point<about<program_memory>>, METH_NOARGS, "memory() -> dict of sizes in bytes."},
    {"text", entry_point<about<program_text>>, METH_NOARGS, "text() -> (format, bytes): what the compiler made."},
    {},
};
PyType_Slot kCompiledSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(compiled_dealloc)},
    {Py_tp_methods, kCompiledMethods},
    {0, nullptr},
};
PyType_Spec kCompiledSpec = {"weft.runtime.PjrtCompiled", sizeof(CompiledObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kCompiledSlots};

}  // namespace

PyObject* topology_new(const Plugin* plugin, const char* name, PyObject* options) {
  std::vector<pjrt::NamedValue> values;
  if (refuse_after_fork() || !read_options(options, &values)) return nullptr;
  for (Function entry : {Function::topology_create, Function::topology_destroy, Function::topology_platform_name,
                         Function::topology_platform_version, Function::topology_devices, Function::topology_compile})
    if (!plugin->has(entry))
      return PyErr_Format(PyExc_NotImplementedError, "[pjrt] the plugin %s does not compile for topologies",
                          plugin->path.c_str());
  pjrt::TopologyCreateArgs args{};
  args.name = name;
  args.name_size = strlen(name);
  args.options = values.data();
  args.option_count = values.size();
  PyThreadState* state = PyEval_SaveThread();
  pjrt::Error* error = pjrt_call(*plugin, Function::topology_create, args);
  in_python<PyEval_RestoreThread>(state);
  if (error != nullptr) {
    bool unknown = pjrt_code(*plugin, error) == kUnimplemented;
    set_pjrt_error(*plugin, error, "topology");
    if (!unknown) return nullptr;
    PyErr_Clear();
    return PyErr_Format(PyExc_NotImplementedError, "[pjrt] the plugin %s does not compile for topologies",
                        plugin->path.c_str());
  }
  PyObject* made = g_topology_type->tp_alloc(g_topology_type, 0);
  if (made == nullptr) return nullptr;  // without memory for one object the process is at its end: the topology leaks
  as_topology(made)->plugin = plugin;
  as_topology(made)->topology = args.topology;
  return made;
}

int register_pjrt_topologies(PyObject* module) {
  g_topology_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kTopologySpec));
  g_compiled_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kCompiledSpec));
  if (g_topology_type == nullptr || g_compiled_type == nullptr) return -1;
  if (PyModule_AddObjectRef(module, "PjrtTopology", reinterpret_cast<PyObject*>(g_topology_type)) < 0) return -1;
  return PyModule_AddObjectRef(module, "PjrtCompiled", reinterpret_cast<PyObject*>(g_compiled_type));
}

}  // namespace weft
