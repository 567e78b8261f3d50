// ShapedArray: interning, canonical dtypes, printing.
#include "aval.h"

#include <cstring>
#include <string>
#include <vector>

#include "module.h"
#include "numpy_api.h"

namespace weft {

PyTypeObject* ShapedArrayType = nullptr;

namespace {

constexpr int kVariableStringType = 2056;  // NPY_VSTRING: the first number behind the legacy user dtypes

// Equal dtype, sharding and memory space objects are replaced by the first of them, so that avals compare pointers.
// They belong to the module, are never freed, and stay small.
PyObject* canonical_dtypes = nullptr;      // extended and void dtypes
PyObject* canonical_placements = nullptr;  // shardings, memory spaces, tuples of mesh axes
PyObject* no_axes = nullptr;               // the empty tuple

// The type of extents while a program is compiled for other sizes too, and the function that then makes avals
// (core/symbolic/sizes.py).
PyObject* size_type = nullptr;
PyObject* make_sized = nullptr;

// ---- the table of avals: open addressing over borrowed pointers; an aval leaves it when it dies ----

struct AvalTable {
  std::vector<ShapedArray*> slots = std::vector<ShapedArray*>(256);
  size_t used = 0;  // live entries and tombstones
  size_t live = 0;
};
AvalTable& aval_table() {
  static auto* table = new AvalTable;  // never destroyed: avals may die after static destructors
  return *table;
}
ShapedArray* const kTombstone = reinterpret_cast<ShapedArray*>(uintptr_t{1});

struct Key {
  int ndim;
  const int64_t* extents;
  PyObject* dtype;         // borrowed, canonical
  PyObject* sharding;      // borrowed, canonical
  PyObject* memory_space;  // borrowed, canonical
  PyObject* varying;       // borrowed, canonical
  bool weak_type;
};

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 31);
}

uint64_t hash_of(const Key& key) {
  uint64_t hash = mix(0x77656674, static_cast<uint64_t>(key.ndim) << 1 | key.weak_type);
  for (int i = 0; i < key.ndim; ++i) hash = mix(hash, static_cast<uint64_t>(key.extents[i]));
  hash = mix(hash, reinterpret_cast<uintptr_t>(key.dtype));
  hash = mix(hash, reinterpret_cast<uintptr_t>(key.sharding));
  hash = mix(hash, reinterpret_cast<uintptr_t>(key.varying));
  return mix(hash, reinterpret_cast<uintptr_t>(key.memory_space));
}

bool matches(const ShapedArray* aval, const Key& key, uint64_t hash) {
  return aval->hash == hash && aval->ndim == key.ndim && aval->weak_type == key.weak_type && aval->dtype == key.dtype &&
         aval->sharding == key.sharding && aval->memory_space == key.memory_space && aval->varying == key.varying &&
         (key.ndim == 0 || std::memcmp(aval->extents, key.extents, sizeof(int64_t) * key.ndim) == 0);
}

ShapedArray* find(const Key& key, uint64_t hash) {  // borrowed or nullptr
  AvalTable& table = aval_table();
  size_t mask = table.slots.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    ShapedArray* aval = table.slots[i];
    if (aval == nullptr) return nullptr;
    if (aval != kTombstone && matches(aval, key, hash)) return aval;
  }
}

void put(std::vector<ShapedArray*>& slots, ShapedArray* aval) {
  size_t mask = slots.size() - 1;
  size_t i = aval->hash & mask;
  while (slots[i] != nullptr) i = (i + 1) & mask;
  slots[i] = aval;
}

void insert(ShapedArray* aval) {
  AvalTable& table = aval_table();
  if ((table.used + 1) * 2 > table.slots.size()) {
    size_t size = 256;
    while (size < (table.live + 1) * 4) size *= 2;
    std::vector<ShapedArray*> larger(size);
    for (ShapedArray* old : table.slots)
      if (old != nullptr && old != kTombstone) put(larger, old);
    table.slots.swap(larger);
    table.used = table.live;
  }
  put(table.slots, aval);
  ++table.used;
  ++table.live;
}

