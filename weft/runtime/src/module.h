// What each source adds to the module weft.runtime._native. Every function returns 0, or -1 with a Python error set.
#pragma once

#include "python.h"

namespace weft {

int register_aval(PyObject* module);    // ShapedArray
int register_buffer(PyObject* module);  // memory statistics
int register_array(PyObject* module);   // Array, array_from_numpy, array_alias
int register_dlpack(PyObject* module);  // from_dlpack
int register_pytree(PyObject* module);  // PyTreeDef, tree_flatten, ...
int register_exec(PyObject* module);    // Kernel, Executable, Pool, HELPERS
int register_jit(PyObject* module);     // JitFunction, CacheEntry, BinaryOperator, UnaryOperator, config token
int register_sources(PyObject* module);  // source_stamps

}  // namespace weft
