// Finds LAPACK and limits its threads to weft's. See lapack.h.
#include "lapack.h"

#include <dlfcn.h>
#include <pthread.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>

#include "module.h"

namespace weft {
namespace {

// The names of a Fortran routine and the width of its integers: in the OpenBLAS of NumPy's wheels and of SciPy's, in any
// LAPACK of a system, in Apple's.
struct Spelling {
  const char *before, *after;
  bool is_wide;
};
constexpr Spelling kSpellings[] = {{"scipy_", "_64_", true},      {"scipy_", "_", false},
                                   {"", "_64_", true},            {"", "_", false},
                                   {"", "$NEWLAPACK$ILP64", true}, {"", "$NEWLAPACK", false}};
// A NumPy built without a LAPACK has a few routines of its own, and this is not among them.
constexpr char kRare[] = "dgees";

PyObject* g_finder = nullptr;  // Python function that returns the paths of shared objects, in order of preference
void* g_library = nullptr;
const Spelling* g_spelling = nullptr;
void (*g_set_threads)(int) = nullptr;
int (*g_get_threads)() = nullptr;

std::string spelled(const Spelling& spelling, const std::string& name) {
  return spelling.before + name + spelling.after;
}

// Takes a library if it has LAPACK under one of the spellings.
bool take_library(void* library) {
  for (const Spelling& spelling : kSpellings) {
    if (dlsym(library, spelled(spelling, kRare).c_str()) == nullptr) continue;
    for (const char* prefix : {"scipy_", ""})
      for (const char* suffix : {"64_", ""}) {
        std::string word = std::string(prefix) + "openblas_";
        auto set = reinterpret_cast<void (*)(int)>(dlsym(library, (word + "set_num_threads" + suffix).c_str()));
        auto get = reinterpret_cast<int (*)()>(dlsym(library, (word + "get_num_threads" + suffix).c_str()));
        if (g_set_threads != nullptr || set == nullptr || get == nullptr) continue;
        g_set_threads = set;
        g_get_threads = get;
      }
    g_library = library;
    g_spelling = &spelling;
    return true;
  }
  return false;
}

bool open_library() {
  if (g_spelling != nullptr) return true;
  if (g_finder == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "[lapack] set_lapack_finder has not been called");
    return false;
  }
  Ref paths = steal(in_python<PyObject_CallNoArgs>(g_finder));
  Ref list = paths ? steal(in_python<PySequence_List>(paths.get())) : Ref();
  if (!list) return false;
  std::string tried;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    const char* path = PyUnicode_AsUTF8(PyList_GET_ITEM(list.get(), i));
    if (path == nullptr) return false;
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr && take_library(library)) return true;
    tried += std::string("\n  ") + path + ": " + (library == nullptr ? dlerror() : "gives access to no whole LAPACK");
  }
  PyErr_Format(PyExc_ImportError,
               "[lapack] linear algebra calls the LAPACK that NumPy's or SciPy's wheel brings, and none was found: pip "
               "install numpy (a wheel, not a build of your own), or pip install scipy. Tried:%s",
               tried.empty() ? " nothing" : tried.c_str());
  return false;
}

// How many calls are inside LAPACK, and with how many threads.
struct Inside {
  std::mutex mutex;
  std::condition_variable left;
  int users = 0, count = 0, before = 0;
};

// Never destroyed: a thread may still be inside at exit. A forked child, where no thread is inside, gets a new one.
alignas(Inside) unsigned char g_inside_memory[sizeof(Inside)];
Inside* g_inside = new (g_inside_memory) Inside;
[[maybe_unused]] const int g_at_fork =
    pthread_atfork(nullptr, nullptr, [] { g_inside = new (g_inside_memory) Inside; });

PyObject* set_lapack_finder(PyObject*, PyObject* finder) {
  if (!PyCallable_Check(finder)) {
    PyErr_SetString(PyExc_TypeError, "[lapack] the finder must be a function, which returns a path");
    return nullptr;
  }
  Py_XSETREF(g_finder, Py_NewRef(finder));
  Py_RETURN_NONE;
}

PyObject* lapack_threads(PyObject*, PyObject*) {
  if (!open_library()) return nullptr;
  return PyLong_FromLong(g_get_threads == nullptr ? 0 : g_get_threads());
}

PyMethodDef kFunctions[] = {
    {"set_lapack_finder", entry_point<set_lapack_finder>, METH_O,
     "Sets a function without arguments that returns the paths of shared objects that may give access to "
     "LAPACK, in order of preference; it is called when LAPACK is first needed."},
    {"lapack_threads", entry_point<lapack_threads>, METH_NOARGS,
     "Number of threads LAPACK uses outside weft's calls; 0 if unknown."},
    {},
};

}  // namespace

void read_integers(const Int* from, int64_t count, int32_t* to) {
  const auto* narrow = reinterpret_cast<const char*>(from);
  int64_t width = g_spelling->is_wide ? 8 : 4;
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i, narrow + i * width, 4);
}

void* lapack_routine(const std::string& name) {
  if (!open_library()) return nullptr;
  void* found = dlsym(g_library, spelled(*g_spelling, name).c_str());
  if (found == nullptr) PyErr_Format(PyExc_ImportError, "[lapack] the LAPACK that was found has no %s", name.c_str());
  return found;
}

LapackThreads::LapackThreads(int count) {
  if (g_set_threads == nullptr) return;
  std::unique_lock<std::mutex> lock(g_inside->mutex);
  g_inside->left.wait(lock, [count] { return g_inside->users == 0 || g_inside->count == count; });
  if (g_inside->users++ > 0) return;
  g_inside->count = count;
  g_inside->before = g_get_threads();
  if (g_inside->before != count) g_set_threads(count);
}

LapackThreads::~LapackThreads() {
  if (g_set_threads == nullptr) return;
  std::lock_guard<std::mutex> lock(g_inside->mutex);
  if (--g_inside->users > 0) return;
  if (g_inside->before != g_inside->count) g_set_threads(g_inside->before);
  g_inside->left.notify_all();
}

int register_lapack(PyObject* module) { return PyModule_AddFunctions(module, kFunctions); }

}  // namespace weft
