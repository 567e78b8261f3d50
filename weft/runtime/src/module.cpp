// The extension module weft.runtime._native: refuses interpreters it cannot serve, then collects its parts.
#include <nanobind/nanobind.h>

#include <stdexcept>

#define WEFT_IMPORTS_NUMPY
#include "numpy_api.h"

#include "cgroup.h"
#include "module.h"

namespace nb = nanobind;

namespace {

// The sanitizer this module was compiled with, as the compiler says; test runs ask the module that they loaded.
#if defined(__has_feature)
#define WEFT_HAS_FEATURE(name) __has_feature(name)
#else
#define WEFT_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || WEFT_HAS_FEATURE(address_sanitizer)
constexpr const char* kSanitizer = "address";
#elif defined(__SANITIZE_THREAD__) || WEFT_HAS_FEATURE(thread_sanitizer)
constexpr const char* kSanitizer = "thread";
#else
constexpr const char* kSanitizer = "";
#endif

// The native layer keeps process-wide tables, which the GIL of the main interpreter guards.
void require_supported_interpreter() {
#ifdef Py_GIL_DISABLED
  throw std::runtime_error("[weft] free-threaded Python is not supported yet; use a build of Python with the GIL");
#endif
  if (PyInterpreterState_Get() != PyInterpreterState_Main())
    throw std::runtime_error("[weft] weft cannot be imported in a subinterpreter; import it in the main interpreter");
}

using Registration = int (*)(PyObject*);

constexpr Registration kRegistrations[] = {
    weft::register_cgroup,     weft::register_buffer, weft::register_aval, weft::register_array,
    weft::register_dlpack,     weft::register_pytree, weft::register_exec, weft::register_jit,
    weft::register_host_copy,  weft::register_sort,   weft::register_sources, weft::register_record,
    weft::register_finalizer,  weft::register_size_class, weft::register_views,
    weft::register_replay,     weft::register_gemm_choice, weft::register_llvm_switches, weft::register_plan,
    weft::register_figures,   weft::register_lapack,     weft::register_pjrt, weft::register_mpi, weft::register_devices,
    weft::register_cuda,       weft::register_cuda_sharing,  weft::register_product_library,
    weft::register_foreign,   weft::register_foreign_step,
};

}  // namespace

NB_MODULE(_native, module) {
  require_supported_interpreter();
  if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();
  for (Registration registration : kRegistrations)
    if (registration(module.ptr()) < 0) throw nb::python_error();
  module.attr("sanitizer") = kSanitizer;
}
