// The size class of operands: all of their types but the extents, and which extents are 1 and which are equal.
//
// Operands of one class differ in nothing but the values of the extents, which are listed apart.
#include <string>
#include <vector>

#include "array.h"
#include "module.h"
#include "numpy_api.h"

namespace weft {
namespace {

constexpr double kMostElements = double(int64_t{1} << 46);  // elements of all operands broadcast to one shape
constexpr size_t kMostSizes = 100;
constexpr char kUnit = 101, kScalar = 102, kArray = 103, kWeakArray = 104, kHostArray = 105;

struct SizeClass {
  std::string pattern;  // of each array its kind, rank, and for each dimension kUnit or the number of its extent
  std::vector<int64_t> sizes;
  std::vector<PyObject*> types;  // borrowed: dtypes of arrays, types of scalars
  double elements = 1;
  bool traced;  // whether the program is known, and so that all of its arrays can be addressed

  explicit SizeClass(bool is_traced) : traced(is_traced) {}

  // False: arrays without elements, of several random keys, or elsewhere than usual are in no class.
  bool add(ShapedArray* aval) {
    if (aval->type_number == kExtendedType && aval->ndim != 0) return false;
    if (aval->sharding != Py_None || aval->memory_space != Py_None) return false;
    if (aval->varying != nullptr && PyTuple_GET_SIZE(aval->varying) != 0) return false;
    pattern += aval->weak_type ? kWeakArray : kArray;
    pattern += char(aval->ndim);
    types.push_back(aval->dtype);
    for (int32_t d = 0; d < aval->ndim; ++d) {
      const int64_t extent = aval->extents[d];
      if (extent == 0 || ((elements *= double(extent)) > kMostElements && !traced)) return false;
      if (extent == 1) {
        pattern += kUnit;
        continue;
      }
      size_t number = 0;
      while (number < sizes.size() && sizes[number] != extent) ++number;
      if (number == kMostSizes) return false;
      if (number == sizes.size()) sizes.push_back(extent);
      pattern += char(number);
    }
    return true;
  }

  bool add(PyObject* value) {
    if (is_array(value)) return add(reinterpret_cast<Array*>(value)->aval);
    if (is_shaped_array(value)) return add(reinterpret_cast<ShapedArray*>(value));
    PyTypeObject* type = Py_TYPE(value);
    if (PyArray_CheckExact(value)) {
      auto* array = reinterpret_cast<PyArrayObject*>(value);
      if (PyArray_NDIM(array) != 0 || !PyArray_ISNOTSWAPPED(array)) return false;
      pattern += kHostArray;
      types.push_back(reinterpret_cast<PyObject*>(PyArray_DESCR(array)));
      return true;
    }
    bool is_number = type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type || type == &PyComplex_Type;
    if (!is_number && !PyArray_IsScalar(value, Number) && !PyArray_IsScalar(value, Bool)) return false;
    pattern += kScalar;
    types.push_back(reinterpret_cast<PyObject*>(type));
    return true;
  }
};

PyObject* size_class(PyObject*, PyObject* args) {
  PyObject* values;
  int traced = 0;
  if (!PyArg_ParseTuple(args, "O!|p:size_class", &PyTuple_Type, &values, &traced)) return nullptr;
  SizeClass found(traced != 0);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); ++i)
    if (!found.add(PyTuple_GET_ITEM(values, i))) Py_RETURN_NONE;
  Ref key = steal(PyTuple_New(Py_ssize_t(found.types.size()) + 1)), sizes = steal(PyTuple_New(Py_ssize_t(found.sizes.size())));
  if (!key || !sizes) return nullptr;
  PyObject* pattern = PyBytes_FromStringAndSize(found.pattern.data(), Py_ssize_t(found.pattern.size()));
  if (pattern == nullptr) return nullptr;
  PyTuple_SET_ITEM(key.get(), 0, pattern);
  for (size_t i = 0; i < found.types.size(); ++i)
    PyTuple_SET_ITEM(key.get(), Py_ssize_t(i) + 1, Py_NewRef(found.types[i]));
  for (size_t i = 0; i < found.sizes.size(); ++i) {
    PyObject* size = PyLong_FromLongLong(found.sizes[i]);
    if (size == nullptr) return nullptr;
    PyTuple_SET_ITEM(sizes.get(), Py_ssize_t(i), size);
  }
  return PyTuple_Pack(2, key.get(), sizes.get());
}

PyMethodDef kMethods[] = {
    {"size_class", entry_point<size_class>, METH_VARARGS,
     "size_class(operands, traced=False) -> (key, extents) or None: the types of a tuple of Arrays, avals and scalars without their "
     "extents, and the distinct extents above 1 in order. Equal keys: the same extents are 1, or equal to each other. None for operands "
     "in no class: unless the program is `traced`, also those from which too much may be broadcast."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_size_class(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
