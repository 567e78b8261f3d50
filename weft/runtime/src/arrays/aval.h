// ShapedArray: the interned abstract value of an array. Equal means identical, so it is compared by pointer.
//
// The table of avals holds no references: an aval exists as long as somebody owns it. A cache whose key contains the
// pointer must own a reference for as long as the key exists.
#pragma once

#include "python.h"

namespace weft {

struct ShapedArray {
  PyObject_VAR_HEAD
  PyObject* shape;         // owned tuple of exact ints
  PyObject* dtype;         // owned canonical dtype: np.dtype of native byte order, or an extended dtype object
  PyObject* sharding;      // owned, None by default
  PyObject* memory_space;  // owned, None by default
  PyObject* varying;       // owned tuple of the mesh axes along which values differ, in the order of the mesh
  PyObject* weakrefs;
  uint64_t hash;
  int64_t size;      // elements, or -1 if the number does not fit 63 bits
  int64_t nbytes;    // or -1 likewise
  int64_t itemsize;  // physical bytes per element
  int32_t ndim;
  int32_t type_number;  // NumPy's type number, or kExtendedType
  bool weak_type;
  int64_t extents[1];  // ndim extents, then ndim row-major strides in bytes (valid if nbytes >= 0)

  const int64_t* strides() const { return extents + ndim; }
};

constexpr int32_t kExtendedType = -1;
constexpr int kMaxRank = 64;

extern PyTypeObject* ShapedArrayType;

inline bool is_shaped_array(PyObject* object) { return Py_TYPE(object) == ShapedArrayType; }

// Owned interned aval with default placement. dtype must be canonical (another aval's dtype, or canonical_dtype).
ShapedArray* aval_intern(int ndim, const int64_t* extents, PyObject* dtype, bool weak_type);

// Owned canonical dtype for anything np.dtype accepts, or an extended dtype; TypeError for dtypes weft does not
// support.
PyObject* canonical_dtype(PyObject* dtype);

// Owned str such as "float32[3,4]" (short_names: "f32[3,4]").
PyObject* aval_text(ShapedArray* aval, bool short_names);

}  // namespace weft
