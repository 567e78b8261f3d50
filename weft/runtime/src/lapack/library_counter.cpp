// The counter of the process from which lax.rng_uniform takes its keys.
#include <atomic>

#include "library.h"

namespace weft {

namespace {

std::atomic<uint64_t> next_count{0};

// () -> the next count, low word first.
class Count final : public Routine {
 public:
  bool prepare(const std::vector<int64_t>& sizes) override {
    out_bytes = {8};
    flops = 1;
    is_library = false;
    return sizes.empty();
  }

  void run(char* const*, char* const* out, char*) const override {
    uint64_t count = next_count.fetch_add(1, std::memory_order_relaxed);
    std::memcpy(out[0], &count, sizeof count);
  }
};

}  // namespace

MadeRoutine make_counter(const std::string& name, char type) {
  return name == "count" && type == 'i' ? std::make_unique<Count>() : nullptr;
}

}  // namespace weft
