// LLVM's process-wide switches: set during our own code emission, restored whenever other code uses LLVM.
//
// There are two parties: our emissions (several may run at once), and the thread that holds llvmlite's lock, through
// which all other users enter LLVM. llvmlite calls us back when its lock is taken and released. One party is in LLVM at
// a time. The first emission after the other party sets the switches; when the other party comes, they are restored.
// All waits release the GIL, and an emission runs no Python code: so a thread that holds llvmlite's lock and waits for
// emissions cannot deadlock.
#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "module.h"

namespace weft {
namespace {

using SetOption = void (*)(const char* program, const char* option);
using Emit = void* (*)(void* machine, void* module, int is_object, const char** message);

struct Switches {
  std::mutex mutex;
  std::condition_variable changed;
  int emitting = 0;  // number of our emissions in LLVM
  int coming = 0;  // threads of the other party that wait for them to end
  int depth = 0;  // how often the thread of the other party has taken llvmlite's lock
  std::thread::id other;  // that thread
  bool set = false;  // whether the switches have our values
  SetOption set_option = nullptr;
  std::vector<std::string> ours, theirs;

  void put(bool our) {
    if (set == our) return;
    for (const std::string& option : our ? ours : theirs) set_option("weft", option.c_str());
    set = our;
  }
};
Switches* g_switches = new Switches;

// Releases the GIL for the lifetime of the object.
class WithoutGil {
 public:
  WithoutGil() = default;
  ~WithoutGil() { in_python<PyEval_RestoreThread>(saved_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* saved_ = PyEval_SaveThread();
};

bool texts_of(PyObject* list, std::vector<std::string>& texts) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    const char* text = PyUnicode_AsUTF8(PyList_GET_ITEM(list, i));
    if (text == nullptr) return false;
    texts.push_back(text);
  }
  return true;
}

PyObject* llvm_install_switches(PyObject*, PyObject* args) {
  unsigned long long address;
  PyObject *ours, *theirs;
  if (!PyArg_ParseTuple(args, "KO!O!:llvm_install_switches", &address, &PyList_Type, &ours, &PyList_Type, &theirs))
    return nullptr;
  std::vector<std::string> our_texts, their_texts;
  if (!texts_of(ours, our_texts) || !texts_of(theirs, their_texts)) return nullptr;
  WithoutGil without_gil;
  std::lock_guard<std::mutex> lock(g_switches->mutex);
  g_switches->set_option = reinterpret_cast<SetOption>(address);
  g_switches->ours = std::move(our_texts);
  g_switches->theirs = std::move(their_texts);
  return Py_NewRef(Py_None);
}

PyObject* llvm_lock_taken(PyObject*, PyObject*) {
  Switches& switches = *g_switches;
  WithoutGil without_gil;
  std::unique_lock<std::mutex> lock(switches.mutex);
  if (switches.depth++ > 0) return Py_NewRef(Py_None);  // llvmlite's lock is reentrant
  switches.other = std::this_thread::get_id();
  ++switches.coming;
  switches.changed.wait(lock, [&] { return switches.emitting == 0; });
  --switches.coming;
  switches.put(false);
  return Py_NewRef(Py_None);
}

PyObject* llvm_lock_released(PyObject*, PyObject*) {
  Switches& switches = *g_switches;
  WithoutGil without_gil;
  std::lock_guard<std::mutex> lock(switches.mutex);
  // depth is 0 if the lock was taken before our callbacks were installed
  if (switches.depth > 0 && --switches.depth == 0) switches.changed.notify_all();
  return Py_NewRef(Py_None);
}

// Emits an object file. A signal handler may call this on the thread of the other party, while that is in LLVM.
void* emit(Emit function, void* machine, void* module, int is_object, const char** message) {
  Switches& switches = *g_switches;
  std::unique_lock<std::mutex> lock(switches.mutex);
  auto is_other = [&] { return switches.depth > 0 && switches.other == std::this_thread::get_id(); };
  switches.changed.wait(lock, [&] { return (switches.depth == 0 && switches.coming == 0) || is_other(); });
  switches.put(true);
  ++switches.emitting;
  lock.unlock();
  void* buffer = function(machine, module, is_object, message);
  lock.lock();
  --switches.emitting;
  if (is_other()) switches.put(false);
  switches.changed.notify_all();
  return buffer;
}

PyObject* llvm_emit(PyObject*, PyObject* args) {
  unsigned long long function, machine, module, message;
  int is_object;
  if (!PyArg_ParseTuple(args, "KKKiK:llvm_emit", &function, &machine, &module, &is_object, &message)) return nullptr;
  void* buffer;
  {
    WithoutGil without_gil;
    buffer = emit(reinterpret_cast<Emit>(function), reinterpret_cast<void*>(machine), reinterpret_cast<void*>(module),
                  is_object, reinterpret_cast<const char**>(message));
  }
  return PyLong_FromVoidPtr(buffer);
}

// A fork waits until no emission runs (codegen/llvm.py); the other party may be in LLVM on a thread that the child does
// not have.
void renew_in_child() {
  Switches& old = *g_switches;
  auto* renewed = new Switches;
  bool own_visit = old.depth > 0 && old.other == std::this_thread::get_id();
  renewed->depth = own_visit ? old.depth : 0;
  renewed->other = old.other;
  renewed->set = old.set;
  renewed->set_option = old.set_option;
  renewed->ours = old.ours;
  renewed->theirs = old.theirs;
  g_switches = renewed;  // the old one is leaked: a lock in it may be held for ever
}

PyMethodDef kMethods[] = {
    {"llvm_install_switches", entry_point<llvm_install_switches>, METH_VARARGS,
     "llvm_install_switches(address of LLVM's setter, switches of ours, the same as they were): for all later emissions."},
    {"llvm_lock_taken", llvm_lock_taken, METH_NOARGS, "Callback: llvmlite's lock was taken. Waits for emissions."},
    {"llvm_lock_released", llvm_lock_released, METH_NOARGS, "Callback: llvmlite's lock is being released."},
    {"llvm_emit", entry_point<llvm_emit>, METH_VARARGS,
     "llvm_emit(address of LLVM's emitter, machine, module, is_object, address of a message) -> address of a buffer, or 0."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_llvm_switches(PyObject* module) {
  pthread_atfork([] { g_switches->mutex.lock(); }, [] { g_switches->mutex.unlock(); }, renew_in_child);
  return PyModule_AddFunctions(module, kMethods);
}

}  // namespace weft
