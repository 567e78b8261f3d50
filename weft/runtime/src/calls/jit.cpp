// Calls of jitted functions. The arguments give a signature, by which the program is looked up (call_cached). For a new
// signature Python is asked (call_new), and the program it returns is installed in the table.
#include "jit.h"

#include <new>

#include "dispatch_table.h"
#include "module.h"
#include "operands.h"
#include "pjrt.h"

namespace weft {

PyTypeObject* JitFunctionType = nullptr;

namespace {

constexpr uint32_t kStackOutputs = 96;

constexpr uint64_t kFollowDefault = ~uint64_t{0};

thread_local uint64_t t_config __attribute__((tls_model("initial-exec"))) = kFollowDefault;
thread_local bool t_tracing __attribute__((tls_model("initial-exec"))) = false;
uint64_t g_default_config = 0;         // guarded by the GIL
PyObject* g_traceback_hook = nullptr;  // owned, or nullptr
JitFunction* g_latest = nullptr;       // the list of those that are alive; guarded by the GIL

// ---- results ----

PyObject* result_at(uint32_t place, ShapedArray* aval, Buffer* output) {
  PyObject* made = result_new(aval, output);
  if (place != 0 && made != nullptr && is_array(made)) reinterpret_cast<Array*>(made)->place = place;
  return made;
}
PyObject* result_at(uint32_t place, ShapedArray* aval, Remote* output) {
  return remote_result_new(aval, output, place);
}
// The result as an Array that may lie across processes.
PyObject* result_across(uint32_t place, ShapedArray* aval, Buffer* output) {
  if (aval->nbytes <= output->nbytes) return result_at(place, aval, output);
  return reinterpret_cast<PyObject*>(array_new_with_block(aval, output, place));
}
PyObject* result_across(uint32_t place, ShapedArray* aval, Remote* output) { return result_at(place, aval, output); }
void output_release(Buffer* output) { buffer_release(output); }
void output_release(Remote* output) { remote_release(output); }

// Wraps the outputs (stolen) and puts them into the result's structure.
template <class Output>
PyObject* make_result(const CacheEntry* cached, Output** outputs) {
  Py_ssize_t count = Py_ssize_t(cached->out_avals->size());
  ShapedArray* const* avals = cached->out_avals->data();
  const uint32_t* places = cached->out_places != nullptr ? cached->out_places->data() : nullptr;
  if (cached->out_shape == 'l') {
    uint32_t place = places != nullptr ? *places : cached->place;
    return cached->has_parts ? result_across(place, avals[0], outputs[0]) : result_at(place, avals[0], outputs[0]);
  }
  PyObject* tuple = PyTuple_New(count);
  Py_ssize_t made = 0;
  for (; tuple != nullptr && made < count; ++made) {
    uint32_t place = places != nullptr ? places[made] : cached->place;
    PyObject* array = cached->has_parts ? result_across(place, avals[made], outputs[made])
                                        : result_at(place, avals[made], outputs[made]);
    if (array == nullptr) Py_CLEAR(tuple);
    else PyTuple_SET_ITEM(tuple, made, array);
  }
  for (; made < count; ++made) output_release(outputs[made]);
  if (tuple == nullptr || cached->out_shape == 't') return tuple;
  PyObject* result = pytree_unflatten(cached->out_tree, &PyTuple_GET_ITEM(tuple, 0));
  Py_DECREF(tuple);
  return result;
}

// ---- calls ----

// Runs a known program. *handled = false: the caller must take the slow path.
PyObject* call_cached(Entry* entry, Signature& signature, bool* handled) {
  *handled = true;
  CacheEntry* cached = entry->cached;
  const Plan& plan = *cached->executable->plan;
  struct Held {  // code that runs during this call may evict the entry
    Entry* entry;
    ~Held() { entry_release(entry); }
  } held{entry};
  ++entry->references;
  if (plan.number != 0) return call_on_device(entry, signature, handled);
  Operands operands(uint32_t(plan.n_inputs));
  int status = operands.gather(entry, signature);
  if (status <= 0) {
    *handled = status < 0;
    return nullptr;
  }
  if (cached->any_donated && operands.donate(entry, signature) < 0) return nullptr;
  uint32_t count = uint32_t(plan.outputs.size());
  Buffer* stack[kStackOutputs];
  std::unique_ptr<Buffer*[]> heap;
  Buffer** outputs = stack;
  if (count > kStackOutputs) {
    heap = std::make_unique<Buffer*[]>(count);
    outputs = heap.get();
  }
  const bool* donated = cached->any_donated ? operands.donated() : nullptr;
  status = executable_run(cached->executable, operands.data(), donated, outputs);
  if (status == kNotStarted) operands.give_back();
  return status == 0 ? make_result(cached, outputs) : nullptr;
}

// Whether the program's inputs are the leaves this signature has; fills entry->order.
bool match_inputs(Entry* entry, const Signature& signature, const std::vector<uint32_t>& canonical) {
  const CacheEntry* cached = entry->cached;
  const Plan& plan = *cached->executable->plan;
  size_t n_consts = cached->consts->size();
  for (size_t i = 0; i < cached->leaf_indices->size(); ++i) {
    uint32_t index = (*cached->leaf_indices)[i];
    if (index >= canonical.size() || canonical[index] >= signature.leaves().size()) {
      PyErr_Format(PyExc_ValueError, "[jit] the program takes leaf %u of the arguments, which have %zd leaves", index,
                   Py_ssize_t(canonical.size()));
      return false;
    }
    entry->order.push_back(canonical[index]);
    const Leaf& leaf = signature.leaves()[canonical[index]];
    if (plan.in_avals.empty() || leaf.kind != LeafKind::array) continue;
    const ShapedArray* wanted = plan.in_avals[n_consts + i];
    ShapedArray* given = reinterpret_cast<Array*>(leaf.object)->aval;
    if (given->nbytes >= wanted->nbytes) continue;
    PyErr_Format(PyExc_ValueError, "[jit] argument leaf %u has fewer bytes than the program reads", index);
    return false;
  }
  for (size_t i = 0; i < plan.in_avals.size(); ++i) {  // storage of a scalar has 16 bytes
    if (i < n_consts) continue;
    LeafKind kind = signature.leaves()[entry->order[i - n_consts]].kind;
    if (kind == LeafKind::array || kind >= LeafKind::ndarray || plan.in_avals[i]->ndim == 0) continue;
    PyErr_SetString(PyExc_ValueError, "[jit] the program takes an array where a scalar was given");
    return false;
  }
  return true;
}

// Lets a Python hook remove frames from the traceback of the current exception.
void filter_traceback() {
  if (g_traceback_hook == nullptr) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value != nullptr && PyExceptionInstance_Check(value)) {
    if (traceback != nullptr) PyException_SetTraceback(value, traceback);
    Ref hook = borrow(g_traceback_hook);
    Ref answer = steal(in_python<PyObject_CallOneArg>(hook.get(), value));
    if (!answer) in_python<PyErr_WriteUnraisable>(hook.get());
    Py_XDECREF(traceback);
    traceback = PyException_GetTraceback(value);
  }
  PyErr_Restore(type, value, traceback);
}

// Asks Python for (result, program to install or None). With `runs`, Python gets the function itself as its last
// argument and returns only the program, which this call then runs.
Ref call_slow(JitFunction* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords, bool runs) {
  Ref positional = steal(PyTuple_New(count));
  Ref named = steal(PyDict_New());
  if (!positional || !named) return Ref();
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; keywords != nullptr && i < PyTuple_GET_SIZE(keywords); ++i)
    if (PyDict_SetItem(named.get(), PyTuple_GET_ITEM(keywords, i), args[count + i]) < 0) return Ref();
  PyObject* arguments[] = {positional.get(), named.get(), runs ? reinterpret_cast<PyObject*>(self) : Py_None};
  Ref slow = borrow(self->slow);
  Ref answer = steal(in_python<PyObject_Vectorcall>(slow.get(), arguments, 3, nullptr));
  if (!answer) {
    filter_traceback();
    return Ref();
  }
  if (runs && Py_TYPE(answer.get()) == CacheEntryType) return answer;
  if (!PyTuple_Check(answer.get()) || PyTuple_GET_SIZE(answer.get()) != 2) {
    PyErr_SetString(PyExc_TypeError, "[jit] the slow path must return (result, entry or None)");
    return Ref();
  }
  return answer;
}