void remove(ShapedArray* aval) {
  AvalTable& table = aval_table();
  size_t mask = table.slots.size() - 1;
  for (size_t i = aval->hash & mask; table.slots[i] != nullptr; i = (i + 1) & mask)
    if (table.slots[i] == aval) {
      table.slots[i] = kTombstone;
      --table.live;
      return;
    }
}

// ---- making one ----

// Physical bytes per element; -1 with an error set.
int64_t itemsize_of(PyObject* dtype) {
  if (PyArray_DescrCheck(dtype)) return PyDataType_ELSIZE(reinterpret_cast<PyArray_Descr*>(dtype));
  Ref value = steal(in_python<PyObject_GetAttrString>(dtype, "itemsize"));
  if (!value) return -1;
  int64_t size = PyLong_AsLongLong(value.get());
  if (size < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "[ShapedArray] dtype.itemsize is negative");
  return size;
}

// Fills size, nbytes and strides; products that do not fit become -1. A zero extent makes the size zero.
void measure(ShapedArray* aval) {
  int64_t* strides = aval->extents + aval->ndim;
  int64_t size = 1, stride = aval->itemsize;
  bool empty = false, size_fits = true, bytes_fit = true;
  for (int i = aval->ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    int64_t extent = aval->extents[i];
    if (extent == 0) {
      empty = true;
      continue;  // an empty array is never read through its strides; keep them positive
    }
    if (size_fits && __builtin_mul_overflow(size, extent, &size)) size_fits = false;
    if (bytes_fit && __builtin_mul_overflow(stride, extent, &stride)) bytes_fit = false;
  }
  aval->size = empty ? 0 : size_fits ? size : -1;
  aval->nbytes = empty ? 0 : bytes_fit ? stride : -1;
  if (!bytes_fit) std::memset(strides, 0, sizeof(int64_t) * aval->ndim);
}

PyObject* shape_tuple(int ndim, const int64_t* extents) {
  Ref shape = steal(PyTuple_New(ndim));
  if (!shape) return nullptr;
  for (int i = 0; i < ndim; ++i) {
    PyObject* extent = PyLong_FromLongLong(extents[i]);
    if (extent == nullptr) return nullptr;
    PyTuple_SET_ITEM(shape.get(), i, extent);
  }
  return shape.release();
}

ShapedArray* make(const Key& key, uint64_t hash) {
  int64_t itemsize = itemsize_of(key.dtype);
  if (itemsize < 0) return nullptr;
  Ref shape = steal(shape_tuple(key.ndim, key.extents));
  if (!shape) return nullptr;
  ShapedArray* aval = PyObject_NewVar(ShapedArray, ShapedArrayType, 2 * key.ndim);
  if (aval == nullptr) return nullptr;
  aval->shape = shape.release();
  aval->dtype = Py_NewRef(key.dtype);
  aval->sharding = Py_NewRef(key.sharding);
  aval->memory_space = Py_NewRef(key.memory_space);
  aval->varying = Py_NewRef(key.varying);
  aval->weakrefs = nullptr;
  aval->hash = hash;
  aval->itemsize = itemsize;
  aval->ndim = key.ndim;
  aval->type_number =
      PyArray_DescrCheck(key.dtype) ? reinterpret_cast<PyArray_Descr*>(key.dtype)->type_num : kExtendedType;
  aval->weak_type = key.weak_type;
  if (key.ndim > 0) std::memcpy(aval->extents, key.extents, sizeof(int64_t) * key.ndim);
  measure(aval);
  insert(aval);
  return aval;
}

ShapedArray* intern(const Key& key) {  // owned
  uint64_t hash = hash_of(key);
  if (ShapedArray* aval = find(key, hash)) {
    Py_INCREF(aval);
    return aval;
  }
  return make(key, hash);
}

// Borrowed: the object in the table that equals this one; if there is none, this one is added.
PyObject* first_equal(PyObject* table, PyObject* object) { return PyDict_SetDefault(table, object, object); }

PyObject* set_shape_error(PyObject* shape) {
  PyErr_Format(PyExc_TypeError, "Shapes must be 1D sequences of concrete values of integer type, got %S.", shape);
  return nullptr;
}

