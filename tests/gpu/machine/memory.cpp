// Arenas of devices, blocks of them kept apart, and bits that say which bytes were written.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace ptx {

namespace {
constexpr uint64_t kAlign = 512;  // addresses; at least as many bytes lie between two blocks
}

Allocation::~Allocation() {
  if (marks != nullptr) munmap(marks, marked_bytes);
}

bool Allocation::is_written(uint64_t address, uint32_t count) const {
  if (written.empty()) return true;
  uint64_t at = address - start;
  while (count > 0) {
    const uint32_t in = at % 16, here = std::min<uint32_t>(count, 16 - in);
    const uint32_t mask = ((1u << here) - 1) << in;
    if ((written[at / 16] & mask) != mask) return false;
    at += here;
    count -= here;
  }
  return true;
}

void Allocation::set_written(uint64_t address, uint64_t count) {
  if (written.empty()) return;
  uint64_t at = address - start;
  while (count > 0) {
    const uint64_t in = at % 16, here = std::min<uint64_t>(count, 16 - in);
    written[at / 16] |= uint16_t(((1u << here) - 1) << in);
    at += here;
    count -= here;
  }
}

void Allocation::clear_written(uint64_t address, uint64_t count) {
  if (written.empty()) return;
  for (uint64_t at = address - start; count > 0; ++at, --count) written[at / 16] &= uint16_t(~(1u << at % 16));
}

Memory::~Memory() {
  for (auto& [device, arena] : arenas_) {
    munmap(arena.hidden, arena.bytes);
    munmap(arena.own, arena.bytes);
  }
}

void Memory::add_device(int device, uint64_t bytes) {
  const int file = memfd_create("ptx-machine", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, off_t(bytes)) < 0) throw std::bad_alloc();
  Arena arena;
  arena.bytes = bytes;
  arena.hidden = static_cast<char*>(mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0));
  arena.own = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0));
  close(file);
  if (arena.hidden == MAP_FAILED || arena.own == MAP_FAILED) throw std::bad_alloc();
  arena.free[0] = bytes;
  std::unique_lock lock(mutex_);
  arenas_.emplace(device, std::move(arena));
}

uint64_t Memory::allocate(int device, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  Arena& arena = arenas_.at(device);
  const uint64_t room = (std::max<uint64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign + kAlign;
  // the first free block behind the last one that was given, so that a freed one stays empty for a while
  auto fits = [&](auto from, auto to) {
    return std::find_if(from, to, [&](const auto& block) { return block.second >= room; });
  };
  auto middle = arena.free.lower_bound(arena.next), at = fits(middle, arena.free.end());
  if (at == arena.free.end()) {
    at = fits(arena.free.begin(), middle);
    if (at == middle) {
      for (auto next = arena.free.begin(); next != arena.free.end();) {  // as large as they can be
        const auto block = next++;
        while (next != arena.free.end() && block->first + block->second == next->first) {
          block->second += next->second;
          next = arena.free.erase(next);
        }
      }
      at = fits(arena.free.begin(), arena.free.end());
      if (at == arena.free.end()) return 0;
    }
  }
  const auto [offset, length] = *at;
  arena.free.erase(at);
  if (length > room) arena.free[offset + room] = length - room;
  arena.next = offset + room;
  arena.used += room;
  auto block = std::make_unique<Allocation>();
  block->start = uint64_t(arena.hidden + offset);
  block->bytes = bytes;
  block->own = arena.own + offset;
  block->device = device;
  block->room = room;
  block->written.assign(bytes / 16 + 1, 0);
  const uint64_t start = block->start;
  allocations_[start] = std::move(block);
  return start;
}

bool Memory::release(uint64_t address) {
  std::unique_lock lock(mutex_);
  auto found = allocations_.find(address);
  if (found == allocations_.end()) return false;
  const Allocation& block = *found->second;
  if (block.device >= 0) {
    Arena& arena = arenas_.at(block.device);
    uint64_t offset = address - uint64_t(arena.hidden), length = block.room;
    arena.used -= length;
    const uint64_t first = (offset + 4095) / 4096 * 4096, last = (offset + length) / 4096 * 4096;
    if (last > first) madvise(arena.own + first, last - first, MADV_REMOVE);
    auto after = arena.free.lower_bound(offset);
    // what comes next is given before what was freed now
    if (after != arena.free.end() && after->first == offset + length && after->first != arena.next) {
      length += after->second;
      after = arena.free.erase(after);
    }
    if (after != arena.free.begin() && offset != arena.next) {
      auto before = std::prev(after);
      if (before->first + before->second == offset) {
        offset = before->first;
        length += before->second;
        arena.free.erase(before);
      }
    }
    arena.free[offset] = length;
  }
  allocations_.erase(found);
  return true;
}

Allocation* Memory::adopt(void* address, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  auto block = std::make_unique<Allocation>();
  block->start = uint64_t(address);
  block->bytes = bytes;
  block->own = static_cast<char*>(address);
  block->device = -1;
  Allocation* result = block.get();
  allocations_[result->start] = std::move(block);
  return result;
}

Allocation* Memory::find(uint64_t address, bool nearest) {
  std::shared_lock lock(mutex_);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  Allocation* block = std::prev(after)->second.get();
  return nearest || address < block->start + block->bytes ? block : nullptr;
}

uint64_t Memory::used(int device) {
  std::shared_lock lock(mutex_);
  return arenas_.at(device).used;
}

uint64_t Memory::total(int device) {
  std::shared_lock lock(mutex_);
  return arenas_.at(device).bytes;
}

int Memory::device_of(uint64_t address) {
  std::shared_lock lock(mutex_);
  for (const auto& [device, arena] : arenas_)
    if (address - uint64_t(arena.hidden) < arena.bytes) return device;
  return -1;
}

char* Memory::own(uint64_t address, uint64_t bytes, bool writes) {
  Allocation* block = find(address);
  if (block == nullptr && bytes == 0) block = find(address, true);
  if (block == nullptr) return nullptr;
  if (address - block->start + bytes > block->bytes) return nullptr;
  if (writes) block->set_written(address, bytes);
  return block->own + (address - block->start);
}

std::string Memory::describe(uint64_t address, uint64_t bytes) {
  char text[200];
  Allocation* block = find(address, true);
  if (block == nullptr) {
    snprintf(text, sizeof text, "%llu bytes at 0x%llx, before all allocations", (unsigned long long)bytes,
             (unsigned long long)address);
  } else {
    snprintf(text, sizeof text, "%llu bytes at 0x%llx, byte %lld of an allocation of %llu bytes",
             (unsigned long long)bytes, (unsigned long long)address, (long long)(address - block->start),
             (unsigned long long)block->bytes);
  }
  return text;
}

}  // namespace ptx
