// The share of the machine that the control groups of this process allow: CPUs and memory.
#pragma once

#include <cstdint>
#include <string>

#include "python.h"

namespace weft {

struct CgroupLimits {
  double cpus = 0;    // 0: no limit
  int64_t bytes = 0;  // likewise
};

// The strictest limits of the groups listed in the file `groups` (like /proc/self/cgroup) and of all their parents, in
// the hierarchies mounted under `root`. Versions 1 and 2 of control groups; what cannot be read sets no limit.
CgroupLimits cgroup_limits(const std::string& groups = "/proc/self/cgroup", const std::string& root = "/sys/fs/cgroup");

int register_cgroup(PyObject* module);  // cgroup_limits

}  // namespace weft