// Reads a shape (a sequence of integers or one integer) into extents; false with an error set.
bool read_shape(PyObject* shape, std::vector<int64_t>& extents) {
  Ref single;
  if (PyIndex_Check(shape)) single = steal(PyTuple_Pack(1, shape));
  Ref items = steal(in_python<PySequence_Tuple>(single ? single.get() : shape));
  if (!items) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) set_shape_error(shape);
    return false;
  }
  Py_ssize_t ndim = PyTuple_GET_SIZE(items.get());
  if (ndim > kMaxRank) {
    PyErr_Format(PyExc_ValueError, "[ShapedArray] rank %zd is more than the %d dimensions weft supports", ndim,
                 kMaxRank);
    return false;
  }
  for (Py_ssize_t i = 0; i < ndim; ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.get(), i);
    if (!PyIndex_Check(item)) return set_shape_error(shape) != nullptr;
    Ref index = steal(in_python<PyNumber_Index>(item));
    if (!index) return false;
    int overflow = 0;
    int64_t extent = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
    if (extent == -1 && PyErr_Occurred()) return false;
    if (overflow != 0) {
      PyErr_Format(PyExc_OverflowError, "[ShapedArray] extent %S of axis %zd does not fit 64 bits", item, i);
      return false;
    }
    if (extent < 0) {
      PyErr_Format(PyExc_ValueError, "[ShapedArray] extents must be non-negative, got shape %S", shape);
      return false;
    }
    extents.push_back(extent);
  }
  return true;
}

// Whether a shape has an extent that follows from sizes.
bool is_sized(PyObject* shape) {
  if (size_type == nullptr || !(PyTuple_Check(shape) || PyList_Check(shape))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(shape); ++i)
    if (reinterpret_cast<PyObject*>(Py_TYPE(PySequence_Fast_GET_ITEM(shape, i))) == size_type) return true;
  return false;
}

// ---- the type ----

ShapedArray* as_aval(PyObject* object) { return reinterpret_cast<ShapedArray*>(object); }

PyObject* aval_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"shape", "dtype", "weak_type", "sharding", "memory_space", "varying", nullptr};
  PyObject *shape, *dtype_like, *sharding = Py_None, *memory_space = Py_None, *varying = no_axes;
  int weak_type = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|pOOO!:ShapedArray", const_cast<char**>(names), &shape,
                                   &dtype_like, &weak_type, &sharding, &memory_space, &PyTuple_Type, &varying))
    return nullptr;
  if (is_sized(shape)) return in_python<PyObject_Call>(make_sized, args, kwargs);
  std::vector<int64_t> extents;
  if (!read_shape(shape, extents)) return nullptr;
  Ref dtype = steal(canonical_dtype(dtype_like));
  if (!dtype) return nullptr;
  if (sharding != Py_None && (sharding = first_equal(canonical_placements, sharding)) == nullptr) return nullptr;
  if (memory_space != Py_None && (memory_space = first_equal(canonical_placements, memory_space)) == nullptr)
    return nullptr;
  if (varying != no_axes && (varying = first_equal(canonical_placements, varying)) == nullptr) return nullptr;
  Key key{static_cast<int>(extents.size()), extents.data(), dtype.get(), sharding, memory_space, varying,
          weak_type != 0};
  return reinterpret_cast<PyObject*>(intern(key));
}

