// Complex matrix products through OpenBLAS, loaded at the first one from the scipy-openblas32 wheel.
//
// C[m,n] = op(A)[m,k] op(B)[k,n], row-major. OpenBLAS runs one thread; we cut C along m or n and run the pieces on
// our own pool. The bits must not depend on the number of threads: at the first large product of a dtype a probe
// compares a product with the same product in pieces. If the bits agree (they do for the kernels we know: each
// element is one chain over k), the number of pieces follows the threads, else it follows the shape alone.
#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <complex>
#include <cstring>
#include <vector>

#include "gemm_batch.h"
#include "module.h"
#include "plan.h"
#include "pool.h"
#include "stream.h"

namespace weft {
namespace {

constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
constexpr double kPieceFlops = 4e6;  // per piece at least: 40 us for float32, and beyond OpenBLAS's small-matrix path
// Piece borders are multiples of this: whole vectors and register tiles on every target.
constexpr int64_t unit_of(char dtype) { return dtype == 'F' ? 64 : 96; }
// With this many rows a thread, two pieces each cost nothing: a late one is evened out.
constexpr int64_t kLongPiece = 1024;
constexpr double kLongestPieceNs = 120e6;  // interrupts are seen between pieces

template <class T>
using Gemm = void (*)(int order, int ta, int tb, int m, int n, int k, T alpha, const void* a, int lda, const void* b,
                      int ldb, T beta, void* c, int ldc);
template <class T>
using Gemv = void (*)(int order, int trans, int m, int n, T alpha, const void* a, int lda, const void* x, int incx,
                      T beta, void* y, int incy);

struct Blas {
  Gemm<const void*> cgemm, zgemm;
  Gemv<const void*> cgemv, zgemv;
};

Blas g_blas;
bool g_loaded = false;
PyObject* g_loader = nullptr;  // callable() -> path, or nullptr for the wheel's own

// Path of the library in the wheel. The package itself is not imported: that takes 25 ms, most of it for its version.
PyObject* default_path() {
  Ref util = steal(PyImport_ImportModule("importlib.util")), os = steal(PyImport_ImportModule("os"));
  if (!util || !os) return nullptr;
  Ref spec = steal(PyObject_CallMethod(util.get(), "find_spec", "s", "scipy_openblas32"));
  if (!spec) return nullptr;
  if (spec.get() == Py_None) {
    PyErr_SetString(PyExc_ImportError,
                    "[gemm] matrix products need the package scipy-openblas32: pip install scipy-openblas32");
    return nullptr;
  }
  Ref places = steal(PyObject_GetAttrString(spec.get(), "submodule_search_locations"));
  Ref place = places ? steal(PySequence_GetItem(places.get(), 0)) : Ref();
  Ref folder = place ? steal(PyUnicode_FromFormat("%S/lib", place.get())) : Ref();
  Ref names = folder ? steal(PyObject_CallMethod(os.get(), "listdir", "O", folder.get())) : Ref();
  if (!names || !PyList_Check(names.get())) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); ++i) {
    const char* name = PyUnicode_AsUTF8(PyList_GET_ITEM(names.get(), i));
    if (name == nullptr) return nullptr;
    if (std::strncmp(name, "libscipy_openblas", 17) == 0) return PyUnicode_FromFormat("%U/%s", folder.get(), name);
  }
  PyErr_Format(PyExc_ImportError, "[gemm] no OpenBLAS library in %U", folder.get());
  return nullptr;
}

template <class F>
bool find(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  if (*out == nullptr) PyErr_Format(PyExc_RuntimeError, "[gemm] the OpenBLAS library has no symbol %s", name);
  return *out != nullptr;
}

// GIL held. Loading is idempotent, so a second thread may do it again.
bool load_blas() {
  if (g_loaded) return true;
  Ref path = steal(g_loader != nullptr ? PyObject_CallNoArgs(g_loader) : default_path());
  if (!path) return false;
  Ref bytes = steal(PyUnicode_Check(path.get()) ? PyUnicode_EncodeFSDefault(path.get()) : nullptr);
  if (!bytes) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "[gemm] the loader of OpenBLAS must return a path");
    return false;
  }
  void* library = dlopen(PyBytes_AS_STRING(bytes.get()), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    PyErr_Format(PyExc_RuntimeError, "[gemm] cannot load OpenBLAS: %s", dlerror());
    return false;
  }
  void (*set_threads)(int);
  Blas blas;
  if (!find(library, "scipy_openblas_set_num_threads", &set_threads)) return false;
  if (!find(library, "scipy_cblas_cgemm", &blas.cgemm) || !find(library, "scipy_cblas_zgemm", &blas.zgemm))
    return false;
  if (!find(library, "scipy_cblas_cgemv", &blas.cgemv) || !find(library, "scipy_cblas_zgemv", &blas.zgemv))
    return false;
  set_threads(1);
  g_blas = blas;
  g_loaded = true;
  return true;
}

class BlasStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    if (m == 0 || n == 0 || batch.count == 0) return Status::ok;
    bool parallel = (batch.count > 1 || most_pieces > 1) && pool_worth(cost);
    Job job{this, frame.number, pieces(parallel), a.address(frame), b.address(frame), c.address(frame)};
    int64_t total = batch.count * job.pieces;
    if (total > 1 && parallel) pool_run(run_pieces, &job, total, 1, cost);
    else run_pieces(&job, 0, total);
    return Status::ok;
  }
  double cost_ns() const override { return cost; }

  char dtype = 'f';
  bool ta = false, tb = false;
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0, itemsize = 4;
  Place a{}, b{}, c{};
  GemmBatch batch;
  int64_t most_pieces = 1;      // a function of shape and dtype only
  bool cut_rows = true;         // along m, else along n
  bool follow_threads = false;  // the bits are those of the whole product, however it is cut
  double cost = 0;

  void plan_pieces() {
    double flops = 2.0 * double(m) * double(n) * double(std::max<int64_t>(k, 1)) * 4;
    double rate = dtype == 'F' ? 90.0 : 45.0;  // flops per ns
    double bytes = double(itemsize) * (double(m) * double(k) + double(k) * double(n) + double(m) * double(n));
    cost = double(batch.count) * (150 + std::max(flops / rate, bytes * 0.05));
    cut_rows = n == 1 || (m != 1 && m * 4 >= n);  // packing the other operand again for each piece costs less this way
    int64_t extent = cut_rows ? m : n;
    // A vector times a matrix is bound by memory: pieces of 1 MB. Its kernels are not probed.
    double products = double(m) * double(n) * double(k);
    double wanted = is_vector() ? double(extent) * double(k) * double(itemsize) / 1e6 : 2 * products / kPieceFlops;
    most_pieces = std::clamp<int64_t>(int64_t(std::min(wanted, 1e6)), 1, std::max<int64_t>(extent / unit_of(dtype), 1));
    if (is_vector()) most_pieces = std::min<int64_t>(most_pieces, 256);
  }
  bool is_vector() const { return m == 1 || n == 1; }

 private:
  struct Job {
    const BlasStep* step;
    uint64_t number;  // the task's, for cancellation
    int64_t pieces;
    char *a, *b, *c;
  };

  // How many pieces each product is cut into now.
  int64_t pieces(bool parallel) const {
    if (is_vector()) return most_pieces;
    int64_t interrupted = int64_t(cost / double(batch.count) / kLongestPieceNs) + 1;
    if (!follow_threads) return std::min(most_pieces, std::max<int64_t>(interrupted, 8));
    int64_t threads = pool_threads();
    if (!parallel || batch.count >= 4 * threads) return std::min(most_pieces, interrupted);
    int64_t extent = cut_rows ? m : n;
    return std::min(most_pieces, std::max(interrupted, extent >= threads * kLongPiece ? 2 * threads : threads));
  }

  int64_t border(int64_t extent, int64_t pieces, int64_t i) const {
    int64_t unit = unit_of(dtype);
    return i == pieces ? extent : std::min(extent, (extent * i / pieces + unit / 2) / unit * unit);
  }

  static void run_pieces(void* context, int64_t low, int64_t high) {
    const Job& job = *static_cast<const Job*>(context);
    const BlasStep& step = *job.step;
    for (int64_t item = low; item < high && !stream_cancelled(job.number); ++item) {
      int64_t piece = item % job.pieces, rest = item / job.pieces;
      char *a = job.a, *b = job.b, *c = job.c;
      step.batch.move(rest, a, b, c);
      int64_t extent = step.cut_rows ? step.m : step.n;
      step.multiply_range(step.border(extent, job.pieces, piece), step.border(extent, job.pieces, piece + 1), a, b, c);
    }
  }

 public:
  // Rows (or columns) low..high of the product.
  void multiply_range(int64_t low, int64_t high, const char* pa, const char* pb, char* pc) const {
    if (low >= high) return;
    if (cut_rows) multiply(high - low, n, pa + (ta ? low : low * lda) * itemsize, pb, pc + low * ldc * itemsize);
    else multiply(m, high - low, pa, pb + (tb ? low * ldb : low) * itemsize, pc + low * itemsize);
  }

 private:
  void multiply(int64_t rows, int64_t columns, const char* pa, const char* pb, char* pc) const {
    if (k == 0 || m == 1 || n == 1)
      for (int64_t i = 0; i < rows; ++i) std::memset(pc + i * ldc * itemsize, 0, size_t(columns * itemsize));
    if (k == 0) return;
    std::complex<float> one_f = 1, zero_f = 0;
    std::complex<double> one_d = 1, zero_d = 0;
    bool vector = m == 1 || n == 1;
    switch (dtype) {
      case 'F':
        return vector ? matvec<const void*>(g_blas.cgemv, &one_f, &zero_f, rows, columns, pa, pb, pc)
                      : matmul<const void*>(g_blas.cgemm, &one_f, &zero_f, rows, columns, pa, pb, pc);
      default:
        return vector ? matvec<const void*>(g_blas.zgemv, &one_d, &zero_d, rows, columns, pa, pb, pc)
                      : matmul<const void*>(g_blas.zgemm, &one_d, &zero_d, rows, columns, pa, pb, pc);
    }
  }

  template <class T>
  void matmul(Gemm<T> gemm, T one, T zero, int64_t rows, int64_t columns, const char* pa, const char* pb,
              char* pc) const {
    gemm(kRowMajor, ta ? kTrans : kNoTrans, tb ? kTrans : kNoTrans, int(rows), int(columns), int(k), one, pa, int(lda),
         pb, int(ldb), zero, pc, int(ldc));
  }

  // One side is a vector. The result was zeroed: beta 0 would read what is there.
  template <class T>
  void matvec(Gemv<T> gemv, T one, T, int64_t rows, int64_t columns, const char* pa, const char* pb, char* pc) const {
    if (n == 1) {
      int stride = tb ? 1 : int(ldb);
      if (ta) gemv(kRowMajor, kTrans, int(k), int(rows), one, pa, int(lda), pb, stride, one, pc, int(ldc));
      else gemv(kRowMajor, kNoTrans, int(rows), int(k), one, pa, int(lda), pb, stride, one, pc, int(ldc));
    } else {
      int stride = ta ? int(lda) : 1;
      if (tb) gemv(kRowMajor, kNoTrans, int(columns), int(k), one, pb, int(ldb), pa, stride, one, pc, 1);
      else gemv(kRowMajor, kTrans, int(k), int(columns), one, pb, int(ldb), pa, stride, one, pc, 1);
    }
  }
};

