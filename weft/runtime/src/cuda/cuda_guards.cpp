// Kernels of the client itself: copies and fills under a guard, since those of the driver are always done, and guards
// made of others (ahead.h).
#include <algorithm>

#include "cuda_device.h"
#include "guard.h"

namespace weft {
namespace {

constexpr unsigned kThreads = 256, kMostBlocks = 1024;

const char kHead[] = ".version 7.0\n.target sm_80\n.address_size 64\n";

// Every thread moves elements i, i + all threads, ...; without a source it stores the number `value`.
std::string entry(const char* name, bool copies, const char* type, int bytes) {
  std::string text = std::string(".visible .entry ") + name +
                     R"((.param .u64 to, .param .u64 from, .param .u64 count, .param .u64 guard, .param .u64 range)
{
  .reg .pred %p<3>; .reg .b16 %h<2>; .reg .b32 %r<12>; .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [guard]; ld.param.u64 %rd2, [range];
  cvta.to.global.u64 %rd1, %rd1; ld.global.s32 %r1, [%rd1];
  cvt.u32.u64 %r2, %rd2; shr.u64 %rd3, %rd2, 32; cvt.u32.u64 %r3, %rd3;
  setp.lt.s32 %p1, %r1, %r2; @%p1 bra DONE;
  setp.gt.s32 %p1, %r1, %r3; @%p1 bra DONE;
  ld.param.u64 %rd4, [to]; ld.param.u64 %rd5, [from]; ld.param.u64 %rd6, [count];
)" + (copies ? "  cvta.to.global.u64 %rd5, %rd5;\n" : "  cvt.u16.u64 %h1, %rd5; cvt.u32.u64 %r10, %rd5;\n") +
                     R"(  cvta.to.global.u64 %rd4, %rd4;
  mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x; mov.u32 %r7, %nctaid.x;
  mad.lo.s32 %r8, %r4, %r5, %r6; cvt.u64.u32 %rd7, %r8;
  mul.lo.s32 %r9, %r7, %r5; cvt.u64.u32 %rd8, %r9;
AGAIN:
  setp.ge.u64 %p2, %rd7, %rd6; @%p2 bra DONE;
)";
  const std::string size = std::to_string(bytes);
  text += "  mul.lo.u64 %rd9, %rd7, " + size + "; add.u64 %rd10, %rd4, %rd9;\n";
  if (copies) text += "  add.u64 %rd11, %rd5, %rd9; ld.global." + std::string(type) + ", [%rd11];\n";
  const std::string stored = type;  // "b32 %r10": its type, and the registers
  const size_t space = stored.find(' ');
  text += "  st.global." + stored.substr(0, space) + " [%rd10]," + stored.substr(space) + ";\n";
  return text + "  add.u64 %rd7, %rd7, %rd8; bra AGAIN;\nDONE:\n  ret;\n}\n";
}

// r9: whether the guard holds and nothing has stalled.
const char kHolds[] = R"(
  .reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %rd<12>;
  mov.u32 %r9, 1;
  ld.param.u64 %rd1, [guard]; setp.eq.u64 %p1, %rd1, 0; @%p1 bra OPEN;
  cvta.to.global.u64 %rd1, %rd1; ld.global.s32 %r1, [%rd1];
  ld.param.u64 %rd2, [range]; cvt.u32.u64 %r2, %rd2; shr.u64 %rd3, %rd2, 32; cvt.u32.u64 %r3, %rd3;
  setp.lt.s32 %p1, %r1, %r2; @%p1 mov.u32 %r9, 0;
  setp.gt.s32 %p2, %r1, %r3; @%p2 mov.u32 %r9, 0;
OPEN:
  ld.param.u64 %rd4, [stalled]; setp.eq.u64 %p1, %rd4, 0; @%p1 bra KNOWN;
  cvta.to.global.u64 %rd4, %rd4; ld.global.s32 %r4, [%rd4];
  setp.ne.s32 %p2, %r4, 0; @%p2 mov.u32 %r9, 0;
KNOWN:
)";

std::string narrow_entry() {
  return std::string(R"(.visible .entry narrow(.param .u64 to, .param .u64 word, .param .u64 stalled, .param .u64 guard,
    .param .u64 range)
{)") + kHolds + R"(
  mov.u32 %r5, -1; setp.eq.s32 %p1, %r9, 0; @%p1 bra STORE;
  mov.u32 %r5, 0; ld.param.u64 %rd5, [word]; setp.eq.u64 %p2, %rd5, 0; @%p2 bra STORE;
  cvta.to.global.u64 %rd5, %rd5; ld.global.s32 %r5, [%rd5]; max.s32 %r5, %r5, 0;
STORE:
  ld.param.u64 %rd6, [to]; cvta.to.global.u64 %rd6, %rd6; st.global.b32 [%rd6], %r5;
  ret;
}
)";
}