void aval_dealloc(PyObject* self) {
  ShapedArray* aval = as_aval(self);
  remove(aval);  // first: a weakref callback may ask for an equal aval and must not be given this one
  if (aval->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  Py_DECREF(aval->shape);
  Py_DECREF(aval->dtype);
  Py_DECREF(aval->sharding);
  Py_DECREF(aval->memory_space);
  Py_DECREF(aval->varying);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

// update(shape=..., dtype=..., weak_type=..., sharding=..., memory_space=..., varying=...): this aval with some fields replaced.
PyObject* aval_update(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args) != 0) {
    PyErr_SetString(PyExc_TypeError, "[ShapedArray.update] takes keyword arguments only");
    return nullptr;
  }
  ShapedArray* aval = as_aval(self);
  Ref fields = steal(Py_BuildValue("{s:O,s:O,s:O,s:O,s:O,s:O}", "shape", aval->shape, "dtype", aval->dtype, "weak_type",
                                   aval->weak_type ? Py_True : Py_False, "sharding", aval->sharding, "memory_space",
                                   aval->memory_space, "varying", aval->varying));
  Ref empty = steal(PyTuple_New(0));
  if (!fields || !empty || (kwargs != nullptr && PyDict_Update(fields.get(), kwargs) < 0)) return nullptr;
  // A sharding belongs to a shape: with another one nothing is known of it.
  if (kwargs != nullptr && PyDict_GetItemString(kwargs, "shape") != nullptr &&
      PyDict_GetItemString(kwargs, "sharding") == nullptr && PyDict_SetItemString(fields.get(), "sharding", Py_None) < 0)
    return nullptr;
  return aval_new(ShapedArrayType, empty.get(), fields.get());
}

PyObject* aval_strip_weak_type(PyObject* self, PyObject*) {
  ShapedArray* aval = as_aval(self);
  if (!aval->weak_type) return Py_NewRef(self);
  Key key{aval->ndim, aval->extents, aval->dtype, aval->sharding, aval->memory_space, aval->varying, false};
  return reinterpret_cast<PyObject*>(intern(key));
}

PyObject* aval_str_short(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"short_dtypes", "mesh_axis_types", nullptr};
  int short_names = 1, mesh_axis_types = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|pp:str_short", const_cast<char**>(names), &short_names,
                                   &mesh_axis_types))
    return nullptr;
  return aval_text(as_aval(self), short_names != 0);
}

PyObject* aval_repr(PyObject* self) {
  Ref text = steal(aval_text(as_aval(self), false));
  if (!text) return nullptr;
  return PyUnicode_FromFormat("ShapedArray(%U%s)", text.get(), as_aval(self)->weak_type ? ", weak_type=True" : "");
}

PyObject* aval_str(PyObject* self) {
  Ref text = steal(aval_text(as_aval(self), false));
  if (!text) return nullptr;
  return PyUnicode_FromFormat("%s%U", as_aval(self)->weak_type ? "~" : "", text.get());
}

PyObject* aval_reduce(PyObject* self, PyObject*) {
  ShapedArray* aval = as_aval(self);
  return Py_BuildValue("O(OOOOOO)", ShapedArrayType, aval->shape, aval->dtype, aval->weak_type ? Py_True : Py_False,
                       aval->sharding, aval->memory_space, aval->varying);
}

PyObject* aval_copy(PyObject* self, PyObject*) { return Py_NewRef(self); }

// Exact product of the extents times factor, for the sizes that do not fit 63 bits.
PyObject* exact_product(ShapedArray* aval, int64_t factor) {
  Ref product = steal(PyLong_FromLongLong(factor));
  for (int i = 0; product && i < aval->ndim; ++i)
    product = steal(in_python<PyNumber_Multiply>(product.get(), PyTuple_GET_ITEM(aval->shape, i)));
  return product.release();
}

PyObject* aval_size(PyObject* self, void*) {
  ShapedArray* aval = as_aval(self);
  return aval->size >= 0 ? PyLong_FromLongLong(aval->size) : exact_product(aval, 1);
}

PyObject* aval_nbytes(PyObject* self, void*) {
  ShapedArray* aval = as_aval(self);
  return aval->nbytes >= 0 ? PyLong_FromLongLong(aval->nbytes) : exact_product(aval, aval->itemsize);
}

PyMemberDef kMembers[] = {
    {"shape", T_OBJECT, offsetof(ShapedArray, shape), READONLY, nullptr},
    {"dtype", T_OBJECT, offsetof(ShapedArray, dtype), READONLY, nullptr},
    {"explicit_sharding", T_OBJECT, offsetof(ShapedArray, sharding), READONLY, nullptr},
    {"memory_space", T_OBJECT, offsetof(ShapedArray, memory_space), READONLY, nullptr},
    {"varying", T_OBJECT, offsetof(ShapedArray, varying), READONLY, nullptr},
    {"ndim", T_INT, offsetof(ShapedArray, ndim), READONLY, nullptr},
    {"itemsize", T_LONGLONG, offsetof(ShapedArray, itemsize), READONLY, nullptr},
    {"weak_type", T_BOOL, offsetof(ShapedArray, weak_type), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ShapedArray, weakrefs), READONLY, nullptr},
    {},
};