// Whether a product cut at multiples of its unit has the bits of the whole one, for this kind of element. Probed once.
bool probe(char dtype, bool rows) {
  static constexpr char kinds[] = "FD";
  static int known[2][2];  // 0: not probed, 1: the same, -1: not
  int& answer = known[std::strchr(kinds, dtype) - kinds][rows ? 1 : 0];
  if (answer != 0) return answer > 0;
  const int64_t unit = unit_of(dtype);
  BlasStep step;
  step.dtype = dtype;
  step.itemsize = dtype == 'D' ? 16 : 8;
  step.cut_rows = rows;
  // No piece is as small as OpenBLAS's small-matrix path takes (real pieces are not either); k is more than one block.
  step.m = rows ? 2 * unit + 61 : 67;
  step.n = rows ? 67 : 2 * unit + 61;
  step.k = 520;
  step.lda = step.k;
  step.ldb = step.ldc = step.n;
  int64_t reals = step.itemsize / (dtype == 'F' ? 4 : 8);
  auto values = [&](int64_t count, uint32_t seed) {
    std::vector<char> bytes(size_t(count * step.itemsize));
    for (int64_t i = 0; i < count * reals; ++i) {
      seed = seed * 1664525u + 1013904223u;
      double value = double(int32_t(seed)) * 0x1p-31;
      if (dtype == 'F') reinterpret_cast<float*>(bytes.data())[i] = float(value);
      else reinterpret_cast<double*>(bytes.data())[i] = value;
    }
    return bytes;
  };
  std::vector<char> a = values(step.m * step.k, 1), b = values(step.k * step.n, 2);
  std::vector<char> whole = values(step.m * step.n, 3), pieces = values(step.m * step.n, 4);
  int64_t extent = rows ? step.m : step.n;
  step.multiply_range(0, extent, a.data(), b.data(), whole.data());
  for (int64_t low = 0; low < extent; low += unit)
    step.multiply_range(low, std::min(low + unit, extent), a.data(), b.data(), pieces.data());
  answer = whole == pieces ? 1 : -1;
  return answer > 0;
}

}  // namespace