// Clears an error that the slow path raises again with a better message. False for an interrupt, which stays set.
bool clear_ordinary_error() {
  if (!PyErr_Occurred()) return true;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyErr_Clear();
  return true;
}

// Puts a program under the signature of a call; a reference to its entry, or nullptr with an error set.
Entry* install(JitFunction* self, Signature& signature, const std::vector<uint32_t>& canonical, PyObject* cached) {
  if (Py_TYPE(cached) != CacheEntryType) {
    PyErr_SetString(PyExc_TypeError, "[jit] the slow path must return (result, CacheEntry or None)");
    return nullptr;
  }
  Entry* entry = new Entry;
  entry->hash = signature.hash();
  entry->tokens.assign(signature.tokens().data(), signature.tokens().data() + signature.tokens().size());
  entry->owned = std::move(signature.collected());
  signature.collected().clear();
  for (uint32_t i = 0; i < signature.compared().size(); ++i)
    entry->compared.push_back(Py_NewRef(signature.compared()[i]));
  entry->cached = reinterpret_cast<CacheEntry*>(Py_NewRef(cached));
  if (!match_inputs(entry, signature, canonical)) {
    entry_release(entry);
    return nullptr;
  }
  ++entry->references;
  if (table_install(self, signature, entry)) return entry;
  entry_release(entry);
  return nullptr;
}

