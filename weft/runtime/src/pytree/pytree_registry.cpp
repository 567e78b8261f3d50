// Which objects are pytree nodes: the kinds of containers, registered classes, opening and making one level.
#include <string>
#include <unordered_map>

#include "array.h"
#include "module.h"
#include "pytree.h"

namespace weft {
namespace {

std::unordered_map<PyTypeObject*, const Registration*>& registrations() {
  static auto* table = new std::unordered_map<PyTypeObject*, const Registration*>;
  return *table;
}

// The classes of key path entries, set once by the Python layer; owned.
struct KeyTypes {
  PyObject* sequence = nullptr;
  PyObject* dict = nullptr;
  PyObject* attribute = nullptr;
  PyObject* flat_index = nullptr;
} key_types;

PyObject* fields_name = nullptr;           // "_fields"
PyObject* default_factory_name = nullptr;  // "default_factory"

// Owned tuple of the dict's keys in sorted order.
PyObject* sorted_keys(PyObject* dict) {
  Ref keys = steal(PyDict_Keys(dict));
  if (!keys) return nullptr;
  if (PyList_GET_SIZE(keys.get()) > 1 && PyList_Sort(keys.get()) < 0) {
    if (PyErr_ExceptionMatches(PyExc_Exception))
      raise_from_current(PyExc_ValueError, "Comparator raised exception while sorting pytree dictionary keys.");
    return nullptr;
  }
  return PyList_AsTuple(keys.get());
}

// Owned tuple of dict[key] for key in keys.
PyObject* values_at(PyObject* dict, PyObject* keys) {
  Py_ssize_t count = PyTuple_GET_SIZE(keys);
  Ref values = steal(PyTuple_New(count));
  if (!values) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* key = PyTuple_GET_ITEM(keys, i);
    PyObject* value = PyDict_GetItemWithError(dict, key);
    if (value == nullptr) {
      if (!PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, key);
      return nullptr;
    }
    PyTuple_SET_ITEM(values.get(), i, Py_NewRef(value));
  }
  return values.release();
}

// Owned tuple of getattr(object, name) for name in names.
PyObject* attributes_at(PyObject* object, PyObject* names) {
  Py_ssize_t count = PyTuple_GET_SIZE(names);
  Ref values = steal(PyTuple_New(count));
  if (!values) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* value = in_python<PyObject_GetAttr>(object, PyTuple_GET_ITEM(names, i));
    if (value == nullptr) return nullptr;
    PyTuple_SET_ITEM(values.get(), i, value);
  }
  return values.release();
}

// Splits the result of a user's flatten function into (iterable, data), both owned; false with ValueError set.
bool split_pair(PyObject* result, Ref& iterable, Ref& data) {
  if (!PyTuple_Check(result) || PyTuple_GET_SIZE(result) != 2) {
    PyErr_Format(PyExc_ValueError,
                 "The to_iterable function for a custom PyTree node should return a (children, aux_data) tuple, got %R",
                 result);
    return false;
  }
  iterable = borrow(PyTuple_GET_ITEM(result, 0));
  data = borrow(PyTuple_GET_ITEM(result, 1));
  return true;
}

bool open_custom(PyObject* object, Opened& opened) {
  // A flatten function that is native (a jitted function, say) can recurse without any Python frame in between.
  if (enter_nested(" in flatten; PyTree may have cyclical node references.") != 0) return false;
  Ref result = steal(in_python<PyObject_CallOneArg>(opened.registration->flatten, object));
  leave_nested();
  Ref iterable;
  if (!result || !split_pair(result.get(), iterable, opened.data)) return false;
  if (PyTuple_CheckExact(iterable.get())) {
    opened.children = std::move(iterable);
    return true;
  }
  opened.children = steal(in_python<PySequence_Tuple>(iterable.get()));
  if (!opened.children && PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(iterable.get())->tp_iter == nullptr)
    PyErr_Format(PyExc_ValueError,
                 "The to_iterable function for a custom PyTree node should return a (children, aux_data) tuple where "
                 "'children' is iterable, got %R",
                 result.get());
  return static_cast<bool>(opened.children);
}

// Owned tuple of object[key] through the mapping protocol (an OrderedDict keeps its own order).
PyObject* items_at(PyObject* object, PyObject* keys) {
  Py_ssize_t count = PyTuple_GET_SIZE(keys);
  Ref values = steal(PyTuple_New(count));
  if (!values) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* value = in_python<PyObject_GetItem>(object, PyTuple_GET_ITEM(keys, i));
    if (value == nullptr) return nullptr;
    PyTuple_SET_ITEM(values.get(), i, value);
  }
  return values.release();
}

