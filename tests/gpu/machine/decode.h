// What decoders of instructions share: the statement at hand, its operands as slots of registers and constants.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "program.h"
#include "halves.h"
#include "text.h"

namespace ptx {

struct Register {
  uint32_t slot, index;
  Type type;
};

// Names of a pair of braces in a function.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::map<std::string, Type> families;      // %r of %r<6>
  std::map<std::string, Type> names;         // registers by their whole name
  std::map<std::string, Register> registers; // those that were used
  std::map<std::string, uint32_t> params;    // slots of parameters of calls in the frame
  std::map<std::string, uint32_t> param_bytes;
  std::map<std::string, std::pair<std::vector<uint32_t>, std::vector<uint32_t>>> prototypes;  // bytes of results, inputs
};

class Decoder {
 public:
  Module& module;
  Function& function;
  const Statement& st;
  Instruction& in;
  std::shared_ptr<Scope> scope;
  const std::map<std::string, uint32_t>& labels;
  std::map<std::pair<uint64_t, int>, uint32_t>& constants;
  std::map<std::string, uint32_t>& tables;
  uint32_t end = 0;  // the last instruction, which returns

  bool has(const std::string& part) const;
  Type type(int from_end = 0) const;  // of the parts that name types, from the last
  [[noreturn]] void refuse(const std::string& why) const;

  const Register* find_register(const std::string& name) const;
  const Register& reg(const std::string& name) const;
  // Appends a result; ``_`` is a register that nobody reads. Zero bytes: any width.
  int result(const std::string& name, int bytes);
  // Appends an operand of a type; numbers become constants. Returns the bytes of its register.
  int operand(const std::string& text, Type type, bool any_width = false);
  int operand(const RawOperand& raw, Type type, bool any_width = false);
  uint32_t constant(uint64_t value, int bytes);
  // An address: the base becomes operand, or a constant, and the space and offset are set.
  void address(const RawOperand& raw, Space space);
  // The slot of a named variable or parameter.
  bool variable(const std::string& name, uint64_t* value) const;
  const RawOperand& op(size_t k) const;
  void count(size_t least, size_t most) const;
  Rounding rounding() const;
};

// Each takes the instructions of its family, and says whether this is one.
bool decode_integer(Decoder& d);
bool decode_bits(Decoder& d);
bool decode_float(Decoder& d);
bool decode_half(Decoder& d);
bool decode_convert(Decoder& d);
bool decode_compare(Decoder& d);
bool decode_move(Decoder& d);
bool decode_memory(Decoder& d);
bool decode_atomic(Decoder& d);
bool decode_warp(Decoder& d);
bool decode_async(Decoder& d);
bool decode_tensor(Decoder& d);
bool decode_control(Decoder& d);

// The cost of a decoded instruction (costs.cpp).
void set_cost(Decoder& d);

// The function is at its end.
void run_end(Warp& w, const Instruction& in);

// The instruction of a statement.
void decode(Decoder& d);

}  // namespace ptx
