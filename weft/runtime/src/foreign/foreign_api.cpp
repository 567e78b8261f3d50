// What a foreign function may ask of the runtime: errors, states, working memory, threads, futures.
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <system_error>
#include <thread>

#include "device.h"
#include "foreign.h"
#include "pool.h"

namespace weft::foreign {

struct Future {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  Error* error = nullptr;  // owned
};

namespace {

constexpr const char* kCodeNames[kCodes] = {
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"};

// The types of states. A change is a new table beside the old one, which others may be reading: there are few.
struct Types {
  std::map<std::string, int64_t> numbers;
  std::map<int64_t, void (*)(void*)> deleters;
};
std::atomic<const Types*> g_types{new Types};

// An error if the caller's struct ends before `needed` bytes.
Error* too_small(const char* what, size_t given, size_t needed) {
  if (given >= needed) return nullptr;
  return make_error(kInvalidArgument, std::string("the arguments of ") + what + " have " + std::to_string(given) +
                                          " bytes where weft reads " + std::to_string(needed) +
                                          ": the function was compiled against other headers");
}

Error* error_create(ErrorCreate* args) {
  const bool known = args->code > kOk && args->code < kCodes;
  return make_error(known ? Code(args->code) : kUnknown, args->message == nullptr ? "" : args->message);
}

void error_message(ErrorMessage* args) { args->message = args->error == nullptr ? "" : args->error->message.c_str(); }
void error_destroy(ErrorDestroy* args) { delete args->error; }

Error* handler_register(HandlerRegister*) {
  return make_error(kUnimplemented, "functions are registered from Python, by weft.ffi.register_ffi_target");
}

Error* stream_get(StreamGet* args) {
  if (Error* error = too_small("Stream_Get", args->struct_size, end_of(&StreamGet::stream))) return error;
  args->stream = args->context->stream;
  if (args->stream != nullptr) return nullptr;
  return make_error(kUnimplemented, "there is no stream: the function runs on the CPU");
}

Error* type_register(TypeRegister* args) {
  if (Error* error = too_small("Type_Register", args->struct_size, end_of(&TypeRegister::type))) return error;
  const std::string name(args->name.data, args->name.length);
  const bool has_info = args->struct_size >= end_of(&TypeRegister::info) && args->info != nullptr;
  void (*deleter)(void*) = has_info ? args->info->deleter : nullptr;
  const Types* known = g_types.load();
  for (;;) {
    auto found = known->numbers.find(name);
    const bool is_new = found == known->numbers.end();
    int64_t number = args->type->number != 0 || is_new ? args->type->number : found->second;
    if (!is_new && number != found->second)
      return make_error(kAlreadyExists, "the type '" + name + "' is registered with another number");
    if (is_new && number != 0 && known->deleters.count(number) != 0)
      return make_error(kAlreadyExists, "the number of the type '" + name + "' is that of another type");
    while (number == 0 || (is_new && known->deleters.count(number) != 0)) ++number;
    auto* changed = new Types(*known);
    changed->numbers[name] = number;
    void (*&kept)(void*) = changed->deleters[number];
    if (deleter != nullptr) kept = deleter;
    if (g_types.compare_exchange_strong(known, changed)) {
      args->type->number = number;
      return nullptr;
    }
    delete changed;
  }
}

Error* context_get(ContextGet* args) {
  args->data = nullptr;
  return make_error(kNotFound, "no user data of this type belongs to the execution");
}

Error* stage_error(int32_t stage, const char* what) {
  return make_error(kInvalidArgument, std::string(what) + " of the execution stage " + std::to_string(stage) +
                                          ", which has no state here");
}

Error* state_set(StateSet* args) {
  if (Error* error = too_small("State_Set", args->struct_size, end_of(&StateSet::state))) return error;
  State* state = args->stage >= 0 && args->stage < kExecute ? args->context->states[args->stage] : nullptr;
  if (state == nullptr) return stage_error(args->stage, "a state");
  if (state->type != 0) return make_error(kFailedPrecondition, "the stage has set its state already");
  if (g_types.load()->deleters.count(args->type->number) == 0)
    return make_error(kFailedPrecondition, "the type of the state is not registered: see weft.ffi.register_ffi_type");
  state->type = args->type->number;
  state->object = args->state;
  return nullptr;
}

Error* state_get(StateSet* args) {
  if (Error* error = too_small("State_Get", args->struct_size, end_of(&StateSet::state))) return error;
  State* state = args->stage >= 0 && args->stage < kExecute ? args->context->states[args->stage] : nullptr;
  if (state == nullptr || state->type == 0) return make_error(kNotFound, "the state is not set");
  if (state->type != args->type->number) return make_error(kInvalidArgument, "the state has another type");
  args->state = state->object;
  return nullptr;
}

Error* memory_allocate(MemoryAllocate* args) {
  if (Error* error = too_small("DeviceMemory_Allocate", args->struct_size, end_of(&MemoryAllocate::data))) return error;
  Context& context = *args->context;
  args->data = nullptr;
  if (context.device == nullptr) return make_error(kFailedPrecondition, "this stage has no device to allocate memory on");
  if (args->size > size_t(INT64_MAX) || args->alignment > 64)
    return make_error(kUnimplemented, "working memory is aligned to 64 bytes, not to " + std::to_string(args->alignment));
  Buffer* block = args->size == 0 ? nullptr : allocate_on(*context.device, int64_t(args->size));
  if (args->size == 0) return nullptr;
  if (block == nullptr)
    return make_error(kResourceExhausted, "no memory for " + std::to_string(args->size) + " bytes of working memory");
  std::lock_guard<std::mutex> lock(context.mutex);
  context.blocks.emplace_back(block->data, block);
  args->data = block->data;
  return nullptr;
}

Error* memory_free(MemoryFree* args) {
  if (Error* error = too_small("DeviceMemory_Free", args->struct_size, end_of(&MemoryFree::data))) return error;
  if (args->data == nullptr) return nullptr;
  Context& context = *args->context;
  std::unique_lock<std::mutex> lock(context.mutex);
  for (auto at = context.blocks.begin(); at != context.blocks.end(); ++at) {
    if (at->first != args->data) continue;
    Buffer* block = static_cast<Buffer*>(at->second);
    context.blocks.erase(at);
    lock.unlock();
    buffer_release(block);
    return nullptr;
  }
  return make_error(kInvalidArgument, "this memory was not allocated by this call, or is free already");
}

// Threads for the tasks of functions, besides weft's own, which must not wait for a user's task.
class Threads {
 public:
  static Threads& the() {
    static std::atomic<Threads*> made{nullptr};
    Threads* found = made.load();
    while (found == nullptr || found->process_ != getpid()) {  // a forked child has none of its parent's threads
      auto* own = new Threads;
      if (made.compare_exchange_strong(found, own)) return *own;
      delete own;
    }
    return *found;
  }

  void schedule(void (*task)(void*), void* data) {
    if (pool_threads() > 1) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (idle_ <= int(waiting_.size()) && started_ < pool_threads() - 1 && start()) ++started_;
      if (started_ > 0) {
        waiting_.emplace_back(task, data);
        lock.unlock();
        changed_.notify_one();
        return;
      }
    }
    task(data);
  }

 private:
  bool start() {
    try {
      std::thread([this] { work(); }).detach();
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return !waiting_.empty(); });
      --idle_;
      auto [task, data] = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      task(data);
      lock.lock();
    }
  }

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<void (*)(void*), void*>> waiting_;
  int started_ = 0, idle_ = 0;
};

