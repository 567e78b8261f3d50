// A launch: a grid of blocks, some of them at a time, with the checks and counts that were asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "counts.h"
#include "memory.h"
#include "program.h"
#include "races.h"
#include "warp.h"

namespace ptx {

enum Check : uint32_t {
  kUninitialised = 1,  // reads of registers and memory that nobody wrote
  kRaces = 2,
  kDivergence = 4,     // barriers and shuffles without all of their lanes
  kWrittenOnce = 8,    // no byte of global memory is written by two threads
  kEverything = kUninitialised | kRaces | kDivergence,
};

struct Options {
  uint32_t checks = kEverything;
  uint64_t seed = 0;            // of the order of blocks; 0: ascending
  uint32_t resident = 8;        // blocks at a time
  uint64_t steps = 0;           // instructions of a warp, at most; 0: 2**32
  uint64_t blocks = 0;          // so many of them are run; 0: all
  uint32_t counted = 0;         // counts and times
};

struct Barrier {
  std::vector<uint32_t> warps;   // that have arrived
  uint32_t threads = 0;
};

struct Block {
  Launch* launch;
  uint32_t index[3];
  uint64_t number;
  std::vector<char> shared;
  std::vector<uint16_t> written;  // of shared memory, a bit a byte
  std::vector<Mark> marks;        // of shared memory
  std::vector<std::unique_ptr<Warp>> warps;
  std::map<uint32_t, Barrier> barriers;
  uint32_t release = 0;                           // how often it has released what it wrote
  std::unordered_map<uint64_t, uint32_t> known;   // of other blocks: what they had released when it was acquired
  std::unordered_map<uint64_t, uint32_t> pending; // what relaxed loads saw, until a fence
  bool fenced = false;
  double started = 0;

  // A warp has come to a barrier for so many threads (0: all); it waits unless it only arrives.
  void arrive(Warp& w, const Instruction& in, uint32_t id, uint32_t threads, bool waits);
  void release_barrier(uint32_t id);
  bool done() const;
};

struct Launch {
  Module& module;
  const Function& function;
  Memory& memory;
  Options options;
  uint32_t grid[3], block[3];
  std::vector<char> params;
  uint32_t shared_bytes = 0;
  uint32_t threads = 0, serial = 0;
  int device = 0;
  uint64_t peers = 0;  // other devices whose memory it may use, a bit each
  uint32_t local_bytes = 0, register_bytes = 0, registers = 0;  // of a warp's lanes and of a warp, calls included
  std::vector<Allocation*> hints;  // of each instruction: the allocation that it touched last
  std::unordered_map<uint64_t, std::unordered_map<uint64_t, uint32_t>> released;  // at an address: blocks, their counts
  Counts counts;
  Allocation* counted_hint = nullptr;
  std::vector<Allocation*> touched;  // their sectors are marked

  Launch(Module& m, const Function& f, Memory& mem) : module(m), function(f), memory(mem) {}
  bool checks(Check check) const { return options.checks & check; }
  // Runs all of it. Throws Error.
  void run();

 private:
  std::unique_ptr<Block> begin(uint64_t number);
  void prepare();
  void turn(Block& block, uint64_t slice);
};

// Held while a part of a launch runs, so that launches of several devices see each other's memory in turn.
std::mutex& machine_mutex();

}  // namespace ptx
