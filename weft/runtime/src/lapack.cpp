// Finds LAPACK and limits its threads to weft's. See lapack.h.
#include "lapack.h"

#include <dlfcn.h>
#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <new>

#include "module.h"

namespace weft {
namespace {

// The names of a Fortran routine: in SciPy's own OpenBLAS, in any LAPACK of a system, in Apple's.
struct Spelling {
  const char *before, *after;
};
constexpr Spelling kSpellings[] = {{"scipy_", "_"}, {"", "_"}, {"", "$NEWLAPACK"}};

PyObject* g_finder = nullptr;  // Python function that returns the path of the shared object
void* g_library = nullptr;
const Spelling* g_spelling = nullptr;
void (*g_set_threads)(int) = nullptr;
int (*g_get_threads)() = nullptr;

std::string spelled(const Spelling& spelling, const std::string& name) {
  return spelling.before + name + spelling.after;
}

bool open_library() {
  if (g_spelling != nullptr) return true;
  if (g_finder == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "[lapack] set_lapack_finder has not been called");
    return false;
  }
  Ref path = steal(in_python<PyObject_CallNoArgs>(g_finder));
  if (!path) return false;
  const char* text = PyUnicode_AsUTF8(path.get());
  if (text == nullptr) return false;
  if (g_library == nullptr) g_library = dlopen(text, RTLD_NOW | RTLD_LOCAL);
  if (g_library == nullptr) {
    PyErr_Format(PyExc_ImportError, "[lapack] %s cannot be opened: %s", text, dlerror());
    return false;
  }
  for (const Spelling& spelling : kSpellings) {
    if (dlsym(g_library, spelled(spelling, "dpotrf").c_str()) == nullptr) continue;
    for (const char* prefix : {"scipy_", ""}) {
      std::string word = std::string(prefix) + "openblas_";
      auto set = reinterpret_cast<void (*)(int)>(dlsym(g_library, (word + "set_num_threads").c_str()));
      auto get = reinterpret_cast<int (*)()>(dlsym(g_library, (word + "get_num_threads").c_str()));
      if (set == nullptr || get == nullptr) continue;
      g_set_threads = set;
      g_get_threads = get;
      break;
    }
    g_spelling = &spelling;
    return true;
  }
  PyErr_Format(PyExc_ImportError,
               "[lapack] %s gives access to no LAPACK with 32-bit integers (looked for scipy_dpotrf_, dpotrf_ and "
               "dpotrf$NEWLAPACK); install SciPy's own wheel: pip install scipy",
               text);
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
     "Sets a function without arguments that returns the path of the shared object with LAPACK; it is "
     "called when LAPACK is first needed."},
    {"lapack_threads", entry_point<lapack_threads>, METH_NOARGS,
     "Number of threads LAPACK uses outside weft's calls; 0 if unknown."},
    {},
};

}  // namespace

void* lapack_routine(const std::string& name) {
  if (!open_library()) return nullptr;
  void* found = dlsym(g_library, spelled(*g_spelling, name).c_str());
  if (found == nullptr) PyErr_Format(PyExc_ImportError, "[lapack] the LAPACK of SciPy has no %s", name.c_str());
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
