// Foreign functions: the table of those that are registered, and what one call of one may ask of the runtime.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "foreign_abi.h"
#include "python.h"

namespace weft {
class Device;

namespace foreign {

// A registered function: of the typed interface, or one of the older ones, which get bare pointers.
struct Target {
  Bundle bundle{};
  void* untyped = nullptr;
};

// The function registered under a name for a platform ("cpu", "CUDA"): a copy; false if there is none. GIL held.
bool find_target(const std::string& name, const std::string& platform, Target* out);
// What to say where there is none.
std::string missing_text(const std::string& name, const std::string& platform);

// An object that a function left for later stages, and its type; destroyed with this.
struct State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
  int64_t type = 0;  // 0: there is none
  void* object = nullptr;
};

// What a function asks about its call: opaque to it.
struct Context {
  ~Context();
  State* states[kStages] = {};  // of each stage, nullptr where the stage has none
  Device* device = nullptr;     // whose memory the operands are in; nullptr while a program is made
  void* stream = nullptr;       // of a GPU
  int64_t run = 0;
  int32_t ordinal = 0;
  std::mutex mutex;
  std::vector<std::pair<void*, void*>> blocks;  // working memory that was not given back: address, what owns it
};

struct Error {
  Code code;
  std::string message;
};

Error* make_error(Code code, std::string message);
const char* code_name(int code);
const Api* the_api();
// Waits until a future is over and frees it; its error, or nullptr.
Error* wait_and_free(Future* future);

}  // namespace foreign
}  // namespace weft
