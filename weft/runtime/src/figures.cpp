// The figures of the machine, as Python hands them down. See figures.h.
#include "figures.h"

#include "module.h"
#include "profile.h"

namespace weft {

Figures figures;

namespace {

// One value of the dict, which must be there; false with an error set.
template <class T>
bool read(PyObject* given, const char* name, T* out) {
  PyObject* found = PyDict_GetItemString(given, name);
  if (found == nullptr) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "[set_figures] there is no figure %s", name);
    return false;
  }
  const double value = in_python<PyFloat_AsDouble>(found);
  if (PyErr_Occurred()) return false;
  if (!(value >= 0 && value <= 1e15)) {
    PyErr_Format(PyExc_ValueError, "[set_figures] %s is not negative and at most 1e15, got %R", name, found);
    return false;
  }
  *out = T(value);
  return true;
}

PyObject* set_figures(PyObject*, PyObject* given) {
  if (!PyDict_Check(given)) return PyErr_Format(PyExc_TypeError, "[set_figures] expected a dict, got %R", given);
  Figures read_ones{};
  Py_ssize_t count = 0;
#define WEFT_FIGURE(type, name) \
  if (!read(given, #name, &read_ones.name)) return nullptr; \
  ++count;
  WEFT_FIGURES(WEFT_FIGURE)
#undef WEFT_FIGURE
  if (PyDict_GET_SIZE(given) != count)
    return PyErr_Format(PyExc_TypeError, "[set_figures] there are %zd figures, got %zd", count, PyDict_GET_SIZE(given));
  figures = read_ones;
  g_inline_ns = figures.inline_ns;
  Py_RETURN_NONE;
}

PyObject* cpu_target(PyObject*, PyObject*) { return PyUnicode_FromString(widest_target()); }

PyObject* cpu_maker(PyObject*, PyObject*) {
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd")) return PyUnicode_FromString("AuthenticAMD");
  if (__builtin_cpu_is("intel")) return PyUnicode_FromString("GenuineIntel");
#endif
  return PyUnicode_FromString("");
}

PyMethodDef kMethods[] = {
    {"set_figures", entry_point<set_figures>, METH_O,
     "set_figures({name: value}): the figures of the machine, all of them; once, before there are plans."},
    {"cpu_target", cpu_target, METH_NOARGS, "cpu_target() -> the widest target that this processor runs, or ''."},
    {"cpu_maker", cpu_maker, METH_NOARGS, "cpu_maker() -> 'AuthenticAMD', 'GenuineIntel', or '' for all others."},
    {},
};

}  // namespace

const char* widest_target() {
#if defined(__x86_64__)
  const bool narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  return !narrow ? "" : wide ? "x86-64-v4" : "x86-64-v3";
#else
  return "aarch64";
#endif
}

int register_figures(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
