// Streams and events.
#include <chrono>

#include "driver.h"

using namespace testcuda;

namespace {

double now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_over(const Event& event) {
  std::lock_guard<std::mutex> lock(state().mutex);
  return event.stream == nullptr || event.stream->done >= event.count;
}

}  // namespace

WEFT_EXPORT cuStreamCreate(Handle* out, unsigned flags) {
  if (const Result r = in_context()) return r;
  if (flags > 1) return kInvalidValue;
  *out = give(make_stream(current->device, flags == 0));
  return kSuccess;
}
WEFT_EXPORT cuStreamCreateWithPriority(Handle* out, unsigned flags, int) { return cuStreamCreate(out, flags); }
WEFT_EXPORT cuStreamDestroy_v2(Handle handle) {
  if (const Result r = ready()) return r;
  Stream* stream = alive<Stream>(handle);
  if (stream == nullptr) return kInvalidHandle;
  take_back(handle);
  return kSuccess;  // what was asked for is still done
}
WEFT_EXPORT cuStreamSynchronize(Handle handle) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  return stream == nullptr ? kInvalidHandle : wait(stream);
}
WEFT_EXPORT cuStreamQuery(Handle handle) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  std::lock_guard<std::mutex> lock(state().mutex);
  if (stream->capture != nullptr) return kCaptureUnsupported;
  return stream->done >= stream->asked ? kSuccess : kNotReady;
}
WEFT_EXPORT cuStreamGetFlags(Handle handle, unsigned* flags) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  *flags = stream->blocking ? 0 : 1;
  return kSuccess;
}
WEFT_EXPORT cuStreamGetPriority(Handle, int* priority) {
  if (const Result r = in_context()) return r;
  *priority = 0;
  return kSuccess;
}
WEFT_EXPORT cuStreamGetCtx(Handle handle, Handle* context) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  *context = state().contexts[size_t(stream->device->number)].get();
  return kSuccess;
}
WEFT_EXPORT cuStreamWaitEvent(Handle handle, Handle of, unsigned) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  Event* event = alive<Event>(of);
  if (stream == nullptr || event == nullptr) return kInvalidHandle;
  if (event->capture != nullptr && stream->capture != event->capture) {
    std::lock_guard<std::mutex> lock(state().mutex);
    if (stream->capture != nullptr) return 902;
    stream->capture = event->capture;
    event->capture->streams.push_back(stream);
    return kSuccess;
  }
  if (event->stream == nullptr || event->capture != nullptr) return kSuccess;
  return ask(stream, nullptr, 6, {{event->stream, event->count}});
}

WEFT_EXPORT cuEventCreate(Handle* out, unsigned flags) {
  if (const Result r = in_context()) return r;
  if (flags > 7) return kInvalidValue;
  auto* event = new Event;
  event->timed = !(flags & 2);
  *out = give(event);
  return kSuccess;
}
WEFT_EXPORT cuEventDestroy_v2(Handle handle) {
  if (const Result r = ready()) return r;
  if (alive<Event>(handle) == nullptr) return kInvalidHandle;
  take_back(handle);
  return kSuccess;  // its few bytes are kept
}
WEFT_EXPORT cuEventRecord(Handle handle, Handle on) {
  if (const Result r = in_context()) return r;
  Event* event = alive<Event>(handle);
  Stream* stream = stream_of(on);
  if (event == nullptr || stream == nullptr) return kInvalidHandle;
  if (stream->capture != nullptr) {
    event->capture = stream->capture;
    return kSuccess;
  }
  event->capture = nullptr;
  auto time = std::make_shared<double>(0);
  const Result r = ask(stream, [=]() -> Result { return *time = now(), kSuccess; }, 7);
  std::lock_guard<std::mutex> lock(state().mutex);
  event->time = time;
  event->stream = stream;
  event->count = stream->asked;
  return r;
}
WEFT_EXPORT cuEventRecordWithFlags(Handle event, Handle stream, unsigned) { return cuEventRecord(event, stream); }
WEFT_EXPORT cuEventQuery(Handle handle) {
  if (const Result r = in_context()) return r;
  Event* event = alive<Event>(handle);
  if (event == nullptr) return kInvalidHandle;
  if (event->capture != nullptr) return kCapturedEvent;
  return is_over(*event) ? kSuccess : kNotReady;
}
WEFT_EXPORT cuEventSynchronize(Handle handle) {
  if (const Result r = in_context()) return r;
  Event* event = alive<Event>(handle);
  if (event == nullptr) return kInvalidHandle;
  if (event->capture != nullptr) return kCapturedEvent;
  if (event->stream == nullptr) return kSuccess;
  std::unique_lock<std::mutex> lock(state().mutex);
  state().changed.wait(lock, [&] { return event->stream->done >= event->count; });
  return event->stream->device->sticky;
}
WEFT_EXPORT cuEventElapsedTime(float* ms, Handle from, Handle to) {
  if (const Result r = in_context()) return r;
  Event *start = alive<Event>(from), *end = alive<Event>(to);
  if (start == nullptr || end == nullptr || !start->timed || !end->timed || !start->time || !end->time) return kInvalidHandle;
  if (!is_over(*start) || !is_over(*end)) return kNotReady;
  *ms = float(*end->time - *start->time);
  return kSuccess;
}
WEFT_EXPORT cuEventElapsedTime_v2(float* ms, Handle from, Handle to) { return cuEventElapsedTime(ms, from, to); }
