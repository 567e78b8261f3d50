// Solvers on row-major matrices: triangular and tridiagonal systems; updates of factors; permutations of pivots.
#include <algorithm>
#include <limits>

#include "library.h"

namespace weft {
namespace {

// (m, n, left, lower, transposed, conjugated, unit): a, b[m,n] -> x with op(a) x = b, or x op(a) = b if not left.
//
// In column-major order the memory of a is a', and a x = b becomes x' a' = b', which needs no copy of b.
template <class T>
class Triangular final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 7) return false;
    m = sizes[0], n = sizes[1], is_left = sizes[2] != 0, order = is_left ? m : n;
    triangle = sizes[3] ? 'U' : 'L';
    // BLAS cannot conjugate without transposing: conjugate a copy
    is_conjugated = kIsComplex<T> && sizes[5] && !sizes[4];
    operation = !sizes[4] ? 'N' : kIsComplex<T> && sizes[5] ? 'C' : 'T';
    diagonal = sizes[6] ? 'U' : 'N';
    constexpr int64_t item = sizeof(T);
    in_bytes = {order * order * item, m * n * item};
    out_bytes = {in_bytes[1]};
    if (is_conjugated) copy = room<T>(order * order);
    flops = double(m) * n * order * (kIsComplex<T> ? 4 : 1);
    flops_for_threads = kFlopsOfBlocks;
    return find_lapack<T>(trsm, "trsm") && find_lapack<T>(trsv, "trsv");
  }

  void run(char* const* in, char* const* out, char* work) const override {
    const T* a = elements<T>(in, 0);
    T* x = results<T>(out, 0);
    std::copy_n(elements<T>(in, 1), m * n, x);
    if (m == 0 || n == 0) return;
    if (is_conjugated) {
      auto* other = reinterpret_cast<T*>(work + copy);
      std::transform(a, a + order * order, other, conjugated<T>);
      a = other;
    }
    if ((is_left ? n : m) == 1) return solve_vector(a, x);
    const T one(1);
    char side = is_left ? 'R' : 'L';
    trsm(&side, &triangle, &operation, &diagonal, &n, &m, &one, a, &order, x, &n);
  }

 private:
  void solve_vector(const T* a, T* x) const {
    const Int step = 1;
    char way = !is_left ? operation : operation == 'N' ? 'T' : 'N';
    bool by_conjugates = is_left && operation == 'C';  // solve conj(a') x = b
    if (by_conjugates) std::transform(x, x + order, x, conjugated<T>);
    trsv(&triangle, &way, &diagonal, &order, a, &order, x, &step);
    if (by_conjugates) std::transform(x, x + order, x, conjugated<T>);
  }

  Int m = 0, n = 0, order = 0;
  bool is_left = false, is_conjugated = false;
  char triangle = 'L', operation = 'N', diagonal = 'N';
  int64_t copy = 0;
  void (*trsm)(const char*, const char*, const char*, const char*, const Int*, const Int*, const T*, const T*,
               const Int*, T*, const Int*) = nullptr;
  void (*trsv)(const char*, const char*, const char*, const Int*, const T*, const Int*, T*, const Int*) = nullptr;
};

