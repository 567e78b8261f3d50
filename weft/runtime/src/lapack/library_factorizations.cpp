// Factorizations of LAPACK on row-major matrices: Cholesky, LU, QR and its reflectors, Hessenberg, tridiagonal.
#include <algorithm>

#include "library.h"

namespace weft {
namespace {

// (n,): a -> l, lower triangular with zeros above; NaN if a is not positive definite. Reads only the lower triangle of
// a.
template <class T>
class Cholesky final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 1) return false;
    n = sizes[0];
    in_bytes = out_bytes = {n * n * int64_t(sizeof(T))};
    flops = double(n) * n * n / 3 * (kIsComplex<T> ? 4 : 1);
    flops_for_threads = kFlopsOfBlocks;
    return find_lapack<T>(potrf, "potrf");
  }

  void run(char* const* in, char* const* out, char*) const override {
    const T* a = elements<T>(in, 0);
    T* l = results<T>(out, 0);
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(a + i * n, i + 1, l + i * n);
      std::fill_n(l + i * n + i + 1, n - i - 1, T(0));
    }
    Int info = 0;
    potrf("U", &n, l, &n, &info);  // u' u of the transposed matrix: its upper u and our lower l are the same memory
    if (info != 0) fill_nan(l, n * n);
  }

 private:
  Int n = 0;
  void (*potrf)(const char*, const Int*, T*, const Int*, Int*) = nullptr;
};

// (m, n): a -> lu, pivots, permutation, counted from 0.
template <class T>
class Lu final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 2) return false;
    m = sizes[0], n = sizes[1], k = std::min(m, n);
    in_bytes = {m * n * int64_t(sizeof(T))};
    out_bytes = {in_bytes[0], k * 4, m * 4};
    columns = room<T>(m * n);
    swaps = room<Int>(k);
    flops = double(m) * n * k * (kIsComplex<T> ? 4 : 1);
    flops_for_threads = kFlopsOfBlocks;
    return find_lapack<T>(getrf, "getrf");
  }

  void run(char* const* in, char* const* out, char* work) const override {
    auto* a = reinterpret_cast<T*>(work + columns);
    auto* numbers = reinterpret_cast<Int*>(work + swaps);
    auto *pivots = results<int32_t>(out, 1), *permutation = results<int32_t>(out, 2);
    if (k > 0) {
      Int info = 0;
      transpose(elements<T>(in, 0), m, n, a, m);
      getrf(&m, &n, a, &m, numbers, &info);
      read_integers(numbers, k, pivots);
      untranspose(a, m, m, n, results<T>(out, 0));
    }
    for (Int i = 0; i < m; ++i) permutation[i] = int32_t(i);
    for (Int i = 0; i < k; ++i) std::swap(permutation[i], permutation[--pivots[i]]);
  }

 private:
  Int m = 0, n = 0, k = 0;
  int64_t columns = 0, swaps = 0;
  void (*getrf)(const Int*, const Int*, T*, const Int*, Int*, Int*) = nullptr;
};

// What the QR routines share: a transposed copy, LAPACK's workspace, and the two ways to factorize.
template <class T>
class Reflectors : public Routine {
 protected:
  using Geqrf = void(const Int*, const Int*, T*, const Int*, T*, T*, const Int*, Int*);
  using Geqp3 = void(const Int*, const Int*, T*, const Int*, Int*, T*, T*, const Int*, Int*);
  using Geqp3Complex = void(const Int*, const Int*, T*, const Int*, Int*, T*, T*, const Int*, Real<T>*, Int*);
  using Orgqr = void(const Int*, const Int*, const Int*, T*, const Int*, const T*, T*, const Int*, Int*);

  void need(T answer) { scratch_count = std::max(scratch_count, answered(answer)); }

  bool prepare_factors(Int rows, Int columns, bool with_pivots) {
    T answer(0), unused{};
    Int info = 0, query = -1, pivot = 0, ld = std::max<Int>(rows, 1);
    pivoting = with_pivots;
    if (pivoting) order = this->template room<Int>(columns);
    if (pivoting && kIsComplex<T>) {
      Real<T> real = 0;
      if (!find_lapack<T>(geqp3_complex, "geqp3")) return false;
      geqp3_complex(&rows, &columns, &unused, &ld, &pivot, &unused, &answer, &query, &real, &info);
      reals = this->template room<Real<T>>(2 * columns);
    } else if (pivoting) {
      if (!find_lapack<T>(geqp3, "geqp3")) return false;
      geqp3(&rows, &columns, &unused, &ld, &pivot, &unused, &answer, &query, &info);
    } else {
      if (!find_lapack<T>(geqrf, "geqrf")) return false;
      geqrf(&rows, &columns, &unused, &ld, &unused, &answer, &query, &info);
    }
    need(answer);
    return true;
  }