PyObject* call_new(JitFunction* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords, bool installable) {
  Signature signature;  // a signature of its own, which also owns every object whose address it holds
  std::vector<uint32_t> canonical;
  installable = installable && signature.write(*self->names, config_token(), args, count, keywords, true) &&
                canonical_order(*self->names, args, count, keywords, &canonical);
  if (!clear_ordinary_error()) return nullptr;
  if (installable) signature.retain();
  Ref answer = call_slow(self, args, count, keywords, installable);
  if (!answer) return nullptr;
  if (installable && Py_TYPE(answer.get()) == CacheEntryType) {
    Entry* entry = install(self, signature, canonical, answer.get());
    if (entry == nullptr) return nullptr;
    bool handled;
    PyObject* result = call_cached(entry, signature, &handled);
    entry_release(entry);
    if (handled) return result;
    if (!clear_ordinary_error()) return nullptr;
    answer = call_slow(self, args, count, keywords, false);  // an argument has to be converted in Python
    if (!answer) return nullptr;
  } else if (PyObject* cached = PyTuple_GET_ITEM(answer.get(), 1); cached != Py_None && installable) {
    Entry* entry = install(self, signature, canonical, cached);
    if (entry == nullptr) return nullptr;
    entry_release(entry);
  }
  return Py_NewRef(PyTuple_GET_ITEM(answer.get(), 0));
}

PyObject* call(JitFunction* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  if (t_tracing) return call_new(self, args, count, keywords, false);
  Signature signature;
  bool known_leaves = signature.write(*self->names, config_token(), args, count, keywords, false);
  if (known_leaves) {
    Entry* entry = table_find(self, signature);
    if (entry != nullptr) {
      bool handled;
      PyObject* result = call_cached(entry, signature, &handled);
      if (handled) {
        ++self->hits;
        return result;
      }
    }
  }
  if (!clear_ordinary_error()) return nullptr;
  return call_new(self, args, count, keywords, known_leaves);
}

}  // namespace

bool is_tracing() { return t_tracing; }

PyObject* remote_results(const CacheEntry* cached, Remote** outputs) { return make_result(cached, outputs); }

uint64_t config_token() { return t_config == kFollowDefault ? g_default_config : t_config; }

