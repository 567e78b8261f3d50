// How Python hands the loaded MPI to the native layer, and waiting in parts, between which Python looks for signals.
#pragma once

#include <string>

#include "mpi.h"

namespace weft::mpi {

// Tags: below kCollectiveTags those of agreement; two for each tag of a collective; then those of single messages.
constexpr int kCollectiveTags = 64;
constexpr int kMessageTags = kCollectiveTags + (1 << 21);

struct Connection {
  std::string path;  // of mpi4py's module, which is linked to the library
  uintptr_t communicator, byte;
  int rank, size, most_tags;
  size_t piece;  // bytes of the largest message
};

// MPI_Init_thread on a thread of its own, since nothing can interrupt it: `begin` starts it and gives "" or why not;
// `begun` is true once it has returned, with what it returned and the level of threads that MPI gives.
std::string begin(const std::string& path, int level);
bool begun(int* code, int* provided);

// Empty, or why the functions were not found. Called once, before any operation.
std::string connect(const Connection& connection);
void disconnect();
bool lost();  // whether MPI has reported that a rank cannot be reached any more

struct Waited {
  double seconds = 0;
  bool warned = false;
};

// Waits for at most part_s; true when the operation is done. What `wait` does, in parts; limit_s 0: the set limit.
bool wait_part(Operation& operation, const std::string& what, double part_s, double limit_s, Waited* waited);
std::string waited_text(const Operation& operation, const std::string& what, double waited_s);

}  // namespace weft::mpi