PyGetSetDef kGetSet[] = {
    {"size", aval_size, nullptr, nullptr, nullptr},
    {"nbytes", aval_nbytes, nullptr, nullptr, nullptr},
    {},
};

PyMethodDef kMethods[] = {
    {"update", reinterpret_cast<PyCFunction>(entry_point<aval_update>), METH_VARARGS | METH_KEYWORDS,
     "This aval with the given fields replaced."},
    {"strip_weak_type", entry_point<aval_strip_weak_type>, METH_NOARGS, "This aval, not weakly typed."},
    {"str_short", reinterpret_cast<PyCFunction>(entry_point<aval_str_short>), METH_VARARGS | METH_KEYWORDS,
     "'f32[3,4]', or 'float32[3,4]' with short_dtypes=False."},
    {"__reduce__", aval_reduce, METH_NOARGS, nullptr},
    {"__copy__", aval_copy, METH_NOARGS, nullptr},
    {"__deepcopy__", aval_copy, METH_O, nullptr},
    {},
};

PyType_Slot kSlots[] = {
    {Py_tp_new, reinterpret_cast<void*>(entry_point<aval_new>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(aval_dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(entry_point<aval_repr>)},
    {Py_tp_str, reinterpret_cast<void*>(entry_point<aval_str>)},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kGetSet},
    {Py_tp_methods, kMethods},
    {Py_tp_doc, const_cast<char*>("ShapedArray(shape, dtype, weak_type=False, sharding=None, memory_space=None, "
                                  "varying=()): the abstract value of an array. Interned: equal means identical.")},
    {0, nullptr},
};

PyType_Spec kSpec = {"weft.runtime.ShapedArray", offsetof(ShapedArray, extents), sizeof(int64_t), Py_TPFLAGS_DEFAULT,
                     kSlots};

// "float32" -> "f32" and its like.
std::string short_dtype_name(std::string name) {
  static constexpr std::pair<const char*, const char*> kPrefixes[] = {
      {"bfloat", "bf"}, {"float", "f"}, {"uint", "u"}, {"int", "i"}, {"complex", "c"}};
  for (auto [longer, shorter] : kPrefixes)
    if (name.rfind(longer, 0) == 0) return std::string(shorter).append(name, std::strlen(longer));
  return name;
}

bool is_float0(PyArray_Descr* descr) { return descr->type_num == NPY_VOID && PyDataType_ELSIZE(descr) == 0; }

// True if weft has arrays of this dtype (64-bit ones included, whatever the x64 option says).
bool is_supported(PyArray_Descr* descr) {
  int number = descr->type_num;
  if (number == NPY_BOOL || number == NPY_HALF || number == NPY_FLOAT || number == NPY_DOUBLE) return true;
  if (number >= NPY_BYTE && number <= NPY_ULONGLONG) return true;
  if (number == NPY_CFLOAT || number == NPY_CDOUBLE) return true;
  return is_float0(descr) || (number >= NPY_USERDEF && number < kVariableStringType);
}

// Owned. NumPy has several type numbers for one integer type (long, long long): take the one its name stands for.
PyObject* canonical_descr(PyArray_Descr* descr) {
  if (!is_supported(descr)) {
    PyErr_Format(PyExc_TypeError, "[ShapedArray] %R is not a dtype of weft arrays; they hold booleans and numbers",
                 descr);
    return nullptr;
  }
  if (is_float0(descr)) return Py_XNewRef(first_equal(canonical_dtypes, reinterpret_cast<PyObject*>(descr)));
  int number = descr->type_num;
  if (number == NPY_LONGLONG) number = NPY_INT64;
  if (number == NPY_ULONGLONG) number = NPY_UINT64;
  return reinterpret_cast<PyObject*>(PyArray_DescrFromType(number));
}

}  // namespace

