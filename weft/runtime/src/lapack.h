// LAPACK: the copy that SciPy contains is found and opened at the first call; its number of threads is limited.
//
// Routines are found by name with dlsym, in SciPy's own extension module for LAPACK and its dependencies. This imports
// no Python code of SciPy (5 ms instead of 400) and needs no other installation.
#pragma once

#include <string>

namespace weft {

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
