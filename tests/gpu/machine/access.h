// Where the lanes of an access find their bytes, after every check of them.
#pragma once

#include "races.h"
#include "warp.h"

namespace ptx {

struct Access {
  char* at[kLanes];
  uint64_t address[kLanes];
  Space space[kLanes];
  uint32_t missing = 0;  // lanes some of whose bytes nobody wrote
};

// Whether the bytes of a lane, from ``first`` of its access, were written; that they are not, after a store of a value
// that is not defined.
bool is_defined(const Warp& w, const Access& access, int lane, uint32_t first, uint32_t bytes);
void undefine(Warp& w, const Access& access, int lane, uint32_t first, uint32_t bytes);

// The operand of an instruction that is an address.
struct Address {
  uint32_t slot, index;
  bool is_short;
  Space space;
  int64_t offset;
};

// Fills the slots of the active lanes. ``bytes`` of each are read, written or both.
void reach(Warp& w, const Instruction& in, const Address& where, uint32_t bytes, Kind kind, Access& access);
void reach(Warp& w, const Instruction& in, uint32_t bytes, Kind kind, Access& access);

}  // namespace ptx
