// Device memory: mapped twice, so that the host's use of a device's address ends the process; what is written in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

namespace ptx {

struct Mark;  // of races.h: who touched some bytes in the launch at hand

struct Allocation {
  uint64_t start = 0, bytes = 0;
  char* own = nullptr;              // the same bytes where the machine reads them
  int device = 0;                   // -1: memory of the host
  uint64_t room = 0;                // bytes with what keeps it apart from the next
  std::vector<uint16_t> written;    // a bit a byte; empty: all of it counts as written
  Mark* marks = nullptr;            // one for each grain, made when a launch first looks
  uint64_t marked_bytes = 0;
  std::vector<uint32_t> sectors;    // of 32 bytes: 1: read, 2: written, the rest: by which block last, in a launch that counts
  ~Allocation();
  bool is_written(uint64_t address, uint32_t count) const;
  void set_written(uint64_t address, uint64_t count);
  void clear_written(uint64_t address, uint64_t count);
};

class Memory {
 public:
  ~Memory();
  void add_device(int device, uint64_t bytes);
  // The address; 0: the device has no room.
  uint64_t allocate(int device, uint64_t bytes);
  bool release(uint64_t address);
  // Memory of the host that devices may use, at the same address.
  Allocation* adopt(void* address, uint64_t bytes);
  // The allocation that holds an address, or the nearest before it if ``nearest``; null: there is none.
  Allocation* find(uint64_t address, bool nearest = false);
  uint64_t used(int device);
  uint64_t total(int device);
  int device_of(uint64_t address);  // -1: no device's
  // The bytes at an address of either side, after a check that all of them exist; null: they don't.
  char* own(uint64_t address, uint64_t bytes, bool writes);
  std::string describe(uint64_t address, uint64_t bytes);

 private:
  struct Arena {
    char *hidden = nullptr, *own = nullptr;
    uint64_t bytes = 0, used = 0, next = 0;
    std::map<uint64_t, uint64_t> free;  // offset, bytes
  };
  std::shared_mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Allocation>> allocations_;
  std::map<int, Arena> arenas_;
};

}  // namespace ptx
