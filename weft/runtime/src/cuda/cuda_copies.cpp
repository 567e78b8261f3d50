// Copies between a GPU's memory and the host's, through pinned memory where they would have to wait. See cuda_device.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include "cuda_device.h"

namespace weft {

using cuda::address;
using cuda::Handle;
using cuda::the_driver;

namespace {

constexpr int64_t kChunk = int64_t{4} << 20;  // bytes of a piece of a large copy
constexpr int64_t kAtOnce = 64 << 10;         // what the driver itself keeps until it is copied

// Whether the driver knows the memory: it then copies from there when its stream comes to it, not at the call.
bool is_pinned(const char* memory) {
  unsigned type = 0;
  const auto ask = the_driver().cuPointerGetAttribute;
  return ask != nullptr && ask(&type, cuda::kMemoryType, address(memory)) == cuda::kSuccess;
}

}  // namespace

void CudaDevice::sweep() {
  std::lock_guard<std::mutex> lock(mutex_);
  while (!resting_.empty() && the_driver().cuEventQuery(resting_.front().second) == cuda::kSuccess) {
    pinned_.give(resting_.front().first);
    events_.push_back(resting_.front().second);
    resting_.pop_front();
  }
}

Status CudaDevice::stage(int64_t nbytes, char** piece) {
  sweep();
  if ((*piece = pinned_.take(nbytes)) != nullptr || resting_count() == 0) return Status::ok;
  if (Status status = wait_idle(); status != Status::ok) return status;
  sweep();
  *piece = pinned_.take(nbytes);
  return Status::ok;
}

size_t CudaDevice::resting_count() {
  std::lock_guard<std::mutex> lock(mutex_);
  return resting_.size();
}

void CudaDevice::rest(char* piece, Handle event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (event != nullptr) resting_.emplace_back(piece, event);
}

Status CudaDevice::copy_from_host(char* to, const char* from, int64_t nbytes) {
  InContext here(*this);
  return check(the_driver().cuMemcpyHtoDAsync_v2(address(to), from, size_t(nbytes), stream_), "a copy from the host");
}

Status CudaDevice::upload(char* to, const char* from, int64_t nbytes) {
  if (nbytes == 0) return Status::ok;
  if (Status status = refuse(); status != Status::ok) return status;
  InContext here(*this);
  const bool pinned = is_pinned(from);  // then the caller could change what is still to be copied
  if (nbytes <= kAtOnce && !pinned) return copy_from_host(to, from, nbytes);
  for (int64_t begin = 0; begin < nbytes; begin += kChunk) {
    const int64_t bytes = std::min(kChunk, nbytes - begin);
    char* piece = nullptr;
    if (Status status = stage(bytes, &piece); status != Status::ok) return status;
    if (piece == nullptr) {  // no memory to stage in: the driver copies from where it lies
      Status status = copy_from_host(to + begin, from + begin, bytes);
      if (status == Status::ok && pinned) status = wait_idle();
      if (status != Status::ok) return status;
      continue;
    }
    std::memcpy(piece, from + begin, size_t(bytes));
    Status status = copy_from_host(to + begin, piece, bytes);
    rest(piece, mark(stream_));
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

Status CudaDevice::fetch_directly(char* to, const char* from, int64_t nbytes) {
  if (Status status = wait_idle(); status != Status::ok) return status;  // the driver's own wait hears no signals
  InContext here(*this);
  Status status = check(the_driver().cuMemcpyDtoHAsync_v2(to, address(from), size_t(nbytes), stream_), "a copy to the host");
  return status == Status::ok ? wait_idle() : status;
}

Status CudaDevice::fetch(char* to, const char* from, int64_t nbytes) {
  if (Status status = refuse(); status != Status::ok) return status;
  if (nbytes == 0) return wait_idle();
  struct Piece {
    char* host = nullptr;
    Handle event = nullptr;
  };
  Piece pieces[2];
  const int count = nbytes > kChunk ? 2 : 1;
  InContext here(*this);
  Status status = Status::ok;
  for (int i = 0; i < count && status == Status::ok; ++i) status = stage(std::min(nbytes, kChunk), &pieces[i].host);
  if (status == Status::ok && (pieces[0].host == nullptr || pieces[count - 1].host == nullptr))
    status = fetch_directly(to, from, nbytes);
  else for (int64_t asked = 0, got = 0; got < nbytes && status == Status::ok;) {
    while (asked < nbytes && asked - got < count * kChunk && status == Status::ok) {
      Piece& piece = pieces[asked / kChunk % count];
      const int64_t bytes = std::min(kChunk, nbytes - asked);
      status = check(the_driver().cuMemcpyDtoHAsync_v2(piece.host, address(from) + uint64_t(asked), size_t(bytes), stream_),
                     "a copy to the host");
      if (status == Status::ok && (piece.event = mark(stream_)) == nullptr) status = Status::device_error;
      asked += bytes;
    }
    Piece& piece = pieces[got / kChunk % count];
    if (status == Status::ok) status = wait(piece.event);
    if (status != Status::ok) break;
    const int64_t bytes = std::min(kChunk, nbytes - got);
    std::memcpy(to + got, piece.host, size_t(bytes));
    give_event(std::exchange(piece.event, nullptr));
    got += bytes;
  }
  for (const Piece& piece : pieces) {  // one that is still written to is left to its event
    if (piece.host != nullptr && piece.event == nullptr && status == Status::ok) pinned_.give(piece.host);
    else if (piece.host != nullptr) rest(piece.host, piece.event != nullptr ? piece.event : mark(stream_));
  }
  return status;
}

}  // namespace weft
