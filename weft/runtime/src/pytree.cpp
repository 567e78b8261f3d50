// Stub: nothing is registered yet.
#include "module.h"

namespace weft {

int register_pytree(PyObject*) { return 0; }

}  // namespace weft