bool open_native(PyObject* object, Opened& opened) {
  if (opened.registration->native == Registration::Native::kOrderedDict) {
    opened.data = steal(in_python<PySequence_Tuple>(object));
    if (opened.data) opened.children = steal(items_at(object, opened.data.get()));
    return static_cast<bool>(opened.children);
  }
  Ref keys = steal(sorted_keys(object));
  if (!keys) return false;
  Ref factory = steal(in_python<PyObject_GetAttr>(object, default_factory_name));
  if (!factory) return false;
  opened.children = steal(values_at(object, keys.get()));
  if (opened.children) opened.data = steal(PyTuple_Pack(2, factory.get(), keys.get()));
  return static_cast<bool>(opened.data);
}

bool open_dataclass(PyObject* object, Opened& opened) {
  opened.children = steal(attributes_at(object, opened.registration->data_fields));
  if (opened.children) opened.data = steal(attributes_at(object, opened.registration->meta_fields));
  return static_cast<bool>(opened.data);
}

// ---- making ----

PyObject* tuple_of(PyObject* const* items, int64_t count) {
  PyObject* tuple = PyTuple_New(count);
  for (int64_t i = 0; tuple != nullptr && i < count; ++i) PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
  return tuple;
}

PyObject* make_list(PyObject* const* items, int64_t count) {
  PyObject* list = PyList_New(count);
  for (int64_t i = 0; list != nullptr && i < count; ++i) PyList_SET_ITEM(list, i, Py_NewRef(items[i]));
  return list;
}

// dict[keys[i]] = items[i]; 0, or -1 with an error set.
int fill_mapping(PyObject* mapping, PyObject* keys, PyObject* const* items) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) {
    PyObject* key = PyTuple_GET_ITEM(keys, i);
    int status =
        PyDict_CheckExact(mapping) ? PyDict_SetItem(mapping, key, items[i]) : in_python<PyObject_SetItem>(mapping, key, items[i]);
    if (status < 0) return -1;
  }
  return 0;
}

PyObject* make_dict(PyObject* keys, PyObject* const* items) {
  Ref dict = steal(PyDict_New());
  return dict && fill_mapping(dict.get(), keys, items) == 0 ? dict.release() : nullptr;
}

// Copying a dict with the same keys avoids resizing: a third faster at 50 keys.
PyObject* make_dict_of(const Node& node, PyObject* const* children) {
  constexpr int64_t kGrows = 5;  // a new dict has room for so many
  if (node.arity <= kGrows) return make_dict(node.data, children);
  if (node.blank == nullptr) {
    std::vector<PyObject*> nothing(node.arity, Py_None);
    node.blank = make_dict(node.data, nothing.data());
  }
  Ref dict = node.blank != nullptr ? steal(PyDict_Copy(node.blank)) : Ref();
  return dict && fill_mapping(dict.get(), node.data, children) == 0 ? dict.release() : nullptr;
}

// True if data has the form that flattening the native container gives, with `arity` keys.
bool is_native_data(const Registration* registration, PyObject* data, int64_t arity) {
  if (registration->native == Registration::Native::kOrderedDict)
    return PyTuple_Check(data) && PyTuple_GET_SIZE(data) == arity;
  return PyTuple_Check(data) && PyTuple_GET_SIZE(data) == 2 && PyTuple_Check(PyTuple_GET_ITEM(data, 1)) &&
         PyTuple_GET_SIZE(PyTuple_GET_ITEM(data, 1)) == arity;
}

PyObject* make_native(const Node& node, PyObject* const* children) {
  const Registration* registration = node.registration;
  if (!is_native_data(registration, node.data, node.arity)) {
    PyErr_Format(PyExc_ValueError, "[tree_unflatten] %R is no auxiliary data of a %s with %lld children", node.data,
                 registration->type->tp_name, static_cast<long long>(node.arity));
    return nullptr;
  }
  auto* type = reinterpret_cast<PyObject*>(registration->type);
  bool ordered = registration->native == Registration::Native::kOrderedDict;
  Ref made = steal(ordered ? in_python<PyObject_CallNoArgs>(type)
                           : in_python<PyObject_CallOneArg>(type, PyTuple_GET_ITEM(node.data, 0)));
  if (!made) return nullptr;
  PyObject* keys = ordered ? node.data : PyTuple_GET_ITEM(node.data, 1);
  return fill_mapping(made.get(), keys, children) == 0 ? made.release() : nullptr;
}