// (n, k): the lower (first element not read), main and upper (last element not read) diagonal, b[n,k] -> x; NaN if the
// matrix is singular.
template <class T>
class TridiagonalSolve final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 2) return false;
    n = sizes[0], k = sizes[1];
    constexpr int64_t item = sizeof(T);
    in_bytes = {n * item, n * item, n * item, n * k * item};
    out_bytes = {in_bytes[3]};
    for (int64_t& diagonal : diagonals) diagonal = room<T>(n);
    columns = room<T>(n * k);
    flops = 10.0 * n * (k + 2) * (kIsComplex<T> ? 4 : 1);
    return find_lapack<T>(gtsv, "gtsv");
  }

  void run(char* const* in, char* const* out, char* work) const override {
    if (n == 0 || k == 0) return;
    T* parts[3];
    for (Int i = 0; i < 3; ++i) parts[i] = reinterpret_cast<T*>(work + diagonals[i]);
    std::copy_n(elements<T>(in, 0) + 1, n - 1, parts[0]);
    std::copy_n(elements<T>(in, 1), n, parts[1]);
    std::copy_n(elements<T>(in, 2), n - 1, parts[2]);
    auto* b = reinterpret_cast<T*>(work + columns);
    transpose(elements<T>(in, 3), n, k, b, n);
    Int info = 0;
    gtsv(&n, &k, parts[0], parts[1], parts[2], b, &n, &info);
    if (info != 0) fill_nan(results<T>(out, 0), n * k);
    else untranspose(b, n, n, k, results<T>(out, 0));
  }

 private:
  Int n = 0, k = 0;
  int64_t diagonals[3] = {}, columns = 0;
  void (*gtsv)(const Int*, const Int*, T*, T*, T*, T*, const Int*, Int*) = nullptr;
};

// (n, k): as TridiagonalSolve, but with pivots of U that are nearly zero moved away from it, so that the solution is
// finite: LAPACK's lagtf and lagts (job -1), for complex numbers too.
template <class T>
class PerturbedTridiagonalSolve final : public Routine {
  using Real = decltype(std::abs(T()));

 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 2) return false;
    n = sizes[0], k = sizes[1];
    constexpr int64_t item = sizeof(T);
    in_bytes = {n * item, n * item, n * item, n * k * item};
    out_bytes = {in_bytes[3]};
    for (int64_t& diagonal : diagonals) diagonal = room<T>(n);
    flops = 20.0 * double(n) * double(k + 2) * (kIsComplex<T> ? 4 : 1);
    is_library = false;
    return true;
  }

  void run(char* const* in, char* const* out, char* work) const override {
    if (n == 0 || k == 0) return;
    T *a = at(work, 0), *b = at(work, 1), *c = at(work, 2), *d = at(work, 3);
    std::copy_n(elements<T>(in, 1), n, a);
    std::copy_n(elements<T>(in, 2), n, b);
    std::copy_n(elements<T>(in, 0), n, c);
    std::fill_n(d, n, T(0));
    b[n - 1] = c[0] = T(0);
    T* x = results<T>(out, 0);
    std::copy_n(elements<T>(in, 3), n * k, x);
    Real scale = std::abs(a[0]) + std::abs(b[0]);
    for (int64_t i = 0; i + 1 < n; ++i) eliminate(a + i, b + i, c[i + 1], d + i, scale, x + i * k, i + 2 < n);
    Real largest = 0;
    for (const T* part : {a, b, d})
      for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(part[i]));
    Real step = std::max(largest * std::numeric_limits<Real>::epsilon(), kSmallest);
    for (int64_t i = n; i-- > 0;) {
      T* row = x + i * k;
      Real wanted = 0;
      for (int64_t j = 0; j < k; ++j) {
        if (i + 1 < n) row[j] -= b[i] * row[j + k];
        if (i + 2 < n) row[j] -= d[i] * row[j + 2 * k];
        wanted = std::max(wanted, std::abs(row[j]));
      }
      divide(row, moved(a[i], wanted, step));
    }
  }

 private:
  static constexpr Real kSmallest = std::numeric_limits<Real>::min();

  T* at(char* work, int part) const { return reinterpret_cast<T*>(work + diagonals[part]); }

  // One step of elimination, with the scaled pivot of lagtf; x are the right-hand sides of this row and the next.
  void eliminate(T* a, T* b, T c, T* d, Real& scale, T* x, bool has_more) const {
    Real next_scale = std::abs(c) + std::abs(a[1]) + (has_more ? std::abs(b[1]) : 0);
    if (c == T(0)) {
      scale = next_scale;
      return;
    }
    Real own = a[0] == T(0) ? 0 : std::abs(a[0]) / scale, next = std::abs(c) / next_scale;
    if (next <= own) {
      T factor = c / a[0];
      a[1] -= factor * b[0];
      for (int64_t j = 0; j < k; ++j) x[k + j] -= factor * x[j];
      scale = next_scale;
      return;
    }
    T factor = a[0] / c, kept = a[1];
    a[0] = c;
    a[1] = b[0] - factor * kept;
    if (has_more) {
      d[0] = b[1];
      b[1] = -factor * d[0];
    }
    b[0] = kept;
    for (int64_t j = 0; j < k; ++j) {
      T first = x[j];
      x[j] = x[k + j];
      x[k + j] = first - factor * x[j];
    }
  }

  // The pivot, moved by steps, each twice as long as the one before, until wanted / pivot does not overflow.
  static T moved(T pivot, Real wanted, Real step) {
    if (std::signbit(std::real(pivot))) step = -step;
    for (Real size = std::abs(pivot); size < 1 && (size == 0 || wanted * kSmallest > size); size = std::abs(pivot)) {
      pivot += step;
      step *= 2;
    }
    return pivot;
  }

  void divide(T* row, T pivot) const {
    Real factor = std::abs(pivot) < kSmallest ? 1 / kSmallest : 1;  // 1 / pivot alone would overflow
    for (int64_t j = 0; j < k; ++j) row[j] = (row[j] * factor) / (pivot * factor);
  }

  int64_t n = 0, k = 0;
  int64_t diagonals[4] = {};
};