std::string settle_entry() {
  return std::string(R"(.visible .entry settle(.param .u64 words, .param .u64 count, .param .u64 number,
    .param .u64 stalled, .param .u64 guard, .param .u64 range)
{)") + kHolds + R"(
  mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r8, 0; mov.u32 %r11, 0;
  ld.param.u64 %rd5, [words]; cvta.to.global.u64 %rd5, %rd5; mov.u64 %rd6, %rd5;
  ld.param.u64 %rd7, [count]; cvt.u32.u64 %r7, %rd7; mov.u32 %r10, %r7;
AGAIN:
  setp.eq.s32 %p1, %r10, 0; @%p1 bra COUNTED;
  ld.global.s32 %r1, [%rd6+8]; setp.ne.s32 %p2, %r1, 0; @%p2 add.s32 %r8, %r8, 1;
  st.global.b32 [%rd6+8], %r11;
  add.s64 %rd6, %rd6, 4; sub.s32 %r10, %r10, 1; bra AGAIN;
COUNTED:
  setp.eq.s32 %p1, %r9, 0; @%p1 bra STORE;
  setp.eq.s32 %p2, %r8, %r7; @%p2 bra STALLS;
  and.b32 %r5, %r8, 1; mov.u32 %r6, 1; bra STORE;
STALLS:
  ld.param.u64 %rd8, [number]; cvt.u32.u64 %r10, %rd8;
  ld.param.u64 %rd4, [stalled]; setp.eq.u64 %p1, %rd4, 0; @%p1 bra STORE;
  cvta.to.global.u64 %rd4, %rd4; st.global.b32 [%rd4], %r10;
STORE:
  st.global.b32 [%rd5], %r5; st.global.b32 [%rd5+4], %r6;
  ret;
}
)";
}

std::string image() {
  // the registers of a vector are three that are needed no more, and one of its own
  return kHead + entry("copy16", true, "v4.b32 {%r2, %r3, %r10, %r11}", 16) + entry("copy4", true, "b32 %r10", 4) +
         entry("copy1", true, "b8 %h1", 1) + entry("fill16", false, "v4.b32 {%r10, %r10, %r10, %r10}", 16) +
         entry("fill4", false, "b32 %r10", 4) + entry("fill1", false, "b8 %h1", 1) + narrow_entry() + settle_entry();
}

enum Own { kCopy, kFill = kCopy + 3, kNarrow = kFill + 3, kSettle };  // three each are of different words
constexpr const char* kNames[] = {"copy16", "copy4", "copy1", "fill16", "fill4", "fill1", "narrow", "settle"};

int64_t word_of(const char* address) { return reinterpret_cast<int64_t>(address); }

}  // namespace

Status CudaDevice::launch_own(int which, const int64_t* words, unsigned n_words, unsigned blocks, unsigned threads) {
  cuda::Handle function = nullptr;
  {
    std::lock_guard<std::mutex> lock(own_mutex_);
    if (own_module_ == nullptr) own_module_ = load(image());
    if (own_module_ == nullptr) return Status::device_error;
    if (own_[which] == nullptr) own_[which] = this->function(own_module_, kNames[which], 0);
    function = own_[which];
  }
  if (function == nullptr) return Status::device_error;
  void* pointers[8];
  for (unsigned i = 0; i < n_words; ++i) pointers[i] = const_cast<int64_t*>(&words[i]);
  return launch_kernel({function, {blocks, 1}, threads, 0, pointers, n_words});
}

Status CudaDevice::move_guarded(char* to, const char* from, int byte, int64_t nbytes) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | uintptr_t(nbytes);
  const int which = bits % 16 == 0 ? 0 : bits % 4 == 0 ? 1 : 2;
  static constexpr int64_t kBytes[] = {16, 4, 1};
  const int64_t filled = int64_t(uint8_t(byte)) * 0x01010101;
  const int64_t words[] = {word_of(to), from == nullptr ? filled : word_of(from), nbytes / kBytes[which],
                           word_of(t_guard.word), t_guard.range()};
  const auto blocks = unsigned(std::clamp<int64_t>((words[2] + kThreads - 1) / kThreads, 1, kMostBlocks));
  return launch_own((from == nullptr ? kFill : kCopy) + which, words, 5, blocks, kThreads);
}

Status CudaDevice::narrow(char* to, const char* word, const char* stalled) {
  if (t_skipping) return Status::ok;
  InContext here(*this);
  const int64_t words[] = {word_of(to), word_of(word), word_of(stalled), word_of(t_guard.word), t_guard.range()};
  return launch_own(kNarrow, words, 5, 1, 1);
}

Status CudaDevice::settle(char* words, int64_t count, int32_t number, char* stalled) {
  if (t_skipping) return Status::ok;
  InContext here(*this);
  const int64_t given[] = {word_of(words), count, number, word_of(stalled), word_of(t_guard.word), t_guard.range()};
  return launch_own(kSettle, given, 6, 1, 1);
}

}  // namespace weft