PyObject* make_dataclass(const Node& node, PyObject* const* children) {
  const Registration* registration = node.registration;
  PyObject *data_fields = registration->data_fields, *meta_fields = registration->meta_fields;
  if (PyTuple_GET_SIZE(data_fields) != node.arity || !PyTuple_Check(node.data) ||
      PyTuple_GET_SIZE(node.data) != PyTuple_GET_SIZE(meta_fields)) {
    PyErr_Format(PyExc_ValueError, "[tree_unflatten] %s has %zd data and %zd meta fields, got %lld children and %R",
                 registration->type->tp_name, PyTuple_GET_SIZE(data_fields), PyTuple_GET_SIZE(meta_fields),
                 static_cast<long long>(node.arity), node.data);
    return nullptr;
  }
  Ref kwargs = steal(make_dict(data_fields, children));
  Ref empty = steal(PyTuple_New(0));
  if (!kwargs || !empty) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(meta_fields); ++i)
    if (PyDict_SetItem(kwargs.get(), PyTuple_GET_ITEM(meta_fields, i), PyTuple_GET_ITEM(node.data, i)) < 0)
      return nullptr;
  return in_python<PyObject_Call>(reinterpret_cast<PyObject*>(registration->type), empty.get(), kwargs.get());
}

PyObject* make_custom(const Node& node, PyObject* const* children) {
  if (node.registration->native != Registration::Native::kNo) return make_native(node, children);
  Ref tuple = steal(tuple_of(children, node.arity));
  if (!tuple) return nullptr;
  PyObject* args[] = {node.data, tuple.get()};
  return in_python<PyObject_Vectorcall>(node.registration->unflatten, args, 2, nullptr);
}

// ---- keys ----

PyObject* key_for(const Opened& opened, PyObject* object, Py_ssize_t index) {
  if (opened.kind == NodeKind::kDict)
    return in_python<PyObject_CallOneArg>(key_types.dict, PyTuple_GET_ITEM(opened.data.get(), index));
  if (opened.registration != nullptr && opened.registration->native != Registration::Native::kNo) {
    bool ordered = opened.registration->native == Registration::Native::kOrderedDict;
    PyObject* keys = ordered ? opened.data.get() : PyTuple_GET_ITEM(opened.data.get(), 1);
    return in_python<PyObject_CallOneArg>(key_types.dict, PyTuple_GET_ITEM(keys, index));
  }
  if (opened.kind == NodeKind::kDataclass)
    return in_python<PyObject_CallOneArg>(key_types.attribute, PyTuple_GET_ITEM(opened.registration->data_fields, index));
  if (opened.kind == NodeKind::kNamedTuple) {
    Ref fields = steal(in_python<PyObject_GetAttr>(reinterpret_cast<PyObject*>(Py_TYPE(object)), fields_name));
    Ref name = fields ? steal(in_python<PySequence_GetItem>(fields.get(), index)) : Ref();
    return name ? in_python<PyObject_CallOneArg>(key_types.attribute, name.get()) : nullptr;
  }
  Ref number = steal(PyLong_FromSsize_t(index));
  if (!number) return nullptr;
  bool sequence = opened.kind == NodeKind::kTuple || opened.kind == NodeKind::kList;
  return in_python<PyObject_CallOneArg>(sequence ? key_types.sequence : key_types.flat_index, number.get());
}

// Owned list of the keys that a class registered with keys returns for its children.
PyObject* keys_from_user(PyObject* object, const Opened& opened) {
  Ref result = steal(in_python<PyObject_CallOneArg>(opened.registration->flatten_keyed, object));
  Ref iterable, data;
  if (!result || !split_pair(result.get(), iterable, data)) return nullptr;
  Ref pairs = steal(in_python<PySequence_Tuple>(iterable.get()));
  if (!pairs) return nullptr;
  if (PyTuple_GET_SIZE(pairs.get()) != opened.arity) {
    PyErr_Format(PyExc_ValueError, "[tree_flatten_with_path] %s flattens into %zd children, but into %zd with keys",
                 opened.registration->type->tp_name, opened.arity, PyTuple_GET_SIZE(pairs.get()));
    return nullptr;
  }
  Ref keys = steal(PyList_New(opened.arity));
  for (Py_ssize_t i = 0; keys && i < opened.arity; ++i) {
    PyObject* pair = PyTuple_GET_ITEM(pairs.get(), i);
    Ref key = steal(in_python<PySequence_GetItem>(pair, 0));
    if (!key) return nullptr;
    PyList_SET_ITEM(keys.get(), i, key.release());
  }
  return keys.release();
}

