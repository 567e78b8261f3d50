// What plugins say: named values, facts of devices, and of compiled programs their cost, memory, text and bytes.
#include <cstring>

#include "module.h"
#include "pjrt.h"

namespace weft {

using pjrt::Function;

namespace {

PyObject* named_value(const pjrt::NamedValue& value) {
  switch (value.kind) {
    case pjrt::NamedKind::text: return PyUnicode_DecodeUTF8(value.text, Py_ssize_t(value.value_size), "replace");
    case pjrt::NamedKind::integer: return PyLong_FromLongLong(value.integer);
    case pjrt::NamedKind::real: return PyFloat_FromDouble(double(value.real));
    case pjrt::NamedKind::boolean: return PyBool_FromLong(value.boolean);
    case pjrt::NamedKind::integers: {
      PyObject* tuple = PyTuple_New(Py_ssize_t(value.value_size));
      for (size_t i = 0; tuple != nullptr && i < value.value_size; ++i)
        PyTuple_SET_ITEM(tuple, Py_ssize_t(i), PyLong_FromLongLong(value.integers[i]));
      return tuple;
    }
  }
  return Py_NewRef(Py_None);
}

// False, with NotImplementedError set, if the plugin lacks an entry.
bool offers(const Plugin& plugin, Function entry, const char* what) {
  if (refuse_after_fork()) return false;
  if (plugin.has(entry)) return true;
  PyErr_Format(PyExc_NotImplementedError, "[pjrt] the plugin %s does not %s", plugin.path.c_str(), what);
  return false;
}

// The plugin's error (destroyed) as an exception: NotImplementedError if it says that it does not do this.
PyObject* set_answer_error(const Plugin& plugin, pjrt::Error* error, const char* what) {
  bool unknown = pjrt_code(plugin, error) == kUnimplemented;
  set_pjrt_error(plugin, error, what);
  if (!unknown) return nullptr;
  PyErr_Clear();
  PyErr_Format(PyExc_NotImplementedError, "[pjrt] the plugin %s does not give the %s of a program", plugin.path.c_str(),
               what);
  return nullptr;
}

}  // namespace

PyObject* named_values(const pjrt::NamedValue* values, size_t count) {
  Ref dict = steal(PyDict_New());
  for (size_t i = 0; dict && i < count; ++i) {
    Ref name = steal(PyUnicode_DecodeUTF8(values[i].name, Py_ssize_t(values[i].name_size), "replace"));
    Ref value = steal(named_value(values[i]));
    if (!name || !value || PyDict_SetItem(dict.get(), name.get(), value.get()) < 0) return nullptr;
  }
  return dict.release();
}

bool read_options(PyObject* options, std::vector<pjrt::NamedValue>* out) {
  Py_ssize_t position = 0;
  PyObject *name, *value;
  while (PyDict_Next(options, &position, &name, &value)) {
    pjrt::NamedValue entry{};
    entry.struct_size = sizeof entry;
    Py_ssize_t size;
    entry.name = PyUnicode_AsUTF8AndSize(name, &size);
    if (entry.name == nullptr) return false;
    entry.name_size = size_t(size);
    entry.value_size = 1;
    if (PyBool_Check(value)) {
      entry.kind = pjrt::NamedKind::boolean;
      entry.boolean = value == Py_True;
    } else if (PyLong_Check(value)) {
      entry.kind = pjrt::NamedKind::integer;
      entry.integer = PyLong_AsLongLong(value);
    } else if (PyFloat_Check(value)) {
      entry.kind = pjrt::NamedKind::real;
      entry.real = float(PyFloat_AS_DOUBLE(value));
    } else {
      entry.kind = pjrt::NamedKind::text;
      entry.text = PyUnicode_AsUTF8AndSize(value, &size);
      if (entry.text == nullptr) return false;
      entry.value_size = size_t(size);
    }
    if (PyErr_Occurred()) return false;
    out->push_back(entry);
  }
  return true;
}

pjrt::DeviceDescription* DeviceFacts::description(pjrt::Device* device) {
  pjrt::DeviceDescriptionArgs args{};
  args.device = device;
  error = pjrt_call(plugin, Function::device_description, args);
  return args.description;
}

int DeviceFacts::number(pjrt::DeviceDescription* description, Function entry) {
  pjrt::DescriptionNumberArgs args{};
  args.description = description;
  if (error == nullptr) error = pjrt_call(plugin, entry, args);
  return args.number;
}

std::string DeviceFacts::text(pjrt::DeviceDescription* description, Function entry) {
  pjrt::DescriptionTextArgs args{};
  args.description = description;
  if (error == nullptr) error = pjrt_call(plugin, entry, args);
  return std::string(args.text != nullptr ? args.text : "", args.text_size);
}

bool DeviceFacts::addressable(pjrt::Device* device) {
  pjrt::DeviceFlagArgs args{};
  args.device = device;
  if (error == nullptr) error = pjrt_call(plugin, Function::device_is_addressable, args);
  return args.flag;
}

int DeviceFacts::local_id(pjrt::Device* device) {
  pjrt::DeviceNumberArgs args{};
  args.device = device;
  if (error == nullptr) error = pjrt_call(plugin, Function::device_local_hardware_id, args);
  return args.number;
}

void program_destroy(const Plugin& plugin, pjrt::Program* program) {
  pjrt::ProgramArgs args{};
  args.program = program;
  pjrt::Error* error = pjrt_call(plugin, Function::program_destroy, args);
  if (error != nullptr) report_pjrt_error(plugin, error, "release of a program");
}

PyObject* program_bytes(const Plugin& plugin, pjrt::Program* program) {
  if (!offers(plugin, Function::program_serialize, "serialize compiled programs")) return nullptr;
  pjrt::ProgramSerializeArgs args{};
  args.program = program;
  pjrt::Error* error = pjrt_call(plugin, Function::program_serialize, args);
  if (error != nullptr) return set_answer_error(plugin, error, "serialized form");
  PyObject* bytes = PyBytes_FromStringAndSize(args.bytes, Py_ssize_t(args.size));
  if (args.destroy != nullptr) args.destroy(args.serialized);
  return bytes;
}

PyObject* program_cost(const Plugin& plugin, pjrt::Program* program) {
  if (!offers(plugin, Function::program_cost, "estimate the cost of programs")) return nullptr;
  pjrt::ProgramCostArgs args{};
  args.program = program;
  pjrt::Error* error = pjrt_call(plugin, Function::program_cost, args);
  return error != nullptr ? set_answer_error(plugin, error, "cost") : named_values(args.properties, args.count);
}

PyObject* program_memory(const Plugin& plugin, pjrt::Program* program) {
  if (!offers(plugin, Function::program_memory, "tell the memory that programs take")) return nullptr;
  pjrt::ProgramMemoryArgs args{};
  args.program = program;
  pjrt::Error* error = pjrt_call(plugin, Function::program_memory, args);
  if (error != nullptr) return set_answer_error(plugin, error, "memory");
  Ref dict = steal(PyDict_New());
  for (int i = 0; dict && i < pjrt::kMemorySizes; ++i) {
    Ref value = steal(PyLong_FromLongLong(args.sizes[i]));
    if (!value || PyDict_SetItemString(dict.get(), pjrt::kMemorySizeNames[i], value.get()) < 0) return nullptr;
  }
  return dict.release();
}

PyObject* program_text(const Plugin& plugin, pjrt::Program* program) {
  if (!offers(plugin, Function::program_optimized, "show compiled programs")) return nullptr;
  pjrt::ProgramText text{};
  text.struct_size = sizeof text;
  pjrt::ProgramOptimizedArgs args{};
  args.program = program;
  args.text = &text;
  pjrt::Error* error = pjrt_call(plugin, Function::program_optimized, args);
  if (error != nullptr) return set_answer_error(plugin, error, "text");
  Ref bytes = steal(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(text.code_size)));
  if (!bytes) return nullptr;
  text.code = PyBytes_AS_STRING(bytes.get());
  error = pjrt_call(plugin, Function::program_optimized, args);
  if (error != nullptr) return set_answer_error(plugin, error, "text");
  return Py_BuildValue("(s#O)", text.format, Py_ssize_t(text.format_size), bytes.get());
}

}  // namespace weft