void jit_retire(CacheEntry* cached) {
  std::vector<Entry*> removed;
  while (!cached->holders->empty()) {
    auto [table, entry] = cached->holders->back();
    table_remove(table, entry);
    removed.push_back(entry);
  }
  g_retired += removed.size();
  for (Entry* entry : removed) entry_release(entry);  // last, since it may run destructors
}

PyObject* jit_call(PyObject* self, PyObject* const* args, size_t flags, PyObject* keywords) {
  try {
    return call(reinterpret_cast<JitFunction*>(self), args, PyVectorcall_NARGS(flags), keywords);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

namespace {

// ---- the type

bool read_names(PyObject* argnums, PyObject* argnames, StaticNames* names) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(argnums); ++i) {
    long long argnum = PyLong_AsLongLong(PyTuple_GET_ITEM(argnums, i));
    if (argnum == -1 && PyErr_Occurred()) return false;
    if (argnum < 0) {
      PyErr_SetString(PyExc_ValueError, "[JitFunction] static_argnums must not be negative here");
      return false;
    }
    names->argnums.push_back(argnum);
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(argnames); ++i) {
    PyObject* name = PyTuple_GET_ITEM(argnames, i);
    if (!PyUnicode_CheckExact(name)) {
      PyErr_SetString(PyExc_TypeError, "[JitFunction] static_argnames must be strings");
      return false;
    }
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    names->argnames.push_back(name);
  }
  return true;
}

PyObject* jit_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"slow", "static_argnums", "static_argnames", nullptr};
  PyObject *slow, *argnums = nullptr, *argnames = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O!O!", const_cast<char**>(keywords), &slow, &PyTuple_Type, &argnums,
                                   &PyTuple_Type, &argnames))
    return nullptr;
  if (!PyCallable_Check(slow)) {
    PyErr_SetString(PyExc_TypeError, "[JitFunction] slow must be callable");
    return nullptr;
  }
  Ref owner = steal(type->tp_alloc(type, 0));
  if (!owner) return nullptr;
  JitFunction* self = reinterpret_cast<JitFunction*>(owner.get());
  self->vectorcall = jit_call;
  self->slow = Py_NewRef(slow);
  self->static_argnums = argnums != nullptr ? Py_NewRef(argnums) : PyTuple_New(0);
  self->static_argnames = argnames != nullptr ? Py_NewRef(argnames) : PyTuple_New(0);
  self->names = new (std::nothrow) StaticNames;
  self->slots = g_no_slots;
  if (self->names == nullptr) return PyErr_NoMemory();
  if (self->static_argnums == nullptr || self->static_argnames == nullptr) return nullptr;
  if (!read_names(self->static_argnums, self->static_argnames, self->names)) return nullptr;
  self->before = g_latest;
  if (g_latest != nullptr) g_latest->after = self;
  g_latest = self;
  return owner.release();
}

void take_out_of_list(JitFunction* self) {
  if (self->before != nullptr) self->before->after = self->after;
  if (self->after != nullptr) self->after->before = self->before;
  else if (g_latest == self) g_latest = self->before;
}

int jit_traverse(PyObject* object, visitproc visit, void* arg) {
  JitFunction* self = reinterpret_cast<JitFunction*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->slow);
  Py_VISIT(self->dict);
  Py_VISIT(self->static_argnums);
  Py_VISIT(self->static_argnames);
  for (uint32_t i = 0; self->slots != nullptr && i <= self->mask; ++i) {
    Entry* entry = self->slots[i];
    if (entry == nullptr || entry->references != 1) continue;  // in use by a running call
    for (PyObject* owned : entry->owned) Py_VISIT(owned);
    for (PyObject* compared : entry->compared) Py_VISIT(compared);
    Py_VISIT(entry->cached);
  }
  return 0;
}

int jit_clear(PyObject* object) {
  JitFunction* self = reinterpret_cast<JitFunction*>(object);
  if (self->slots != nullptr) table_clear(self);
  Py_CLEAR(self->dict);
  PyObject* slow = self->slow;  // may still be called by finalizers
  self->slow = Py_NewRef(Py_None);
  Py_XDECREF(slow);
  return 0;
}

