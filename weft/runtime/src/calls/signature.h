// Signature: what distinguishes calls of a jitted function, written in one pass over the arguments.
//
// It is a sequence of 64-bit tokens: interned avals, places of arrays on devices, container kinds with their lengths, dict keys in insertion order,
// types of Python scalars, dtype and shape of NumPy arrays. Pointers are multiples of 16 and tags are not, so a
// sequence has only one meaning. For static arguments and unusual dict keys the tokens hold the hash; they are compared
// by equality afterwards. Leaves are numbered in the order of this pass; canonical_order gives the pytree's order.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "array.h"

namespace weft {

enum class LeafKind : uint8_t { array, boolean, integer, real, complex, ndarray, generic };

struct Leaf {
  PyObject* object;  // borrowed from the arguments, or owned by the signature (see retain)
  LeafKind kind;
};

// A vector that stores its first kInline elements itself. T is trivially copyable.
template <class T, uint32_t kInline>
class InlineVector {
 public:
  InlineVector() = default;
  ~InlineVector() {
    if (data_ != inline_) std::free(data_);
  }
  InlineVector(const InlineVector&) = delete;
  InlineVector& operator=(const InlineVector&) = delete;

  bool push(T value) {
    if (__builtin_expect(size_ == capacity_, 0) && !grow()) return false;
    data_[size_++] = value;
    return true;
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  uint32_t size() const { return size_; }
  T& operator[](uint32_t i) { return data_[i]; }
  const T& operator[](uint32_t i) const { return data_[i]; }

 private:
  bool grow() {
    if (capacity_ >= (1u << 30)) return false;
    size_t bytes = size_t(capacity_) * 2 * sizeof(T);
    T* larger = static_cast<T*>(data_ == inline_ ? std::malloc(bytes) : std::realloc(data_, bytes));
    if (larger == nullptr) return false;
    if (data_ == inline_) std::memcpy(static_cast<void*>(larger), inline_, sizeof(inline_));
    data_ = larger;
    capacity_ *= 2;
    return true;
  }

  T inline_[kInline];
  T* data_ = inline_;
  uint32_t size_ = 0, capacity_ = kInline;
};

struct StaticNames {
  std::vector<int64_t> argnums;     // positions, not negative
  std::vector<PyObject*> argnames;  // owned interned str
  bool is_static(Py_ssize_t position) const {
    for (int64_t argnum : argnums)
      if (argnum == position) return true;
    return false;
  }
  // 1, 0, or -1 with an error set.
  int is_static(PyObject* name) const;
};

class Signature {
 public:
  Signature() = default;
  ~Signature();

  // Writes the call's tokens. False if this call must take the slow path (no error set), or on an error (set). With
  // `collect` it also owns every object whose pointer is among the tokens.
  bool write(const StaticNames& names, uint64_t config, PyObject* const* args, Py_ssize_t count, PyObject* keywords,
             bool collect);

  // Takes references to the leaves: Python code that runs next may change the containers they came from.
  void retain();

  uint64_t hash() const { return hash_; }
  const InlineVector<uint64_t, 160>& tokens() const { return tokens_; }
  const InlineVector<Leaf, 80>& leaves() const { return leaves_; }
  const InlineVector<PyObject*, 4>& compared() const { return compared_; }
  std::vector<PyObject*>& collected() { return collected_; }

 private:
  bool visit(PyObject* object);
  bool visit_dict(PyObject* object);
  bool visit_other(PyObject* object);
  bool visit_ndarray(PyObject* object);
  bool visit_pytree(PyObject* object);
  bool visit_static(PyObject* object);
  bool key(PyObject* key);
  bool leaf(PyObject* object, LeafKind kind);
  bool push(uint64_t token) {
    hash_ = (hash_ ^ token) * 0x9E3779B97F4A7C15ull;
    hash_ ^= hash_ >> 31;
    return tokens_.push(token);
  }
  bool push_object(PyObject* object) {
    if (collect_) collected_.push_back(Py_NewRef(object));
    return push(reinterpret_cast<uint64_t>(object));
  }

  InlineVector<uint64_t, 160> tokens_;
  InlineVector<Leaf, 80> leaves_;
  InlineVector<PyObject*, 4> compared_;  // owned
  std::vector<PyObject*> collected_;     // owned
  std::vector<PyObject*> kept_;          // owned: temporary containers, interned keys
  uint64_t hash_ = 0x243F6A8885A308D3ull;
  int depth_ = 0;
  bool collect_ = false;
  bool retained_ = false;
};

// order[i] = number (in a Signature's pass) of leaf i of the pytree (args, sorted kwargs) without static arguments.
// False (no error set) if keys cannot be sorted.
bool canonical_order(const StaticNames& names, PyObject* const* args, Py_ssize_t count, PyObject* keywords,
                     std::vector<uint32_t>* order);

}  // namespace weft
