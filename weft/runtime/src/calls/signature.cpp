// Writes the signature of a call in one pass over its arguments. See signature.h.
#include "signature.h"

#include <algorithm>

#include "numpy_api.h"
#include "pytree.h"

namespace weft {
namespace {

constexpr int kMaxDepth = 200;  // deeper containers (or ones that contain themselves) take the slow path

// A tag has a nonzero low nibble; a container's tag has its length in the bits above.
enum Tag : uint64_t {
  kTuple = 1,
  kList = 2,
  kDict = 3,
  kNone = 4,
  kNamedTuple = 5,
  kScalar = 6,
  kNdarray = 7,
  kGeneric = 8,
  kPytree = 9,
  kStatic = 10,
  kIntKey = 11,
  kObjectKey = 12,
  kKeyword = 13,
  kArguments = 14,
  kPlace = 15,  // of the Array that follows, unless it is an uncommitted one of the CPU
};
uint64_t tag(Tag kind, uint64_t payload = 0) { return payload << 4 | kind; }

bool is_namedtuple(PyObject* object) {
  return PyTuple_Check(object) && !PyTuple_CheckExact(object) && is_named_tuple_type(Py_TYPE(object));
}

}  // namespace

int StaticNames::is_static(PyObject* name) const {
  for (PyObject* argname : argnames)
    if (argname == name) return 1;
  for (PyObject* argname : argnames)
    if (PyUnicode_Compare(argname, name) == 0) return 1;
  return PyErr_Occurred() ? -1 : 0;
}

Signature::~Signature() {
  if (retained_)
    for (uint32_t i = 0; i < leaves_.size(); ++i) Py_DECREF(leaves_[i].object);
  for (uint32_t i = 0; i < compared_.size(); ++i) Py_DECREF(compared_[i]);
  for (PyObject* object : collected_) Py_DECREF(object);
  for (PyObject* object : kept_) Py_DECREF(object);
}

void Signature::retain() {
  if (retained_) return;
  retained_ = true;
  for (uint32_t i = 0; i < leaves_.size(); ++i) Py_INCREF(leaves_[i].object);
}

inline bool Signature::leaf(PyObject* object, LeafKind kind) {
  if (!leaves_.push({object, kind})) return false;
  if (retained_) Py_INCREF(object);
  return true;
}

bool Signature::write(const StaticNames& names, uint64_t config, PyObject* const* args, Py_ssize_t count,
                      PyObject* keywords, bool collect) {
  collect_ = collect;
  if (!push(config) || !push(tag(kArguments, uint64_t(count)))) return false;
  bool no_static = names.argnums.empty();
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!(no_static || !names.is_static(i) ? visit(args[i]) : visit_static(args[i]))) return false;
  if (keywords == nullptr) return true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i) {
    PyObject* name = PyTuple_GET_ITEM(keywords, i);
    int fixed = names.argnames.empty() ? 0 : names.is_static(name);
    if (fixed < 0 || !push(tag(kKeyword)) || !key(name)) return false;
    if (!(fixed ? visit_static(args[count + i]) : visit(args[count + i]))) return false;
  }
  return true;
}

bool Signature::visit(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == ArrayType) {
    const Array* array = reinterpret_cast<Array*>(object);
    __builtin_prefetch(array->buffer);  // read when the operands are gathered
    if (array->place != 0 && !push(tag(kPlace, array->place))) return false;
    return push_object(reinterpret_cast<PyObject*>(array->aval)) && leaf(object, LeafKind::array);
  }
  if (type == &PyFloat_Type) return push(tag(kScalar, uint64_t(LeafKind::real))) && leaf(object, LeafKind::real);
  if (type == &PyLong_Type) return push(tag(kScalar, uint64_t(LeafKind::integer))) && leaf(object, LeafKind::integer);
  if (type == &PyBool_Type) return push(tag(kScalar, uint64_t(LeafKind::boolean))) && leaf(object, LeafKind::boolean);
  if (object == Py_None) return push(tag(kNone));
  if (depth_ >= kMaxDepth) return false;
  ++depth_;
  Py_INCREF(object);  // a registered class's flatten function may remove the object from its container
  bool ok = true;
  if (type == &PyDict_Type) {
    ok = visit_dict(object);
  } else if (type == &PyTuple_Type) {
    Py_ssize_t count = PyTuple_GET_SIZE(object);
    ok = push(tag(kTuple, uint64_t(count)));
    for (Py_ssize_t i = 0; ok && i < count; ++i) ok = visit(PyTuple_GET_ITEM(object, i));
  } else if (type == &PyList_Type) {
    Py_ssize_t count = PyList_GET_SIZE(object);
    ok = push(tag(kList, uint64_t(count)));
    // The list may shrink if a visit runs Python code.
    for (Py_ssize_t i = 0; ok && i < count; ++i) ok = i < PyList_GET_SIZE(object) && visit(PyList_GET_ITEM(object, i));
  } else {
    ok = visit_other(object);
  }
  Py_DECREF(object);
  --depth_;
  return ok;
}

