// Limits of control groups, read from the file system. A container often sees its own group as the root, whatever
// /proc/self/cgroup calls it: where a group has no folder, the limits of its parents are used.
#include "cgroup.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "module.h"

namespace weft {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

template <class T>
void tighten(T* limit, T found) {
  if (found > 0 && (*limit == 0 || found < *limit)) *limit = found;
}

// The number in a text. For "no limit" version 1 has a huge number and version 2 the word "max".
int64_t bytes_of(const std::string& text) {
  long long value = std::strtoll(text.c_str(), nullptr, 10);
  return value > 0 && value < (1LL << 60) ? int64_t(value) : 0;
}

void read_unified(const std::string& folder, CgroupLimits* limits) {
  std::istringstream line(first_line(folder + "/cpu.max"));  // for "max 100000" the quota stays unread
  double quota = 0, period = 0;
  if (line >> quota >> period && quota > 0 && period > 0) tighten(&limits->cpus, quota / period);
  tighten(&limits->bytes, bytes_of(first_line(folder + "/memory.max")));
}

void read_cpu(const std::string& folder, CgroupLimits* limits) {
  double quota = std::atof(first_line(folder + "/cpu.cfs_quota_us").c_str());  // -1: none
  double period = std::atof(first_line(folder + "/cpu.cfs_period_us").c_str());
  if (quota > 0 && period > 0) tighten(&limits->cpus, quota / period);
}

void read_memory(const std::string& folder, CgroupLimits* limits) {
  tighten(&limits->bytes, bytes_of(first_line(folder + "/memory.limit_in_bytes")));
}

// Calls read(folder) for the group at `path` below `mount` and for all above it.
template <class Read>
void walk(const std::string& mount, std::string path, Read read) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    read(mount + path);
    if (path.empty()) return;
    size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace

CgroupLimits cgroup_limits(const std::string& groups, const std::string& root) {
  CgroupLimits limits;
  std::ifstream file(groups);
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/user", or "0::/user" of version 2
    size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string kinds = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    std::string listed = "," + kinds + ",";
    if (kinds.empty())
      for (const char* mount : {"", "/unified"})
        walk(root + mount, path, [&](const std::string& folder) { read_unified(folder, &limits); });
    if (listed.find(",cpu,") != std::string::npos)
      for (const std::string& mount : {std::string("/cpu"), "/" + kinds})
        walk(root + mount, path, [&](const std::string& folder) { read_cpu(folder, &limits); });
    if (listed.find(",memory,") != std::string::npos)
      walk(root + "/memory", path, [&](const std::string& folder) { read_memory(folder, &limits); });
  }
  return limits;
}

namespace {

PyObject* py_cgroup_limits(PyObject*, PyObject* args) {
  const char *groups = "/proc/self/cgroup", *root = "/sys/fs/cgroup";
  if (!PyArg_ParseTuple(args, "|ss", &groups, &root)) return nullptr;
  CgroupLimits limits = cgroup_limits(groups, root);
  return Py_BuildValue("(dL)", limits.cpus, (long long)limits.bytes);
}

PyMethodDef kMethods[] = {
    {"cgroup_limits", entry_point<py_cgroup_limits>, METH_VARARGS,
     "cgroup_limits(groups='/proc/self/cgroup', root='/sys/fs/cgroup') -> (cpus, bytes) that control groups allow; 0: "
     "no limit."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_cgroup(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
