// Operands: the inputs of a compiled program in one call, made from the leaves of the call's signature.
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "host_copy.h"
#include "jit.h"
#include "module.h"
#include "numpy_api.h"
#include "pjrt.h"

namespace weft {

constexpr uint32_t kStackOperands = 96;

union alignas(16) ScalarBytes {
  char bytes[16];
  uint8_t u8;
  int8_t i8;
  int16_t i16;
  uint16_t u16;
  int32_t i32;
  uint32_t u32;
  int64_t i64;
  uint64_t u64;
  float f32[2];
  double f64[2];
};

template <class T>
bool put_integer(long long value, T* out) {
  *out = T(value);
  return (std::is_signed_v<T> || value >= 0) && static_cast<long long>(*out) == value;
}

inline bool put_number(double re, double im, int type, ScalarBytes* out) {
  switch (type) {
    case NPY_FLOAT: out->f32[0] = float(re); return true;
    case NPY_DOUBLE: out->f64[0] = re; return true;
    case NPY_CFLOAT:
      out->f32[0] = float(re);
      out->f32[1] = float(im);
      return true;
    case NPY_CDOUBLE:
      out->f64[0] = re;
      out->f64[1] = im;
      return true;
    default: return false;
  }
}

// The dtype of a Python scalar where the program does not prescribe one: 32 bits.
inline int default_type(LeafKind kind) {
  return kind == LeafKind::boolean   ? NPY_BOOL
         : kind == LeafKind::integer ? NPY_INT32
         : kind == LeafKind::real    ? NPY_FLOAT
                                     : NPY_CFLOAT;
}

// Converts a Python scalar to the program's dtype; false if it has no such value (an int out of range).
inline bool put_scalar(const Leaf& leaf, const ShapedArray* aval, ScalarBytes* out) {
  int type = aval != nullptr ? aval->type_number : default_type(leaf.kind);
  if (leaf.kind == LeafKind::boolean) {
    out->u8 = leaf.object == Py_True;
    return type == NPY_BOOL;
  }
  if (leaf.kind == LeafKind::real) return put_number(PyFloat_AS_DOUBLE(leaf.object), 0, type, out);
  if (leaf.kind == LeafKind::complex) {
    Py_complex value = PyComplex_AsCComplex(leaf.object);
    return (type == NPY_CFLOAT || type == NPY_CDOUBLE) && put_number(value.real, value.imag, type, out);
  }
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(leaf.object, &overflow);
  if (overflow != 0) return false;
  switch (type) {
    case NPY_INT8: return put_integer(value, &out->i8);
    case NPY_INT16: return put_integer(value, &out->i16);
    case NPY_INT32: return put_integer(value, &out->i32);
    case NPY_INT64: return put_integer(value, &out->i64);
    case NPY_UINT8: return put_integer(value, &out->u8);
    case NPY_UINT16: return put_integer(value, &out->u16);
    case NPY_UINT32: return put_integer(value, &out->u32);
    case NPY_UINT64: return put_integer(value, &out->u64);
    default: return put_number(double(value), 0, type, out);
  }
}

// Owned buffer with the elements of a NumPy array or scalar in the program's dtype. nullptr: slow path, or error set.
inline Buffer* copy_numpy(const Leaf& leaf, ShapedArray* aval, const char* program) {
  if (aval == nullptr || aval->type_number == kExtendedType) return nullptr;
  Ref array = leaf.kind == LeafKind::ndarray ? borrow(leaf.object) : steal(PyArray_FromScalar(leaf.object, nullptr));
  if (!array) return nullptr;
  PyArrayObject* source = reinterpret_cast<PyArrayObject*>(array.get());
  if (PyArray_NDIM(source) != aval->ndim) return nullptr;
  for (int d = 0; d < aval->ndim; ++d)
    if (PyArray_DIM(source, d) != aval->extents[d]) return nullptr;
  Buffer* buffer = buffer_allocate(aval->nbytes);
  if (buffer == nullptr) {
    set_array_memory_error(aval, program, "a copy of a NumPy argument");
    return nullptr;
  }
  if (PyArray_TYPE(source) == aval->type_number && PyArray_ISCARRAY_RO(source)) {
    if (copy_bytes(buffer->data, PyArray_BYTES(source), aval->nbytes) == 0) return buffer;
    buffer_release(buffer);
    return nullptr;
  }
  PyArray_Descr* descr = reinterpret_cast<PyArray_Descr*>(Py_NewRef(aval->dtype));
  npy_intp extents[kMaxRank];
  for (int d = 0; d < aval->ndim; ++d) extents[d] = aval->extents[d];
  Ref target = steal(PyArray_NewFromDescr(&PyArray_Type, descr, aval->ndim, extents, nullptr, buffer->data,
                                          NPY_ARRAY_CARRAY, nullptr));
  if (target && copy_ndarray(reinterpret_cast<PyArrayObject*>(target.get()), source) == 0) return buffer;
  buffer_release(buffer);
  return nullptr;
}

// The operands of one call. Owns whatever had to be made for it.
class Operands {
 public:
  explicit Operands(uint32_t count) : count_(count) {
    if (count > kStackOperands) {
      operands_ = new Operand[count];
      scalars_ = new ScalarBytes[count];
      donated_ = new bool[count];
    }
  }
  ~Operands() {
    for (Buffer* buffer : owned_) buffer_release(buffer);
    if (operands_ != stack_) {
      delete[] operands_;
      delete[] scalars_;
      delete[] donated_;
    }
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  // 1: ready; 0: take the slow path; -1: error set.
  int gather(const Entry* entry, Signature& signature) {
    const CacheEntry* cached = entry->cached;
    const Plan& plan = *cached->executable->plan;
    uint32_t n_consts = uint32_t(cached->consts->size());
    const auto& leaves = signature.leaves();
    // NumPy first: a conversion may run Python code, so the arrays are read only afterwards.
    for (uint32_t i = n_consts; i < count_; ++i) {
      const Leaf& leaf = leaves[entry->order[i - n_consts]];
      if (leaf.kind == LeafKind::array) {
        Array* array = reinterpret_cast<Array*>(leaf.object);
        if (array->remote != nullptr && array->remote->block == nullptr && !fetch(array, signature, i)) return -1;
      }
      if (leaf.kind < LeafKind::ndarray) continue;
      signature.retain();
      Buffer* buffer = copy_numpy(leaf, plan.in_avals.empty() ? nullptr : plan.in_avals[i], plan.name.c_str());
      if (buffer == nullptr) return PyErr_Occurred() ? -1 : 0;
      owned_.push_back(buffer);
      operands_[i] = {buffer->data, buffer};
    }
    for (uint32_t i = 0; i < n_consts; ++i) {
      Array* array = (*cached->consts)[i];
      if (array->buffer == nullptr) {
        set_deleted_error(array);
        return -1;
      }
      operands_[i] = {array->buffer->data, array->buffer};
    }
    for (uint32_t i = n_consts; i < count_; ++i) {
      const Leaf& leaf = leaves[entry->order[i - n_consts]];
      if (leaf.kind == LeafKind::array) {
        Array* array = reinterpret_cast<Array*>(leaf.object);
        if (array->remote != nullptr) {
          Buffer* block = array->remote->block;
          if (block == nullptr) continue;  // fetched above
          if (executable_check_input(cached->executable, int32_t(i), array) < 0) return -1;
          operands_[i] = {block->data, block};
          continue;
        }
        if (array->buffer == nullptr) {
          set_deleted_error(array);
          return -1;
        }
        operands_[i] = {array->buffer->data, array->buffer};
      } else if (leaf.kind < LeafKind::ndarray) {
        if (!put_scalar(leaf, plan.in_avals.empty() ? nullptr : plan.in_avals[i], &scalars_[i])) return 0;
        operands_[i] = {scalars_[i].bytes, nullptr};
      }
    }
    return 1;
  }

  // Operand i: the copy on the host of an Array on another device, which other threads may delete during the wait.
  bool fetch(Array* array, Signature& signature, uint32_t i) {
    signature.retain();
    Buffer* buffer = array_ready_buffer(array);
    if (buffer == nullptr) return false;
    owned_.push_back(buffer_retain(buffer));
    operands_[i] = {buffer->data, buffer};
    return true;
  }

  // Takes the buffers of donated Arrays, which count as deleted from now on. -1: error set, nothing taken.
  int donate(const Entry* entry, const Signature& signature) {
    uint32_t n_consts = uint32_t(entry->cached->consts->size());
    for (uint32_t i = 0; i < count_; ++i) donated_[i] = i >= n_consts && (*entry->cached->donated)[i - n_consts];
    for (bool given : {true, false}) {
      for (uint32_t i = n_consts; i < count_; ++i) {
        const Leaf& leaf = signature.leaves()[entry->order[i - n_consts]];
        bool asked = (*entry->cached->donated)[i - n_consts];
        if (asked != given || leaf.kind != LeafKind::array) continue;
        Array* array = reinterpret_cast<Array*>(leaf.object);
        if (array->remote != nullptr && !array_has_own_block(array)) {  // the program reads a copy, or others do
          if (given) donated_[i] = false, donation_.take(array);
          continue;
        }
        if (array->buffer == nullptr && array->remote == nullptr) {  // it had one in gather
          donation_.give_back();
          set_donated_twice_error(entry->cached->executable->plan->name.c_str(), array);
          return -1;
        }
        if (given) donation_.take(array);
      }
    }
    return 0;
  }

  void give_back() { donation_.give_back(); }

  const Operand* data() const { return operands_; }
  const bool* donated() const { return donated_; }

 private:
  uint32_t count_;
  Operand stack_[kStackOperands];
  ScalarBytes scalar_stack_[kStackOperands];
  bool donated_stack_[kStackOperands];
  Operand* operands_ = stack_;
  ScalarBytes* scalars_ = scalar_stack_;
  bool* donated_ = donated_stack_;
  std::vector<Buffer*> owned_;
  Donation donation_;
};

}  // namespace weft
