// Matrix products through OpenBLAS, loaded at the first one from the scipy-openblas32 wheel.
//
// C[m,n] = op(A)[m,k] op(B)[k,n], row-major. OpenBLAS runs one thread; we cut C into tiles by shape alone, so that
// the bits do not depend on the number of threads, and run the tiles on our own pool.
#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <complex>
#include <cstring>
#include <mutex>

#include "module.h"
#include "plan.h"
#include "pool.h"
#include "stream.h"

namespace weft {
namespace {

constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
constexpr double kTileFlops = 8e6;  // 76 us for float32: long enough to repay packing, short enough to balance
constexpr int64_t kSmallestTile = 128;
constexpr int64_t kLargeTile = 256;

template <class T>
using Gemm = void (*)(int order, int ta, int tb, int m, int n, int k, T alpha, const void* a, int lda, const void* b, int ldb,
                      T beta, void* c, int ldc);
template <class T>
using Gemv = void (*)(int order, int trans, int m, int n, T alpha, const void* a, int lda, const void* x, int incx, T beta,
                      void* y, int incy);

struct Blas {
  Gemm<float> sgemm;
  Gemm<double> dgemm;
  Gemm<const void*> cgemm, zgemm;
  Gemv<float> sgemv;
  Gemv<double> dgemv;
  Gemv<const void*> cgemv, zgemv;
};

Blas g_blas;
bool g_loaded = false;
PyObject* g_loader = nullptr;  // callable() -> path, or nullptr for the wheel's own

PyObject* default_path() {
  Ref package = steal(PyImport_ImportModule("scipy_openblas32"));
  if (!package) return nullptr;
  Ref folder = steal(PyObject_CallMethod(package.get(), "get_lib_dir", nullptr));
  if (!folder) return nullptr;
  Ref name = steal(PyObject_CallMethod(package.get(), "get_library", "i", 1));
  if (!name) return nullptr;
  return PyUnicode_FromFormat("%S/%S", folder.get(), name.get());
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
  if (!find(library, "scipy_cblas_sgemm", &blas.sgemm) || !find(library, "scipy_cblas_dgemm", &blas.dgemm)) return false;
  if (!find(library, "scipy_cblas_cgemm", &blas.cgemm) || !find(library, "scipy_cblas_zgemm", &blas.zgemm)) return false;
  if (!find(library, "scipy_cblas_sgemv", &blas.sgemv) || !find(library, "scipy_cblas_dgemv", &blas.dgemv)) return false;
  if (!find(library, "scipy_cblas_cgemv", &blas.cgemv) || !find(library, "scipy_cblas_zgemv", &blas.zgemv)) return false;
  set_threads(1);
  g_blas = blas;
  g_loaded = true;
  return true;
}

struct BatchDim {
  int64_t extent, a, b, c;  // strides in bytes
};

class GemmStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    Job job{this, frame.number, a.address(frame), b.address(frame), c.address(frame)};
    int64_t total = batch_count * tiles_m * tiles_n;
    if (m == 0 || n == 0 || total == 0) return Status::ok;
    if (total > 1 && pool_worth(cost)) pool_run(run_tiles, &job, total, 1, cost);
    else run_tiles(&job, 0, total);
    return Status::ok;
  }
  double cost_ns() const override { return cost; }

  char dtype = 'f';
  bool ta = false, tb = false;
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0, itemsize = 4;
  Place a{}, b{}, c{};
  std::vector<BatchDim> batch;
  int64_t batch_count = 1, tiles_m = 1, tiles_n = 1;
  double cost = 0;

  // Tiles are a function of shape and dtype only.
  void plan_tiles() {
    double flops = 2.0 * double(m) * double(n) * double(std::max<int64_t>(k, 1)) * (is_complex() ? 4 : 1);
    double rate = dtype == 'f' || dtype == 'F' ? 90.0 : 45.0;  // flops per ns
    double bytes = double(itemsize) * (double(m) * double(k) + double(k) * double(n) + double(m) * double(n));
    cost = double(batch_count) * (150 + std::max(flops / rate, bytes * 0.05));
    if (m == 1 || n == 1) {
      int64_t rows = std::max(m, n);  // of the result; memory-bound, so tiles of 1 MB
      int64_t tiles = std::min(int64_t(double(rows) * double(k) * double(itemsize) / 1e6), rows / 64);
      (m == 1 ? tiles_n : tiles_m) = std::clamp<int64_t>(tiles, 1, 256);
      return;
    }
    double wanted = std::min(flops / kTileFlops, 4096.0);
    auto cut = [](int64_t extent, int64_t tiles) { return extent / (tiles * 2) >= (extent >= 4 * kLargeTile ? kLargeTile : kSmallestTile); };
    while (double(tiles_m * tiles_n) * 1.5 <= wanted && tiles_m * tiles_n < 64) {
      bool can_m = cut(m, tiles_m), can_n = cut(n, tiles_n);
      if (!can_m && !can_n) break;
      bool rows = can_m && (!can_n || m / tiles_m >= n / tiles_n);
      (rows ? tiles_m : tiles_n) *= 2;
    }
  }

