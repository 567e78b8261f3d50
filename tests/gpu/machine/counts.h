// What a launch did: instructions by pipe, sectors of global memory, conflicts of shared memory, times of blocks.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "program.h"

namespace ptx {

struct Warp;
struct Launch;
struct Allocation;

struct Counts {
  std::vector<uint64_t> hits;     // of each instruction of the kernel: warps
  std::vector<uint32_t> users;    // of each instruction: the warps of blocks that have run it
  double slots[int(Pipe::kinds)] = {};  // instructions of the hardware, of warps
  double issued = 0;
  uint64_t instructions = 0;      // of PTX, of warps
  uint64_t accesses = 0, sectors = 0, bytes = 0;  // of global memory; sectors that leave the first-level cache
  uint64_t read_sectors = 0, written_sectors = 0;            // each counted once a launch
  uint64_t atomics = 0;                                      // sectors of atomic operations
  uint64_t shared_accesses = 0, shared_passes = 0;           // a pass serves each bank once
  uint64_t blocks = 0;
  uint64_t code_bytes = 0;        // of the hardware's instructions that ran
  std::unordered_map<uint64_t, std::pair<uint64_t, uint64_t>> touched;  // sectors of allocations: read, written
  double block_cycles = 0;        // of the longest chain of a block, on average
  double longest_cycles = 0;
};

// A warp's access of global memory: so many bytes at each address.
void count_global(Warp& w, const Instruction& in, const uint64_t* addresses, uint32_t bytes, bool reads, bool writes);
void count_shared(Warp& w, const Instruction& in, const uint32_t* offsets, uint32_t bytes);
// The time of an instruction of a warp: when it begins, its results are ready.
void keep_time(Warp& w, const Instruction& in);
// The time at which all instructions of a region have begun; the next region begins then.
double end_region(Warp& w);
// Sectors of allocations that the launch touched, counted once; the marks are cleared.
void finish_counts(Launch& launch);

}  // namespace ptx
