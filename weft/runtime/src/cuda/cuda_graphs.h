// Programs that are launches only, replayed as one graph: a launch costs 3.6 us, a graph of ten kernels 1.9 us and what
// it takes to give new addresses to those kernels that have others (H100).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "cuda_device.h"

namespace weft {

// The launches of one run, written down instead of being made: their parameters, and working memory that they use.
class CudaRecording {
 public:
  struct Launch {
    const LibraryCall* call;  // nullptr: it is a kernel
    cuda::Handle function;
    unsigned blocks[2], threads, shared_bytes;
    uint32_t begin, count;  // of its parameters among all words
    const char* where;      // in the user's program
  };

  CudaRecording() = default;
  ~CudaRecording() { clear(); }
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;

  void add(const CudaLaunch& launch);
  void add(const LibraryCall& call, const int64_t* words, uint32_t n_words, const char* where);
  void keep(Buffer* scratch);  // steals
  void clear();
  // Whether launch i is the same as another recording's.
  bool same(const CudaRecording& other, size_t i) const;
  // Launch i, which must be a kernel; `pointers` is room for those to its parameters.
  CudaLaunch launch(size_t i, std::vector<void*>* pointers) const;
  const LibraryCall* call(size_t i) const { return launches_[i].call; }
  cuda::Handle captured(size_t i, CudaDevice& device) const;
  Status make(size_t i, CudaDevice& device, std::vector<void*>* pointers) const;
  size_t size() const { return launches_.size(); }
  void swap(CudaRecording& other);

  // What this thread writes down; nullptr: it launches.
  static thread_local CudaRecording* current;

 private:
  std::vector<Launch> launches_;
  std::vector<int64_t> words_;
  std::vector<Buffer*> scratch_;  // owned
};

// This thread launches as long as one lives: the handler of a signal may run other programs.
class NoRecording {
 public:
  NoRecording() : before_(std::exchange(CudaRecording::current, nullptr)) {}
  ~NoRecording() { CudaRecording::current = before_; }
  NoRecording(const NoRecording&) = delete;
  NoRecording& operator=(const NoRecording&) = delete;

 private:
  CudaRecording* const before_;
};

// What runs the steps of a plan of launches; nullptr for other plans.
std::shared_ptr<Replay> cuda_replay(CudaDevice& device, const Plan& plan);

}  // namespace weft
