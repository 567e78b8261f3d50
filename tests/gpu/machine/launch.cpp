// Blocks of a grid in turn, their barriers, and what a launch may ask for.
#include "launch.h"

#include <algorithm>

namespace ptx {

std::mutex& machine_mutex() {
  static std::mutex mutex;
  return mutex;
}

bool Block::done() const {
  return std::all_of(warps.begin(), warps.end(), [](const auto& w) { return w->state == State::done; });
}

void Block::arrive(Warp& w, const Instruction& in, uint32_t id, uint32_t threads, bool waits) {
  Barrier& barrier = barriers[id];
  if (threads % kLanes) w.fault("barrier", "the number of threads of a barrier is a multiple of 32");
  barrier.threads = threads;
  barrier.warps.push_back(w.number);
  if (waits) {
    w.state = State::waiting;
    w.waits_at = int(id);
  }
  const size_t needed = threads ? threads / kLanes : warps.size();
  if (barrier.warps.size() < needed) return;
  if (in.extra) {  // a reduction over all threads
    uint32_t sum = 0, count = 0;
    for (uint32_t n : barrier.warps) {
      Warp& other = *warps[n];
      uint32_t p = other.pred(in.s[in.ns - 1]);
      if (in.sat) p = ~p;
      sum += uint32_t(__builtin_popcount(p & other.all));
      count += uint32_t(__builtin_popcount(other.all));
    }
    const bool yes = in.extra == 2 ? sum == count : sum > 0;
    for (uint32_t n : barrier.warps) {
      Warp& other = *warps[n];
      if (in.extra == 1) fill<uint32_t>(other, in.d[0], [=](int) { return sum; });
      else other.set_pred(in.d[0], yes ? ~0u : 0);
    }
  }
  release_barrier(id);
}

void Block::release_barrier(uint32_t id) {
  Barrier barrier = std::move(barriers[id]);
  barriers.erase(id);
  meet_clocks(*this, barrier.warps.data(), barrier.warps.size());
  double time = 0;
  for (uint32_t n : barrier.warps) time = std::max(time, end_region(*warps[n]));
  for (uint32_t n : barrier.warps) {
    Warp& w = *warps[n];
    if (w.waits_at != int(id)) continue;
    w.waits_at = -1;
    w.state = State::running;
    w.time = w.latest = time + 25;  // cycles until a warp goes on behind a barrier
  }
}

std::unique_ptr<Block> Launch::begin(uint64_t number) {
  auto result = std::make_unique<Block>();
  Block& b = *result;
  b.launch = this;
  b.number = number;
  b.index[0] = uint32_t(number % grid[0]);
  b.index[1] = uint32_t(number / grid[0] % grid[1]);
  b.index[2] = uint32_t(number / grid[0] / grid[1]);
  b.shared.assign(shared_bytes, char(0xCB));
  b.written.assign(shared_bytes / 16 + 2, 0);
  if (checks(kRaces)) b.marks.assign(shared_bytes / function.shared_grain + 1, Mark{});
  const uint32_t warps = (threads + kLanes - 1) / kLanes;
  for (uint32_t n = 0; n < warps; ++n) {
    b.warps.push_back(std::make_unique<Warp>());
    Warp& w = *b.warps.back();
    w.block = &b;
    w.launch = this;
    w.number = n;
    const uint32_t lanes = std::min<uint32_t>(kLanes, threads - n * kLanes);
    w.all = lanes == kLanes ? ~0u : (1u << lanes) - 1;
    w.clock.assign(warps, 1);
    w.start(function);
  }
  ++counts.blocks;
  return result;
}

void Launch::prepare() {
  static std::atomic<uint32_t> launches{0};
  serial = ++launches;
  threads = block[0] * block[1] * block[2];
  auto wrong = [&](const std::string& why) { throw Error("launch", "kernel " + function.name + ": " + why); };
  if (!function.entry || !function.defined) wrong("it is not the entry of a kernel");
  if (threads == 0 || threads > 1024) wrong(std::to_string(threads) + " threads a block; 1 to 1024 are possible");
  if (block[2] > 64) wrong("a block is at most 64 deep");
  if (function.max_threads && threads > function.max_threads)
    wrong(std::to_string(threads) + " threads a block, and the text says at most " + std::to_string(function.max_threads));
  for (int k = 0; k < 3; ++k)
    if (function.required[0] && function.required[k] != block[k]) wrong("the text demands blocks of another shape");
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7FFFFFFF || grid[1] > 65535 || grid[2] > 65535)
    wrong("a grid of " + std::to_string(grid[0]) + " x " + std::to_string(grid[1]) + " x " + std::to_string(grid[2]) + " blocks");
  if (shared_bytes > 227 * 1024) wrong(std::to_string(shared_bytes) + " bytes of shared memory; a block has 227 KB at most");
  if (params.size() != function.input_bytes)
    wrong(std::to_string(params.size()) + " bytes of parameters, and the kernel has " + std::to_string(function.input_bytes));
  if (function.input_bytes > 4096) wrong("more than 4096 bytes of parameters");
  for (const Function* f : module.numbered) {
    if (f->entry && f != &function) continue;
    local_bytes += (f->frame_bytes + 31) / 16 * 16;
    register_bytes += (f->register_bytes + 127) / 64 * 64;
    registers += f->registers;
  }
  hints.assign(function.code.size(), nullptr);
  if (!options.steps) options.steps = uint64_t{1} << 32;
  if (options.counted) {
    counts.hits.assign(function.code.size(), 0);
    counts.users.assign(function.code.size(), 0);
  }
}