 private:
  struct Job {
    const GemmStep* step;
    uint64_t number;  // the task's, for cancellation
    char *a, *b, *c;
  };

  bool is_complex() const { return dtype == 'F' || dtype == 'D'; }

  // Border number i of `tiles` tiles, a multiple of 16 so that only the last tile has ragged vectors.
  static int64_t border(int64_t extent, int64_t tiles, int64_t i) {
    return i == tiles ? extent : std::min(extent, (extent * i / tiles + 15) & ~int64_t{15});
  }

  static void run_tiles(void* context, int64_t low, int64_t high) {
    const Job& job = *static_cast<const Job*>(context);
    const GemmStep& step = *job.step;
    for (int64_t item = low; item < high && !stream_cancelled(job.number); ++item) {
      int64_t tile = item % (step.tiles_m * step.tiles_n), rest = item / (step.tiles_m * step.tiles_n);
      char *a = job.a, *b = job.b, *c = job.c;
      for (size_t d = step.batch.size(); d-- > 0;) {
        int64_t index = rest % step.batch[d].extent;
        rest /= step.batch[d].extent;
        a += index * step.batch[d].a;
        b += index * step.batch[d].b;
        c += index * step.batch[d].c;
      }
      int64_t row = tile / step.tiles_n, column = tile % step.tiles_n;
      int64_t m0 = border(step.m, step.tiles_m, row), m1 = border(step.m, step.tiles_m, row + 1);
      int64_t n0 = border(step.n, step.tiles_n, column), n1 = border(step.n, step.tiles_n, column + 1);
      if (m0 >= m1 || n0 >= n1) continue;
      a += (step.ta ? m0 : m0 * step.lda) * step.itemsize;
      b += (step.tb ? n0 * step.ldb : n0) * step.itemsize;
      c += (m0 * step.ldc + n0) * step.itemsize;
      step.multiply(m1 - m0, n1 - n0, a, b, c);
    }
  }

  void multiply(int64_t rows, int64_t columns, const char* pa, const char* pb, char* pc) const {
    if (k == 0 || m == 1 || n == 1)
      for (int64_t i = 0; i < rows; ++i) std::memset(pc + i * ldc * itemsize, 0, size_t(columns * itemsize));
    if (k == 0) return;
    std::complex<float> one_f = 1, zero_f = 0;
    std::complex<double> one_d = 1, zero_d = 0;
    bool vector = m == 1 || n == 1;
    switch (dtype) {
      case 'f': return vector ? matvec(g_blas.sgemv, 1.0f, 0.0f, rows, columns, pa, pb, pc) : matmul(g_blas.sgemm, 1.0f, 0.0f, rows, columns, pa, pb, pc);
      case 'd': return vector ? matvec(g_blas.dgemv, 1.0, 0.0, rows, columns, pa, pb, pc) : matmul(g_blas.dgemm, 1.0, 0.0, rows, columns, pa, pb, pc);
      case 'F':
        return vector ? matvec<const void*>(g_blas.cgemv, &one_f, &zero_f, rows, columns, pa, pb, pc)
                      : matmul<const void*>(g_blas.cgemm, &one_f, &zero_f, rows, columns, pa, pb, pc);
      default:
        return vector ? matvec<const void*>(g_blas.zgemv, &one_d, &zero_d, rows, columns, pa, pb, pc)
                      : matmul<const void*>(g_blas.zgemm, &one_d, &zero_d, rows, columns, pa, pb, pc);
    }
  }

