// Copies of small arrays outside of programs: x[i], x[a:b], x.T, x.reshape(...), concatenations and reversals.
#pragma once

#include "array.h"

namespace weft {

// Owned copy of the view that the arguments after the array name; nullptr without an error if it is not taken here
// (large, not yet computed, another kind of argument, a mistake): a program takes it then, and makes the messages.
using View = PyObject* (*)(Array* array, PyObject* const* args, Py_ssize_t count);

// The view of this name ("index", "ravel", "reshape", "transpose"), or nullptr.
View view_named(const char* name);

}  // namespace weft
