// The extension module weft.runtime._native: refuses interpreters it cannot serve, then collects its parts.
#define WEFT_IMPORTS_NUMPY
#include "numpy_api.h"

#include "cgroup.h"
#include "module.h"

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

// Why this interpreter cannot be served, or nullptr. The native layer keeps process-wide tables, which the GIL of the
// main interpreter guards.
const char* refusal() {
#ifdef Py_GIL_DISABLED
  return "[weft] free-threaded Python is not supported yet; use a build of Python with the GIL";
#endif
  if (PyInterpreterState_Get() != PyInterpreterState_Main())
    return "[weft] weft cannot be imported in a subinterpreter; import it in the main interpreter";
  return nullptr;
}

using Registration = int (*)(PyObject*);

constexpr Registration kRegistrations[] = {
    weft::register_cgroup,     weft::register_buffer, weft::register_aval, weft::register_array,
    weft::register_dlpack,     weft::register_pytree, weft::register_exec, weft::register_jit,
    weft::register_host_copy,  weft::register_sort,   weft::register_sources, weft::register_record,
    weft::register_finalizer,  weft::register_views,
    weft::register_replay,     weft::register_gemm_choice, weft::register_gemm_units, weft::register_llvm_switches,
    weft::register_plan,
    weft::register_figures,   weft::register_lapack,     weft::register_pjrt, weft::register_mpi, weft::register_devices,
    weft::register_cuda,       weft::register_cuda_sharing,  weft::register_product_library,
    weft::register_foreign,   weft::register_foreign_step,
};

// Fills the empty module. Returns 0, or -1 with a Python error set.
int execute(PyObject* module) {
  if (const char* reason = refusal()) {
    PyErr_SetString(PyExc_ImportError, reason);
    return -1;
  }
  if (PyArray_ImportNumPyAPI() < 0) return -1;
  for (Registration registration : kRegistrations)
    if (registration(module) < 0) return -1;
  return PyModule_AddStringConstant(module, "sanitizer", kSanitizer);
}

PyModuleDef_Slot kSlots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(execute)},
    {0, nullptr},
};

PyModuleDef kModule = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_slots = kSlots,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModuleDef_Init(&kModule); }
