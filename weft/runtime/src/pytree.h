// Pytrees: PyTreeDef and the native walks over containers.
#pragma once

#include <vector>

#include "python.h"

namespace weft {

struct PyTreeDef;

extern PyTypeObject* PyTreeDefType;

inline bool is_treedef(PyObject* object) { return Py_TYPE(object) == PyTreeDefType; }

// Number of leaves of a treedef.
int64_t treedef_num_leaves(const PyTreeDef* treedef);

// Flattens tree, appending an owned reference per leaf; returns the owned treedef, or nullptr with an error set
// (leaves appended so far stay the caller's to release). leaf_predicate may be nullptr.
PyTreeDef* pytree_flatten(PyObject* tree, std::vector<PyObject*>& leaves, PyObject* leaf_predicate);

// Owned tree with the given leaves (borrowed, exactly treedef_num_leaves of them).
PyObject* pytree_unflatten(const PyTreeDef* treedef, PyObject* const* leaves);

}  // namespace weft