Error* pool_schedule(PoolSchedule* args) {
  if (Error* error = too_small("ThreadPool_Schedule", args->struct_size, end_of(&PoolSchedule::data))) return error;
  if (args->context->stream != nullptr) return make_error(kUnimplemented, "calls on a GPU have no threads of the host");
  Threads::the().schedule(args->task, args->data);
  return nullptr;
}

Error* pool_count(PoolThreads* args) {
  if (Error* error = too_small("ThreadPool_NumThreads", args->struct_size, end_of(&PoolThreads::threads))) return error;
  if (args->context->stream != nullptr) return make_error(kUnimplemented, "calls on a GPU have no threads of the host");
  *args->threads = pool_threads();
  return nullptr;
}

Error* future_create(FutureCreate* args) {
  if (Error* error = too_small("Future_Create", args->struct_size, end_of(&FutureCreate::extension))) return error;
  args->future = new (std::nothrow) Future;
  return args->future == nullptr ? make_error(kResourceExhausted, "no memory for a future") : nullptr;
}

Error* finish(Future* future, Error* error) {
  if (future == nullptr) {
    delete error;
    return make_error(kInvalidArgument, "there is no future");
  }
  std::lock_guard<std::mutex> lock(future->mutex);
  if (future->over) {
    delete error;
    return make_error(kFailedPrecondition, "the future is over already");
  }
  future->over = true;
  future->error = error;
  future->changed.notify_all();  // under the lock: who waits frees it
  return nullptr;
}

Error* future_available(FutureAvailable* args) { return finish(args->future, nullptr); }
Error* future_error(FutureError* args) {
  return finish(args->future, args->error != nullptr ? args->error : make_error(kUnknown, "no error was given"));
}

Error* run_get(RunGet* args) {
  if (Error* error = too_small("RunId_Get", args->struct_size, end_of(&RunGet::run))) return error;
  args->run = args->context->run;
  return nullptr;
}

Error* ordinal_get(OrdinalGet* args) {
  if (Error* error = too_small("DeviceOrdinal_Get", args->struct_size, end_of(&OrdinalGet::ordinal))) return error;
  args->ordinal = args->context->ordinal;
  return nullptr;
}

}  // namespace

Error* make_error(Code code, std::string message) { return new Error{code, std::move(message)}; }

const char* code_name(int code) { return code >= 0 && code < kCodes ? kCodeNames[code] : "UNKNOWN"; }

State::~State() {
  if (type == 0 || object == nullptr) return;
  const Types& types = *g_types.load();
  auto found = types.deleters.find(type);
  if (found != types.deleters.end() && found->second != nullptr) found->second(object);
}

Context::~Context() {
  for (auto& [address, block] : blocks) buffer_release(static_cast<Buffer*>(block));
}

Error* wait_and_free(Future* future) {
  Error* error;
  {
    std::unique_lock<std::mutex> lock(future->mutex);
    future->changed.wait(lock, [future] { return future->over; });
    error = future->error;
  }
  delete future;
  return error;
}

const Api* the_api() {
  static const Api api = [] {
    Api made{};
    made.struct_size = end_of(&Api::ordinal_get);
    made.version = {end_of(&Version::minor), nullptr, kMajor, kMinor};
    made.error_create = error_create;
    made.error_message = error_message;
    made.error_destroy = error_destroy;
    made.handler_register = handler_register;
    made.stream_get = stream_get;
    made.type_register = type_register;
    made.context_get = context_get;
    made.state_set = state_set;
    made.state_get = state_get;
    made.memory_allocate = memory_allocate;
    made.memory_free = memory_free;
    made.pool_schedule = pool_schedule;
    made.pool_threads = pool_count;
    made.future_create = future_create;
    made.future_available = future_available;
    made.future_error = future_error;
    made.run_get = run_get;
    made.ordinal_get = ordinal_get;
    return made;
  }();
  return &api;
}

}  // namespace weft::foreign
