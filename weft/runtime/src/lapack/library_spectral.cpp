// Eigenvalues, singular values and Schur forms by LAPACK on row-major matrices.
//
// For a matrix with NaN or infinities the result is NaN, without a call: LAPACK's iterations may not terminate on it.
#include <algorithm>

#include "library.h"

namespace weft {
namespace {

// (n, lower, start, count, vectors): a -> `count` eigenvalues from number `start` on, ascending; before them, with
// `vectors`, the eigenvectors as columns. Reads only one triangle of a.
template <class T>
class Symmetric final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 5 || sizes[2] + sizes[3] > sizes[0]) return false;
    n = sizes[0], first = sizes[2], count = sizes[3];
    is_lower = sizes[1] != 0;
    triangle = is_lower ? 'L' : 'U';
    job = sizes[4] ? 'V' : 'N';
    constexpr int64_t item = sizeof(T), real = sizeof(Real<T>);
    in_bytes = {n * n * item};
    out_bytes = {count * real};
    if (job == 'V') out_bytes.insert(out_bytes.begin(), n * count * item);
    flops = (job == 'V' ? 9.0 : 2.0) * n * n * n * (kIsComplex<T> ? 4 : 1);
    matrix = room<T>(n * n);
    values = room<Real<T>>(n);
    if (n == 0) return true;
    return ask();
  }

  void run(char* const* in, char* const* out, char* work) const override {
    auto* a = reinterpret_cast<T*>(work + matrix);
    auto* w = reinterpret_cast<Real<T>*>(work + values);
    T* v = job == 'V' ? results<T>(out, 0) : nullptr;
    Real<T>* kept = results<Real<T>>(out, job == 'V' ? 1 : 0);
    if (count == 0 || n == 0) return;
    const T* given = elements<T>(in, 0);
    // reading the other triangle instead would be correct too, but gives vectors of other signs
    transpose(given, n, n, a, n);
    Int info = is_finite(given) ? 0 : 1;
    if (info == 0) call(a, w, work, counts, &info);
    if (info != 0) {
      if (v != nullptr) fill_nan(v, n * count);
      return fill_nan(kept, count);
    }
    std::copy_n(w + first, count, kept);
    if (v == nullptr) return;
    untranspose(a + first * n, n, n, count, v);
  }

 private:
  // Workspace sizes: elements of T, real numbers (complex only), integers.
  struct Counts {
    Int scratch = 1, reals = 1, integers = 1;
  };

  bool ask() {
    T answer(0);
    Real<T> real = 0;
    Int integer = 0, info = 0;
    Counts query{-1, -1, -1};
    if (!(kIsComplex<T> ? find_lapack<T>(heevd, "heevd", "heevd") : find_lapack<T>(syevd, "syevd"))) return false;
    if (kIsComplex<T>)
      heevd(&job, &triangle, &n, &answer, &n, &real, &answer, &query.scratch, &real, &query.reals, &integer,
            &query.integers, &info);
    else
      syevd(&job, &triangle, &n, &answer, &n, &real, &answer, &query.scratch, &integer, &query.integers, &info);
    counts.scratch = std::max<Int>(answered(answer), 1);
    counts.reals = std::max<Int>(answered(real), 1);
    counts.integers = std::max<Int>(integer, 1);
    scratch = room<T>(counts.scratch);
    reals = room<Real<T>>(counts.reals);
    integers = room<Int>(counts.integers);
    return true;
  }

  void call(T* a, Real<T>* w, char* work, const Counts& sizes, Int* info) const {
    auto* more = reinterpret_cast<T*>(work + scratch);
    auto* numbers = reinterpret_cast<Int*>(work + integers);
    if (kIsComplex<T>)
      heevd(&job, &triangle, &n, a, &n, w, more, &sizes.scratch, reinterpret_cast<Real<T>*>(work + reals),
            &sizes.reals, numbers, &sizes.integers, info);
    else syevd(&job, &triangle, &n, a, &n, w, more, &sizes.scratch, numbers, &sizes.integers, info);
  }

  bool is_finite(const T* a) const {
    for (int64_t i = 0; i < n; ++i)
      if (!(is_lower ? all_finite(a + i * n, i + 1) : all_finite(a + i * n + i, n - i))) return false;
    return true;
  }

  Int n = 0, first = 0, count = 0;
  bool is_lower = true;
  char triangle = 'U', job = 'V';
  int64_t matrix = 0, values = 0, scratch = 0, reals = 0, integers = 0;
  Counts counts;
  void (*syevd)(const char*, const char*, const Int*, T*, const Int*, Real<T>*, T*, const Int*, Int*, const Int*,
                Int*) = nullptr;
  void (*heevd)(const char*, const char*, const Int*, T*, const Int*, Real<T>*, T*, const Int*, Real<T>*, const Int*,
                Int*, const Int*, Int*) = nullptr;
};