void jit_dealloc(PyObject* object) {
  JitFunction* self = reinterpret_cast<JitFunction*>(object);
  PyObject_GC_UnTrack(object);
  take_out_of_list(self);
  if (self->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  if (self->slots != nullptr) table_clear(self);
  if (self->names != nullptr)
    for (PyObject* name : self->names->argnames) Py_DECREF(name);
  delete self->names;
  Py_XDECREF(self->slow);
  Py_XDECREF(self->dict);
  Py_XDECREF(self->static_argnums);
  Py_XDECREF(self->static_argnames);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* jit_get(PyObject* self, PyObject* instance, PyObject*) {
  return instance == nullptr || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

PyObject* jit_clear_cache(PyObject* self, PyObject*) {
  table_clear(reinterpret_cast<JitFunction*>(self));
  Py_RETURN_NONE;
}
PyObject* jit_cache_size(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLong(reinterpret_cast<JitFunction*>(self)->count);
}

PyMethodDef kMethods[] = {
    {"clear_cache", jit_clear_cache, METH_NOARGS, "Removes every signature."},
    {"cache_size", jit_cache_size, METH_NOARGS, "Number of signatures in the table."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef kMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(JitFunction, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(JitFunction, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(JitFunction, weakrefs), READONLY, nullptr},
    {"slow", T_OBJECT, offsetof(JitFunction, slow), READONLY,
     "slow(args, kwargs, caller) -> (result, entry or None), or the entry of the program that the JitFunction `caller` is "
     "to run (None: it runs nothing)"},
    {"static_argnums", T_OBJECT, offsetof(JitFunction, static_argnums), READONLY, nullptr},
    {"static_argnames", T_OBJECT, offsetof(JitFunction, static_argnames), READONLY, nullptr},
    {"hits", T_ULONGLONG, offsetof(JitFunction, hits), READONLY, "Calls that ran without Python."},
    {nullptr, 0, 0, 0, nullptr},
};

// What is written about types: what others gave it (functools.wraps), or that of the function, read when asked for.
// These are slots, since a type's own attribute of the name cannot be set to a property in every Python.
char kAnnotations[] = "__annotations__", kAnnotate[] = "__annotate__";

PyObject* jit_annotation(PyObject* self, void* name) {
  Ref own = steal(PyObject_GenericGetDict(self, nullptr));
  if (!own) return nullptr;
  PyObject* found = PyDict_GetItemString(own.get(), static_cast<char*>(name));
  if (found != nullptr) return Py_NewRef(found);
  PyObject* wrapped = PyDict_GetItemString(own.get(), "__wrapped__");
  found = in_python<PyObject_GetAttrString>(wrapped != nullptr ? wrapped : Py_None, static_cast<char*>(name));
  if (found != nullptr || name == kAnnotate || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyDict_New();
}
int set_jit_annotation(PyObject* self, PyObject* value, void* name) {
  Ref own = steal(PyObject_GenericGetDict(self, nullptr));
  if (!own) return -1;
  const char* key = static_cast<char*>(name);
  if (value != nullptr) return PyDict_SetItemString(own.get(), key, value);
  if (PyDict_GetItemString(own.get(), key) == nullptr) return 0;  // nothing is no error, as for a function
  return PyDict_DelItemString(own.get(), key);
}

PyGetSetDef kGetSet[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {kAnnotations, jit_annotation, set_jit_annotation, nullptr, kAnnotations},
    {kAnnotate, jit_annotation, set_jit_annotation, nullptr, kAnnotate},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot kSlots[] = {
    {Py_tp_new, reinterpret_cast<void*>(entry_point<jit_new>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(jit_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(jit_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(jit_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(jit_get)},
    {Py_tp_methods, kMethods},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kGetSet},
    {0, nullptr},
};
PyType_Spec kSpec = {
    "weft.runtime.JitFunction", sizeof(JitFunction), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, kSlots};

bool read_token(PyObject* token, uint64_t* out) {
  *out = PyLong_AsUnsignedLongLongMask(token);  // -1 and 2**64 - 1 are the same
  return *out != kFollowDefault || !PyErr_Occurred();
}
PyObject* set_config_token(PyObject*, PyObject* token) {
  uint64_t value;
  if (!read_token(token, &value)) return nullptr;
  t_config = value;
  Py_RETURN_NONE;
}
PyObject* set_default_config_token(PyObject*, PyObject* token) {
  uint64_t value;
  if (!read_token(token, &value)) return nullptr;
  g_default_config = value;
  Py_RETURN_NONE;
}
PyObject* get_config_token(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(config_token()); }
PyObject* set_traceback_hook(PyObject*, PyObject* hook) {
  PyObject* before = std::exchange(g_traceback_hook, hook == Py_None ? nullptr : Py_NewRef(hook));
  return before != nullptr ? before : Py_NewRef(Py_None);
}
PyObject* set_tracing(PyObject*, PyObject* flag) {
  int value = in_python<PyObject_IsTrue>(flag);
  if (value < 0) return nullptr;
  t_tracing = value != 0;
  Py_RETURN_NONE;
}

PyObject* jit_functions(PyObject*, PyObject*) {
  Ref list = steal(PyList_New(0));
  if (!list) return nullptr;
  for (JitFunction* f = g_latest; f != nullptr; f = f->before)  // append runs no Python code
    if (PyList_Append(list.get(), reinterpret_cast<PyObject*>(f)) < 0) return nullptr;
  return list.release();
}

PyObject* dispatch_count(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(g_entries); }

PyObject* dispatch_counts(PyObject*, PyObject*) {
  unsigned long long hits = 0;
  for (JitFunction* f = g_latest; f != nullptr; f = f->before) hits += f->hits;
  return Py_BuildValue("(KKKK)", g_entries, hits, g_installed, g_retired);
}

PyObject* clear_dispatch(PyObject*, PyObject*) {
  std::vector<std::pair<JitFunction*, Entry*>> all;
  all.reserve(size_t(g_entries));
  for (JitFunction* f = g_latest; f != nullptr; f = f->before)
    for (uint32_t i = 0; i <= f->mask; ++i)
      if (f->slots[i] != nullptr) all.emplace_back(f, f->slots[i]);
  for (auto [table, entry] : all) table_remove(table, entry);
  g_retired += all.size();
  for (auto [table, entry] : all) entry_release(entry);  // last, since it may run destructors
  Py_RETURN_NONE;
}

PyMethodDef kFunctions[] = {
    {"dispatch_count", dispatch_count, METH_NOARGS, "Number of signatures in the tables of all JitFunctions."},
    {"dispatch_counts", dispatch_counts, METH_NOARGS,
     "For all JitFunctions: (signatures now, calls they answered, signatures ever installed, signatures dropped)."},
    {"clear_dispatch", entry_point<clear_dispatch>, METH_NOARGS, "Removes every signature of every JitFunction."},
    {"jit_functions", jit_functions, METH_NOARGS, "Every JitFunction that is alive, the newest first."},
    {"set_config_token", set_config_token, METH_O,
     "Sets this thread's id of the config values that affect tracing or code; 2**64 - 1: it follows the default."},
    {"set_default_config_token", set_default_config_token, METH_O,
     "Sets the id of threads that have none of their own."},
    {"set_traceback_hook", set_traceback_hook, METH_O,
     "hook(exception) may replace the traceback of a failed slow path; returns the previous hook."},
    {"get_config_token", get_config_token, METH_NOARGS,
     "This thread's id of the config values that affect tracing or code."},
    {"set_tracing", set_tracing, METH_O,
     "set_tracing(bool): whether this thread is inside a trace; calls then go to Python."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_jit(PyObject* module) {
  JitFunctionType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (JitFunctionType == nullptr || PyModule_AddFunctions(module, kFunctions) < 0) return -1;
  if (PyModule_AddObjectRef(module, "JitFunction", reinterpret_cast<PyObject*>(JitFunctionType)) < 0) return -1;
  return register_cache_entry(module) < 0 ? -1 : register_operators(module);
}

}  // namespace weft
