// What Python calls: devices, memory, modules and launches, with errors as text.
#include <cstring>

#include "launch.h"
#include "memory.h"
#include "program.h"

using namespace ptx;

namespace {

Memory& memory() {
  static Memory* all = [] {
    auto* m = new Memory;
    m->add_device(0, uint64_t{8} << 30);
    return m;
  }();
  return *all;
}

// Sectors of allocations that the last launch read and wrote.
std::unordered_map<uint64_t, std::pair<uint64_t, uint64_t>>& last_touched() {
  static std::unordered_map<uint64_t, std::pair<uint64_t, uint64_t>> all;
  return all;
}

int failed(const Error& error, char* text, size_t room) {
  snprintf(text, room, "%s", error.what());
  return 1;
}

}  // namespace

extern "C" {

struct MachineOptions {
  uint32_t checks, resident, counted, shared;
  uint64_t seed, steps, blocks;
};
struct MachineCounts {
  double slots[8], issued, block_cycles, longest_cycles;
  uint64_t instructions, accesses, sectors, bytes, read_sectors, written_sectors, atomics, shared_accesses, shared_passes;
  uint64_t blocks, code_bytes;
};

uint64_t machine_allocate(uint64_t bytes) { return memory().allocate(0, bytes); }
int machine_free(uint64_t address) { return memory().release(address) ? 0 : 1; }
int machine_write(uint64_t address, const void* from, uint64_t bytes) {
  char* own = memory().own(address, bytes, true);
  if (own == nullptr) return 1;
  memcpy(own, from, bytes);
  return 0;
}
int machine_read(uint64_t address, void* to, uint64_t bytes) {
  const char* own = memory().own(address, bytes, false);
  if (own == nullptr) return 1;
  memcpy(to, own, bytes);
  return 0;
}
// 0: all of these bytes were written.
int machine_unwritten(uint64_t address, uint64_t bytes) {
  Allocation* block = memory().find(address);
  if (block == nullptr || address - block->start + bytes > block->bytes) return 2;
  for (uint64_t k = 0; k < bytes; ++k)
    if (!block->is_written(address + k, 1)) return 1;
  return 0;
}

void* machine_load(const char* text, int approximate, char* error, size_t room) {
  try {
    return load(text, memory(), 0, approximate).release();
  } catch (const Error& e) {
    failed(e, error, room);
    return nullptr;
  }
}
void machine_unload(void* module) {
  auto* m = static_cast<Module*>(module);
  for (uint64_t address : m->allocations) memory().release(address);
  delete m;
}
uint64_t machine_symbol(void* module, const char* name) {
  auto* m = static_cast<Module*>(module);
  auto found = m->addresses.find(name);
  return found == m->addresses.end() ? 0 : found->second;
}
// max threads, blocks a multiprocessor, shared and local bytes, bytes of parameters
int machine_function(void* module, const char* name, uint32_t* values) {
  auto* m = static_cast<Module*>(module);
  auto found = m->functions.find(name);
  if (found == m->functions.end()) return 1;
  const Function& f = *found->second;
  const uint32_t out[] = {f.max_threads, f.min_blocks, f.shared_bytes, f.frame_bytes, f.input_bytes, f.entry};
  memcpy(values, out, sizeof out);
  return 0;
}
int machine_names(void* module, char* text, size_t room) {
  std::string names;
  for (const auto& [name, f] : static_cast<Module*>(module)->functions) names += name + "\n";
  snprintf(text, room, "%s", names.c_str());
  return names.size() + 1 > room;
}

uint64_t machine_touched(uint64_t address, int written) {
  auto found = last_touched().find(address);
  return found == last_touched().end() ? 0 : written ? found->second.second : found->second.first;
}

int machine_launch(void* module, const char* name, const uint32_t* grid, const uint32_t* block, const void* params,
                   uint64_t param_bytes, const MachineOptions* options, MachineCounts* counts, char* kind, char* error,
                   size_t room) {
  auto* m = static_cast<Module*>(module);
  try {
    auto found = m->functions.find(name);
    if (found == m->functions.end()) throw Error("launch", std::string("there is no kernel ") + name);
    Launch launch(*m, *found->second, memory());
    memcpy(launch.grid, grid, sizeof launch.grid);
    memcpy(launch.block, block, sizeof launch.block);
    const char* bytes = static_cast<const char*>(params);
    launch.params.assign(bytes, bytes + param_bytes);
    launch.options.checks = options->checks;
    launch.options.seed = options->seed;
    launch.options.resident = options->resident ? options->resident : 8;
    launch.options.steps = options->steps;
    launch.options.blocks = options->blocks;
    launch.options.counted = options->counted;
    launch.shared_bytes = found->second->shared_bytes + options->shared;
    launch.run();
    const Counts& c = launch.counts;
    memcpy(counts->slots, c.slots, sizeof counts->slots);
    counts->issued = c.issued;
    counts->block_cycles = c.blocks ? c.block_cycles / double(c.blocks) : 0;
    counts->longest_cycles = c.longest_cycles;
    counts->instructions = c.instructions;
    counts->accesses = c.accesses;
    counts->sectors = c.sectors;
    counts->bytes = c.bytes;
    counts->read_sectors = c.read_sectors;
    counts->written_sectors = c.written_sectors;
    counts->atomics = c.atomics;
    counts->shared_accesses = c.shared_accesses;
    counts->shared_passes = c.shared_passes;
    counts->blocks = c.blocks;
    counts->code_bytes = c.code_bytes;
    last_touched() = c.touched;
    return 0;
  } catch (const Error& e) {
    snprintf(kind, 64, "%s", e.kind.c_str());
    return failed(e, error, room);
  }
}

}  // extern "C"