// (m, n, full, vectors, by QR): a -> s and, with `vectors`, u and the conjugate transpose of v.
//
// The memory of a is its column-major transpose, whose left vectors are stored as v' and whose right vectors as u.
template <class T>
class Singular final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 5) return false;
    m = sizes[0], n = sizes[1], k = std::min(m, n);
    rows = sizes[2] ? m : k, columns = sizes[2] ? n : k;
    job = !sizes[3] ? 'N' : sizes[2] ? 'A' : 'S';
    by_qr = sizes[4] != 0;
    constexpr int64_t item = sizeof(T);
    in_bytes = {m * n * item};
    out_bytes = {k * int64_t(sizeof(Real<T>))};
    if (job != 'N') out_bytes.insert(out_bytes.end(), {m * rows * item, columns * n * item});
    flops = (job == 'N' ? 4.0 : 14.0) * m * n * k * (kIsComplex<T> ? 4 : 1);
    return k == 0 || ask();
  }

  void run(char* const* in, char* const* out, char* work) const override {
    Real<T>* s = results<Real<T>>(out, 0);
    T *u = job == 'N' ? nullptr : results<T>(out, 1), *vt = job == 'N' ? nullptr : results<T>(out, 2);
    if (k == 0) {
      if (u != nullptr) set_identity(u, m, rows), set_identity(vt, columns, n);
      return;
    }
    auto* a = reinterpret_cast<T*>(work + matrix);
    const T* given = elements<T>(in, 0);
    Int info = all_finite(given, m * n) ? 0 : 1;
    if (info == 0) {
      std::copy_n(given, m * n, a);
      call(a, s, vt, u, reinterpret_cast<T*>(work + scratch), scratch_count, reinterpret_cast<Real<T>*>(work + reals),
           reinterpret_cast<Int*>(work + integers), &info);
    }
    if (info == 0) return;
    fill_nan(s, k);
    if (u != nullptr) fill_nan(u, m * rows), fill_nan(vt, columns * n);
  }

 private:
  bool ask() {
    bool found = kIsComplex<T> ? find_lapack<T>(gesdd_complex, "gesdd") && find_lapack<T>(gesvd_complex, "gesvd")
                               : find_lapack<T>(gesdd, "gesdd") && find_lapack<T>(gesvd, "gesvd");
    if (!found) return false;
    T answer(0), unused{};
    Real<T> real = 0;
    Int integer = 0, info = 0;
    call(&unused, &real, &unused, &unused, &answer, -1, &real, &integer, &info);
    scratch_count = std::max<Int>(answered(answer), 1);
    int64_t least = k, most = std::max(m, n);
    matrix = room<T>(m * n);
    scratch = room<T>(scratch_count);
    reals = room<Real<T>>(!kIsComplex<T> ? 1
                          : by_qr        ? 5 * least
                          : job == 'N'   ? 7 * least
                                         : least * std::max(5 * least + 7, 2 * most + 2 * least + 1));
    integers = room<Int>(8 * least);
    return true;
  }

  void call(T* a, Real<T>* s, T* left, T* right, T* more, Int count, Real<T>* real, Int* integer, Int* info) const {
    Int ld = std::max<Int>(rows, 1);
    if (by_qr && kIsComplex<T>)
      gesvd_complex(&job, &job, &n, &m, a, &n, s, left, &n, right, &ld, more, &count, real, info);
    else if (by_qr) gesvd(&job, &job, &n, &m, a, &n, s, left, &n, right, &ld, more, &count, info);
    else if (kIsComplex<T>)
      gesdd_complex(&job, &n, &m, a, &n, s, left, &n, right, &ld, more, &count, real, integer, info);
    else gesdd(&job, &n, &m, a, &n, s, left, &n, right, &ld, more, &count, integer, info);
  }

  Int m = 0, n = 0, k = 0, rows = 0, columns = 0, scratch_count = 1;
  char job = 'A';
  bool by_qr = false;
  int64_t matrix = 0, scratch = 0, reals = 0, integers = 0;
  void (*gesdd)(const char*, const Int*, const Int*, T*, const Int*, Real<T>*, T*, const Int*, T*, const Int*, T*,
                const Int*, Int*, Int*) = nullptr;
  void (*gesdd_complex)(const char*, const Int*, const Int*, T*, const Int*, Real<T>*, T*, const Int*, T*, const Int*,
                        T*, const Int*, Real<T>*, Int*, Int*) = nullptr;
  void (*gesvd)(const char*, const char*, const Int*, const Int*, T*, const Int*, Real<T>*, T*, const Int*, T*,
                const Int*, T*, const Int*, Int*) = nullptr;
  void (*gesvd_complex)(const char*, const char*, const Int*, const Int*, T*, const Int*, Real<T>*, T*, const Int*, T*,
                        const Int*, T*, const Int*, Real<T>*, Int*) = nullptr;
};

