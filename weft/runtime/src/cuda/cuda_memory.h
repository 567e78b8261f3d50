// Memory of one GPU: blocks of large pieces ("slabs") that the driver gave, and pinned memory of the host for copies.
//
// Nothing is taken before it is asked for, and what is freed is kept for what is asked next. A block that is freed while
// the stream still uses it may be given away at once: who gets it works on the same stream, later.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "cuda_driver.h"

namespace weft::cuda {

// Sums of a pool, in JAX's words.
struct PoolStats {
  int64_t bytes_in_use = 0, peak_bytes_in_use = 0, num_allocs = 0, largest_alloc_size = 0;
  int64_t pool_bytes = 0, peak_pool_bytes = 0;  // that the driver gave
};

// The methods may be called from any thread in whose current context the memory lies; take_free and give from any.
class Pool {
 public:
  // The address of at least nbytes, and how many they are; 0 without memory: then *result is what the driver said.
  Address take(int64_t nbytes, int64_t* capacity, Result* result);
  Address take_free(int64_t nbytes, int64_t* capacity);  // 0: the driver has to be asked
  void give(Address address);
  // Gives slabs without a block in use back to the driver; whether there were any. Nothing may be running.
  bool trim();
  PoolStats stats();
  int64_t limit = INT64_MAX;  // bytes that it takes from the driver at most; set before it is used

 private:
  struct Block {
    int64_t bytes;
    bool free;
    bool small;  // in a slab of small blocks
    bool first;  // of its slab
    bool last;
  };
  using Blocks = std::map<Address, Block>;

  using Free = std::set<std::pair<int64_t, Address>>;  // by size

  Address taken(Blocks::iterator block, int64_t bytes, int64_t* capacity);  // a part of a free block
  Blocks::iterator joined(Blocks::iterator block);  // with its free neighbours, which leave their list

  std::mutex mutex_;  // guards
  Blocks blocks_;
  Free free_[2];  // of large and of small slabs, and
  PoolStats stats_;
};

// Pinned memory of the host. A piece is used again once what was asked of it is done: its owner says so.
class Pinned {
 public:
  // At least nbytes, or nullptr: there is none to be had, or too much is held already.
  char* take(int64_t nbytes);
  void give(char* piece);

 private:
  static int size_class(int64_t nbytes);

  std::mutex mutex_;  // guards
  std::map<char*, int> classes_;
  std::map<int, std::vector<char*>> free_;  // and
  int64_t held_ = 0;
};

}  // namespace weft::cuda
