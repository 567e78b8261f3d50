// What each source file adds to the module weft.runtime._native. Every function returns 0, or -1 with a Python error
// set.
#pragma once

#include <new>
#include <type_traits>

#include "python.h"

namespace weft {

template <auto function>
struct EntryPoint;

template <class Result, class... Args, Result (*function)(Args...)>
struct EntryPoint<function> {
  static Result call(Args... args) {
    try {
      return function(args...);
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
    }
    if constexpr (std::is_pointer_v<Result>) return nullptr;
    else return -1;
  }
};

// Wraps a function that Python calls: std::bad_alloc becomes MemoryError. Every function in a method table that may
// allocate memory in C++ is wrapped.
template <auto function>
inline constexpr auto entry_point = &EntryPoint<function>::call;

int register_aval(PyObject* module);    // ShapedArray
int register_buffer(PyObject* module);  // memory statistics
int register_array(PyObject* module);   // Array, array_from_numpy, array_alias
int register_dlpack(PyObject* module);  // from_dlpack
int register_pytree(PyObject* module);  // PyTreeDef, tree_flatten, ...
int register_exec(PyObject* module);    // Kernel, Executable, Pool, HELPERS
int register_host_copy(PyObject* module);  // convert_numpy, numpy_bytes
int register_sort(PyObject* module);    // sort_words
int register_jit(PyObject* module);     // JitFunction, CacheEntry, BinaryOperator, UnaryOperator, config token
int register_sources(PyObject* module);  // source_stamps
int register_finalizer(PyObject* module);  // finalizer
int register_views(PyObject* module);       // small arrays copied and filled
int register_plan(PyObject* module);     // install_instructions
int register_record(PyObject* module);   // record, equation, atoms
int register_replay(PyObject* module);   // call_key, user_position
int register_devices(PyObject* module);  // make_fake_devices, drain_devices
int register_figures(PyObject* module);  // set_figures, cpu_maker, cpu_target
int register_gemm_choice(PyObject* module);  // bfloat16_products
int register_gemm_units(PyObject* module);  // set_unit_finder
int register_llvm_switches(PyObject* module);  // llvm_emit
int register_pjrt(PyObject* module);    // PjrtPlugin, PjrtClient, PjrtProgram, arrays on other devices
int register_cuda(PyObject* module);    // DeviceModule, cuda_facts, make_cuda_devices
int register_cuda_sharing(PyObject* module);  // Array.__cuda_array_interface__, from_cuda_array
int register_product_library(PyObject* module);  // open_product_library, product_library_has
int register_foreign(PyObject* module);  // register_foreign_target, foreign_targets, ...
int register_foreign_step(PyObject* module);  // set_foreign_error_type
int register_mpi(PyObject* module);     // MpiOperation, messages and collectives between processes
int register_lapack(PyObject* module);  // set_lapack_finder, lapack_threads

}  // namespace weft