// (n, left, right): a -> the eigenvalues and, where asked for, the left and the right eigenvectors, all complex.
template <class T>
class General final : public Routine {
 public:
  using Complex = std::complex<Real<T>>;

  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 3) return false;
    n = sizes[0], jobs[0] = sizes[1] ? 'V' : 'N', jobs[1] = sizes[2] ? 'V' : 'N';
    int64_t square = n * n;
    in_bytes = {square * int64_t(sizeof(T))};
    out_bytes = {n * int64_t(sizeof(Complex))};
    for (char job : jobs)
      if (job == 'V') out_bytes.push_back(square * int64_t(sizeof(Complex)));
    flops = 25.0 * n * n * n * (kIsComplex<T> ? 4 : 1);
    matrix = room<T>(square);
    for (Int i = 0; i < 2; ++i) vectors[i] = room<T>(jobs[i] == 'V' ? square : 1);
    parts = room<Real<T>>(2 * n);
    if (n == 0) return true;
    if (!(kIsComplex<T> ? find_lapack<T>(geev_complex, "geev") : find_lapack<T>(geev, "geev"))) return false;
    T answer(0), unused{};
    Complex value;
    Real<T> real[2];
    Int info = 0;
    T* none[2] = {&unused, &unused};
    call(&unused, &value, real, none, &answer, -1, &info);
    scratch_count = std::max<Int>(answered(answer), 1);
    scratch = room<T>(scratch_count);
    return true;
  }

  void run(char* const* in, char* const* out, char* work) const override {
    if (n == 0) return;
    auto* w = results<Complex>(out, 0);
    auto* a = reinterpret_cast<T*>(work + matrix);
    auto* real = reinterpret_cast<Real<T>*>(work + parts);
    T* found[2] = {reinterpret_cast<T*>(work + vectors[0]), reinterpret_cast<T*>(work + vectors[1])};
    Int info = all_finite(elements<T>(in, 0), n * n) ? 0 : 1;
    if (info == 0) {
      transpose(elements<T>(in, 0), n, n, a, n);
      call(a, w, real, found, reinterpret_cast<T*>(work + scratch), scratch_count, &info);
    }
    if (info == 0 && !kIsComplex<T>)
      for (Int i = 0; i < n; ++i) w[i] = Complex(real[i], real[n + i]);
    if (info != 0) fill_nan(w, n);
    Int next = 1;
    for (Int i = 0; i < 2; ++i) {
      if (jobs[i] == 'N') continue;
      Complex* v = results<Complex>(out, next++);
      if (info != 0) fill_nan(v, n * n);
      else unpack(found[i], w, v);
    }
  }

 private:
  void call(T* a, Complex* w, Real<T>* real, T* const* found, T* more, Int count, Int* info) const {
    if constexpr (kIsComplex<T>)
      geev_complex(jobs, jobs + 1, &n, a, &n, w, found[0], &n, found[1], &n, more, &count, real, info);
    else
      geev(jobs, jobs + 1, &n, a, &n, real, real + (count < 0 ? 1 : n), found[0], &n, found[1], &n, more, &count, info);
  }

  // A real matrix has its complex eigenvectors in pairs: two neighbouring columns are the real and imaginary part of
  // the first.
  void unpack(const T* columns, const Complex* w, Complex* v) const {
    for (int64_t j = 0; j < n; ++j) {
      const T* column = columns + j * n;
      if constexpr (kIsComplex<T>) {
        for (int64_t i = 0; i < n; ++i) v[i * n + j] = column[i];
      } else if (w[j].imag() == 0 || j + 1 == n) {
        for (int64_t i = 0; i < n; ++i) v[i * n + j] = column[i];
      } else {
        for (int64_t i = 0; i < n; ++i) {
          v[i * n + j] = Complex(column[i], column[n + i]);
          v[i * n + j + 1] = Complex(column[i], -column[n + i]);
        }
        ++j;
      }
    }
  }

  Int n = 0, scratch_count = 1;
  char jobs[2] = {'N', 'V'};
  int64_t matrix = 0, vectors[2] = {}, parts = 0, scratch = 0;
  void (*geev)(const char*, const char*, const Int*, T*, const Int*, T*, T*, T*, const Int*, T*, const Int*, T*,
               const Int*, Int*) = nullptr;
  void (*geev_complex)(const char*, const char*, const Int*, T*, const Int*, Complex*, T*, const Int*, T*, const Int*,
                       T*, const Int*, Real<T>*, Int*) = nullptr;
};

