// A PTX module as the machine runs it: functions with decoded instructions, variables with their slots.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace ptx {

constexpr int kLanes = 32;
constexpr uint64_t kSharedWindow = uint64_t{1} << 56;  // generic addresses of shared memory begin here
constexpr uint64_t kLocalWindow = uint64_t{1} << 57;   // and those of local memory here
constexpr uint32_t kSharedStart = 1024;                // the hardware keeps the bytes before it
constexpr uint32_t kConstant = 0x80000000u;            // of an operand's slot: it lies among the constants

enum class Type : uint8_t {
  none, pred, b8, u8, s8, b16, u16, s16, f16, bf16, b32, u32, s32, f32, tf32, f16x2, bf16x2, b64, u64, s64, f64, b128,
  e4m3x2, e5m2x2, f32x2,
};
int bytes_of(Type type);
Type type_named(const std::string& name);  // Type::none: there is no such type

enum class Space : uint8_t { generic, global, shared, local, constant, param, frame };  // frame: local, from the frame's begin

// What is wrong with a text or a launch, in words; a fault of a launch is told by its kind too.
struct Error : std::runtime_error {
  Error(std::string kind_, const std::string& text) : std::runtime_error(text), kind(std::move(kind_)) {}
  std::string kind;
};

struct Warp;
struct Instruction;
using Run = void (*)(Warp&, const Instruction&);

// Where an instruction may go on.
enum class Flow : uint8_t { next, jump, branch, table, call, end, stop };

// Pipes of a multiprocessor, as prediction counts them.
enum class Pipe : uint8_t { fma, alu, integer, special, fp64, memory, control, tensor, kinds };

struct Instruction {
  Run run = nullptr;
  uint32_t d[8] = {}, s[10] = {};        // slots of results and operands in the registers or constants
  uint32_t di[8] = {}, si[10] = {};      // numbers of the registers; 0: a constant
  uint8_t nd = 0, ns = 0;                // how many of them
  uint8_t width[2] = {};                 // bytes of the registers of a result and of an operand, where they differ from type
  Type type = Type::none, from = Type::none;
  Space space = Space::generic;
  uint8_t vector = 1;                    // elements of a load or store
  uint8_t mode = 0, rounding = 0;        // of the operation: what the decoder of it says
  bool ftz = false, sat = false;
  bool strong = false, acquire = false, release = false;  // of an access: not weak, and its order
  bool strict = false;                   // undefined operands are a fault; otherwise results of them are undefined
  bool masks = false;                    // the operation itself says which results are defined
  bool join = false;                     // lanes may meet again here
  bool negated = false;                  // the guard
  uint32_t guard = 0;                    // slot of the predicate; 0: none
  uint32_t guard_index = 0;
  int64_t offset = 0;                    // added to an address
  uint32_t target = 0, meet = 0;         // of a branch: the next instruction, and where its sides meet again
  Flow flow = Flow::next;
  Pipe pipe = Pipe::alu;
  float slots = 1;                       // instructions of the hardware, about
  float special = 0;                     // those of the unit for special functions among them
  bool divides = false;                  // it takes longer where exponents are extreme
  uint16_t latency = 4;                  // cycles until its result can be read
  int line = 0;                          // of the text
  uint32_t extra = 0;                    // number of a call or of a table of targets
  std::string text;
};

struct Parameter {
  std::string name;
  uint32_t offset = 0, bytes = 0;
};

struct Function;
struct Call {
  Function* function = nullptr;  // null: the address is in s[0]
  std::vector<Parameter> inputs, outputs;
};

struct Function {
  std::string name;
  bool entry = false, defined = false;
  int number = 0;  // its address is this
  uint32_t max_threads = 0, min_blocks = 0;
  uint32_t required[3] = {};
  std::vector<Parameter> inputs, outputs;      // where its own frame or the launch holds them
  uint32_t input_bytes = 0;                    // of an entry's parameters
  uint32_t frame_bytes = 0;                    // of a lane: local variables and parameters of calls
  uint32_t register_bytes = 0, registers = 1;  // number 0 is none
  uint32_t shared_bytes = 0;
  std::vector<uint64_t> constants;             // the values of all lanes
  std::vector<Instruction> code;               // the last one is the return
  std::vector<Call> calls;
  std::vector<std::vector<uint32_t>> tables;
  uint8_t shared_grain = 4, global_grain = 4;  // the smallest access
  bool waits = false;                          // it may wait for another thread
};

struct Module {
  std::string version, target;
  bool approximate = false;                    // instructions whose bits the hardware chooses are taken
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::vector<Function*> numbered;
  std::map<std::string, uint64_t> addresses;   // of variables, of any space
  std::map<std::string, uint64_t> sizes;
 std::set<std::string> locals;                // those whose address is in a frame
  uint32_t dynamic_shared = 0;                 // where shared memory of a launch's choice begins
  std::vector<uint64_t> allocations;           // of global and constant variables
};

class Memory;
std::unique_ptr<Module> load(const std::string& text, Memory& memory, int device, bool approximate = false);

}  // namespace ptx