  bool prepare_product(Int rows, Int columns, Int count) {
    T answer(0), unused{};
    Int info = 0, query = -1, ld = std::max<Int>(rows, 1);
    if (!find_lapack<T>(orgqr, "orgqr", "ungqr")) return false;
    orgqr(&rows, &columns, &count, &unused, &ld, &unused, &answer, &query, &info);
    need(answer);
    return true;
  }

  // Factorizes a column-major matrix; `pivots` count from 0.
  void factorize(Int rows, Int columns, T* a, int32_t* pivots, T* taus, char* work) const {
    Int info = 0;
    T* more = reinterpret_cast<T*>(work + scratch);
    if (!pivoting) return geqrf(&rows, &columns, a, &rows, taus, more, &scratch_count, &info);
    auto* numbers = reinterpret_cast<Int*>(work + order);
    std::fill_n(numbers, columns, 0);
    if (kIsComplex<T>)
      geqp3_complex(&rows, &columns, a, &rows, numbers, taus, more, &scratch_count,
                    reinterpret_cast<Real<T>*>(work + reals), &info);
    else geqp3(&rows, &columns, a, &rows, numbers, taus, more, &scratch_count, &info);
    read_integers(numbers, columns, pivots);
    for (Int j = 0; j < columns; ++j) --pivots[j];
  }

  void multiply(Int rows, Int columns, Int count, T* a, const T* taus, char* work) const {
    Int info = 0;
    orgqr(&rows, &columns, &count, a, &rows, taus, reinterpret_cast<T*>(work + scratch), &scratch_count, &info);
  }

  bool pivoting = false;
  Int scratch_count = 1;
  int64_t scratch = 0, reals = 0, order = 0;
  Geqrf* geqrf = nullptr;
  Geqp3* geqp3 = nullptr;
  Geqp3Complex* geqp3_complex = nullptr;
  Orgqr* orgqr = nullptr;
};

// (m, n, full, pivoting): a -> q, r and, with pivoting, the permutation of the columns.
template <class T>
class Qr final : public Reflectors<T> {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 4) return false;
    m = sizes[0], n = sizes[1], k = std::min(m, n), width = sizes[2] ? m : k;
    constexpr int64_t item = sizeof(T);
    this->in_bytes = {m * n * item};
    this->out_bytes = {m * width * item, width * n * item};
    if (sizes[3]) this->out_bytes.push_back(n * 4);
    this->flops = (2.0 * m * n * k + 2.0 * m * width * k) * (kIsComplex<T> ? 4 : 1);
    if (!this->prepare_factors(m, n, sizes[3] != 0) || !this->prepare_product(m, width, k)) return false;
    columns = this->template room<T>(m * std::max(n, width));
    taus = this->template room<T>(k);
    this->scratch = this->template room<T>(this->scratch_count);
    return true;
  }

  void run(char* const* in, char* const* out, char* work) const override {
    auto *a = reinterpret_cast<T*>(work + columns), *factors = reinterpret_cast<T*>(work + taus);
    T *q = results<T>(out, 0), *r = results<T>(out, 1);
    int32_t* pivots = this->pivoting ? results<int32_t>(out, 2) : nullptr;
    if (k == 0) {
      set_identity(q, m, width);
      std::fill_n(r, width * n, T(0));
      if (pivots != nullptr) std::fill_n(pivots, n, 0);
      return;
    }
    transpose(elements<T>(in, 0), m, n, a, m);
    this->factorize(m, n, a, pivots, factors, work);
    untranspose(a, m, width, n, r);
    for (int64_t i = 1; i < width; ++i) std::fill_n(r + i * n, std::min<int64_t>(i, n), T(0));
    this->multiply(m, width, k, a, factors, work);
    untranspose(a, m, m, width, q);
  }

 private:
  Int m = 0, n = 0, k = 0, width = 0;
  int64_t columns = 0, taus = 0;
};