PyObject* canonical_dtype(PyObject* dtype) {
  if (PyArray_DescrCheck(dtype)) return canonical_descr(reinterpret_cast<PyArray_Descr*>(dtype));
  if (dtype == Py_None) {
    PyErr_SetString(PyExc_TypeError, "[ShapedArray] dtype must not be None");
    return nullptr;
  }
  // An extended dtype is an object with an itemsize that NumPy does not know.
  if (!PyType_Check(dtype) && !PyUnicode_Check(dtype) && PyObject_HasAttrString(dtype, "itemsize") &&
      !PyObject_HasAttrString(dtype, "dtype"))
    return Py_XNewRef(first_equal(canonical_dtypes, dtype));
  PyArray_Descr* descr = nullptr;
  if (PyArray_DescrConverter(dtype, &descr) == NPY_FAIL) return nullptr;
  Ref owned = steal(reinterpret_cast<PyObject*>(descr));
  return canonical_descr(descr);
}

ShapedArray* aval_intern(int ndim, const int64_t* extents, PyObject* dtype, bool weak_type) {
  return intern(Key{ndim, extents, dtype, Py_None, Py_None, no_axes, weak_type});
}

// Appends the mesh axes along which dimension i lies ("@x"); false with an error set.
static bool append_axes(ShapedArray* aval, int i, std::string* text) {
  Ref axes = steal(in_python<PyObject_CallMethod>(aval->sharding, "dimension_text", "i", i));
  const char* characters = axes ? PyUnicode_AsUTF8(axes.get()) : nullptr;
  if (characters != nullptr) *text += characters;
  return characters != nullptr;
}

PyObject* aval_text(ShapedArray* aval, bool short_names) {
  std::string text;
  if (aval->type_number == NPY_VOID) {
    text = "float0";
  } else {
    Ref name = steal(in_python<PyObject_GetAttrString>(aval->dtype, "name"));
    if (!name) return nullptr;
    const char* characters = PyUnicode_AsUTF8(name.get());
    if (characters == nullptr) return nullptr;
    text = short_names ? short_dtype_name(characters) : characters;
  }
  text += '[';
  for (int i = 0; i < aval->ndim; ++i) {
    if (i > 0) text += ',';
    text += std::to_string(aval->extents[i]);
    if (aval->sharding != Py_None && !append_axes(aval, i, &text)) return nullptr;
  }
  text += ']';
  Py_ssize_t axes = PyTuple_GET_SIZE(aval->varying);
  for (Py_ssize_t i = 0; i < axes; ++i) {
    Ref name = steal(in_python<PyObject_Str>(PyTuple_GET_ITEM(aval->varying, i)));
    const char* characters = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
    if (characters == nullptr) return nullptr;
    text += i > 0 ? "," : axes > 1 ? "{V:(" : "{V:";
    text += characters;
  }
  if (axes > 0) text += axes > 1 ? ")}" : "}";
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

// install_sizes(type, make)
PyObject* install_sizes(PyObject*, PyObject* args) {
  PyObject *type, *make;
  if (!PyArg_ParseTuple(args, "OO:install_sizes", &type, &make)) return nullptr;
  Py_XSETREF(size_type, Py_NewRef(type));
  Py_XSETREF(make_sized, Py_NewRef(make));
  Py_RETURN_NONE;
}

PyMethodDef kFunctions[] = {
    {"install_sizes", entry_point<install_sizes>, METH_VARARGS,
     "install_sizes(type, make): a shape with an extent of this type is an aval that ``make`` makes."},
    {},
};

int register_aval(PyObject* module) {
  canonical_dtypes = PyDict_New();
  canonical_placements = PyDict_New();
  no_axes = PyTuple_New(0);
  ShapedArrayType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (canonical_dtypes == nullptr || canonical_placements == nullptr || no_axes == nullptr ||
      ShapedArrayType == nullptr) return -1;
  if (PyModule_AddFunctions(module, kFunctions) < 0) return -1;
  return PyModule_AddObjectRef(module, "ShapedArray", reinterpret_cast<PyObject*>(ShapedArrayType));
}

}  // namespace weft
