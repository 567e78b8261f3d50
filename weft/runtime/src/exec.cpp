// Stub: nothing is registered yet.
#include "module.h"

namespace weft {

int register_exec(PyObject*) { return 0; }

}  // namespace weft
