// LAPACK: the copy that NumPy contains, or else SciPy's, is opened at the first call; its number of threads is limited.
//
// Routines are found by name with dlsym, in the extension module through which NumPy calls LAPACK and in what that
// depends on: nothing else needs to be installed.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

namespace weft {

// An integer argument of LAPACK: 64 bits wide in NumPy's copy, 32 in SciPy's and most others. All are passed by address,
// and a library of 32-bit integers reads and writes the lower half, which comes first in memory. So both kinds read a
// number that is not negative, and both write one right if the variable was 0 before. Arrays of integers need `read_integers`.
using Int = int64_t;
static_assert(std::endian::native == std::endian::little);

// Copies what LAPACK wrote in an array of integers, which has room for `count` of the wide ones.
void read_integers(const Int* from, int64_t count, int32_t* to);

// The routine of a Fortran name ("dpotrf"); nullptr with a Python error set. GIL held.
void* lapack_routine(const std::string& name);

// While an object of this class exists, LAPACK uses at most so many threads; afterwards as many as before. Calls that
// ask for different numbers wait for each other, so that LAPACK and the pool together never use more threads than
// processors.
class LapackThreads {
 public:
  explicit LapackThreads(int count);
  ~LapackThreads();
  LapackThreads(const LapackThreads&) = delete;
  LapackThreads& operator=(const LapackThreads&) = delete;
};

}  // namespace weft
