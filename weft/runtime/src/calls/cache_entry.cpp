// CacheEntry: a compiled program and how a call uses it. Checked once when it is made, so that calls need no checks.
#include <algorithm>

#include "jit.h"
#include "module.h"
#include "pjrt.h"

namespace weft {

PyTypeObject* CacheEntryType = nullptr;

namespace {

bool entry_error(const char* message) {
  PyErr_Format(PyExc_ValueError, "[CacheEntry] %s", message);
  return false;
}

bool read_consts(PyObject* consts, CacheEntry* entry) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(consts); ++i) {
    PyObject* item = PyTuple_GET_ITEM(consts, i);
    if (!is_array(item)) return entry_error("consts must be Arrays");
    if (i >= entry->executable->plan->n_inputs) return entry_error("more consts than inputs");
    if (executable_check_input(entry->executable, int32_t(i), reinterpret_cast<Array*>(item)) < 0) return false;
    entry->consts->push_back(reinterpret_cast<Array*>(Py_NewRef(item)));
  }
  return true;
}

bool read_leaves(PyObject* leaf_indices, PyObject* donated, CacheEntry* entry) {
  if (PyTuple_GET_SIZE(donated) != 0 && PyTuple_GET_SIZE(donated) != PyTuple_GET_SIZE(leaf_indices))
    return entry_error("donated needs one flag per leaf index");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(leaf_indices); ++i) {
    long long index = PyLong_AsLongLong(PyTuple_GET_ITEM(leaf_indices, i));
    if (index == -1 && PyErr_Occurred()) return false;
    if (index < 0 || index > 100'000'000) return entry_error("a leaf index is out of range");
    int flag = i < PyTuple_GET_SIZE(donated) ? in_python<PyObject_IsTrue>(PyTuple_GET_ITEM(donated, i)) : 0;
    if (flag < 0) return false;
    entry->leaf_indices->push_back(uint32_t(index));
    entry->donated->push_back(char(flag));
    entry->any_donated = entry->any_donated || flag != 0;
  }
  size_t inputs = entry->consts->size() + entry->leaf_indices->size();
  return inputs == size_t(entry->executable->plan->n_inputs) ||
         entry_error("consts and leaf indices do not make up the inputs");
}

bool read_outputs(PyObject* out_avals, CacheEntry* entry) {
  const Plan& plan = *entry->executable->plan;
  if (size_t(PyTuple_GET_SIZE(out_avals)) != plan.outputs.size())
    return entry_error("out_avals and the executable's outputs differ in number");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(out_avals); ++i) {
    PyObject* aval = PyTuple_GET_ITEM(out_avals, i);
    if (!is_shaped_array(aval)) return entry_error("out_avals must be ShapedArrays");
    ShapedArray* shaped = reinterpret_cast<ShapedArray*>(aval);
    if (shaped->nbytes < 0) return entry_error("an out_aval has no size");
    entry->out_avals->push_back(reinterpret_cast<ShapedArray*>(Py_NewRef(aval)));
  }
  return treedef_num_leaves(entry->out_tree) == PyTuple_GET_SIZE(out_avals) ||
         entry_error("out_tree and out_avals differ in number");
}

// One place for all results, or a tuple with that of each.
bool read_place(PyObject* place, CacheEntry* entry) {
  std::vector<uint32_t> places;
  if (place != nullptr && !read_places(place, entry->out_avals->size(), &places)) return false;
  if (places.empty()) places.push_back(0);
  const uint32_t number = entry->executable->plan->number;
  for (uint32_t each : places)
    if (number != 0 ? number != device_number(each) || is_host_place(each) : !is_host_place(each)) {
      PyErr_Format(PyExc_ValueError, "[CacheEntry] place %u is not on the program's device", each);
      return false;
    }
  for (size_t i = 0; i < entry->out_avals->size(); ++i)  // only arrays across processes have less memory here
    if ((*entry->out_avals)[i]->nbytes > entry->executable->plan->outputs[i].nbytes) {
      if (places[places.size() > 1 ? i : 0] < kHostPlaces) return entry_error("an out_aval is larger than its output");
      entry->has_parts = true;
    }
  entry->place = places[0];
  bool differ = std::any_of(places.begin(), places.end(), [&](uint32_t each) { return each != places[0]; });
  if (differ) entry->out_places = new std::vector<uint32_t>(std::move(places));
  return true;
}