// (n,): r upper, w -> the upper r1 with r1' r1 = r' r + w w', by Givens rotations.
template <class T>
class Update final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 1) return false;
    n = sizes[0];
    constexpr int64_t item = sizeof(T);
    in_bytes = {n * n * item, n * item};
    out_bytes = {in_bytes[0]};
    vector = room<T>(n);
    flops = 6.0 * double(n) * double(n);
    is_library = false;
    return true;
  }

  void run(char* const* in, char* const* out, char* work) const override {
    T *r = results<T>(out, 0), *w = reinterpret_cast<T*>(work + vector);
    std::copy_n(elements<T>(in, 0), n * n, r);
    std::copy_n(elements<T>(in, 1), n, w);
    for (int64_t k = 0; k < n; ++k) {
      T x = r[k * n + k], y = w[k], c = 1, s = 0;
      if (y != 0) {
        T scale = std::max(std::abs(x), std::abs(y)), a = x / scale, b = y / scale, length = std::sqrt(a * a + b * b);
        c = a / length;
        s = -b / length;
      }
      T* row = r + k * n;
      row[k] = c * x - s * y;
      for (int64_t j = k + 1; j < n; ++j) {
        T kept = row[j];
        row[j] = c * kept - s * w[j];
        w[j] = c * w[j] + s * kept;
      }
    }
  }

 private:
  int64_t n = 0, vector = 0;
};

// (k, m): row swaps, applied in order -> for each of the m rows the row it comes from.
class Permutation final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 2 || sizes[1] < sizes[0]) return false;
    k = sizes[0], m = sizes[1];
    in_bytes = {k * 4};
    out_bytes = {m * 4};
    flops = double(m);
    is_library = false;
    return true;
  }

  void run(char* const* in, char* const* out, char*) const override {
    const auto* swaps = elements<int32_t>(in, 0);
    auto* rows = results<int32_t>(out, 0);
    for (int64_t i = 0; i < m; ++i) rows[i] = int32_t(i);
    for (int64_t i = 0; i < k; ++i) std::swap(rows[i], rows[std::clamp<int64_t>(swaps[i], 0, m - 1)]);
  }

 private:
  int64_t k = 0, m = 0;
};

}  // namespace

MadeRoutine make_solver(const std::string& name, char type) {
  if (name == "trsm") return of_type<Triangular>(type);
  if (name == "gtsv") return of_type<TridiagonalSolve>(type);
  if (name == "lagts") return of_type<PerturbedTridiagonalSolve>(type);
  if (name == "update" && type == 'f') return std::make_unique<Update<float>>();
  if (name == "update" && type == 'd') return std::make_unique<Update<double>>();
  if (name == "swaps" && type == 'i') return std::make_unique<Permutation>();
  return nullptr;
}

}  // namespace weft