void Launch::turn(Block& b, uint64_t slice) {
  for (bool progress = true; progress;) {
    progress = false;
    for (auto& w : b.warps) {
      if (w->state != State::running) continue;
      w->run(slice);
      progress = progress || w->state != State::running;
    }
    // a kernel that may wait for other blocks gives way after each round
    if (function.waits) break;
  }
  bool running = false, waiting = false;
  for (const auto& w : b.warps) {
    running = running || w->state == State::running;
    waiting = waiting || w->state == State::waiting;
  }
  if (waiting && !running) {
    const Warp* ended = nullptr;
    for (const auto& w : b.warps)
      if (w->state == State::done) ended = w.get();
    for (const auto& w : b.warps)
      if (w->state == State::waiting)
        w->fault("divergent", ended ? "the barrier waits for warp " + std::to_string(ended->number) + ", which has ended"
                                    : "the warps of the block wait at different barriers");
  }
}

void Launch::run() {
  prepare();
  const uint64_t total = uint64_t(grid[0]) * grid[1] * grid[2], end = options.blocks ? std::min(options.blocks, total) : total;
  std::mt19937_64 random(options.seed);
  std::vector<uint64_t> order;
  if (options.seed) {
    order.resize(end);
    for (uint64_t k = 0; k < end; ++k) order[k] = k;
    std::shuffle(order.begin(), order.end(), random);
  }
  std::vector<std::unique_ptr<Block>> live;
  uint64_t next = 0;
  const uint64_t slice = function.waits ? 2000 : uint64_t{1} << 20;
  while (next < end || !live.empty()) {
    std::lock_guard<std::mutex> lock(machine_mutex());
    while (next < end && live.size() < options.resident) {
      live.push_back(begin(order.empty() ? next : order[next]));
      ++next;
    }
    for (size_t k = 0; k < live.size();) {
      turn(*live[k], slice);
      if (!live[k]->done()) {
        ++k;
        continue;
      }
      double longest = 0;
      for (const auto& w : live[k]->warps) longest = std::max(longest, end_region(*w));
      counts.block_cycles += longest;
      counts.longest_cycles = std::max(counts.longest_cycles, longest);
      live.erase(live.begin() + long(k));
    }
  }
  if (options.counted) finish_counts(*this);
}

}  // namespace ptx