// ---- registering ----

int add_registration(Registration* registration) {
  auto [position, added] = registrations().emplace(registration->type, registration);
  if (added) return 0;
  PyErr_Format(PyExc_ValueError, "Duplicate custom PyTreeDef type registration for %R.", registration->type);
  return -1;
}

bool is_builtin_node_type(PyTypeObject* type) {
  return type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type || type == Py_TYPE(Py_None);
}

// Registers a class; proto's references are borrowed. 0, or -1 with an error set.
int register_class(Registration proto) {
  if (is_builtin_node_type(proto.type) || find_registration(proto.type) != nullptr) {
    PyErr_Format(PyExc_ValueError, "Duplicate custom PyTreeDef type registration for %R.", proto.type);
    return -1;
  }
  auto* registration = new Registration(proto);
  Py_INCREF(registration->type);
  for (PyObject* object : {registration->flatten, registration->unflatten, registration->flatten_keyed,
                           registration->data_fields, registration->meta_fields})
    Py_XINCREF(object);
  return add_registration(registration);
}

PyObject* py_register_node(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"type", "to_iterable", "from_iterable", "to_iterable_with_keys", nullptr};
  PyObject *type, *flatten, *unflatten, *keyed = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|O:register_node", const_cast<char**>(names), &PyType_Type, &type,
                                   &flatten, &unflatten, &keyed))
    return nullptr;
  for (PyObject* function : {flatten, unflatten, keyed})
    if (function != Py_None && !PyCallable_Check(function))
      return PyErr_Format(PyExc_TypeError, "[register_node] %R is not callable", function);
  if (flatten == Py_None || unflatten == Py_None) {
    PyErr_SetString(PyExc_TypeError, "[register_node] to_iterable and from_iterable must be functions");
    return nullptr;
  }
  Registration proto{NodeKind::kCustom,
                     Registration::Native::kNo,
                     reinterpret_cast<PyTypeObject*>(type),
                     flatten,
                     unflatten,
                     keyed == Py_None ? nullptr : keyed,
                     nullptr,
                     nullptr};
  return register_class(proto) < 0 ? nullptr : Py_NewRef(Py_None);
}

// Owned tuple of str, or nullptr with TypeError set.
PyObject* field_names(PyObject* fields) {
  Ref names = steal(in_python<PySequence_Tuple>(fields));
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names.get()); ++i)
    if (!PyUnicode_Check(PyTuple_GET_ITEM(names.get(), i)))
      return PyErr_Format(PyExc_TypeError, "[register_dataclass_node] field names must be str, got %R", fields);
  return names.release();
}

PyObject* py_register_dataclass_node(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"type", "data_fields", "meta_fields", nullptr};
  PyObject *type, *data, *meta;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO:register_dataclass_node", const_cast<char**>(names),
                                   &PyType_Type, &type, &data, &meta))
    return nullptr;
  Ref data_fields = steal(field_names(data));
  if (!data_fields) return nullptr;
  Ref meta_fields = steal(field_names(meta));
  if (!meta_fields) return nullptr;
  Registration proto{
      NodeKind::kDataclass, Registration::Native::kNo, reinterpret_cast<PyTypeObject*>(type), nullptr, nullptr, nullptr,
      data_fields.get(),    meta_fields.get()};
  return register_class(proto) < 0 ? nullptr : Py_NewRef(Py_None);
}

PyObject* py_set_key_types(PyObject*, PyObject* args) {
  PyObject *sequence, *dict, *attribute, *flat_index;
  if (!PyArg_ParseTuple(args, "OOOO:set_key_types", &sequence, &dict, &attribute, &flat_index)) return nullptr;
  KeyTypes old = key_types;
  key_types = {Py_NewRef(sequence), Py_NewRef(dict), Py_NewRef(attribute), Py_NewRef(flat_index)};
  for (PyObject* type : {old.sequence, old.dict, old.attribute, old.flat_index}) Py_XDECREF(type);
  Py_RETURN_NONE;
}

PyObject* py_is_node(PyObject*, PyObject* type) {
  if (!PyType_Check(type)) return PyErr_Format(PyExc_TypeError, "[is_node] expected a type, got %R", type);
  auto* checked = reinterpret_cast<PyTypeObject*>(type);
  return PyBool_FromLong(is_builtin_node_type(checked) || find_registration(checked) != nullptr ||
                         is_named_tuple_type(checked));
}

