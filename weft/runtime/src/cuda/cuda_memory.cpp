// The pools of a GPU. See cuda_memory.h.
#include "cuda_memory.h"

#include <algorithm>

namespace weft::cuda {

namespace {

constexpr int64_t kGrain = 256;              // bytes: what the driver aligns to as well
constexpr int64_t kSmall = int64_t{1} << 20;  // smaller blocks share slabs
constexpr int64_t kSmallSlab = int64_t{2} << 20;
constexpr int64_t kMiddle = int64_t{16} << 20;  // blocks below share slabs of twice this
constexpr int64_t kPinnedLeast = 64 << 10;
constexpr int64_t kPinnedMost = int64_t{1} << 30;  // held by a device altogether

int64_t up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// The size class: eight for each doubling, so that sizes that are nearly equal take each other's blocks.
int64_t rounded(int64_t nbytes) {
  nbytes = up(std::max<int64_t>(nbytes, 1), kGrain);
  if (nbytes <= 8 * kGrain) return nbytes;
  const int log = 63 - __builtin_clzll(uint64_t(nbytes - 1));
  return up(nbytes, std::max(kGrain, int64_t{1} << (log - 3)));
}

int64_t slab_bytes(int64_t bytes) {
  return bytes < kSmall ? kSmallSlab : bytes < kMiddle ? 2 * kMiddle : up(bytes, kSmallSlab);
}

// Whether what is left of a free block is worth a block of its own: slabs of small blocks are cut as asked, of large
// blocks only an eighth may be lost.
bool worth(int64_t bytes, int64_t rest) { return bytes < kMiddle ? rest >= kGrain : rest > bytes / 8; }

}  // namespace

Address Pool::take_free(int64_t nbytes, int64_t* capacity) {
  const int64_t bytes = rounded(nbytes);
  std::lock_guard<std::mutex> lock(mutex_);
  Free& free = free_[bytes < kSmall];
  auto found = free.lower_bound({bytes, 0});
  if (found == free.end()) return 0;
  const auto block = blocks_.find(found->second);
  free.erase(found);
  return taken(block, bytes, capacity);
}

Address Pool::take(int64_t nbytes, int64_t* capacity, Result* result) {
  *result = kSuccess;
  if (Address found = take_free(nbytes, capacity)) return found;
  const int64_t bytes = rounded(nbytes);
  const bool small = bytes < kSmall;
  std::lock_guard<std::mutex> lock(mutex_);
  Address slab = 0;
  int64_t size = slab_bytes(bytes);
  const auto ask = [&]() -> Result {
    if (size > limit - stats_.pool_bytes) return kOutOfMemory;
    return the_driver().cuMemAlloc_v2(&slab, size_t(size));
  };
  *result = ask();
  if (*result == kOutOfMemory && size > bytes) {
    size = bytes;
    *result = ask();
  }
  if (*result != kSuccess) return 0;
  stats_.pool_bytes += size;
  stats_.peak_pool_bytes = std::max(stats_.peak_pool_bytes, stats_.pool_bytes);
  return taken(blocks_.emplace(slab, Block{size, true, small, true, true}).first, bytes, capacity);
}

Address Pool::taken(Blocks::iterator block, int64_t bytes, int64_t* capacity) {
  Block& own = block->second;
  const int64_t rest = own.bytes - bytes;
  if (worth(bytes, rest)) {
    blocks_.emplace(block->first + uint64_t(bytes), Block{rest, true, own.small, false, own.last});
    free_[own.small].emplace(rest, block->first + uint64_t(bytes));
    own.bytes = bytes;
    own.last = false;
  }
  own.free = false;
  stats_.bytes_in_use += own.bytes;
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  stats_.largest_alloc_size = std::max(stats_.largest_alloc_size, own.bytes);
  ++stats_.num_allocs;
  *capacity = own.bytes;
  return block->first;
}

Pool::Blocks::iterator Pool::joined(Blocks::iterator block) {
  const auto absorb = [this](Blocks::iterator left, Blocks::iterator right) {
    left->second.bytes += right->second.bytes;
    left->second.last = right->second.last;
    blocks_.erase(right);
    return left;
  };
  if (!block->second.last) {
    auto next = std::next(block);
    if (next->second.free) {
      free_[block->second.small].erase({next->second.bytes, next->first});
      block = absorb(block, next);
    }
  }
  if (!block->second.first) {
    auto before = std::prev(block);
    if (before->second.free) {
      free_[block->second.small].erase({before->second.bytes, before->first});
      block = absorb(before, block);
    }
  }
  return block;
}

void Pool::give(Address address) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto block = blocks_.find(address);
  if (block == blocks_.end() || block->second.free) return;
  stats_.bytes_in_use -= block->second.bytes;
  block->second.free = true;
  block = joined(block);
  free_[block->second.small].emplace(block->second.bytes, block->first);
}

bool Pool::trim() {
  std::lock_guard<std::mutex> lock(mutex_);
  bool any = false;
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const Block& own = block->second;
    if (!own.free || !own.first || !own.last || the_driver().cuMemFree_v2(block->first) != kSuccess) {
      ++block;
      continue;
    }
    stats_.pool_bytes -= own.bytes;
    free_[own.small].erase({own.bytes, block->first});
    block = blocks_.erase(block);
    any = true;
  }
  return any;
}

PoolStats Pool::stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

int Pinned::size_class(int64_t nbytes) {
  return 64 - __builtin_clzll(uint64_t(std::max(nbytes, kPinnedLeast) - 1));
}

char* Pinned::take(int64_t nbytes) {
  const int own = size_class(nbytes);
  const int64_t bytes = int64_t{1} << own;
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<char*>& free = free_[own];
  if (!free.empty()) {
    char* piece = free.back();
    free.pop_back();
    return piece;
  }
  if (held_ + bytes > kPinnedMost) return nullptr;
  void* made = nullptr;
  constexpr unsigned kPortable = 1;  // in all contexts
  if (the_driver().cuMemHostAlloc(&made, size_t(bytes), kPortable) != kSuccess) return nullptr;
  held_ += bytes;
  classes_[static_cast<char*>(made)] = own;
  return static_cast<char*>(made);
}

void Pinned::give(char* piece) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_[classes_.at(piece)].push_back(piece);
}

}  // namespace weft::cuda
