// Steps without a form for GPUs: run by the CPU's code, on copies of the slots that they touch.
#include <algorithm>
#include <cstring>

#include "cuda_device.h"

namespace weft {

namespace {

constexpr int64_t kPinnedMost = int64_t{4} << 20;  // bytes of a step that runs in pinned memory

// A part of the device's memory: slots that overlap (a result written over an operand) are one.
struct Range {
  char *low, *high;
  bool written;
  int64_t offset;  // in the host's block
};

std::vector<Range> ranges_of(const Step& step, const Frame& frame) {
  std::vector<Range> ranges;
  for (const auto& [slot, bytes] : step.touched)
    if (bytes > 0) ranges.push_back({frame.slots[slot], frame.slots[slot] + bytes, slot >= frame.plan->n_inputs, 0});
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.low < b.low; });
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (merged.empty() || range.low >= merged.back().high) {
      merged.push_back(range);
      continue;
    }
    merged.back().high = std::max(merged.back().high, range.high);
    merged.back().written = merged.back().written || range.written;
  }
  return merged;
}

}  // namespace

Status CudaDevice::run_on_host(const Step& step, Frame& frame) {
  std::vector<Range> ranges = ranges_of(step, frame);
  int64_t total = 0;
  for (Range& range : ranges) {
    const int64_t past = int64_t(reinterpret_cast<uintptr_t>(range.low) % kAlignment);  // kernels see the same alignment
    range.offset = total + past;
    total += (past + (range.high - range.low) + kAlignment - 1) / kAlignment * kAlignment;
  }
  char* pinned = nullptr;
  if (total <= kPinnedMost)
    if (Status status = stage(total, &pinned); status != Status::ok) return status;
  Buffer* plain = pinned == nullptr ? buffer_allocate(total) : nullptr;
  if (pinned == nullptr && plain == nullptr) return Status::no_memory;
  char* block = pinned != nullptr ? pinned : plain->data;
  const auto& driver = cuda::the_driver();
  Status status = Status::ok;
  for (const Range& range : ranges) {
    if (status != Status::ok) break;
    const auto bytes = size_t(range.high - range.low);
    status = pinned == nullptr ? fetch(block + range.offset, range.low, int64_t(bytes))
                               : check(driver.cuMemcpyDtoHAsync_v2(block + range.offset, cuda::Address(range.low), bytes, stream_),
                                       "a copy to the host");
  }
  if (status == Status::ok && pinned != nullptr) status = wait_idle();
  if (status == Status::ok) {
    std::vector<char*> slots(size_t(frame.plan->n_slots()));
    std::vector<Buffer*> owners(slots.size());
    for (const auto& [slot, bytes] : step.touched) {
      const char* address = frame.slots[slot];
      for (const Range& range : ranges)
        if (address >= range.low && address < range.high) slots[size_t(slot)] = block + range.offset + (address - range.low);
      if (slots[size_t(slot)] == nullptr) slots[size_t(slot)] = block;  // of no bytes
    }
    Frame here{slots.data(), owners.data(), frame.dynamic, frame.plan};
    here.suspended = frame.suspended;
    here.on_stream = frame.on_stream;
    here.number = frame.number;
    here.in_callback = frame.in_callback;
    status = step.run(here);
    frame.suspended = here.suspended;
  }
  for (const Range& range : ranges) {
    if (status != Status::ok || !range.written) continue;
    const int64_t bytes = range.high - range.low;
    status = pinned == nullptr ? upload(range.low, block + range.offset, bytes)
                               : copy_from_host(range.low, block + range.offset, bytes);
  }
  if (pinned != nullptr) rest(pinned, mark(stream_));
  else buffer_release(plain);
  return status;
}

}  // namespace weft