PyObject* py_one_level(PyObject*, PyObject* tree) { return one_level(tree); }
PyObject* py_one_level_with_keys(PyObject*, PyObject* tree) { return one_level_with_keys(tree); }

PyMethodDef kFunctions[] = {
    {"register_node", reinterpret_cast<PyCFunction>(entry_point<py_register_node>), METH_VARARGS | METH_KEYWORDS,
     "register_node(type, to_iterable, from_iterable, to_iterable_with_keys=None): make a class a pytree node."},
    {"register_dataclass_node", reinterpret_cast<PyCFunction>(entry_point<py_register_dataclass_node>), METH_VARARGS | METH_KEYWORDS,
     "register_dataclass_node(type, data_fields, meta_fields): children are the data fields, read as attributes."},
    {"set_key_types", py_set_key_types, METH_VARARGS,
     "set_key_types(sequence, dict, attribute, flat_index): the classes of key path entries."},
    {"is_node", py_is_node, METH_O, "True if objects of exactly this type are containers."},
    {"flatten_one_level", entry_point<py_one_level>, METH_O, "(children, auxiliary data), or None for a leaf."},
    {"flatten_one_level_with_keys", entry_point<py_one_level_with_keys>, METH_O,
     "([(key, child), ...], auxiliary data), or None for a leaf."},
    {},
};

int register_collections() {
  Ref collections = steal(in_python<PyImport_ImportModule>("collections"));
  if (!collections) return -1;
  static constexpr std::pair<const char*, Registration::Native> kTypes[] = {
      {"OrderedDict", Registration::Native::kOrderedDict}, {"defaultdict", Registration::Native::kDefaultDict}};
  for (auto [name, native] : kTypes) {
    Ref type = steal(in_python<PyObject_GetAttrString>(collections.get(), name));
    if (!type) return -1;
    Registration proto{NodeKind::kCustom, native, reinterpret_cast<PyTypeObject*>(type.get())};
    if (register_class(proto) < 0) return -1;
  }
  return 0;
}

}  // namespace

void raise_from_current(PyObject* type, const char* text) {
  PyObject *cause_type, *cause, *traceback;
  PyErr_Fetch(&cause_type, &cause, &traceback);
  PyErr_NormalizeException(&cause_type, &cause, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(cause, traceback);
  PyErr_SetString(type, text);
  PyObject *new_type, *value, *new_traceback;
  PyErr_Fetch(&new_type, &value, &new_traceback);
  PyErr_NormalizeException(&new_type, &value, &new_traceback);
  PyException_SetCause(value, Py_NewRef(cause));  // steals
  PyException_SetContext(value, cause);           // steals
  Py_XDECREF(cause_type);
  Py_XDECREF(traceback);
  PyErr_Restore(new_type, value, new_traceback);
}

const Registration* find_registration(PyTypeObject* type) {
  auto position = registrations().find(type);
  return position == registrations().end() ? nullptr : position->second;
}

bool is_named_tuple_type(PyTypeObject* type) {
  if (!PyType_FastSubclass(type, Py_TPFLAGS_TUPLE_SUBCLASS)) return false;
  // Reads the dicts of the classes, so that no metaclass code runs. All classes before tuple were defined in Python.
  PyObject* classes = type->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
    PyObject* owner = PyTuple_GET_ITEM(classes, i);
    if (owner == reinterpret_cast<PyObject*>(&PyTuple_Type)) return false;
#if PY_VERSION_HEX >= 0x030C0000
    Ref names = steal(PyType_GetDict(reinterpret_cast<PyTypeObject*>(owner)));
#else
    Ref names = borrow(reinterpret_cast<PyTypeObject*>(owner)->tp_dict);
#endif
    PyObject* fields = PyDict_GetItemWithError(names.get(), fields_name);  // borrowed
    if (fields != nullptr) return PyTuple_Check(fields);
    PyErr_Clear();  // a key that is not a str and failed to compare
  }
  return false;
}

NodeKind kind_of(PyObject* object, const Registration** registration) {
  PyTypeObject* type = Py_TYPE(object);
  *registration = nullptr;
  if (type == &PyTuple_Type) return NodeKind::kTuple;
  if (type == &PyList_Type) return NodeKind::kList;
  if (type == &PyDict_Type) return NodeKind::kDict;
  if (object == Py_None) return NodeKind::kNone;
  if (type == ArrayType) return NodeKind::kLeaf;
  if ((*registration = find_registration(type)) != nullptr) return (*registration)->kind;
  if (PyTuple_Check(object) && is_named_tuple_type(type)) return NodeKind::kNamedTuple;
  return NodeKind::kLeaf;
}

