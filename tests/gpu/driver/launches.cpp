// Launches of kernels, and what a fault in one does to its context.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "driver.h"

namespace testcuda {

namespace {

Result result_of(const std::string& kind) {
  if (kind == "misaligned address") return kMisaligned;
  if (kind == "hang") return kTimeout;
  if (kind == "trap" || kind == "text") return kIllegalInstruction;
  if (kind == "out of bounds") return kIllegalAddress;
  return kLaunchFailed;
}

void report(const std::string& text) {
  State& s = state();
  const std::string line = "test driver: " + text + "\n";
  FILE* file = s.log.empty() ? stderr : fopen(s.log.c_str(), "a");
  if (file == nullptr) return;
  fputs(line.c_str(), file);
  if (file != stderr) fclose(file);
}

}  // namespace

Result kernel_of(Handle handle, const uint32_t* grid, const uint32_t* block, uint32_t shared, void** params, void** extra,
                 Kernel* out) {
  Function* function = alive<Function>(handle);
  if (function == nullptr) return kInvalidHandle;
  const ptx::Function& code = *function->code;
  const uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
  if (threads == 0 || threads > 1024 || block[2] > 64) return kInvalidValue;
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7FFFFFFF || grid[1] > 65535 || grid[2] > 65535) return kInvalidValue;
  if (code.max_threads && threads > code.max_threads) return kOutOfResources;
  if (shared + code.shared_bytes > function->dynamic_shared) return kInvalidValue;
  out->function = function;
  out->shared = shared;
  for (int k = 0; k < 3; ++k) {
    out->grid[k] = grid[k];
    out->block[k] = block[k];
  }
  out->params.assign(code.input_bytes, 0);
  if (params != nullptr) {
    for (size_t k = 0; k < code.inputs.size(); ++k) {
      if (params[k] == nullptr) return kInvalidValue;
      memcpy(out->params.data() + code.inputs[k].offset, params[k], code.inputs[k].bytes);
    }
  } else if (extra != nullptr) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (; extra[0] != nullptr; extra += 2) {
      if (extra[0] == reinterpret_cast<void*>(1)) buffer = extra[1];
      if (extra[0] == reinterpret_cast<void*>(2)) bytes = *static_cast<size_t*>(extra[1]);
    }
    if (buffer == nullptr || bytes < code.input_bytes) return kInvalidValue;
    memcpy(out->params.data(), buffer, code.input_bytes);
  } else if (!code.inputs.empty()) {
    return kInvalidValue;
  }
  return kSuccess;
}

Result run_kernel(const Kernel& kernel) {
  State& s = state();
  const Function& function = *kernel.function;
  ptx::Launch launch(*function.module->code, *function.code, s.memory);
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    if (++s.launches == s.fail_launch) {
      report("launch " + std::to_string(s.launches) + " (" + function.code->name + ") fails as WEFT_TEST_CUDA_FAIL_LAUNCH says");
      return kLaunchFailed;
    }
    launch.device = function.module->device->number;
    launch.peers = function.module->device->peers;
  }
  memcpy(launch.grid, kernel.grid, sizeof launch.grid);
  memcpy(launch.block, kernel.block, sizeof launch.block);
  launch.params = kernel.params;
  launch.shared_bytes = function.code->shared_bytes + kernel.shared;
  launch.options.checks = s.checks;
  launch.options.seed = s.seed;
  launch.options.steps = s.steps;
  try {
    launch.run();
  } catch (const ptx::Error& error) {
    report(error.what());
    return result_of(error.kind);
  }
  return kSuccess;
}

}  // namespace testcuda

using namespace testcuda;

WEFT_EXPORT cuLaunchKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, Handle stream, void** params, void** extra) {
  if (const Result r = in_context()) return r;
  Stream* on = stream_of(stream);
  if (on == nullptr) return kInvalidHandle;
  const uint32_t grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  Kernel kernel;
  if (const Result r = kernel_of(function, grid, block, shared, params, extra, &kernel)) return r;
  const Result asked = ask_kernel(on, std::move(kernel));
  const char* blocking = getenv("CUDA_LAUNCH_BLOCKING");
  return blocking != nullptr && *blocking == '1' && asked == kSuccess && on->capture == nullptr ? wait(on) : asked;
}

struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  Handle stream;
  void* attributes;
  unsigned count;
};

WEFT_EXPORT cuLaunchKernelEx(const LaunchConfig* config, Handle function, void** params, void** extra) {
  if (config == nullptr) return kInvalidValue;
  return cuLaunchKernel(function, config->grid[0], config->grid[1], config->grid[2], config->block[0], config->block[1],
                        config->block[2], config->shared, config->stream, params, extra);
}

WEFT_EXPORT cuLaunchCooperativeKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                      unsigned bz, unsigned shared, Handle stream, void** params) {
  return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, nullptr);
}

WEFT_EXPORT cuLaunchHostFunc(Handle stream, void (*function)(void*), void* data) {
  if (const Result r = in_context()) return r;
  Stream* on = stream_of(stream);
  if (on == nullptr) return kInvalidHandle;
  return ask(on, [=]() -> Result { return function(data), kSuccess; }, 3);
}
