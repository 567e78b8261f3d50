// A GPU as a Device: memory, one stream on which everything is asked for in order, and what failed there.
//
// Steps that have a form for GPUs are asked of the stream and are done later (Step::enqueue). All others run here, by the
// CPU's code, on copies of the slots that they touch (cuda_host_steps.cpp): right for every program, and slow.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_memory.h"
#include "device.h"

namespace weft {

// One launch of a kernel.
struct CudaLaunch {
  cuda::Handle function;
  unsigned blocks[2];
  unsigned threads;
  unsigned shared_bytes;
  void** params;  // to words of eight bytes
  unsigned n_params;
  const char* where = "";  // in the user's program
};

// A call of a library by the GPU's maker, which launches what it likes, and the same for the same words (addresses). It
// lives as long as the process.
class LibraryCall {
 public:
  virtual Status ask(const int64_t* words, cuda::Handle stream, const char* where) const = 0;

 protected:
  ~LibraryCall() = default;
};

class CudaDevice final : public Device {
 public:
  // The device, which exists until the process ends, or nullptr with the reason.
  // `fraction`: of its memory that arrays may take; 0: all that is free now, and more where others free theirs.
  static CudaDevice* open(uint32_t number, const cuda::Facts& facts, double fraction, std::string* reason);

  Buffer* allocate(int64_t nbytes) noexcept override;
  void recycle(Buffer* buffer) noexcept override;
  Status copy(char* to, const char* from, int64_t nbytes) override;
  Status upload(char* to, const char* from, int64_t nbytes) override;
  Status fetch(char* to, const char* from, int64_t nbytes) override;
  bool copies_ahead() const override { return true; }
  Buffer* fetch_later(Buffer* source, int64_t nbytes) override;
  Buffer* copy_of(Device& other, Buffer* source, int64_t nbytes) override;
  Status launch(const Step& step, Frame& frame) override;
  Event* record() override;
  void drain() override;
  bool keeps_steps() const override { return false; }
  bool guards() const override { return true; }
  Status narrow(char* to, const char* word, const char* stalled) override;
  Status settle(char* words, int64_t count, int32_t number, char* stalled) override;
  bool explain(const char* program) override;
  std::string memory_text() override;

  // What steps ask for. None waits.
  Status fill(char* to, int byte, int64_t nbytes);
  // `count` runs of nbytes at distances of `stride` >= nbytes; false: the driver makes no such copy.
  bool copy_rows(char* to, const char* from, int64_t nbytes, int64_t count, int64_t stride, Status* status);
  // At once, or written down for a graph (cuda_graphs.h); then working memory is kept until that is launched.
  Status launch_kernel(const CudaLaunch& launch);
  Status launch_library(const LibraryCall& call, const int64_t* words, uint32_t n_words, const char* where);
  Status launch_graph(cuda::Handle graph);
  // The graph of a library's launches, which the caller destroys; nullptr: they cannot be captured.
  cuda::Handle captured(const LibraryCall& call, const int64_t* words);
  void end_scratch(Buffer* scratch);  // steals
  void made(Plan* plan) override;
  // Notes a plan that is launched now; ok if the device works.
  Status begin(const Plan& plan);
  // The module in this device's context; nullptr with what explain raises.
  cuda::Handle load(const std::string& image);
  void unload(cuda::Handle module);
  cuda::Handle function(cuda::Handle module, const std::string& entry, int64_t shared_bytes);

  // For sharing memory: work that another stream is asked for from now on waits for this stream's, and the reverse.
  cuda::Handle stream() const { return stream_; }
  Status wait_before(cuda::Handle other);
  Status wait_for(cuda::Handle other);

  // The status of a driver's result; `what` names the call. An error that stops the device is kept; `where` it came
  // from, or one of the programs that were launched.
  Status check(cuda::Result result, const char* what, const char* where = "");
  void fails(const std::string& why) const;  // notes an error that is not the driver's
  static void forget_reason();  // drops the reason of an error that the caller reports itself
  Status refuse();  // after a fork, or once it has stopped; ok otherwise

  cuda::PoolStats stats() { return pool_.stats(); }
  const cuda::Facts facts;
  int64_t bytes_limit() const { return bytes_limit_; }

  // Makes the device's context the calling thread's, for as long as the object lives.
  class InContext {
   public:
    explicit InContext(const CudaDevice& device);
    ~InContext();
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;

   private:
    cuda::Handle before_ = nullptr;
    bool changed_ = false;
  };

 private:
  friend class CudaEvent;
  struct HostCopy;

  CudaDevice(uint32_t number, const cuda::Facts& facts);

  std::string who() const;  // "GPU 0 (NVIDIA H100)"

  // Until the event has happened: polls, handles signals (then an error is set), and lets other threads have the GIL.
  Status wait(cuda::Handle event);
  Status wait_idle();
  // nullptr: the driver gives none. *launched: how much was launched before.
  cuda::Handle take_event(uint64_t* launched);
  void give_event(cuda::Handle event);
  cuda::Handle mark(cuda::Handle stream, uint64_t* launched = nullptr);  // an event recorded there; nullptr: it failed

  // A piece of pinned memory, or nullptr where there is none to be had.
  Status stage(int64_t nbytes, char** piece);
  void rest(char* piece, cuda::Handle event);  // gives a piece back (both stolen) once the event is over
  size_t resting_count();
  void sweep();                                // resting pieces whose events are over
  Status copy_from_host(char* to, const char* from, int64_t nbytes);  // one copy; see upload for when it reads
  Status move_guarded(char* to, const char* from, int byte, int64_t nbytes);  // from nullptr: a fill
  Status launch_own(int which, const int64_t* words, unsigned n_words, unsigned blocks, unsigned threads);
  Status fetch_directly(char* to, const char* from, int64_t nbytes);

  Status run_on_host(const Step& step, Frame& frame);
  void forget(uint64_t launched);  // programs up to this launch are done

  cuda::Handle context_ = nullptr, stream_ = nullptr, copies_ = nullptr;  // copies_: the stream of fetch_later
  std::mutex own_mutex_;  // guards the next two: kernels of the client itself
  cuda::Handle own_module_ = nullptr, own_[8] = {};
  std::mutex capture_mutex_;  // guards the next: where libraries are captured
  cuda::Handle captures_ = nullptr;
  int64_t bytes_limit_ = 0;
  cuda::Pool pool_;
  cuda::Pinned pinned_;
  std::mutex mutex_;  // guards what follows
  std::vector<cuda::Handle> events_;
  std::deque<std::pair<char*, cuda::Handle>> resting_;
  std::vector<std::pair<cuda::Handle, cuda::Handle>> unloading_;  // modules, and the events after which they may go
  std::deque<std::pair<std::string, uint64_t>> recent_;  // programs not seen to be done, and when each was last launched
  uint64_t launched_ = 0;
  std::string stopped_because_;
  bool said_ = false;
  std::atomic<bool> stopped_{false};
};

// The GPU of a device's number, or nullptr if that is none.
CudaDevice* cuda_device(Device* device);

}  // namespace weft
