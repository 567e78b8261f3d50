// Foreign functions for tests/ffi, against the headers that jaxlib ships.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// An elementwise function with attributes.
static ffi::Error ScaleShift(float scale, float shift, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = x.typed_data()[i] * scale + shift;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(scale_shift, ScaleShift,
                              ffi::Ffi::Bind().Attr<float>("scale").Attr<float>("shift").Arg<ffi::Buffer<ffi::F32>>().Ret<
                                  ffi::Buffer<ffi::F32>>());

// Rows of matrices, of any number of leading dimensions, divided by the root of their mean square.
static ffi::Error RmsNorm(float eps, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  auto shape = x.dimensions();
  if (shape.size() == 0) return ffi::Error::InvalidArgument("rms_norm takes an array of rows, got a scalar");
  const int64_t n = shape.back(), rows = n == 0 ? 0 : int64_t(x.element_count()) / n;
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x.typed_data() + row * n;
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += from[i] * from[i];
    const float scale = 1 / std::sqrt(sum / float(n) + eps);
    for (int64_t i = 0; i < n; ++i) y->typed_data()[row * n + i] = from[i] * scale;
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    rms_norm, RmsNorm,
    ffi::Ffi::Bind().Attr<float>("eps").Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// Any number of arrays of any ranks, several results, and attributes of every kind.
static ffi::Error Totals(ffi::RemainingArgs args, ffi::Result<ffi::Buffer<ffi::F64>> totals,
                         ffi::Result<ffi::Buffer<ffi::S64>> ranks, ffi::Result<ffi::AnyBuffer> first,
                         ffi::Result<ffi::Buffer<ffi::U8>> text, std::string_view name, ffi::Span<const int64_t> weights,
                         ffi::Dictionary options) {
  auto power = options.get<double>("power");
  if (power.has_error()) return power.error();
  bool flag = false;
  if (options.contains("inner")) {
    auto inner = options.get<ffi::Dictionary>("inner");
    if (inner.has_error()) return inner.error();
    auto found = inner->get<bool>("flag");
    if (found.has_error()) return found.error();
    flag = *found;
  }
  for (size_t i = 0; i < args.size(); ++i) {
    auto x = args.get<ffi::Buffer<ffi::F32>>(i);
    if (x.has_error()) return x.error();
    double sum = 0;
    for (size_t k = 0; k < x->element_count(); ++k) sum += std::pow(double(x->typed_data()[k]), *power);
    totals->typed_data()[i] = sum * double(weights[i]) + (flag ? 0.5 : 0);
    ranks->typed_data()[i] = int64_t(x->dimensions().size());
    if (i == 0) std::memcpy(first->untyped_data(), x->untyped_data(), x->size_bytes());
  }
  std::memset(text->typed_data(), 0, text->element_count());
  std::memcpy(text->typed_data(), name.data(), std::min(name.size(), text->element_count()));
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(totals, Totals,
                              ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .Ret<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::S64>>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::Buffer<ffi::U8>>()
                                  .Attr<std::string_view>("name")
                                  .Attr<ffi::Span<const int64_t>>("weights")
                                  .Attr<ffi::Dictionary>("options"));

// A state for each place that calls it.
static std::atomic<int64_t> living{0};
struct Count {
  static ffi::TypeId id;
  explicit Count(int64_t start) : value(start) { ++living; }
  ~Count() { --living; }
  std::atomic<int64_t> value;
};
ffi::TypeId Count::id = {};

extern "C" int64_t counts_living() { return living; }
extern "C" XLA_FFI_TypeId* count_type_id() { return &Count::id; }
extern "C" const XLA_FFI_TypeInfo* count_type_info() {
  static const XLA_FFI_TypeInfo info = ffi::MakeTypeInfo<Count>();
  return &info;
}
static ffi::ErrorOr<std::unique_ptr<Count>> CountBegins(int64_t start) {
  if (start < 0) return ffi::Unexpected(ffi::Error::InvalidArgument("a count begins at 0 or later"));
  return std::make_unique<Count>(start);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(count_begins, CountBegins, ffi::Ffi::BindInstantiate().Attr<int64_t>("start"));
static ffi::Error CountOn(Count* count, int64_t start, ffi::Result<ffi::BufferR0<ffi::S32>> out) {
  const int64_t value = ++count->value;
  if (value - start > 3) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "it has counted three times");
  *out->typed_data() = int32_t(value);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    count_on, CountOn,
    ffi::Ffi::Bind().Ctx<ffi::State<Count>>().Attr<int64_t>("start").Ret<ffi::BufferR0<ffi::S32>>());

// Stages write down that they ran.
static std::string stages;
extern "C" const char* stages_seen() { return stages.c_str(); }
template <char letter>
static ffi::Error Note() {
  stages += letter;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(note_i, Note<'i'>, ffi::Ffi::BindInstantiate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(note_p, Note<'p'>, ffi::Ffi::Bind<ffi::ExecutionStage::kPrepare>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(note_n, Note<'n'>, ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(note_e, Note<'e'>, ffi::Ffi::Bind());

// What the context has: working memory, threads, numbers of run and device.
static ffi::Error Context(ffi::ScratchAllocator scratch, ffi::ThreadPool pool, ffi::RunId run, int32_t device,
                          ffi::Result<ffi::Buffer<ffi::S64>> out) {
  auto block = scratch.Allocate(4096, 64);
  if (!block.has_value()) return ffi::Error::Internal("no working memory");
  std::memset(*block, 1, 4096);
  std::atomic<int64_t> sum{0};
  std::atomic<int> left{8};
  for (int i = 0; i < 8; ++i)
    pool.Schedule([&, i] {
      sum += i;
      --left;
    });
  while (left > 0) std::this_thread::yield();
  int64_t* values = out->typed_data();
  values[0] = run.run_id;
  values[1] = device;
  values[2] = pool.num_threads();
  values[3] = sum;
  values[4] = int64_t(reinterpret_cast<uintptr_t>(*block) % 64);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(context, Context,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ScratchAllocator>()
                                  .Ctx<ffi::ThreadPool>()
                                  .Ctx<ffi::RunId>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .Ret<ffi::Buffer<ffi::S64>>());
static ffi::Error NeedsStream(void* stream) { return ffi::Error::Success(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(needs_stream, NeedsStream, ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>());

// A result that is there later.
static ffi::Future Later(bool fails, ffi::ThreadPool, ffi::Result<ffi::BufferR0<ffi::F32>> out) {
  ffi::Promise promise;
  ffi::Future future(promise);
  float* value = out->typed_data();
  std::thread([promise, value, fails]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    *value = 7;
    fails ? promise.SetError(ffi::Error::Internal("it failed later")) : promise.SetAvailable();
  }).detach();
  return future;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    later, Later, ffi::Ffi::Bind().Attr<bool>("fails").Ctx<ffi::ThreadPool>().Ret<ffi::BufferR0<ffi::F32>>());

// Adds 1 to what the result's memory holds.
static ffi::Error InPlace(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  if (x.typed_data() != y->typed_data()) return ffi::Error(ffi::ErrorCode::kFailedPrecondition, "they do not share memory");
  for (size_t i = 0; i < y->element_count(); ++i) y->typed_data()[i] += 1;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(in_place, InPlace, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

static ffi::Error Doubled(ffi::Buffer<ffi::F32>, ffi::ResultBuffer<ffi::F32> y) {
  for (size_t i = 0; i < y->element_count(); ++i) y->typed_data()[i] *= 2;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(doubled, Doubled, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// Bytes as they lie, and what it was told of them.
static ffi::Error Raw(ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y, ffi::Result<ffi::Buffer<ffi::S64>> told) {
  std::memcpy(y->untyped_data(), x.untyped_data(), x.size_bytes());
  told->typed_data()[0] = int64_t(x.element_type());
  for (size_t d = 0; d < x.dimensions().size(); ++d) told->typed_data()[1 + d] = x.dimensions()[d];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    raw, Raw, ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Ret<ffi::Buffer<ffi::S64>>());

static std::atomic<int64_t> calls{0};
extern "C" int64_t calls_made() { return calls; }
static ffi::Error Effect(int64_t milliseconds) {
  ++calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(effect, Effect, ffi::Ffi::Bind().Attr<int64_t>("milliseconds"));

// Waits until another thread sets its word: only if the GIL is free can one in Python do so.
static std::atomic<int32_t> word{0};
extern "C" void set_word(int32_t value) { word = value; }
static ffi::Error Slow(ffi::Result<ffi::BufferR0<ffi::S32>> out) {
  for (int i = 0; i < 5000 && word == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  *out->typed_data() = word;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(slow, Slow, ffi::Ffi::Bind().Ret<ffi::BufferR0<ffi::S32>>());

static ffi::Error Throws() { throw std::runtime_error("thrown in C++"); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(throws, Throws, ffi::Ffi::Bind());
static ffi::Error ThrowsNumber() { throw 42; }
XLA_FFI_DEFINE_HANDLER_SYMBOL(throws_number, ThrowsNumber, ffi::Ffi::Bind());

// Copies on a GPU's stream, through working memory there, by the driver of this path.
static ffi::Error OnGpu(std::string_view driver, void* stream, ffi::ScratchAllocator scratch, int32_t device,
                        ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  void* library = dlopen(std::string(driver).c_str(), RTLD_NOW);
  using Copy = int(uint64_t, uint64_t, size_t, void*);
  auto* copy = library == nullptr ? nullptr : reinterpret_cast<Copy*>(dlsym(library, "cuMemcpyDtoDAsync_v2"));
  auto block = scratch.Allocate(x.size_bytes());
  if (copy == nullptr || stream == nullptr || device != 0 || !block.has_value()) return ffi::Error::Internal("no GPU");
  const auto between = reinterpret_cast<uint64_t>(*block);
  int failed = copy(between, reinterpret_cast<uint64_t>(x.typed_data()), x.size_bytes(), stream);
  failed |= copy(reinterpret_cast<uint64_t>(y->typed_data()), between, x.size_bytes(), stream);
  return failed != 0 ? ffi::Error::Internal("a copy failed") : ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(on_gpu, OnGpu,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("driver")
                                  .Ctx<ffi::PlatformStream<void*>>()
                                  .Ctx<ffi::ScratchAllocator>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

// Functions of bare pointers.
extern "C" void add_pointers(void* out, const void** in) {
  const float *a = static_cast<const float*>(in[0]), *b = static_cast<const float*>(in[1]);
  for (int i = 0; i < 4; ++i) static_cast<float*>(out)[i] = a[i] + b[i];
}
extern "C" void text_pointers(void* out, const void** in, const char* text, size_t length, void*) {
  void** results = static_cast<void**>(out);
  *static_cast<int32_t*>(results[0]) = int32_t(length) + *static_cast<const int32_t*>(in[0]);
  *static_cast<int32_t*>(results[1]) = text[0];
}

// Tokens: how many calls there have been, and the dtypes and ranks of operands.
static ffi::Error Step(ffi::Token, ffi::RemainingArgs, ffi::Result<ffi::Token>, ffi::ResultBuffer<ffi::S32> count) {
  static std::atomic<int32_t> calls{0};
  count->typed_data()[0] = ++calls;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(token_step, Step,
                              ffi::Ffi::Bind().Arg<ffi::Token>().RemainingArgs().Ret<ffi::Token>().Ret<
                                  ffi::Buffer<ffi::S32>>());
static ffi::Error Kinds(ffi::RemainingArgs args, ffi::ResultBuffer<ffi::S32> found) {
  for (size_t i = 0; i < args.size(); ++i) {
    auto x = args.get<ffi::AnyBuffer>(i);
    if (x.has_error()) return x.error();
    found->typed_data()[2 * i] = int32_t(x->element_type());
    found->typed_data()[2 * i + 1] = int32_t(x->dimensions().size());
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(kinds_of, Kinds,
                              ffi::Ffi::Bind().RemainingArgs().Ret<ffi::Buffer<ffi::S32>>());