std::unique_ptr<Step> make_blas_step(PyObject* fields, const PlaceReader& places) {
  auto step = std::make_unique<BlasStep>();
  PyObject *a, *b, *c, *batch;
  int dtype, ta, tb;
  long long m, n, k, lda, ldb, ldc;
  if (!PyArg_ParseTuple(fields, "CppLLLOLOLOLO!;[executable] a blas instruction has 13 fields after its name", &dtype,
                        &ta, &tb, &m, &n, &k, &a, &lda, &b, &ldb, &c, &ldc, &PyTuple_Type, &batch))
    return nullptr;
  int64_t sizes[4] = {m, n, k, 0}, leading[3] = {lda, ldb, ldc};
  bool fits = dtype == 'F' || dtype == 'D';
  for (int64_t size : sizes) fits = fits && size >= 0 && size <= INT_MAX;
  for (int64_t ld : leading) fits = fits && ld >= 0 && ld <= INT_MAX;
  if (!fits) {
    invalid_gemm("[gemm] a size is negative or beyond 32 bits, or the dtype is not one of F D");
    return nullptr;
  }
  step->dtype = char(dtype);
  step->itemsize = dtype == 'D' ? 16 : 8;
  step->ta = ta != 0;
  step->tb = tb != 0;
  step->m = m;
  step->n = n;
  step->k = k;
  if (!step->batch.read(batch)) return nullptr;
  int64_t columns[3] = {ta ? m : k, tb ? k : n, n};
  int64_t rows[3] = {ta ? k : m, tb ? n : k, m};
  for (int i = 0; i < 3; ++i) {
    // A single row may come with any leading dimension; BLAS wants at least the row's length.
    if (rows[i] <= 1) leading[i] = std::max<int64_t>(leading[i], std::max<int64_t>(columns[i], 1));
    leading[i] = std::max<int64_t>(leading[i], 1);
    if (leading[i] < columns[i]) {
      invalid_gemm("[gemm] a leading dimension is shorter than a row");
      return nullptr;
    }
  }
  step->lda = leading[0];
  step->ldb = leading[1];
  step->ldc = leading[2];
  int64_t bytes[3] = {step->batch.reach(rows[0], columns[0], leading[0], 1, step->itemsize, &GemmBatch::Dim::a),
                      step->batch.reach(rows[1], columns[1], leading[1], 1, step->itemsize, &GemmBatch::Dim::b),
                      step->batch.reach(rows[2], columns[2], leading[2], 1, step->itemsize, &GemmBatch::Dim::c)};
  if (bytes[0] < 0 || bytes[1] < 0 || bytes[2] < 0) {
    invalid_gemm("[gemm] the operands are too large");
    return nullptr;
  }
  if (!places.place(a, bytes[0], &step->a) || !places.place(b, bytes[1], &step->b) ||
      !places.place(c, bytes[2], &step->c))
    return nullptr;
  step->plan_pieces();
  if (!load_blas()) return nullptr;
  if (step->most_pieces > 1 && !step->is_vector()) step->follow_threads = probe(step->dtype, step->cut_rows);
  return step;
}

namespace {

PyObject* set_blas_loader(PyObject*, PyObject* loader) {
  if (!PyCallable_Check(loader)) {
    PyErr_SetString(PyExc_TypeError, "[set_blas_loader] expected a callable that returns the path of OpenBLAS");
    return nullptr;
  }
  Py_XSETREF(g_loader, Py_NewRef(loader));
  Py_RETURN_NONE;
}

PyMethodDef kMethods[] = {
    {"set_blas_loader", set_blas_loader, METH_O,
     "set_blas_loader(callable): callable() gives the path of OpenBLAS, at the first product."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_blas(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
