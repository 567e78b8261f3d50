// source_stamps: size and modification time of every Python file below a folder. One native call, since every process
// that uses the disk cache needs them.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "module.h"

namespace weft {
namespace {

struct Stamp {
  std::string name;  // relative to the first folder
  long long nbytes;
  long long changed_ns;
};

bool ends_with(const std::string& name, const char* suffix, size_t length) {
  return name.size() > length && name.compare(name.size() - length, length, suffix) == 0;
}

// Takes over `handle`, an open folder. False, with errno set, if something cannot be read.
bool walk(int handle, const std::string& above, std::vector<Stamp>* found) {
  DIR* folder = fdopendir(handle);
  if (folder == nullptr) {
    close(handle);
    return false;
  }
  bool fine = true;
  std::vector<std::string> inner;
  while (dirent* entry = readdir(folder)) {
    std::string name = entry->d_name;
    struct stat status;
    if (name[0] == '.' || name == "__pycache__") continue;
    bool source = ends_with(name, ".py", 3);
    if (!source && name.find('.') != std::string::npos) continue;
    if (fstatat(handle, name.c_str(), &status, 0) != 0) {
      fine = false;
      break;
    }
    if (S_ISDIR(status.st_mode))
      inner.push_back(name);
    else if (source)
      found->push_back({above + name, (long long)status.st_size,
                        (long long)status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec});
  }
  for (size_t i = 0; fine && i < inner.size(); ++i) {
    int below = openat(handle, inner[i].c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fine = below >= 0 && walk(below, above + inner[i] + "/", found);
  }
  closedir(folder);
  return fine;
}

PyObject* py_source_stamps(PyObject*, PyObject* root) {
  const char* path = PyUnicode_AsUTF8(root);
  if (path == nullptr) return nullptr;
  std::vector<Stamp> found;
  int handle = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0 || !walk(handle, "", &found)) return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, root);
  Ref list = steal(PyList_New(Py_ssize_t(found.size())));
  for (size_t i = 0; list && i < found.size(); ++i) {
    PyObject* item = Py_BuildValue("(sLL)", found[i].name.c_str(), found[i].nbytes, found[i].changed_ns);
    if (item == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), Py_ssize_t(i), item);
  }
  return list.release();
}

PyMethodDef kMethods[] = {
    {"source_stamps", entry_point<py_source_stamps>, METH_O,
     "source_stamps(folder) -> [(relative name, bytes, time of change in ns)] of every .py file below a folder, in no "
     "order. Raises OSError."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_sources(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
