// JitFunction: a Python callable with a table of its compiled programs, one for each signature.
#pragma once

#include "exec.h"
#include "pytree.h"
#include "signature.h"

namespace weft {

struct CacheEntry;
struct JitFunction;

// A signature and its program. Reference counted by hand; released with the GIL held.
struct Entry {
  uint64_t hash;
  std::vector<uint64_t> tokens;
  std::vector<PyObject*> owned;     // every object whose address is in tokens
  std::vector<PyObject*> compared;  // owned
  std::vector<uint32_t> order;      // leaf of the signature for each input after the constants
  CacheEntry* cached = nullptr;     // owned
  uint64_t age = 0;
  size_t holder = 0;  // index in the CacheEntry's `holders`
  int references = 1;
};

// What the slow path returns: a program, and how arguments and results of a call map to it.
struct CacheEntry {
  PyObject_HEAD
  Executable* executable;                // owned
  PyTreeDef* out_tree;                   // owned
  std::vector<uint32_t>* leaf_indices;   // inputs after the constants, as leaves in the pytree's order
  std::vector<Array*>* consts;           // owned
  std::vector<ShapedArray*>* out_avals;  // owned
  std::vector<char>* donated;            // per leaf index
  bool any_donated;
  bool has_parts;  // whether this process has a part only of some result
  uint32_t place;  // of the results
  std::vector<uint32_t>* out_places;  // of each result, if they differ; otherwise nullptr
  char out_shape;  // 'l' one leaf, 't' a flat tuple, or '*' anything else
  PyObject* weakrefs;
  // The tables it is installed in (borrowed: a table removes itself before it is freed), and its entry there.
  std::vector<std::pair<JitFunction*, Entry*>>* holders;
};

struct JitFunction {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* slow;  // owned
  PyObject* dict;
  PyObject* weakrefs;
  PyObject* static_argnums;   // owned tuple
  PyObject* static_argnames;  // owned tuple
  StaticNames* names;         // owned
  Entry** slots;              // open addressing, null when empty; each owns one reference
  uint32_t mask;
  uint32_t count;
  uint64_t version;  // changes whenever the table changes
  uint64_t next_age;
  unsigned long long hits;
  JitFunction *before, *after;  // neighbours in the list of all JitFunctions
};

extern PyTypeObject* JitFunctionType;
extern PyTypeObject* CacheEntryType;

// Removes a program from every table it is installed in.
void jit_retire(CacheEntry* cached);

// True if this thread is tracing (its current trace is not eager evaluation).
bool is_tracing();

// The configuration of this thread: a number for all options that affect tracing or code.
uint64_t config_token();
constexpr uint64_t kNoConfig = ~uint64_t(0);  // the token of no configuration

// The vectorcall of JitFunction.
PyObject* jit_call(PyObject* self, PyObject* const* args, size_t flags, PyObject* keywords);

int register_cache_entry(PyObject* module);
int register_operators(PyObject* module);  // BinaryOperator, UnaryOperator, ViewOperator

}  // namespace weft
