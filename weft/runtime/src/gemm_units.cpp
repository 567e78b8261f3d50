// Units: the kernels of products for a pair of dtypes, which the compiler finds, or makes, when a product first needs them.
#include <map>
#include <memory>

#include "gemm_kernels.h"
#include "kernel.h"
#include "module.h"

namespace weft {

namespace {

PyObject* g_finder = nullptr;  // owned

// Its code, and the records that its entry writes.
struct Unit {
  Ref code;
  std::unique_ptr<char[]> records;
};

PyObject* set_unit_finder(PyObject*, PyObject* finder) {
  if (!PyCallable_Check(finder)) return PyErr_Format(PyExc_TypeError, "[set_unit_finder] expected a function, got %R", finder);
  Py_XSETREF(g_finder, Py_NewRef(finder));
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"set_unit_finder", set_unit_finder, METH_O,
                          "set_unit_finder(finder): finder(name) is the Kernel that is the entry of a unit of kernels of "
                          "products, or None. It is called when a plan first needs the unit."},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

const GemmKernels* gemm_unit(const std::string& name) {
  static auto& units = *new std::map<std::string, Unit>;
  const auto kernels = [](const Unit& unit) { return reinterpret_cast<const GemmKernels*>(unit.records.get()); };
  if (const auto known = units.find(name); known != units.end()) return kernels(known->second);
  if (g_finder == nullptr) return PyErr_SetString(PyExc_RuntimeError, "[gemm] set_unit_finder has not been called"), nullptr;
  Ref text = steal(PyUnicode_DecodeLatin1(name.data(), Py_ssize_t(name.size()), nullptr));
  Unit unit{text ? steal(in_python<PyObject_CallOneArg>(g_finder, text.get())) : Ref(), nullptr};
  if (!unit.code || unit.code.get() == Py_None) return nullptr;
  if (!PyObject_TypeCheck(unit.code.get(), KernelType))
    return PyErr_Format(PyExc_TypeError, "[gemm] a unit is a Kernel, got %R", unit.code.get()), nullptr;
  const auto entry = reinterpret_cast<void (*)(char* to, int64_t* bytes)>(
      reinterpret_cast<Kernel*>(unit.code.get())->function);
  int64_t bytes = 0;
  entry(nullptr, &bytes);
  unit.records.reset(new char[size_t(bytes)]);
  entry(unit.records.get(), &bytes);
  return kernels(units.emplace(name, std::move(unit)).first->second);  // that of another thread, if it was faster
}

int register_gemm_units(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace weft