// (n, vectors): a -> t and, with `vectors`, z with a = z t z'.
template <class T>
class Schur final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    if (sizes.size() != 2) return false;
    n = sizes[0], job = sizes[1] ? 'V' : 'N';
    int64_t square = n * n;
    in_bytes = {square * int64_t(sizeof(T))};
    out_bytes.assign(job == 'V' ? 2 : 1, in_bytes[0]);
    flops = 25.0 * n * n * n * (kIsComplex<T> ? 4 : 1);
    matrix = room<T>(square);
    vectors = room<T>(job == 'V' ? square : 1);
    values = room<T>(2 * n);
    reals = room<Real<T>>(n);
    if (n == 0) return true;
    if (!(kIsComplex<T> ? find_lapack<T>(gees_complex, "gees") : find_lapack<T>(gees, "gees"))) return false;
    T answer(0), unused[2] = {};
    Real<T> real;
    Int info = 0;
    call(unused, unused, unused, &answer, -1, &real, &info);
    scratch_count = std::max<Int>(answered(answer), 1);
    scratch = room<T>(scratch_count);
    return true;
  }

  void run(char* const* in, char* const* out, char* work) const override {
    if (n == 0) return;
    int64_t square = n * n;
    auto *a = reinterpret_cast<T*>(work + matrix), *z = reinterpret_cast<T*>(work + vectors);
    Int info = all_finite(elements<T>(in, 0), square) ? 0 : 1;
    if (info == 0) {
      transpose(elements<T>(in, 0), n, n, a, n);
      call(a, reinterpret_cast<T*>(work + values), z, reinterpret_cast<T*>(work + scratch), scratch_count,
           reinterpret_cast<Real<T>*>(work + reals), &info);
    }
    const T* made[2] = {a, z};
    for (Int i = 0; i < (job == 'V' ? 2 : 1); ++i) {
      if (info != 0) fill_nan(results<T>(out, i), square);
      else untranspose(made[i], n, n, n, results<T>(out, i));
    }
  }

 private:
  void call(T* a, T* w, T* z, T* more, Int count, Real<T>* real, Int* info) const {
    Int none = 0;
    if (kIsComplex<T>)
      gees_complex(&job, "N", nullptr, &n, a, &n, &none, w, z, &n, more, &count, real, nullptr, info);
    else
      gees(&job, "N", nullptr, &n, a, &n, &none, w, w + (count < 0 ? 1 : n), z, &n, more, &count, nullptr, info);
  }

  Int n = 0, scratch_count = 1;
  char job = 'V';
  int64_t matrix = 0, vectors = 0, values = 0, reals = 0, scratch = 0;
  void (*gees)(const char*, const char*, void*, const Int*, T*, const Int*, Int*, T*, T*, T*, const Int*, T*,
               const Int*, Int*, Int*) = nullptr;
  void (*gees_complex)(const char*, const char*, void*, const Int*, T*, const Int*, Int*, T*, T*, const Int*, T*,
                       const Int*, Real<T>*, Int*, Int*) = nullptr;
};

}  // namespace

MadeRoutine make_spectral(const std::string& name, char type) {
  if (name == "syevd") return of_type<Symmetric>(type);
  if (name == "gesdd") return of_type<Singular>(type);
  if (name == "geev") return of_type<General>(type);
  if (name == "gees") return of_type<Schur>(type);
  return nullptr;
}

}  // namespace weft
