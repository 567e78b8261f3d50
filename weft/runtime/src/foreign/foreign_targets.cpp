// The table of registered foreign functions and of the types of their states, and how Python adds to it.
//
// A function stays registered until the process ends: plans hold its address.
#include <algorithm>
#include <map>

#include "foreign.h"
#include "module.h"

namespace weft::foreign {

namespace {

using Key = std::pair<std::string, std::string>;  // name, platform

// Read and changed with the GIL held; never released.
std::map<Key, Target>& table() {
  static auto* const made = new std::map<Key, Target>;
  return *made;
}

// False if another function has the name.
bool add(const Key& key, const Target& target) {
  auto [found, is_new] = table().try_emplace(key, target);
  const Target& known = found->second;
  return is_new || (known.untyped == target.untyped &&
                    std::equal(known.bundle.stages, known.bundle.stages + kStages, target.bundle.stages));
}

// "" if a typed function can be called: asks it for its version.
std::string ask_metadata(Handler* handler) {
  Metadata metadata{end_of(&Metadata::traits), {end_of(&Version::minor), nullptr, -1, -1}, 0, {0}};
  MetadataExtension extension{{end_of(&MetadataExtension::metadata), 1, nullptr}, &metadata};
  Context context;
  Call call{};
  call.struct_size = end_of(&Call::attributes);
  call.extension = &extension.base;
  call.api = the_api();
  call.context = &context;
  call.stage = kExecute;
  call.operands.struct_size = end_of(&List::items);
  call.results.struct_size = end_of(&List::items);
  call.attributes.struct_size = end_of(&Attributes::items);
  if (Error* error = handler(&call)) {
    std::string text = std::string(code_name(error->code)) + ": " + error->message;
    delete error;
    return text;
  }
  const Version& version = metadata.version;
  if (version.major < 0)
    return "it did not answer which version of the interface it has. Is it a function of another kind? "
           "Older ones are registered with api_version=0";
  if (version.major != kMajor || version.minor > kMinor)
    return "it was compiled for version " + std::to_string(version.major) + "." + std::to_string(version.minor) +
           " of the interface, and weft has " + std::to_string(kMajor) + "." + std::to_string(kMinor) +
           ": compile it against the headers of jaxlib 0.10.2 (weft.ffi.include_dir())";
  return "";
}

// Asks the functions of all stages for their version; "" if all can be called.
std::string ask_all(const Target& target) {
  for (Handler* handler : target.bundle.stages) {
    if (handler == nullptr) continue;
    if (std::string wrong = ask_metadata(handler); !wrong.empty()) return wrong;
  }
  return "";
}

// The address in a capsule of any name, or an int; nullptr with an error set, or for None.
void* address_of(PyObject* object) {
  if (object == Py_None) return nullptr;
  if (PyCapsule_CheckExact(object)) return PyCapsule_GetPointer(object, PyCapsule_GetName(object));
  return PyLong_AsVoidPtr(object);
}

PyObject* add_target(PyObject*, PyObject* args) {
  const char *name, *platform;
  PyObject* stages;
  int typed;
  if (!PyArg_ParseTuple(args, "ssO!p:register_foreign_target", &name, &platform, &PyTuple_Type, &stages, &typed))
    return nullptr;
  if (PyTuple_GET_SIZE(stages) != kStages)
    return PyErr_Format(PyExc_ValueError, "[ffi] a target has %d stages", int(kStages));
  Target target;
  for (int i = 0; i < kStages; ++i) {
    void* address = address_of(PyTuple_GET_ITEM(stages, i));
    if (PyErr_Occurred()) return nullptr;
    if (!typed) target.untyped = address;
    else target.bundle.stages[i] = reinterpret_cast<Handler*>(address);
  }
  if (typed ? target.bundle.stages[kExecute] == nullptr : target.untyped == nullptr)
    return PyErr_Format(PyExc_ValueError, "[ffi] the target '%s' has no function for its stage 'execute'", name);
  if (std::string wrong = typed ? ask_all(target) : ""; !wrong.empty())
    return PyErr_Format(PyExc_ValueError, "[ffi] the target '%s' cannot be registered: %s", name, wrong.c_str());
  if (!add({name, platform}, target))
    return PyErr_Format(PyExc_ValueError,
                        "[ffi] the target '%s' is registered for %s with another function already; a registration "
                        "lasts until the process ends, so take another name",
                        name, platform);
  Py_RETURN_NONE;
}

PyObject* add_type(PyObject*, PyObject* args) {
  const char* name;
  PyObject *type, *info;
  if (!PyArg_ParseTuple(args, "sOO:register_foreign_type", &name, &type, &info)) return nullptr;
  auto* id = static_cast<TypeId*>(address_of(type));
  if (PyErr_Occurred()) return nullptr;
  auto* about = static_cast<TypeInfo*>(address_of(info));
  if (PyErr_Occurred()) return nullptr;
  if (id == nullptr) return PyErr_Format(PyExc_ValueError, "[ffi] the type '%s' has no pointer to its type_id", name);
  TypeRegister given{sizeof(TypeRegister), nullptr, {name, std::char_traits<char>::length(name)}, id, about};
  if (Error* error = the_api()->type_register(&given)) {
    PyErr_Format(PyExc_ValueError, "[ffi] %s", error->message.c_str());
    delete error;
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* make_capsule(PyObject*, PyObject* address) {
  void* pointer = address_of(address);
  if (PyErr_Occurred()) return nullptr;
  return PyCapsule_New(pointer, nullptr, nullptr);
}

PyObject* list_targets(PyObject*, PyObject*) {
  Ref list = steal(PyList_New(0));
  for (const auto& [key, target] : table()) {
    if (!list) return nullptr;
    Ref item = steal(Py_BuildValue("(ss)", key.first.c_str(), key.second.c_str()));
    if (!item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return list.release();
}

PyMethodDef g_methods[] = {
    {"register_foreign_target", entry_point<add_target>, METH_VARARGS,
     "register_foreign_target(name, platform, stages, typed): a function, by the addresses or capsules of its stages."},
    {"register_foreign_type", entry_point<add_type>, METH_VARARGS,
     "register_foreign_type(name, type_id, type_info): the type of a state, by addresses or capsules."},
    {"pointer_capsule", entry_point<make_capsule>, METH_O, "pointer_capsule(address) -> a capsule without a name."},
    {"foreign_targets", entry_point<list_targets>, METH_NOARGS, "foreign_targets() -> [(name, platform)]."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool find_target(const std::string& name, const std::string& platform, Target* out) {
  auto found = table().find({name, platform});
  if (found == table().end()) return false;
  *out = found->second;
  return true;
}

std::string missing_text(const std::string& name, const std::string& platform) {
  std::string known;
  for (const auto& [key, target] : table())
    known += (known.empty() ? "" : ", ") + ("'" + key.first + "' (" + key.second + ")");
  return "NOT_FOUND: [ffi] no target '" + name + "' is registered for " + platform + "; registered are: " +
         (known.empty() ? "none" : known) + ". Register it first: weft.ffi.register_ffi_target(\"" + name +
         "\", weft.ffi.pycapsule(library.function), platform=\"" + platform + "\")";
}

}  // namespace weft::foreign

namespace weft {

int register_foreign(PyObject* module) { return PyModule_AddFunctions(module, foreign::g_methods); }

}  // namespace weft