char shape_of(const PyTreeDef* tree) {
  const Node& root = tree->root();
  if (root.kind == NodeKind::kLeaf) return 'l';
  bool flat = root.kind == NodeKind::kTuple && root.num_nodes == root.arity + 1 && root.num_leaves == root.arity;
  return flat ? 't' : '*';
}

void entry_dealloc(PyObject* self) {
  CacheEntry* entry = reinterpret_cast<CacheEntry*>(self);
  PyObject_GC_UnTrack(self);
  if (entry->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  Py_XDECREF(entry->executable);
  Py_XDECREF(entry->out_tree);
  if (entry->consts != nullptr)
    for (Array* array : *entry->consts) Py_DECREF(array);
  if (entry->out_avals != nullptr)
    for (ShapedArray* aval : *entry->out_avals) Py_DECREF(aval);
  delete entry->consts;
  delete entry->out_avals;
  delete entry->leaf_indices;
  delete entry->donated;
  delete entry->holders;
  delete entry->out_places;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

int entry_traverse(PyObject* self, visitproc visit, void* arg) {
  CacheEntry* entry = reinterpret_cast<CacheEntry*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(entry->executable);
  Py_VISIT(entry->out_tree);
  return 0;
}

PyObject* entry_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"executable", "leaf_indices", "consts", "out_tree", "out_avals", "donated", "place", nullptr};
  PyObject* place = nullptr;
  PyObject *executable, *leaf_indices, *consts, *out_tree, *out_avals, *donated;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O!O!O!|O", const_cast<char**>(names), ExecutableType, &executable,
                                   &PyTuple_Type, &leaf_indices, &PyTuple_Type, &consts, PyTreeDefType, &out_tree,
                                   &PyTuple_Type, &out_avals, &PyTuple_Type, &donated, &place))
    return nullptr;
  CacheEntry* entry = reinterpret_cast<CacheEntry*>(type->tp_alloc(type, 0));
  if (entry == nullptr) return nullptr;
  Ref owner = steal(reinterpret_cast<PyObject*>(entry));
  entry->executable = reinterpret_cast<Executable*>(Py_NewRef(executable));
  entry->out_tree = reinterpret_cast<PyTreeDef*>(Py_NewRef(out_tree));
  entry->leaf_indices = new std::vector<uint32_t>;
  entry->consts = new std::vector<Array*>;
  entry->out_avals = new std::vector<ShapedArray*>;
  entry->donated = new std::vector<char>;
  entry->holders = new std::vector<std::pair<JitFunction*, Entry*>>;
  if (!read_consts(consts, entry) || !read_leaves(leaf_indices, donated, entry) || !read_outputs(out_avals, entry) ||
      !read_place(place, entry))
    return nullptr;
  entry->out_shape = shape_of(entry->out_tree);
  return owner.release();
}

PyObject* entry_retire(PyObject* self, PyObject*) {
  CacheEntry* entry = reinterpret_cast<CacheEntry*>(self);
  Py_ssize_t count = Py_ssize_t(entry->holders->size());
  Ref keep = borrow(self);  // a table may hold the last reference
  jit_retire(entry);
  return PyLong_FromSsize_t(count);
}

PyMethodDef kMethods[] = {
    {"retire", entry_point<entry_retire>, METH_NOARGS,
     "retire() -> int: take the program out of every dispatch table; gives the number of signatures that had it."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef kMembers[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CacheEntry, weakrefs), READONLY, nullptr},
    {"executable", T_OBJECT, offsetof(CacheEntry, executable), READONLY, "The program."},
    {"place", T_UINT, offsetof(CacheEntry, place), READONLY, "Where the results are: see Array.place."},
    {"out_tree", T_OBJECT, offsetof(CacheEntry, out_tree), READONLY, "Structure of the result."},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot kSlots[] = {
    {Py_tp_doc, const_cast<char*>("CacheEntry(executable, leaf_indices, consts, out_tree, out_avals, donated, place=0): "
                                 "place is that of all results, or a tuple with that of each.")},
    {Py_tp_new, reinterpret_cast<void*>(entry_point<entry_new>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(entry_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(entry_traverse)},
    {Py_tp_methods, kMethods},
    {Py_tp_members, kMembers},
    {0, nullptr},
};
PyType_Spec kSpec = {"weft.runtime.CacheEntry", sizeof(CacheEntry), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, kSlots};

}  // namespace

int register_cache_entry(PyObject* module) {
  CacheEntryType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (CacheEntryType == nullptr) return -1;
  return PyModule_AddObjectRef(module, "CacheEntry", reinterpret_cast<PyObject*>(CacheEntryType));
}

}  // namespace weft
