// Clocks of warps meet at barriers; blocks know of each other through releases and acquires.
#include "races.h"

#include <sys/mman.h>

#include <algorithm>

#include "launch.h"

namespace ptx {

namespace {

// Whether what a thread did lies before what this warp does now.
bool ordered(const Warp& w, const Touch& before, uint32_t thread) {
  if (before.thread == thread) return true;
  const uint32_t threads = w.launch->threads;
  const uint64_t block = (before.thread - 1) / threads;
  if (block == w.block->number) return before.clock < w.clock[(before.thread - 1) % threads / kLanes];
  auto known = w.block->known.find(block);
  return known != w.block->known.end() && known->second > before.release;
}

[[noreturn]] void report(const Warp& w, const Instruction& in, const Touch& before, int lane, const char* did,
                         const char* does, const std::string& shown) {
  const uint32_t threads = w.launch->threads, thread = before.thread - 1;
  w.fault("race", shown + " " + did + " by thread " + std::to_string(thread % threads) + " of block " +
                      std::to_string(thread / threads) + " (line " + std::to_string(before.line / 2) + ") " + does +
                      " with nothing in between that orders the two", lane);
  (void)in;
}

template <class Shown>
void note(Warp& w, const Instruction& in, int lane, Mark& m, Kind kind, Shown shown) {
  if (m.launch != w.launch->serial) {
    m = Mark{};
    m.launch = w.launch->serial;
  }
  const uint32_t thread = uint32_t(w.block->number * w.launch->threads) + w.thread(lane) + 1;
  const bool strong = in.strong;
  const Touch now{thread, w.clock[w.number], w.block->release, uint32_t(in.line) << 1 | strong};
  auto races = [&](const Touch& before) {
    return before.thread != 0 && before.thread != thread && !(strong && (before.line & 1)) && !ordered(w, before, thread);
  };
  if (races(m.writer))
    report(w, in, m.writer, lane, "was written", kind == Kind::read ? "and is read here" : "and is written here", shown());
  if (kind != Kind::read) {
    for (const Touch* reader : {&m.reader, &m.other})
      if (races(*reader)) report(w, in, *reader, lane, "was read", "and is written here", shown());
    if (w.launch->checks(kWrittenOnce) && m.writer.thread && m.writer.thread != thread)
      w.fault("written twice", shown() + " was written by thread " + std::to_string((m.writer.thread - 1) % w.launch->threads) +
                                   " of block " + std::to_string((m.writer.thread - 1) / w.launch->threads) + " (line " +
                                   std::to_string(m.writer.line / 2) + ") too", lane);
    m.writer = now;
    m.reader = m.other = Touch{};
    return;
  }
  if (m.reader.thread == 0 || ordered(w, m.reader, thread)) m.reader = now;
  else m.other = now;
}

}  // namespace

void note_shared(Warp& w, const Instruction& in, int lane, uint32_t offset, uint32_t bytes, Kind kind) {
  const uint32_t grain = w.launch->function.shared_grain;
  for (uint32_t at = offset / grain; at <= (offset + bytes - 1) / grain; ++at)
    note(w, in, lane, w.block->marks[at], kind,
         [&] { return "byte " + std::to_string(at * grain) + " of shared memory"; });
}

void note_global(Warp& w, const Instruction& in, int lane, Allocation& block, uint64_t offset, uint32_t bytes, Kind kind) {
  const uint32_t grain = w.launch->function.global_grain;
  if (block.marks == nullptr) {
    block.marked_bytes = (block.bytes + 1) * sizeof(Mark);
    void* got = mmap(nullptr, block.marked_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) throw Error("machine", "no memory for the marks of races");
    block.marks = static_cast<Mark*>(got);
  }
  for (uint64_t at = offset / grain; at <= (offset + bytes - 1) / grain; ++at)
    note(w, in, lane, block.marks[at], kind, [&] {
      return "byte " + std::to_string(at * grain) + " of an allocation of " + std::to_string(block.bytes) + " bytes";
    });
}

void meet_clocks(Block& block, const uint32_t* warps, size_t count) {
  if (!block.launch->checks(kRaces)) return;
  const size_t n = block.warps.size();
  std::vector<uint32_t> together(n, 0);
  for (size_t k = 0; k < count; ++k) {
    Warp& w = *block.warps[warps[k]];
    ++w.clock[w.number];
    for (size_t j = 0; j < n; ++j) together[j] = std::max(together[j], w.clock[j]);
  }
  for (size_t k = 0; k < count; ++k) block.warps[warps[k]]->clock = together;
}

void meet_lanes(Warp& w) {
  if (w.launch->checks(kRaces)) ++w.clock[w.number];
}

void note_fence(Warp& w) {
  if (!w.launch->checks(kRaces)) return;
  Block& block = *w.block;
  block.fenced = true;
  for (const auto& [other, count] : block.pending) block.known[other] = std::max(block.known[other], count);
  block.pending.clear();
}

void note_strong(Warp& w, const Instruction& in, uint64_t address, Kind kind) {
  if (!w.launch->checks(kRaces)) return;
  Block& block = *w.block;
  if (kind != Kind::write) {
    if (auto found = w.launch->released.find(address); found != w.launch->released.end())
      for (const auto& [other, count] : found->second) {
        uint32_t& known = in.acquire ? block.known[other] : block.pending[other];
        known = std::max(known, count);
      }
  }
  if (kind != Kind::read && (in.release || block.fenced)) {
    auto& here = w.launch->released[address];
    for (const auto& [other, count] : block.known) here[other] = std::max(here[other], count);
    here[block.number] = ++block.release;
  }
}

}  // namespace ptx