bool Signature::visit_dict(PyObject* object) {
  Py_ssize_t count = PyDict_GET_SIZE(object), position = 0;
  if (!push(tag(kDict, uint64_t(count)))) return false;
  PyObject *name, *value;
  while (PyDict_Next(object, &position, &name, &value)) {
    if (PyUnicode_CheckExact(name) && PyUnicode_CHECK_INTERNED(name)) {
      if (!push_object(name) || !visit(value)) return false;
      continue;
    }
    Ref held_name = borrow(name), held_value = borrow(value);
    if (!key(name) || !visit(value)) return false;
    if (PyDict_GET_SIZE(object) != count) return false;
  }
  return true;
}

// A dict key or keyword name: a string by its interned pointer, a small integer by value, others by equality.
bool Signature::key(PyObject* name) {
  if (PyUnicode_CheckExact(name)) {
    if (PyUnicode_CHECK_INTERNED(name)) return push_object(name);
    PyObject* interned = Py_NewRef(name);
    PyUnicode_InternInPlace(&interned);
    kept_.push_back(interned);
    return push_object(interned);
  }
  if (PyLong_CheckExact(name)) {
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(name, &overflow);
    if (overflow == 0) return push(tag(kIntKey)) && push(uint64_t(value));
  }
  retain();
  Py_hash_t hash = in_python<PyObject_Hash>(name);
  if (hash == -1) return false;
  if (!compared_.push(name)) return false;
  Py_INCREF(name);
  return push(tag(kObjectKey)) && push_object(reinterpret_cast<PyObject*>(Py_TYPE(name))) && push(uint64_t(hash));
}

bool Signature::visit_static(PyObject* object) {
  retain();
  Py_hash_t hash = in_python<PyObject_Hash>(object);
  if (hash == -1) {
    // The slow path names the argument that cannot be hashed; an interrupt stays set.
    if (PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return false;
  }
  if (!compared_.push(object)) return false;
  Py_INCREF(object);
  return push(tag(kStatic)) && push_object(reinterpret_cast<PyObject*>(Py_TYPE(object))) && push(uint64_t(hash));
}

bool Signature::visit_ndarray(PyObject* object) {
  PyArrayObject* array = reinterpret_cast<PyArrayObject*>(object);
  int rank = PyArray_NDIM(array);
  if (!push(tag(kNdarray, uint64_t(rank))) || !push_object(reinterpret_cast<PyObject*>(PyArray_DESCR(array))))
    return false;
  for (int d = 0; d < rank; ++d)
    if (!push(uint64_t(PyArray_DIM(array, d)))) return false;
  return leaf(object, LeafKind::ndarray);
}

bool Signature::visit_other(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyArray_Type) return visit_ndarray(object);
  if (type == &PyComplex_Type)
    return push(tag(kScalar, uint64_t(LeafKind::complex))) && leaf(object, LeafKind::complex);
  if (PyArray_IsScalar(object, Generic))
    return push(tag(kGeneric)) && push_object(reinterpret_cast<PyObject*>(type)) && leaf(object, LeafKind::generic);
  return visit_pytree(object);
}

