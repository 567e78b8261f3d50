// Races: who touched a grain of memory last, and whether what another does with it is ordered after that.
#pragma once

#include <cstdint>

#include "program.h"

namespace ptx {

struct Warp;
struct Block;
struct Allocation;

struct Touch {
  uint32_t thread = 0;   // of the launch, from 1; 0: nobody
  uint32_t clock = 0;    // of its warp
  uint32_t release = 0;  // of its block
  uint32_t line = 0;     // of the text, twice, and whether the access was strong
};

struct Mark {
  uint32_t launch = 0;
  Touch writer, reader, other;
};

enum class Kind : uint8_t { read, write, both };

// Throws if the access races with an earlier one, and remembers it.
void note_shared(Warp& w, const Instruction& in, int lane, uint32_t offset, uint32_t bytes, Kind kind);
void note_global(Warp& w, const Instruction& in, int lane, Allocation& block, uint64_t offset, uint32_t bytes, Kind kind);
// The warps of a barrier have met.
void meet_clocks(Block& block, const uint32_t* warps, size_t count);
// bar.warp.sync
void meet_lanes(Warp& w);
// A fence of this warp; a strong access of an address by it.
void note_fence(Warp& w);
void note_strong(Warp& w, const Instruction& in, uint64_t address, Kind kind);

}  // namespace ptx
