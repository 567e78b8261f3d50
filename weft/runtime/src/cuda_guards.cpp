// Copies and fills under a guard: kernels, since those of the driver are always done.
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
)" + (copies ? "  cvta.to.global.u64 %rd5, %rd5;\n" : "  cvt.u16.u64 %h1, %rd5;\n") +
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

std::string image() {
  // the registers of a vector are three that are needed no more, and one of its own
  return kHead + entry("copy16", true, "v4.b32 {%r2, %r3, %r10, %r11}", 16) + entry("copy4", true, "b32 %r10", 4) +
         entry("copy1", true, "b8 %h1", 1) + entry("fill1", false, "b8 %h1", 1);
}

}  // namespace

Status CudaDevice::move_guarded(char* to, const char* from, int byte, int64_t nbytes) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | uintptr_t(nbytes);
  const int which = from == nullptr ? 3 : bits % 16 == 0 ? 0 : bits % 4 == 0 ? 1 : 2;
  static constexpr const char* kNames[] = {"copy16", "copy4", "copy1", "fill1"};
  static constexpr int64_t kBytes[] = {16, 4, 1, 1};
  cuda::Handle function = nullptr;
  {
    std::lock_guard<std::mutex> lock(guarded_mutex_);
    if (guarded_module_ == nullptr) guarded_module_ = load(image());
    if (guarded_module_ == nullptr) return Status::device_error;
    if (guarded_[which] == nullptr) guarded_[which] = this->function(guarded_module_, kNames[which], 0);
    function = guarded_[which];
  }
  if (function == nullptr) return Status::device_error;
  int64_t words[] = {reinterpret_cast<int64_t>(to), from == nullptr ? int64_t(byte) : reinterpret_cast<int64_t>(from),
                     nbytes / kBytes[which], reinterpret_cast<int64_t>(t_guard.word), t_guard.range()};
  void* pointers[] = {&words[0], &words[1], &words[2], &words[3], &words[4]};
  const auto blocks = unsigned(std::clamp<int64_t>((words[2] + kThreads - 1) / kThreads, 1, kMostBlocks));
  return launch_kernel({function, {blocks, 1}, kThreads, 0, pointers, 5});
}

}  // namespace weft
