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
  c.sectors += n;
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
    uint8_t& mark = block->sectors[address / 32 - block->start / 32];
    const uint8_t now = uint8_t((reads ? 1 : 0) | (writes ? 2 : 0));
    if ((now & 1) && !(mark & 1)) ++c.read_sectors;
    if ((now & 2) && !(mark & 2)) ++c.written_sectors;
    mark |= now;
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

void keep_time(Warp& w, const Instruction& in) {
  Launch& launch = *w.launch;
  Counts& c = launch.counts;
  if (w.frames.size() == 1) ++c.hits[size_t(w.pc)];
  ++c.instructions;
  c.slots[int(in.pipe)] += double(in.slots);
  c.issued += double(in.slots);
  double start = w.time;
  const double* ready = w.ready.data() + w.frames.back().written;
  for (int k = 0; k < in.ns; ++k) start = std::max(start, ready[in.si[k]]);
  if (in.guard) start = std::max(start, ready[in.guard_index]);
  w.time = start + double(in.slots);
  double* results = w.ready.data() + w.frames.back().written;
  for (int k = 0; k < in.nd; ++k) results[in.di[k]] = start + in.latency;
}

void finish_counts(Launch& launch) {
  for (Allocation* block : launch.touched) block->sectors.clear();
  launch.touched.clear();
}

}  // namespace ptx