// Registered classes and dict subclasses: their treedef is compared by equality, their leaves are visited here.
bool Signature::visit_pytree(PyObject* object) {
  if (is_namedtuple(object)) {
    Py_ssize_t count = PyTuple_GET_SIZE(object);
    bool ok = push(tag(kNamedTuple, uint64_t(count))) && push_object(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    for (Py_ssize_t i = 0; ok && i < count; ++i) ok = visit(PyTuple_GET_ITEM(object, i));
    return ok;
  }
  retain();
  std::vector<PyObject*> leaves;
  PyTreeDef* treedef = pytree_flatten(object, leaves, nullptr);
  kept_.insert(kept_.end(), leaves.begin(), leaves.end());
  if (treedef == nullptr) return false;
  PyObject* tree = reinterpret_cast<PyObject*>(treedef);
  if (leaves.size() == 1 && leaves[0] == object) {  // a leaf of an unknown type
    Py_DECREF(tree);
    return false;
  }
  Py_hash_t hash = in_python<PyObject_Hash>(tree);
  if (hash == -1 || !compared_.push(tree)) {
    Py_DECREF(tree);
    return false;
  }
  bool ok = push(tag(kPytree, leaves.size())) && push(uint64_t(hash));
  for (size_t i = 0; ok && i < leaves.size(); ++i) ok = visit(leaves[i]);
  return ok;
}

namespace {

// Numbers the leaves below an object in Signature's order, and lists them in the pytree's order.
class Numbering {
 public:
  bool visit(PyObject* object, std::vector<uint32_t>* order) {
    if (object == Py_None) return true;
    if (PyDict_CheckExact(object)) return visit_dict(object, order);
    if (PyTuple_CheckExact(object) || is_namedtuple(object)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
        if (!visit(PyTuple_GET_ITEM(object, i), order)) return false;
      return true;
    }
    if (PyList_CheckExact(object)) {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i)
        if (!visit(PyList_GET_ITEM(object, i), order)) return false;
      return true;
    }
    PyTypeObject* type = Py_TYPE(object);
    bool simple = type == ArrayType || type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type ||
                  type == &PyComplex_Type || type == &PyArray_Type || PyArray_IsScalar(object, Generic);
    if (!simple) return visit_pytree(object, order);
    order->push_back(next_++);
    return true;
  }

 private:
  bool visit_dict(PyObject* object, std::vector<uint32_t>* order) {
    Ref items = steal(PyDict_Items(object));
    Ref keys = steal(PyDict_Keys(object));
    if (!items || !keys || PyList_Sort(keys.get()) < 0) return false;
    Ref indices = steal(PyDict_New());
    if (!indices) return false;
    std::vector<std::vector<uint32_t>> parts(size_t(PyList_GET_SIZE(items.get())));
    for (size_t i = 0; i < parts.size(); ++i) {
      PyObject* item = PyList_GET_ITEM(items.get(), Py_ssize_t(i));
      if (!visit(PyTuple_GET_ITEM(item, 1), &parts[i])) return false;
      Ref index = steal(PyLong_FromSize_t(i));
      if (!index || PyDict_SetItem(indices.get(), PyTuple_GET_ITEM(item, 0), index.get()) < 0) return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
      PyObject* index = PyDict_GetItemWithError(indices.get(), PyList_GET_ITEM(keys.get(), i));
      if (index == nullptr) return false;
      size_t part = PyLong_AsSize_t(index);
      if (part >= parts.size()) return false;
      order->insert(order->end(), parts[part].begin(), parts[part].end());
    }
    return true;
  }

  bool visit_pytree(PyObject* object, std::vector<uint32_t>* order) {
    std::vector<PyObject*> leaves;
    Ref treedef = steal(reinterpret_cast<PyObject*>(pytree_flatten(object, leaves, nullptr)));
    bool ok = bool(treedef);
    for (PyObject* leaf : leaves) {
      if (leaf == object) ok = false;
      ok = ok && visit(leaf, order);
      Py_DECREF(leaf);
    }
    return ok;
  }

  uint32_t next_ = 0;
};

}  // namespace

bool canonical_order(const StaticNames& names, PyObject* const* args, Py_ssize_t count, PyObject* keywords,
                     std::vector<uint32_t>* order) {
  Numbering numbering;
  auto fail = [] {
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return false;
  };
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!names.is_static(i) && !numbering.visit(args[i], order)) return fail();
  if (keywords == nullptr) return true;
  struct Part {
    PyObject* name;
    std::vector<uint32_t> order;
  };
  std::vector<Part> parts;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i) {
    PyObject* name = PyTuple_GET_ITEM(keywords, i);
    int fixed = names.is_static(name);
    if (fixed < 0) return fail();
    if (fixed) continue;
    parts.push_back({name, {}});
    if (!numbering.visit(args[count + i], &parts.back().order)) return fail();
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return PyUnicode_Compare(a.name, b.name) < 0; });
  for (const Part& part : parts) order->insert(order->end(), part.order.begin(), part.order.end());
  return true;
}

}  // namespace weft
