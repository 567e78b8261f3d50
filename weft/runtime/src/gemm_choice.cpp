// Which of the kernels of matrix products run on this processor.
//
// The choice for bfloat16 changes bits (docs/NUMERICS.md), so it follows from the processor's name and the environment,
// never from a clock: every process of a machine, and every machine of a kind, chooses alike.
#include <cstdlib>
#include <cstring>

#include "gemm_kernels.h"
#include "module.h"

namespace weft {
namespace {

#if defined(__x86_64__)
bool wide() {
  static const bool is_wide = [] {
    const char* target = std::getenv("WEFT_TARGET");
    if (target != nullptr && *target != 0 && std::strcmp(target, "x86-64-v4") != 0) return false;
    return bool(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
  }();
  return is_wide;
}

bool can_add_pairs() { return wide() && __builtin_cpu_supports("avx512bf16"); }

// vdpbf16ps beside vfmadd231ps, flops a cycle and core: AMD's Zen 4 64 and 32; an Intel (family 6, model 207) 32 and 64.
bool pairs_are_fast() { return __builtin_cpu_is("amd"); }
#else
bool can_add_pairs() { return false; }
bool pairs_are_fast() { return false; }
#endif

enum class Choice { by_processor, pairs, float32, unknown };

Choice asked() {
  const char* text = std::getenv("WEFT_BFLOAT16_PRODUCTS");
  if (text == nullptr || *text == 0) return Choice::by_processor;
  if (std::strcmp(text, "pairs") == 0) return Choice::pairs;
  return std::strcmp(text, "float32") == 0 ? Choice::float32 : Choice::unknown;
}

bool adds_pairs() {
  static const bool chosen = can_add_pairs() && (asked() == Choice::by_processor ? pairs_are_fast() : asked() == Choice::pairs);
  return chosen;
}

}  // namespace

const GemmKernels* gemm_kernels(char source, char result) {
#if defined(__x86_64__)
  if (source == 'E' && result == 'f' && adds_pairs()) return gemm_kernels_v4_bfloat16();
  return wide() ? gemm_kernels_v4(source, result) : gemm_kernels_v3(source, result);
#elif defined(__aarch64__)
  return gemm_kernels_neon(source, result);
#else
  return nullptr;
#endif
}

int register_gemm_choice(PyObject* module) {
  const char* text = std::getenv("WEFT_BFLOAT16_PRODUCTS");
  if (asked() == Choice::unknown) {
    PyErr_Format(PyExc_ValueError, "WEFT_BFLOAT16_PRODUCTS is pairs or float32, got '%s'", text);
    return -1;
  }
  if (asked() == Choice::pairs && !can_add_pairs()) {
    PyErr_SetString(PyExc_ValueError,
                    "WEFT_BFLOAT16_PRODUCTS=pairs asks for instructions (AVX512_BF16) that this processor or target "
                    "does not have; unset it, or say float32");
    return -1;
  }
  return PyModule_AddStringConstant(module, "bfloat16_products", adds_pairs() ? "pairs" : "float32");
}

}  // namespace weft
