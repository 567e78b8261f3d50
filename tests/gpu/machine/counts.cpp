// Counts of accesses, and the time of the longest chain of each warp.
#include "counts.h"

#include <algorithm>

#include "launch.h"

namespace ptx {

void count_global(Warp& w, const Instruction& in, const uint64_t* addresses, uint32_t bytes, bool reads, bool writes) {
  Counts& c = w.launch->counts;
  uint64_t sectors[kLanes * 2];
  size_t n = 0;
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const uint64_t first = addresses[l] / 32, last = (addresses[l] + bytes - 1) / 32;
    for (uint64_t s = first; s <= last; ++s)
      if (n == 0 || sectors[n - 1] != s) sectors[n++] = s;
    c.bytes += bytes;
  }
  std::sort(sectors, sectors + n);
  n = size_t(std::unique(sectors, sectors + n) - sectors);
  ++c.accesses;
  if (reads && writes) c.atomics += n;
  for (size_t k = 0; k < n; ++k) {
    Allocation*& block = w.launch->counted_hint;
    const uint64_t address = sectors[k] * 32;
    if (block == nullptr || address + 31 < block->start || address >= block->start + block->bytes) {
      block = w.launch->memory.find(address + 31, true);
      if (block == nullptr) continue;
      if (block->sectors.empty()) {
        block->sectors.assign(block->bytes / 32 + 2, 0);
        w.launch->touched.push_back(block);
      }
    }
    uint32_t& mark = block->sectors[address / 32 - block->start / 32];
    const uint32_t here = uint32_t(w.block->number + 1) << 2;
    if (writes || (mark & ~3u) != here) ++c.sectors;  // others are in the first-level cache
    mark = here | (mark & 3) | (reads ? 1 : 0) | (writes ? 2 : 0);
  }
  (void)in;
}

void count_shared(Warp& w, const Instruction& in, const uint32_t* offsets, uint32_t bytes) {
  // the lanes of a pass move at most 128 bytes: 32 lanes of 4 bytes, 16 of 8, 8 of 16
  Counts& c = w.launch->counts;
  ++c.shared_accesses;
  const int group = bytes <= 4 ? 32 : bytes <= 8 ? 16 : 8;
  for (int first = 0; first < kLanes; first += group) {
    uint32_t words[kLanes * 4];
    size_t n = 0;
    for (int l = first; l < first + group; ++l) {
      if (!(w.active >> l & 1)) continue;
      for (uint32_t word = offsets[l] / 4; word <= (offsets[l] + bytes - 1) / 4; ++word) words[n++] = word;
    }
    if (n == 0) continue;
    std::sort(words, words + n);
    n = size_t(std::unique(words, words + n) - words);
    uint32_t banks[32] = {}, most = 0;
    for (size_t k = 0; k < n; ++k) most = std::max(most, ++banks[words[k] % 32]);
    c.shared_passes += most;
  }
  (void)in;
}

namespace {

constexpr int kNear = 33;  // cycles to what the first-level cache has, or to shared memory by an address that may be any

// Whether a load finds all that it wants in the multiprocessor: in shared memory, or in sectors that the block touched.
bool is_near(Warp& w, const Instruction& in) {
  if (in.space != Space::generic && in.space != Space::global) return false;
  if (in.strong || in.nd == 0 || in.width[1] == 4) return false;
  const uint64_t* base = w.src<uint64_t>(in.s[0]);
  const uint32_t here = uint32_t(w.block->number + 1) << 2;
  Allocation* block = w.launch->counted_hint;
  for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
    uint64_t address = base[__builtin_ctz(rest)] + uint64_t(in.offset);
    if (in.space == Space::generic) {
      if (address & kSharedWindow) continue;
      if (address & kLocalWindow) return false;
    }
    if (block == nullptr || address < block->start || address >= block->start + block->bytes)
      block = w.launch->memory.find(address);
    if (block == nullptr || block->sectors.empty()) return false;
    if ((block->sectors[address / 32 - block->start / 32] & ~3u) != here) return false;
  }
  return true;
}

// Whether a division of lanes goes the long way: an exponent or the quotient's is near the ends.
bool goes_far(const Warp& w, const Instruction& in) {
  const uint32_t *a = w.src<uint32_t>(in.s[0]), *b = w.src<uint32_t>(in.s[1]);
  for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest), x = int(a[l] >> 23 & 255), y = int(b[l] >> 23 & 255);
    if ((a[l] & 0x7FFFFFFF) == 0 && y > 0 && y < 253) continue;
    if (x < 24 || x > 253 || y < 1 || y > 252 || x - y > 125 || x - y < -124) return true;
  }
  return false;
}

}  // namespace

void keep_time(Warp& w, const Instruction& in) {
  Launch& launch = *w.launch;
  Counts& c = launch.counts;
  if (w.frames.size() == 1) ++c.hits[size_t(w.pc)];
  ++c.instructions;
  double slots = double(in.slots), latency = in.latency;
  if (in.divides && goes_far(w, in)) {
    slots += 60;
    latency += 250;
  }
  c.slots[int(in.pipe)] += slots;
  c.slots[int(Pipe::special)] += double(in.special);
  c.issued += slots;
  if (in.pipe == Pipe::memory && in.latency > 500) {
    if (is_near(w, in)) latency = kNear;
    else if (launch.options.counted == 2) latency -= 290;  // it is in the second-level cache
  }
  double start = w.time;
  double* ready = w.ready.data() + w.frames.back().written;
  for (int k = 0; k < in.ns; ++k) start = std::max(start, ready[in.si[k]]);
  if (in.guard) start = std::max(start, ready[in.guard_index]);
  w.latest = std::max(w.latest, start);
  w.issued += slots;
  if (in.pipe == Pipe::memory && in.space != Space::param) {  // the unit serves the warps of a block in turn
    uint32_t& users = c.users[size_t(w.pc) % c.users.size()];
    users |= 1u << w.number % 32;
    const double turn = std::max(1, bytes_of(in.type) * in.vector / 4) * double(__builtin_popcount(users));
    latency += std::max(0.0, w.unit - start);
    w.unit = std::max(w.unit, start) + (in.space == Space::shared || in.space == Space::generic ? turn : 0.0);
  }
  for (int k = 0; k < in.nd; ++k) ready[in.di[k]] = start + latency;
  if (in.flow == Flow::branch || in.flow == Flow::table) w.time = std::max(w.time, start);  // what follows waits for it
  if (in.flow == Flow::branch && w.pc >= in.target && ++w.jumps % 4 == 0) end_region(w);
}

double end_region(Warp& w) {
  w.time = w.latest = std::max(w.latest, w.time + w.issued);
  w.issued = 0;
  return w.time;
}

void finish_counts(Launch& launch) {
  Counts& c = launch.counts;
  for (Allocation* block : launch.touched) {
    auto& [read, written] = c.touched[block->start];
    for (uint32_t mark : block->sectors) {
      read += mark & 1;
      written += mark >> 1 & 1;
    }
    c.read_sectors += read;
    c.written_sectors += written;
    block->sectors.clear();
  }
  for (size_t k = 0; k < c.hits.size(); ++k)
    if (c.hits[k]) c.code_bytes += uint64_t(16 * launch.function.code[k].slots);
  launch.touched.clear();
}

}  // namespace ptx