  template <class T>
  void matmul(Gemm<T> gemm, T one, T zero, int64_t rows, int64_t columns, const char* pa, const char* pb, char* pc) const {
    gemm(kRowMajor, ta ? kTrans : kNoTrans, tb ? kTrans : kNoTrans, int(rows), int(columns), int(k), one, pa, int(lda), pb,
         int(ldb), zero, pc, int(ldc));
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

bool invalid(const char* message) {
  PyErr_SetString(PyExc_ValueError, message);
  return false;
}

bool read_batch(PyObject* batch, GemmStep* step) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(batch); ++i) {
    long long extent, sa, sb, sc;
    if (!PyTuple_Check(PyTuple_GET_ITEM(batch, i)) || !PyArg_ParseTuple(PyTuple_GET_ITEM(batch, i), "LLLL", &extent, &sa, &sb, &sc)) {
      PyErr_Clear();
      return invalid("[gemm] a batch dimension is (extent, stride of a, of b, of c)");
    }
    if (extent < 0 || sa < 0 || sb < 0 || sc < 0 || __builtin_mul_overflow(step->batch_count, int64_t(extent), &step->batch_count))
      return invalid("[gemm] a batch dimension has a wrong extent or stride");
    step->batch.push_back({extent, sa, sb, sc});
  }
  return true;
}

// Bytes from the first to past the last element of a matrix and all of its batch; -1 if that does not fit.
int64_t reach(int64_t rows, int64_t columns, int64_t leading, int64_t itemsize, const std::vector<BatchDim>& batch, int64_t BatchDim::*stride) {
  __int128 bytes = rows == 0 || columns == 0 ? 0 : (__int128(rows - 1) * leading + columns) * itemsize;
  for (const BatchDim& dim : batch) {
    if (dim.extent == 0) return 0;
    bytes += __int128(dim.extent - 1) * (dim.*stride);
  }
  return bytes > INT64_MAX ? -1 : int64_t(bytes);
}

}  // namespace

std::unique_ptr<Step> make_gemm_step(PyObject* fields, const PlaceReader& places) {
  auto step = std::make_unique<GemmStep>();
  PyObject *a, *b, *c, *batch;
  int dtype, ta, tb;
  long long m, n, k, lda, ldb, ldc;
  if (!PyArg_ParseTuple(fields, "CppLLLOLOLOLO!;[executable] a gemm instruction has 13 fields after its name", &dtype, &ta, &tb,
                        &m, &n, &k, &a, &lda, &b, &ldb, &c, &ldc, &PyTuple_Type, &batch))
    return nullptr;
  int64_t sizes[4] = {m, n, k, 0}, leading[3] = {lda, ldb, ldc};
  bool fits = dtype == 'f' || dtype == 'd' || dtype == 'F' || dtype == 'D';
  for (int64_t size : sizes) fits = fits && size >= 0 && size <= INT_MAX;
  for (int64_t ld : leading) fits = fits && ld >= 0 && ld <= INT_MAX;
  if (!fits) {
    invalid("[gemm] a size is negative or beyond 32 bits, or the dtype is not one of f d F D");
    return nullptr;
  }
  step->dtype = char(dtype);
  step->itemsize = dtype == 'f' ? 4 : dtype == 'D' ? 16 : 8;
  step->ta = ta != 0;
  step->tb = tb != 0;
  step->m = m;
  step->n = n;
  step->k = k;
  if (!read_batch(batch, step.get())) return nullptr;
  int64_t columns[3] = {ta ? m : k, tb ? k : n, n};
  int64_t rows[3] = {ta ? k : m, tb ? n : k, m};
  for (int i = 0; i < 3; ++i) {
    // A single row may come with any leading dimension; BLAS wants at least the row's length.
    if (rows[i] <= 1) leading[i] = std::max<int64_t>(leading[i], std::max<int64_t>(columns[i], 1));
    leading[i] = std::max<int64_t>(leading[i], 1);
    if (leading[i] < columns[i]) {
      invalid("[gemm] a leading dimension is shorter than a row");
      return nullptr;
    }
  }
  step->lda = leading[0];
  step->ldb = leading[1];
  step->ldc = leading[2];
  int64_t bytes[3] = {reach(rows[0], columns[0], leading[0], step->itemsize, step->batch, &BatchDim::a),
                      reach(rows[1], columns[1], leading[1], step->itemsize, step->batch, &BatchDim::b),
                      reach(rows[2], columns[2], leading[2], step->itemsize, step->batch, &BatchDim::c)};
  if (bytes[0] < 0 || bytes[1] < 0 || bytes[2] < 0) {
    invalid("[gemm] the operands are too large");
    return nullptr;
  }
  if (!places.place(a, bytes[0], &step->a) || !places.place(b, bytes[1], &step->b) || !places.place(c, bytes[2], &step->c)) return nullptr;
  step->plan_tiles();
  if (!load_blas()) return nullptr;
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
    {"set_blas_loader", set_blas_loader, METH_O, "set_blas_loader(callable): callable() gives the path of OpenBLAS, at the first product."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_gemm(PyObject* module) { return PyModule_AddFunctions(module, kMethods); }

}  // namespace weft
