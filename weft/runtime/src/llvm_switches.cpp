// LLVM's process-wide switches, set while we emit and as they were while anybody else is in LLVM.
//
// Two parties: emissions of ours, several at once, and the thread that holds llvmlite's lock, which is anybody else's
// way into LLVM (llvmlite tells us, by callbacks, when its lock is taken and let go). One party is in LLVM at a time,
// and finds the switches as it needs them: they are set by the first emission after another's visit, and put back when
// the other comes. All waiting is without the GIL, and an emission runs no Python code: whoever holds llvmlite's lock
// and waits for emissions waits for nothing that may want that lock.
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
  int emitting = 0;        // emissions in LLVM
  int coming = 0;          // others that wait for their end
  int depth = 0;           // how often the other that is in LLVM has taken llvmlite's lock
  std::thread::id other;   // that one's thread
  bool set = false;        // whether the switches are ours
  SetOption set_option = nullptr;
  std::vector<std::string> ours, theirs;

  void put(bool our) {
    if (set == our) return;
    for (const std::string& option : our ? ours : theirs) set_option("weft", option.c_str());
    set = our;
  }
};
Switches* g_switches = new Switches;

// The GIL is free while this lives.
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

PyObject* llvm_other_comes(PyObject*, PyObject*) {
  Switches& switches = *g_switches;
  WithoutGil without_gil;
  std::unique_lock<std::mutex> lock(switches.mutex);
  if (switches.depth++ > 0) return Py_NewRef(Py_None);  // llvmlite's lock lets its holder in again
  switches.other = std::this_thread::get_id();
  ++switches.coming;
  switches.changed.wait(lock, [&] { return switches.emitting == 0; });
  --switches.coming;
  switches.put(false);
  return Py_NewRef(Py_None);
}

PyObject* llvm_other_goes(PyObject*, PyObject*) {
  Switches& switches = *g_switches;
  WithoutGil without_gil;
  std::lock_guard<std::mutex> lock(switches.mutex);
  if (switches.depth > 0 && --switches.depth == 0) switches.changed.notify_all();  // 0: it came before we were told
  return Py_NewRef(Py_None);
}

// Emits; the other's own thread may, in a signal's handler, in the middle of its visit.
void* emit(Emit function, void* machine, void* module, int is_object, const char** message) {
  Switches& switches = *g_switches;
  std::unique_lock<std::mutex> lock(switches.mutex);
  auto visiting = [&] { return switches.depth > 0 && switches.other == std::this_thread::get_id(); };
  switches.changed.wait(lock, [&] { return (switches.depth == 0 && switches.coming == 0) || visiting(); });
  switches.put(true);
  ++switches.emitting;
  lock.unlock();
  void* buffer = function(machine, module, is_object, message);
  lock.lock();
  --switches.emitting;
  if (visiting()) switches.put(false);
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

// A fork waits until no emission runs (codegen/llvm.py); another's visit may be under way on a thread that the child
// does not have.
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
  g_switches = renewed;  // the old one, whose lock the fork took, is left alone
}

PyMethodDef kMethods[] = {
    {"llvm_install_switches", entry_point<llvm_install_switches>, METH_VARARGS,
     "llvm_install_switches(address of LLVM's setter, switches of ours, the same as they were): of all emissions to come."},
    {"llvm_other_comes", llvm_other_comes, METH_NOARGS, "Somebody has taken llvmlite's lock: waits for emissions."},
    {"llvm_other_goes", llvm_other_goes, METH_NOARGS, "Somebody lets go of llvmlite's lock."},
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
