// Pytrees: the class PyTreeDef, and native functions that flatten and rebuild containers.
//
// A PyTreeDef is its nodes in post-order (children before parents, the root last), stored inside the object. It is
// immutable and owns what its nodes refer to.
#pragma once

#include <vector>

#include "python.h"

namespace weft {

enum class NodeKind : uint8_t { kLeaf, kNone, kTuple, kList, kDict, kNamedTuple, kCustom, kDataclass };

// How a registered class is flattened. Registrations are never removed, so pointers to them stay valid.
struct Registration {
  enum class Native : uint8_t { kNo, kOrderedDict, kDefaultDict };

  NodeKind kind;  // kCustom or kDataclass
  Native native;
  PyTypeObject* type;       // owned
  PyObject* flatten;        // owned or nullptr: object -> (children, data)
  PyObject* unflatten;      // owned or nullptr: (data, children) -> object
  PyObject* flatten_keyed;  // owned or nullptr: object -> ((key, child)s, data)
  PyObject* data_fields;    // owned tuple of str (dataclasses), or nullptr
  PyObject* meta_fields;    // likewise
};

struct Node {
  NodeKind kind;
  int64_t arity;
  // Owned or nullptr. kDict: tuple of sorted keys; kNamedTuple: the type; kCustom, kDataclass: the auxiliary data.
  PyObject* data;
  const Registration* registration;  // kCustom, kDataclass
  int64_t num_leaves;                // of the subtree
  int64_t num_nodes;                 // of the subtree, itself included
  // kDict in a treedef: owned dict with the keys in order and None as values, copied to make new dicts. nullptr
  // elsewhere.
  mutable PyObject* blank = nullptr;
};

struct PyTreeDef {
  PyObject_VAR_HEAD  // ob_size nodes, at least one
  PyObject* weakrefs;
  Py_hash_t hash;  // -1 until asked for
  Node nodes[1];

  const Node& root() const { return nodes[ob_base.ob_size - 1]; }
};

// The result of opening one container: its kind, auxiliary data and children.
struct Opened {
  NodeKind kind = NodeKind::kLeaf;
  const Registration* registration = nullptr;
  Ref data;      // as Node::data; empty if the kind has none
  Ref children;  // tuple or list; empty for leaves and None
  Py_ssize_t arity = 0;
};

extern PyTypeObject* PyTreeDefType;

inline bool is_treedef(PyObject* object) { return Py_TYPE(object) == PyTreeDefType; }
inline int64_t treedef_num_leaves(const PyTreeDef* treedef) { return treedef->root().num_leaves; }

// Enters one more level of nested containers. 0, or -1 with RecursionError: beyond sys.getrecursionlimit() levels, or
// when little of the C stack is left (a user may have raised the limit beyond what this thread's stack holds).
int enter_nested(const char* where);
void leave_nested();

// Calls enter_nested, and leave_nested when it is destroyed.
class RecursionGuard {
 public:
  explicit RecursionGuard(const char* where) : failed_(enter_nested(where) != 0) {}
  ~RecursionGuard() {
    if (!failed_) leave_nested();
  }
  bool failed() const { return failed_; }

 private:
  bool failed_;
};

// ---- registry (pytree_registry.cpp) ----

NodeKind kind_of(PyObject* object, const Registration** registration);
const Registration* find_registration(PyTypeObject* type);  // nullptr if there is none
bool is_named_tuple_type(PyTypeObject* type);  // a subclass of tuple with a tuple _fields; runs no Python code
// Opens one level; false with a Python error set.
bool open_node(PyObject* object, Opened& opened);
// Owned (children, data as users see it), or None for a leaf.
PyObject* one_level(PyObject* object);
// Owned ([(key, child), ...], data), or None for a leaf.
PyObject* one_level_with_keys(PyObject* object);
// Owned list of the keys that lead to the children of an opened node.
PyObject* child_keys(PyObject* object, const Opened& opened);
// Owned auxiliary data as users see it (a list of keys for a dict).
PyObject* visible_data(const Node& node);
// Owned container of the node's kind; children are borrowed.
PyObject* make_container(const Node& node, PyObject* const* children);
// Raises type(text) with the current exception as its cause.
void raise_from_current(PyObject* type, const char* text);
int register_registry(PyObject* module);

// ---- flatten and unflatten (pytree_flatten.cpp) ----

// Flattens tree, appending an owned reference per leaf; returns the owned treedef, or nullptr with an error set
// (leaves appended so far stay the caller's to release). leaf_predicate may be nullptr.
PyTreeDef* pytree_flatten(PyObject* tree, std::vector<PyObject*>& leaves, PyObject* leaf_predicate);
// Owned tree with the given leaves (borrowed, exactly treedef_num_leaves of them).
PyObject* pytree_unflatten(const PyTreeDef* treedef, PyObject* const* leaves);
// Owned list of the subtrees of tree at the treedef's leaves, or nullptr with ValueError.
PyObject* pytree_flatten_up_to(const PyTreeDef* treedef, PyObject* tree);
// Owned tree with the leaves of any iterable; ValueError if their number is wrong.
PyObject* treedef_unflatten(PyObject* treedef, PyObject* leaves);
int register_walks(PyObject* module);

// ---- treedefs (pytree_def.cpp) ----

// Owned treedef of the nodes. Takes over their references (also when it fails) and empties `nodes`.
PyTreeDef* make_treedef(std::vector<Node>& nodes);
void release_nodes(std::vector<Node>& nodes);
int register_treedef(PyObject* module);

}  // namespace weft
