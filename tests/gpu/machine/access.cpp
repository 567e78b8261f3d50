// Bounds, alignment, initialisation and races of each access.
#include "access.h"

#include "launch.h"

namespace ptx {

namespace {

[[noreturn]] void misaligned(const Warp& w, uint64_t address, uint32_t bytes, int lane) {
  char text[96];
  snprintf(text, sizeof text, "%u bytes at 0x%llx, which is no multiple of it", bytes, (unsigned long long)address);
  w.fault("misaligned address", text, lane);
}

char* global(Warp& w, const Instruction& in, uint64_t address, uint32_t bytes, Kind kind, int lane, Allocation*& hint,
             uint32_t& missing) {
  Launch& launch = *w.launch;
  if (address % bytes) misaligned(w, address, bytes, lane);
  if (hint == nullptr || address < hint->start || address - hint->start + bytes > hint->bytes) {
    hint = launch.memory.find(address);
    if (hint == nullptr || address - hint->start + bytes > hint->bytes)
      w.fault("out of bounds", launch.memory.describe(address, bytes), lane);
    if (hint->device >= 0 && hint->device != launch.device && !(launch.peers >> hint->device & 1))
      w.fault("out of bounds", "memory of device " + std::to_string(hint->device) + ", to which this one has no access", lane);
  }
  if (kind != Kind::write && launch.checks(kUninitialised) && !hint->is_written(address, bytes)) {
    if (kind == Kind::both) w.fault("uninitialised", "nobody wrote all of the " + launch.memory.describe(address, bytes), lane);
    missing |= 1u << lane;
  }
  if (kind != Kind::read) hint->set_written(address, bytes);
  if (launch.checks(kRaces) || launch.checks(kWrittenOnce)) {
    if (in.strong) note_strong(w, in, address, kind);
    note_global(w, in, lane, *hint, address - hint->start, bytes, kind);
  }
  return hint->own + (address - hint->start);
}

char* shared(Warp& w, const Instruction& in, uint64_t address, uint32_t bytes, Kind kind, int lane, uint32_t& missing) {
  Block& block = *w.block;
  if (address % bytes) misaligned(w, address, bytes, lane);
  const uint64_t offset = address - kSharedStart;
  if (address < kSharedStart || offset + bytes > block.shared.size())
    w.fault("out of bounds", std::to_string(bytes) + " bytes at byte " + std::to_string(int64_t(offset)) +
                                 " of the " + std::to_string(block.shared.size()) + " bytes of shared memory", lane);
  uint16_t& written = block.written[offset / 16];
  const uint16_t mask = uint16_t(((1u << bytes) - 1) << offset % 16);
  if (kind != Kind::write && w.launch->checks(kUninitialised) && (written & mask) != mask) {
    if (kind == Kind::both)
      w.fault("uninitialised", "nobody wrote all of " + std::to_string(bytes) + " bytes at byte " +
                                   std::to_string(offset) + " of shared memory", lane);
    missing |= 1u << lane;
  }
  if (kind != Kind::read) written |= mask;
  if (w.launch->checks(kRaces)) note_shared(w, in, lane, uint32_t(offset), bytes, kind);
  return block.shared.data() + offset;
}

char* local(Warp& w, uint64_t address, uint32_t bytes, int lane) {
  const uint32_t each = w.launch->local_bytes;
  if (address % bytes) misaligned(w, address, bytes, lane);
  if (address + bytes > each)
    w.fault("out of bounds", std::to_string(bytes) + " bytes at byte " + std::to_string(address) + " of the " +
                                 std::to_string(each) + " bytes of local memory", lane);
  return w.local.data() + size_t(lane) * each + address;
}

}  // namespace

bool is_defined(const Warp& w, const Access& access, int lane, uint32_t first, uint32_t bytes) {
  const uint64_t address = access.address[lane] + first;
  if (access.space[lane] == Space::shared) {
    const uint64_t offset = address - kSharedStart;
    const uint16_t mask = uint16_t(((1u << bytes) - 1) << offset % 16);
    return (w.block->written[offset / 16] & mask) == mask;
  }
  const Allocation* block = w.launch->memory.find(address);
  return block == nullptr || block->is_written(address, bytes);
}

void undefine(Warp& w, const Access& access, int lane, uint32_t first, uint32_t bytes) {
  const uint64_t address = access.address[lane] + first;
  if (access.space[lane] == Space::shared) {
    const uint64_t offset = address - kSharedStart;
    w.block->written[offset / 16] &= uint16_t(~(((1u << bytes) - 1) << offset % 16));
  } else if (access.space[lane] == Space::global) {
    if (Allocation* block = w.launch->memory.find(address)) block->clear_written(address, bytes);
  }
}

void reach(Warp& w, const Instruction& in, uint32_t bytes, Kind kind, Access& access) {
  reach(w, in, {in.s[0], in.si[0], in.width[1] == 4, in.space, in.offset}, bytes, kind, access);
}

void reach(Warp& w, const Instruction& in, const Address& where, uint32_t bytes, Kind kind, Access& access) {
  Launch& launch = *w.launch;
  const bool is_short = where.is_short;
  const uint64_t* base = is_short ? nullptr : w.src<uint64_t>(where.slot);
  const uint32_t* narrow = is_short ? w.src<uint32_t>(where.slot) : nullptr;
  const uint64_t plus = uint64_t(where.offset) + (where.space == Space::frame ? w.frame_local() : 0);
  Allocation*& hint = launch.hints[size_t(&in - w.frames.back().function->code.data()) % launch.hints.size()];
  if (launch.checks(kUninitialised) && (w.active & ~w.written[where.index]))
    w.fault("uninitialised", "the address comes of what nobody wrote", __builtin_ctz(w.active & ~w.written[where.index]));
  uint32_t offsets[kLanes];
  bool is_global = false, is_shared = false;
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    uint64_t address = is_short ? uint64_t(uint32_t(narrow[l] + uint32_t(plus))) : base[l] + plus;
    Space space = where.space;
    if (space == Space::generic) {
      space = address & kSharedWindow ? Space::shared : address & kLocalWindow ? Space::local : Space::global;
      address &= ~(kSharedWindow | kLocalWindow);
    }
    access.address[l] = address;
    access.space[l] = space;
    switch (space) {
      case Space::shared:
        access.at[l] = shared(w, in, address, bytes, kind, l, access.missing);
        offsets[l] = uint32_t(address - kSharedStart);
        is_shared = true;
        break;
      case Space::local: case Space::frame: access.at[l] = local(w, address, bytes, l); break;
      case Space::param:
        if (address + bytes > launch.params.size()) w.fault("out of bounds", "a parameter that the kernel does not have", l);
        access.at[l] = launch.params.data() + address;
        break;
      default:
        access.at[l] = global(w, in, address, bytes, kind, l, hint, access.missing);
        is_global = space != Space::constant;
    }
  }
  if (!launch.options.counted) return;
  if (is_global) count_global(w, in, access.address, bytes, kind != Kind::write, kind != Kind::read);
  else if (is_shared) count_shared(w, in, offsets, bytes);
}

}  // namespace ptx