bool open_node(PyObject* object, Opened& opened) {
  opened.kind = kind_of(object, &opened.registration);
  bool fine = true;
  switch (opened.kind) {
    case NodeKind::kLeaf:
    case NodeKind::kNone: return true;
    case NodeKind::kTuple: opened.children = borrow(object); break;
    case NodeKind::kList: fine = static_cast<bool>(opened.children = steal(PyList_AsTuple(object))); break;
    case NodeKind::kDict:
      opened.data = steal(sorted_keys(object));
      fine = opened.data && (opened.children = steal(values_at(object, opened.data.get())));
      break;
    case NodeKind::kNamedTuple:
      opened.data = borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
      opened.children = steal(PyTuple_GetSlice(object, 0, PyTuple_GET_SIZE(object)));
      fine = static_cast<bool>(opened.children);
      break;
    case NodeKind::kCustom:
      fine = opened.registration->native == Registration::Native::kNo ? open_custom(object, opened)
                                                                      : open_native(object, opened);
      break;
    case NodeKind::kDataclass: fine = open_dataclass(object, opened); break;
  }
  if (fine) opened.arity = PyTuple_GET_SIZE(opened.children.get());
  return fine;
}

PyObject* one_level(PyObject* object) {
  Opened opened;
  if (!open_node(object, opened)) return nullptr;
  if (opened.kind == NodeKind::kLeaf) Py_RETURN_NONE;
  Ref children = opened.children ? std::move(opened.children) : steal(PyTuple_New(0));
  if (!children) return nullptr;
  return PyTuple_Pack(2, children.get(), opened.data ? opened.data.get() : Py_None);
}

PyObject* child_keys(PyObject* object, const Opened& opened) {
  if (key_types.sequence == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "[tree_flatten_with_path] set_key_types has not been called");
    return nullptr;
  }
  if (opened.registration != nullptr && opened.registration->flatten_keyed != nullptr)
    return keys_from_user(object, opened);
  Ref keys = steal(PyList_New(opened.arity));
  for (Py_ssize_t i = 0; keys && i < opened.arity; ++i) {
    PyObject* key = key_for(opened, object, i);
    if (key == nullptr) return nullptr;
    PyList_SET_ITEM(keys.get(), i, key);
  }
  return keys.release();
}

PyObject* one_level_with_keys(PyObject* object) {
  Opened opened;
  if (!open_node(object, opened)) return nullptr;
  if (opened.kind == NodeKind::kLeaf) Py_RETURN_NONE;
  Ref keys = steal(child_keys(object, opened));
  Ref pairs = keys ? steal(PyList_New(opened.arity)) : Ref();
  if (!pairs) return nullptr;
  for (Py_ssize_t i = 0; i < opened.arity; ++i) {
    PyObject* pair = PyTuple_Pack(2, PyList_GET_ITEM(keys.get(), i), PyTuple_GET_ITEM(opened.children.get(), i));
    if (pair == nullptr) return nullptr;
    PyList_SET_ITEM(pairs.get(), i, pair);
  }
  return PyTuple_Pack(2, pairs.get(), opened.data ? opened.data.get() : Py_None);
}

PyObject* visible_data(const Node& node) {
  if (node.kind == NodeKind::kDict) return in_python<PySequence_List>(node.data);
  return Py_NewRef(node.data == nullptr ? Py_None : node.data);
}

PyObject* make_container(const Node& node, PyObject* const* children) {
  switch (node.kind) {
    case NodeKind::kTuple: return tuple_of(children, node.arity);
    case NodeKind::kList: return make_list(children, node.arity);
    case NodeKind::kDict: return make_dict_of(node, children);
    case NodeKind::kNamedTuple: return in_python<PyObject_Vectorcall>(node.data, children, node.arity, nullptr);
    case NodeKind::kCustom: return make_custom(node, children);
    case NodeKind::kDataclass: return make_dataclass(node, children);
    default: return Py_NewRef(Py_None);
  }
}

int register_registry(PyObject* module) {
  fields_name = PyUnicode_InternFromString("_fields");
  default_factory_name = PyUnicode_InternFromString("default_factory");
  if (fields_name == nullptr || default_factory_name == nullptr || register_collections() < 0) return -1;
  return PyModule_AddFunctions(module, kFunctions);
}

}  // namespace weft