// (m, n, pivoting): a -> the reflectors below the diagonal and r above, their factors, the permutation of the columns.
template <class T>
class Factors final : public Reflectors<T> {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 3) return false;
    m = sizes[0], n = sizes[1];
    constexpr int64_t item = sizeof(T);
    this->in_bytes = {m * n * item};
    this->out_bytes = {this->in_bytes[0], std::min(m, n) * item};
    if (sizes[2]) this->out_bytes.push_back(n * 4);
    this->flops = 2.0 * m * n * std::min(m, n) * (kIsComplex<T> ? 4 : 1);
    if (!this->prepare_factors(m, n, sizes[2] != 0)) return false;
    columns = this->template room<T>(m * n);
    this->scratch = this->template room<T>(this->scratch_count);
    return true;
  }

  void run(char* const* in, char* const* out, char* work) const override {
    auto* a = reinterpret_cast<T*>(work + columns);
    int32_t* pivots = this->pivoting ? results<int32_t>(out, 2) : nullptr;
    if (pivots != nullptr) std::fill_n(pivots, n, 0);
    if (m == 0 || n == 0) return;
    transpose(elements<T>(in, 0), m, n, a, m);
    this->factorize(m, n, a, pivots, results<T>(out, 1), work);
    untranspose(a, m, m, n, results<T>(out, 0));
  }

 private:
  Int m = 0, n = 0;
  int64_t columns = 0;
};

// (m, n, k): reflectors, their k factors -> the first n columns of their product.
template <class T>
class Product final : public Reflectors<T> {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 3) return false;
    m = sizes[0], n = sizes[1], k = sizes[2];
    constexpr int64_t item = sizeof(T);
    this->in_bytes = {m * n * item, k * item};
    this->out_bytes = {this->in_bytes[0]};
    this->flops = 2.0 * m * n * k * (kIsComplex<T> ? 4 : 1);
    if (!this->prepare_product(m, n, k)) return false;
    columns = this->template room<T>(m * n);
    this->scratch = this->template room<T>(this->scratch_count);
    return true;
  }

  void run(char* const* in, char* const* out, char* work) const override {
    auto* a = reinterpret_cast<T*>(work + columns);
    if (m == 0 || n == 0) return;
    transpose(elements<T>(in, 0), m, n, a, m);
    this->multiply(m, n, k, a, elements<T>(in, 1), work);
    untranspose(a, m, m, n, results<T>(out, 0));
  }

 private:
  Int m = 0, n = 0, k = 0;
  int64_t columns = 0;
};

// (m, columns of a, k, rows of c, columns of c, left, transposed): a, taus, c -> q c, q' c, c q or c q'.
template <class T>
class Applied final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 7) return false;
    m = sizes[0], n = sizes[1], k = sizes[2], rows = sizes[3], columns = sizes[4];
    side = sizes[5] ? 'L' : 'R';
    operation = !sizes[6] ? 'N' : kIsComplex<T> ? 'C' : 'T';
    constexpr int64_t item = sizeof(T);
    in_bytes = {m * n * item, k * item, rows * columns * item};
    out_bytes = {in_bytes[2]};
    flops = 4.0 * rows * columns * k * (kIsComplex<T> ? 4 : 1);
    if (!find_lapack<T>(ormqr, "ormqr", "unmqr")) return false;
    T answer(0), unused{};
    Int info = 0, query = -1, ld = std::max<Int>(m, 1), ldc = std::max<Int>(rows, 1);
    ormqr(&side, &operation, &rows, &columns, &k, &unused, &ld, &unused, &unused, &ldc, &answer, &query, &info);
    scratch_count = std::max<Int>(answered(answer), 1);
    factors = room<T>(m * n);
    copy = room<T>(rows * columns);
    scratch = room<T>(scratch_count);
    return true;
  }

  void run(char* const* in, char* const* out, char* work) const override {
    auto *a = reinterpret_cast<T*>(work + factors), *c = reinterpret_cast<T*>(work + copy);
    if (rows == 0 || columns == 0) return;
    transpose(elements<T>(in, 0), m, n, a, m);
    transpose(elements<T>(in, 2), rows, columns, c, rows);
    Int info = 0;
    ormqr(&side, &operation, &rows, &columns, &k, a, &m, elements<T>(in, 1), c, &rows,
          reinterpret_cast<T*>(work + scratch), &scratch_count, &info);
    untranspose(c, rows, rows, columns, results<T>(out, 0));
  }

 private:
  Int m = 0, n = 0, k = 0, rows = 0, columns = 0, scratch_count = 1;
  char side = 'L', operation = 'N';
  int64_t factors = 0, copy = 0, scratch = 0;
  void (*ormqr)(const char*, const char*, const Int*, const Int*, const Int*, const T*, const Int*, const T*, T*,
                const Int*, T*, const Int*, Int*) = nullptr;
};

