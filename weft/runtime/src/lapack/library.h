// Library calls: the interface of a routine that a step runs on every matrix of a batch.
//
// Matrices are dense and row-major. LAPACK is column-major and reads the same memory as the transposed matrix: many
// routines can use it as it is, others use a transposed copy in the workspace.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lapack.h"
#include "plan.h"
#include "python.h"

namespace weft {

// One routine for matrices of one size and type. `prepare` is called once with the GIL held. `run` is called without it
// and from several threads at once, each with its own workspace.
class Routine {
 public:
  virtual ~Routine() = default;
  // Reads the sizes, finds the functions, and sets how many bytes one matrix of the batch takes in every operand. False
  // with a Python error set.
  virtual bool prepare(const std::vector<int64_t>& sizes) = 0;
  virtual void run(char* const* in, char* const* out, char* work) const = 0;

  std::vector<int64_t> in_bytes, out_bytes;
  int64_t work_bytes = 0;
  double flops = 0;  // estimate, of one matrix
  bool is_library = true;  // calls LAPACK, which may use its own threads
  // flops from which on threads gain something. Most routines take many small steps (reflectors, rotations), and
  // LAPACK's threads meet at each; where it does whole blocks at a time, kFlopsOfBlocks.
  double flops_for_threads = 1e9;
  static constexpr double kFlopsOfBlocks = 60e6;

 protected:
  // Reserves `count` elements in the workspace; returns their offset.
  template <class T>
  int64_t room(int64_t count) {
    int64_t offset = work_bytes;
    work_bytes += (std::max<int64_t>(count, 1) * int64_t(sizeof(T)) + 63) & ~int64_t{63};
    return offset;
  }
};

using MadeRoutine = std::unique_ptr<Routine>;

// Routines by name, for elements of type f, d, F or D (float32, float64, complex64, complex128) or i (int32); nullptr
// if the file has no routine of that name.
MadeRoutine make_factorization(const std::string& name, char type);
MadeRoutine make_solver(const std::string& name, char type);
MadeRoutine make_spectral(const std::string& name, char type);
MadeRoutine make_counter(const std::string& name, char type);

// Fourier transforms, which cut all arrays of a batch among the threads themselves.
std::unique_ptr<Step> make_fft_step(char type, const std::vector<int64_t>& sizes, PyObject* in, PyObject* out,
                                    const LocationReader& locations);

// ---- elements

template <class T>
struct Part {
  using Real = T;
};
template <class T>
struct Part<std::complex<T>> {
  using Real = T;
};
template <class T>
using Real = typename Part<T>::Real;
template <class T>
constexpr bool kIsComplex = !std::is_same_v<T, Real<T>>;

template <class T>
char lapack_letter() {
  if constexpr (kIsComplex<T>) return sizeof(T) == 8 ? 'c' : 'z';
  return sizeof(T) == 4 ? 's' : 'd';
}

template <class T>
T conjugated(T x) {
  if constexpr (kIsComplex<T>) return std::conj(x);
  else return x;
}

template <class T>
T not_a_number() {
  constexpr Real<T> nan = std::numeric_limits<Real<T>>::quiet_NaN();
  if constexpr (kIsComplex<T>) return T(nan, nan);
  else return nan;
}

template <class T>
void fill_nan(T* to, int64_t count) {
  std::fill_n(to, count, not_a_number<T>());
}

// Iterative routines may not terminate on NaN and infinities, so they are not called on them.
template <class T>
bool all_finite(const T* x, int64_t count) {
  auto* parts = reinterpret_cast<const Real<T>*>(x);
  Real<T> sum = 0;
  for (int64_t i = 0; i < count * int64_t(sizeof(T) / sizeof(Real<T>)); ++i) sum += parts[i] * 0;
  return sum == 0;
}

// The LAPACK function for T: `real`, or `complex` where the names differ, both without their first letter.
template <class T, class Function>
bool find_lapack(Function*& function, const char* real, const char* complex = nullptr) {
  const char* name = kIsComplex<T> && complex != nullptr ? complex : real;
  void* found = lapack_routine(std::string(1, lapack_letter<T>()) + name);
  function = reinterpret_cast<Function*>(found);
  return found != nullptr;
}

// The size that a query for the workspace returned.
template <class T>
Int answered(T size) {
  if constexpr (kIsComplex<T>) return Int(size.real());
  else return Int(size * (sizeof(T) == 4 ? T(1.0000002) : T(1)));  // a float may have been rounded down
}

// to[j * to_rows + i] = from[i * columns + j]: row-major (rows x columns) to column-major, or back with them exchanged.
template <class T>
void transpose(const T* from, int64_t rows, int64_t columns, T* to, int64_t to_rows) {
  constexpr int64_t kTile = 16;
  for (int64_t top = 0; top < rows; top += kTile)
    for (int64_t left = 0; left < columns; left += kTile) {
      int64_t bottom = std::min(top + kTile, rows), right = std::min(left + kTile, columns);
      for (int64_t j = left; j < right; ++j)
        for (int64_t i = top; i < bottom; ++i) to[j * to_rows + i] = from[i * columns + j];
    }
}

// Row-major (rows x columns) from column-major with `from_rows` rows.
template <class T>
void untranspose(const T* from, int64_t from_rows, int64_t rows, int64_t columns, T* to) {
  constexpr int64_t kTile = 16;
  for (int64_t top = 0; top < rows; top += kTile)
    for (int64_t left = 0; left < columns; left += kTile) {
      int64_t bottom = std::min(top + kTile, rows), right = std::min(left + kTile, columns);
      for (int64_t i = top; i < bottom; ++i)
        for (int64_t j = left; j < right; ++j) to[i * columns + j] = from[j * from_rows + i];
    }
}

template <class T>
void set_identity(T* to, int64_t rows, int64_t columns) {
  std::fill_n(to, rows * columns, T(0));
  for (int64_t i = 0; i < std::min(rows, columns); ++i) to[i * columns + i] = T(1);
}

template <class T>
const T* elements(char* const* operands, int index) {
  return reinterpret_cast<const T*>(operands[index]);
}
template <class T>
T* results(char* const* operands, int index) {
  return reinterpret_cast<T*>(operands[index]);
}

// The instance of a class template for an element type.
template <template <class> class Made>
MadeRoutine of_type(char type) {
  if (type == 'f') return std::make_unique<Made<float>>();
  if (type == 'd') return std::make_unique<Made<double>>();
  if (type == 'F') return std::make_unique<Made<std::complex<float>>>();
  if (type == 'D') return std::make_unique<Made<std::complex<double>>>();
  return nullptr;
}

}  // namespace weft
