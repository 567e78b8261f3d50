// LAPACK: the library that SciPy carries, found and opened at the first call, and how many threads it may use.
//
// Routines are found by name in SciPy's own module of LAPACK wrappers, whose dependencies are searched by dlsym: no
// Python of SciPy's is imported (5 ms instead of 400), and nothing is installed that is not there already.
#pragma once

#include <string>

namespace weft {

// The routine of a Fortran name ("dpotrf"); nullptr with a Python error set. GIL held.
void* lapack_routine(const std::string& name);

// While it lives LAPACK uses at most so many threads of its own; then as many as before. Calls that ask for different
// numbers wait for each other, so that LAPACK's threads and the pool's are never more than the processors.
class LapackThreads {
 public:
  explicit LapackThreads(int count);
  ~LapackThreads();
  LapackThreads(const LapackThreads&) = delete;
  LapackThreads& operator=(const LapackThreads&) = delete;
};

}  // namespace weft