// (n,): a -> h on and above the subdiagonal with the reflectors below it, the factors of the reflectors.
template <class T>
class Hessenberg final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 1 || sizes[0] < 1) return false;
    n = sizes[0];
    constexpr int64_t item = sizeof(T);
    in_bytes = {n * n * item};
    out_bytes = {in_bytes[0], (n - 1) * item};
    flops = 10.0 / 3 * n * n * n * (kIsComplex<T> ? 4 : 1);
    if (!find_lapack<T>(gehrd, "gehrd")) return false;
    T answer(0), unused{};
    Int info = 0, query = -1, first = 1;
    gehrd(&n, &first, &n, &unused, &n, &unused, &answer, &query, &info);
    scratch_count = std::max(answered(answer), n);
    columns = room<T>(n * n);
    scratch = room<T>(scratch_count);
    return true;
  }

  void run(char* const* in, char* const* out, char* work) const override {
    auto* a = reinterpret_cast<T*>(work + columns);
    transpose(elements<T>(in, 0), n, n, a, n);
    Int info = 0, first = 1;
    gehrd(&n, &first, &n, a, &n, results<T>(out, 1), reinterpret_cast<T*>(work + scratch), &scratch_count, &info);
    untranspose(a, n, n, n, results<T>(out, 0));
  }

 private:
  Int n = 0, scratch_count = 1;
  int64_t columns = 0, scratch = 0;
  void (*gehrd)(const Int*, const Int*, const Int*, T*, const Int*, T*, T*, const Int*, Int*) = nullptr;
};

// (n, lower): a -> a with the reflectors, the diagonal, the off-diagonal, the factors of the reflectors.
template <class T>
class Tridiagonal final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 2 || sizes[0] < 1) return false;
    n = sizes[0], triangle = sizes[1] ? 'L' : 'U';
    constexpr int64_t item = sizeof(T), real = sizeof(Real<T>);
    in_bytes = {n * n * item};
    out_bytes = {in_bytes[0], n * real, (n - 1) * real, (n - 1) * item};
    flops = 4.0 / 3 * n * n * n * (kIsComplex<T> ? 4 : 1);
    if (!find_lapack<T>(sytrd, "sytrd", "hetrd")) return false;
    T answer(0), unused{};
    Real<T> nothing = 0;
    Int info = 0, query = -1;
    sytrd(&triangle, &n, &unused, &n, &nothing, &nothing, &unused, &answer, &query, &info);
    scratch_count = std::max<Int>(answered(answer), 1);
    columns = room<T>(n * n);
    scratch = room<T>(scratch_count);
    return true;
  }

  void run(char* const* in, char* const* out, char* work) const override {
    auto* a = reinterpret_cast<T*>(work + columns);
    transpose(elements<T>(in, 0), n, n, a, n);
    Int info = 0;
    sytrd(&triangle, &n, a, &n, results<Real<T>>(out, 1), results<Real<T>>(out, 2), results<T>(out, 3),
          reinterpret_cast<T*>(work + scratch), &scratch_count, &info);
    untranspose(a, n, n, n, results<T>(out, 0));
  }

 private:
  Int n = 0, scratch_count = 1;
  char triangle = 'L';
  int64_t columns = 0, scratch = 0;
  void (*sytrd)(const char*, const Int*, T*, const Int*, Real<T>*, Real<T>*, T*, T*, const Int*, Int*) = nullptr;
};

}  // namespace

MadeRoutine make_factorization(const std::string& name, char type) {
  if (name == "potrf") return of_type<Cholesky>(type);
  if (name == "getrf") return of_type<Lu>(type);
  if (name == "geqrf+orgqr") return of_type<Qr>(type);
  if (name == "geqrf") return of_type<Factors>(type);
  if (name == "orgqr") return of_type<Product>(type);
  if (name == "ormqr") return of_type<Applied>(type);
  if (name == "gehrd") return of_type<Hessenberg>(type);
  if (name == "sytrd") return of_type<Tridiagonal>(type);
  return nullptr;
}

}  // namespace weft
