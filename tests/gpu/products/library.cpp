// A library of matrix products for tests: the functions of cuBLASLt that weft calls, as its guide describes them.
//
// Matrices lie by columns in the memory of the driver for tests; sums are made in float64 and rounded once. What a caller
// may get wrong is checked: sizes, steps, addresses, alignments that were promised, the algorithm, the workspace.
// WEFT_TEST_PRODUCTS_VERSION is its version, _REFUSE a status that every question gets, _FAIL one that products get,
// _ALIGNED the least alignment for which there is an algorithm, _CAPTURE 0: products break a capture.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../driver/driver.h"
#include "../machine/halves.h"

using namespace testcuda;

namespace {

enum Status : int { kFine = 0, kInvalid = 7, kFailed = 13, kUnsupported = 15 };
constexpr uint64_t kWorkspace = 4096;  // bytes that every product writes to

struct Description {
  int compute, scale, turn[2] = {0, 0}, epilogue = 1;
  uint64_t bias = 0;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t step, apart = 0;
  int32_t batch = 1;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t aligned[4] = {256, 256, 256, 256};
};
struct Algorithm {
  uint64_t words[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

std::mutex g_mutex;  // guards
std::string g_log;

int setting(const char* name, int otherwise) {
  const char* text = getenv((std::string("WEFT_TEST_PRODUCTS_") + name).c_str());
  return text ? atoi(text) : otherwise;
}

void note(const std::string& line) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_log += line + "\n";
}

int bytes_of(int type) { return type == 1 ? 8 : type == 0 ? 4 : type == 2 || type == 14 ? 2 : 0; }

double load(const char* at, int type) {
  if (type == 1) return *reinterpret_cast<const double*>(at);
  if (type == 0) return *reinterpret_cast<const float*>(at);
  const uint16_t bits = *reinterpret_cast<const uint16_t*>(at);
  return type == 2 ? ptx::half_value(bits) : ptx::bfloat_value(bits);
}
void store(char* at, int type, double value) {
  if (type == 1) *reinterpret_cast<double*>(at) = value;
  else if (type == 0) *reinterpret_cast<float*>(at) = float(value);
  else *reinterpret_cast<uint16_t*>(at) = type == 2 ? ptx::half_bits(value) : ptx::bfloat_bits(float(value));
}
double to_tf32(double value) {  // 11 bits of significand, halves away from zero
  uint32_t bits = ptx::bits(float(value));
  if (std::isfinite(value)) bits = (bits + 0x1000) & ~uint32_t{0x1FFF};
  return ptx::as_float(bits);
}

bool fits(const Layout& layout) { return bytes_of(layout.type) && layout.rows && layout.columns && layout.step >= int64_t(layout.rows); }

// Whether the three matrices of a product fit each other, and types and computation are among those of the guide's table.
int check(const Description& own, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  if (!fits(a) || !fits(b) || !fits(d) || memcmp(&c, &d, sizeof c)) return kInvalid;
  const uint64_t m = own.turn[0] ? a.columns : a.rows, k = own.turn[0] ? a.rows : a.columns;
  if ((own.turn[1] ? b.rows : b.columns) != d.columns || (own.turn[1] ? b.columns : b.rows) != k || m != d.rows) return kInvalid;
  if (a.batch != d.batch || b.batch != d.batch || (d.batch > 1 && d.apart < int64_t(d.rows))) return kInvalid;
  if (a.type != b.type) return kUnsupported;
  const bool float64 = own.compute == 70 && own.scale == 1 && a.type == 1 && d.type == 1 && own.epilogue == 1;
  const bool tf32 = own.compute == 77 && own.scale == 0 && a.type == 0 && d.type == 0;
  const bool others = own.compute == 68 && own.scale == 0 && a.type != 1 && (d.type == a.type || d.type == 0);
  if (!float64 && !tf32 && !others) return kUnsupported;
  return own.epilogue == 1 || own.epilogue == 4 || own.epilogue == 32 || own.epilogue == 36 ? kFine : kUnsupported;
}

uint64_t least_aligned(const Preference& own) {
  return std::min(std::min(own.aligned[0], own.aligned[1]), own.aligned[2]);
}

void multiply(const Description& own, const Layout& a, const Layout& b, const Layout& d, const char* at_a, const char* at_b,
              char* at_d, const char* bias) {
  const uint64_t terms = own.turn[0] ? a.rows : a.columns;
  const int sizes[] = {bytes_of(a.type), bytes_of(b.type), bytes_of(d.type)};
  for (int64_t n = 0; n < d.batch; ++n)
    for (uint64_t j = 0; j < d.columns; ++j)
      for (uint64_t i = 0; i < d.rows; ++i) {
        double sum = 0;
        for (uint64_t l = 0; l < terms; ++l) {
          const int64_t left = n * a.apart + (own.turn[0] ? int64_t(l) + int64_t(i) * a.step : int64_t(i) + int64_t(l) * a.step);
          const int64_t right = n * b.apart + (own.turn[1] ? int64_t(j) + int64_t(l) * b.step : int64_t(l) + int64_t(j) * b.step);
          double x = load(at_a + left * sizes[0], a.type), y = load(at_b + right * sizes[1], b.type);
          if (own.compute == 77) x = to_tf32(x), y = to_tf32(y);
          sum += x * y;
        }
        if (own.epilogue & 4) sum += load(bias + i * uint64_t(sizes[2]), d.type);
        if (own.epilogue & 32) sum = 0.5 * sum * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
        store(at_d + (n * d.apart + int64_t(i) + int64_t(j) * d.step) * sizes[2], d.type, sum);
      }
}

// Whether a handle is one of the device of this thread's context.
bool is_here(void* handle) {
  return handle != nullptr && current != nullptr && *static_cast<Device**>(handle) == current->device;
}

template <class T>
int make(void** out, T object) {
  *out = new T(object);
  return kFine;
}

}  // namespace

WEFT_EXPORT cuStreamSynchronize(Handle stream);

#define WEFT_LIBRARY extern "C" __attribute__((visibility("default"))) int

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return size_t(setting("VERSION", 120901)); }
extern "C" __attribute__((visibility("default"))) const char* cublasLtGetStatusString(int status) {
  return status == kFailed ? "CUBLAS_STATUS_EXECUTION_FAILED" : status == kUnsupported ? "CUBLAS_STATUS_NOT_SUPPORTED" : "a status";
}
WEFT_LIBRARY cublasLtCreate(void** handle) { return current == nullptr ? kInvalid : make(handle, current->device); }
WEFT_LIBRARY cublasLtMatmulDescCreate(void** out, int compute, int scale) { return make(out, Description{compute, scale}); }
WEFT_LIBRARY cublasLtMatmulDescSetAttribute(void* object, int attribute, const void* value, size_t bytes) {
  auto* own = static_cast<Description*>(object);
  if (attribute == 8 && bytes == 8) memcpy(&own->bias, value, 8);
  else if ((attribute == 3 || attribute == 4) && bytes == 4) memcpy(&own->turn[attribute - 3], value, 4);
  else if (attribute == 7 && bytes == 4) memcpy(&own->epilogue, value, 4);
  else return kInvalid;
  return kFine;
}
WEFT_LIBRARY cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t columns, int64_t step) {
  return make(out, Layout{type, rows, columns, step});
}
WEFT_LIBRARY cublasLtMatrixLayoutSetAttribute(void* object, int attribute, const void* value, size_t bytes) {
  auto* own = static_cast<Layout*>(object);
  if (attribute == 5 && bytes == 4) memcpy(&own->batch, value, 4);
  else if (attribute == 6 && bytes == 8) memcpy(&own->apart, value, 8);
  else return kInvalid;
  return kFine;
}
WEFT_LIBRARY cublasLtMatmulPreferenceCreate(void** out) { return make(out, Preference{}); }
WEFT_LIBRARY cublasLtMatmulPreferenceDestroy(void* object) { return delete static_cast<Preference*>(object), kFine; }
WEFT_LIBRARY cublasLtMatmulPreferenceSetAttribute(void* object, int attribute, const void* value, size_t bytes) {
  auto* own = static_cast<Preference*>(object);
  if (attribute == 1 && bytes == 8) memcpy(&own->workspace, value, 8);
  else if (attribute >= 5 && attribute <= 8 && bytes == 4) memcpy(&own->aligned[attribute - 5], value, 4);
  else return kInvalid;
  return kFine;
}
WEFT_LIBRARY cublasLtMatmulAlgoGetHeuristic(void* handle, void* description, void* a, void* b, void* c, void* d, void* preference,
                                            int asked, void* results, int* count) {
  if (!is_here(handle) || asked < 1) return kInvalid;
  const auto& own = *static_cast<Description*>(description);
  const auto& wish = *static_cast<Preference*>(preference);
  note("ask " + std::to_string(wish.aligned[0]) + " " + std::to_string(wish.aligned[1]) + " " + std::to_string(wish.aligned[2]));
  *count = 0;
  if (const int refused = setting("REFUSE", 0)) return refused;
  if (const int wrong = check(own, *static_cast<Layout*>(a), *static_cast<Layout*>(b), *static_cast<Layout*>(c), *static_cast<Layout*>(d)))
    return wrong;
  if (wish.workspace < kWorkspace || least_aligned(wish) < uint64_t(setting("ALIGNED", 0))) return kUnsupported;
  auto* found = static_cast<Heuristic*>(results);
  *found = Heuristic{};
  found->algorithm = {{uint64_t(own.compute), wish.aligned[0], wish.aligned[1], wish.aligned[2], wish.aligned[3], uint64_t(own.epilogue), 0, 42}};
  found->workspace = kWorkspace;
  *count = 1;
  return kFine;
}
WEFT_LIBRARY cublasLtMatmul(void* handle, void* description, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout,
                            const void* beta, const void* c, void* c_layout, void* d, void* d_layout, const void* algorithm,
                            void* workspace, size_t bytes, void* handle_of_stream) {
  Stream* stream = stream_of(handle_of_stream);
  if (!is_here(handle) || stream == nullptr || stream->device != current->device || c != d) return kInvalid;
  if (const int failed = setting("FAIL", 0)) return failed;
  if (stream->capture != nullptr && !setting("CAPTURE", 1)) return cuStreamSynchronize(handle_of_stream), kFailed;
  const Description own = *static_cast<Description*>(description);
  const Layout la = *static_cast<Layout*>(a_layout), lb = *static_cast<Layout*>(b_layout), ld = *static_cast<Layout*>(d_layout);
  if (const int wrong = check(own, la, lb, *static_cast<Layout*>(c_layout), ld)) return wrong;
  const auto& chosen = *static_cast<const Algorithm*>(algorithm);
  if (chosen.words[7] != 42 || chosen.words[0] != uint64_t(own.compute) || chosen.words[5] != uint64_t(own.epilogue)) return kInvalid;
  const void* addresses[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<uint64_t>(addresses[i]) % chosen.words[1 + i]) return kInvalid;
  if (bytes < kWorkspace || view(reinterpret_cast<Address>(workspace), kWorkspace, false) == nullptr) return kInvalid;
  const bool float64 = own.scale == 1;
  const double factors[] = {float64 ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha),
                            float64 ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta)};
  if (factors[0] != 1 || factors[1] != 0 || ((own.epilogue & 4) && own.bias == 0)) return kInvalid;
  char line[256];
  snprintf(line, sizeof line, "multiply compute %d types %d %d turned %d%d sizes %d %d %d batch %d steps %d %d %d apart %d %d %d epilogue %d",
           own.compute, la.type, ld.type, own.turn[0], own.turn[1], int(ld.rows), int(ld.columns),
           int(own.turn[0] ? la.rows : la.columns), ld.batch, int(la.step), int(lb.step), int(ld.step), int(la.apart), int(lb.apart),
           int(ld.apart), own.epilogue);
  note(line);
  const auto extent = [](const Layout& l) {
    return uint64_t((int64_t(l.columns) - 1) * l.step + int64_t(l.rows) + (l.batch - 1) * l.apart) * uint64_t(bytes_of(l.type));
  };
  const Address at_a = Address(a), at_b = Address(b), at_d = Address(d), room = Address(workspace);
  return ask(stream, [=]() -> Result {
    char *left = view(at_a, extent(la), false), *right = view(at_b, extent(lb), false), *result = view(at_d, extent(ld), true);
    char* bias = own.epilogue & 4 ? view(own.bias, ld.rows * uint64_t(bytes_of(ld.type)), false) : nullptr;
    char* scratch = view(room, kWorkspace, true);
    if (!left || !right || !result || !scratch || ((own.epilogue & 4) && !bias)) return kIllegalAddress;
    memset(scratch, 0xCC, kWorkspace);
    multiply(own, la, lb, ld, left, right, result, bias);
    return kSuccess;
  }, 0);
}

// For tests: what was asked and multiplied since this was last called, a line each.
WEFT_LIBRARY weft_test_products(char* out, size_t room) {
  std::lock_guard<std::mutex> lock(g_mutex);
  snprintf(out, room, "%s", g_log.c_str());
  g_log.clear();
  return kFine;
}
