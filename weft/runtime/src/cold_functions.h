// Functions that kernels call through a table, for rare lanes: huge trigonometric arguments, rare special functions.
#pragma once

#include <cstdint>

#include "python.h"

namespace weft {

// in0, in1, out0, out1 hold `lanes` elements each (see the list in cold_functions.cpp); inputs never alias outputs.
using Helper = void (*)(const void* in0, const void* in1, void* out0, void* out1, int64_t lanes);

// The table passed to every kernel; it exists as long as the process. Positions never change, new ones are appended.
const void* const* helper_table();

// The helper "poll": writes to out0 (i32) whether the loop that asks should stop. Defined in control_steps.cpp.
void poll_interrupt(const void* in0, const void* in1, void* out0, void* out1, int64_t lanes);

int register_helpers(PyObject* module);  // helper_names(), helper_table_address, call_helper (for tests)

}  // namespace weft
