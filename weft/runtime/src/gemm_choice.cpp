// Which of the kernels of matrix products run on this processor.
//
// The choice for bfloat16 changes bits (docs/NUMERICS.md), so it follows from the processor's name and the environment,
// never from a clock: every process of a machine, and every machine of a kind, chooses alike.
#include <cstdlib>
#include <cstring>
#include <string>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "figures.h"
#include "gemm_kernels.h"
#include "module.h"

namespace weft {

bool takes_v4() {
  static const bool takes = [] {
    const char *wide = "x86-64-v4", *target = std::getenv("WEFT_TARGET");
    return std::strcmp(widest_target(), wide) == 0 && (target == nullptr || *target == 0 || std::strcmp(target, wide) == 0);
  }();
  return takes;
}

namespace {

#if defined(__x86_64__)
bool can_add_pairs() { return takes_v4() && __builtin_cpu_supports("avx512bf16"); }
#else
bool can_add_pairs() { return false; }
#endif

#if defined(WEFT_AMX)
constexpr long kSupported = 0x1021, kRequest = 0x1023, kTileData = 18;  // for arch_prctl: ARCH_GET_XCOMP_SUPP, _REQ_XCOMP_PERM

bool has_unit() {
  static const bool has = [] {
    unsigned a = 7, b = 0, c = 0, d = 0;
    unsigned long features = 0;
    if (!can_add_pairs()) return false;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    const bool tiles = (d >> 22 & 1) != 0 && (d >> 24 & 1) != 0;  // AMX-BF16, AMX-TILE
    return tiles && syscall(SYS_arch_prctl, kSupported, &features) == 0 && (features >> kTileData & 1) != 0;
  }();
  return has;
}

// The system lends a process the unit's registers when it is asked.
bool may_use_unit() {
  static const bool may = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return may;
}
#else
bool has_unit() { return false; }
bool may_use_unit() { return false; }
#endif

const char* variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// How the terms of bfloat16 products are added.
enum class Choice { by_processor, tiles, pairs, float32, unknown };
constexpr const char* kChoices[] = {"", "tiles", "pairs", "float32"};

Choice choice_named(const char* text) {
  for (int i = 0; i < 4; ++i)
    if (std::strcmp(text, kChoices[i]) == 0) return Choice(i);
  return Choice::unknown;
}

Choice asked() { return choice_named(variable("WEFT_BFLOAT16_PRODUCTS")); }

bool unit_is_on() {
  static const bool on = has_unit() && std::strcmp(variable("WEFT_MATRIX_UNIT"), "0") != 0;
  return on;
}

Choice bfloat16_choice() {
  static const Choice chosen = [] {
    if (asked() == Choice::tiles || asked() == Choice::pairs || asked() == Choice::float32) return asked();
    if (unit_is_on()) return Choice::tiles;
    return can_add_pairs() && figures.fast_pairs ? Choice::pairs : Choice::float32;
  }();
  return chosen;
}

bool adds_pairs() { return bfloat16_choice() == Choice::pairs; }

// A kind of processor: whether its unit is used, and how it adds bfloat16.
struct Processor {
  bool unit;
  Choice bfloat16;
};

Processor this_one() { return {unit_is_on(), bfloat16_choice()}; }

// Whether the unit is worth packing: float32 is split into three parts, and its other kernels pack nothing.
bool worth_a_unit(char source, int64_t rows, int64_t columns, int64_t terms) {
  const int64_t least = source == 'f' ? 64 : 16;
  const double products = source == 'f' ? double(1 << 26) : double(1 << 18);
  return rows >= least && columns >= least && double(rows) * double(columns) * double(terms) >= products;
}

bool takes_unit(Processor on, char source, char result, int64_t rows, int64_t columns, int64_t terms) {
  if (result != 'f' || std::strchr("feE", source) == nullptr) return false;
  return (source == 'E' ? on.bfloat16 == Choice::tiles : on.unit) && worth_a_unit(source, rows, columns, terms);
}

PyObject* how_added(PyObject*, PyObject* args) {
  int source, result;
  long long rows, columns, terms;
  const char* other = nullptr;
  if (!PyArg_ParseTuple(args, "CCLLL|s", &source, &result, &rows, &columns, &terms, &other)) return nullptr;
  Processor on = this_one();
  if (other != nullptr) {
    const Choice named = choice_named(other);
    if (named == Choice::by_processor || named == Choice::unknown)
      return PyErr_Format(PyExc_ValueError, "how_added: a processor adds bfloat16 in tiles, pairs or float32, got '%s'",
                          other);
    on = {named == Choice::tiles, named};
  }
  if (takes_unit(on, char(source), char(result), rows, columns, terms) && (other != nullptr || may_use_unit()))
    return PyUnicode_FromString("tiles");
  const bool vector = rows == 1 || columns == 1;
  return PyUnicode_FromString(source == 'E' && on.bfloat16 == Choice::pairs && !vector ? "pairs" : "chains");
}

// A figure decides, and figures are there when the module has been loaded: no constant of the module.
PyObject* bfloat16_products(PyObject*, PyObject*) { return PyUnicode_FromString(kChoices[int(bfloat16_choice())]); }

PyMethodDef methods[] = {{"how_added", how_added, METH_VARARGS, nullptr},
                         {"bfloat16_products", bfloat16_products, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

const GemmKernels* gemm_kernels(char source, char result) {
  // integers wrap, so that their sign does not matter where they are not widened
  const auto as_signed = [](char letter) { return letter == 'I' ? 'i' : letter == 'L' ? 'l' : letter == '?' ? 'B' : letter; };
#if defined(__x86_64__)
  if (source == 'E' && result == 'f' && adds_pairs()) return gemm_unit("v4_pairs");
  const char* instructions = takes_v4() ? "v4_" : "v3_";
#else
  const char* instructions = "neon_";
#endif
  return gemm_unit(std::string(instructions) + as_signed(source) + as_signed(result));
}

const GemmKernels* gemm_kernels(char source, char result, int64_t rows, int64_t columns, int64_t terms) {
#if defined(WEFT_AMX)
  if (takes_unit(this_one(), source, result, rows, columns, terms) && may_use_unit()) return gemm_kernels_amx(source);
#endif
  return gemm_kernels(source, result);
}

int register_gemm_choice(PyObject* module) {
  if (asked() == Choice::unknown) {
    PyErr_Format(PyExc_ValueError, "WEFT_BFLOAT16_PRODUCTS is tiles, pairs or float32, got '%s'",
                 variable("WEFT_BFLOAT16_PRODUCTS"));
    return -1;
  }
  if ((asked() == Choice::pairs && !can_add_pairs()) || (asked() == Choice::tiles && !has_unit())) {
    PyErr_Format(PyExc_ValueError,
                 "WEFT_BFLOAT16_PRODUCTS=%s asks for instructions (%s) that this processor or target does not have; "
                 "unset it, or say float32",
                 kChoices[int(asked())], asked() == Choice::pairs ? "AVX512_BF16" : "AMX_BF16");
    return -1;
  }
  const char* unit = variable("WEFT_MATRIX_UNIT");
  if (*unit != 0 && std::strcmp(unit, "0") != 0 && std::strcmp(unit, "1") != 0) {
    PyErr_Format(PyExc_ValueError, "WEFT_MATRIX_UNIT is 0 or 1, got '%s'", unit);
    return -1;
  }
  if (PyModule_AddObjectRef(module, "matrix_unit", unit_is_on() ? Py_True : Py_False) < 0) return -1;
  return PyModule_AddFunctions(module, methods);
}

}  // namespace weft
