// Stub: nothing is registered yet.
#include "module.h"

namespace weft {

int register_aval(PyObject*) { return 0; }

}  // namespace weft
