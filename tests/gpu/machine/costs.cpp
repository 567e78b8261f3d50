// What an instruction of PTX costs on the hardware: its pipe, instructions of the machine, cycles to its result.
//
// The numbers are those of compute capability 9.0: instructions as ptxas makes them, rates of the programming guide.
#include "decode.h"

namespace ptx {

namespace {

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  for (const char* other : names)
    if (name == other) return true;
  return false;
}

struct Cost {
  Pipe pipe;
  float slots;
  int latency;
  float special = 0;  // instructions of the unit for special functions among them
};

Cost of_integers(const std::string& name, bool wide, bool product) {
  if (product) {
    if (name == "mad" || name == "mul") return {Pipe::integer, wide ? 4.0f : 1.0f, wide ? 16 : 5};
  }
  if (name == "div" || name == "rem") return {Pipe::integer, wide ? 70.0f : 18.0f, wide ? 250 : 80, wide ? 2.0f : 1.0f};
  if (is_one_of(name, {"popc", "clz", "brev", "bfind"})) return {Pipe::special, wide ? 2.0f : 1.0f, 12};
  if (is_one_of(name, {"min", "max"})) return {Pipe::alu, wide ? 4.0f : 1.0f, wide ? 12 : 5};
  if (is_one_of(name, {"shl", "shr"})) return {Pipe::alu, wide ? 2.0f : 1.0f, 5};
  return {Pipe::alu, wide ? 2.0f : 1.0f, wide ? 6 : 5};
}

Cost of_floats(const std::string& name, Type type, bool exact) {
  const bool wide = type == Type::f64;
  const Pipe pipe = wide ? Pipe::fp64 : Pipe::fma;
  if (is_one_of(name, {"add", "sub", "mul", "fma", "mad"})) return {pipe, 1, wide ? 8 : 4};
  if (is_one_of(name, {"neg", "abs"})) return {Pipe::alu, 0, 0};  // a part of what uses it
  if (is_one_of(name, {"div", "rcp", "sqrt", "rsqrt"})) {
    if (!exact) return {Pipe::special, 1, 20, 1};
    if (wide) return {pipe, 14, 120, 1};
    return name == "div" ? Cost{pipe, 10, 52, 2} : Cost{pipe, 8, 44, 1};  // FCHK of a division is the unit's too
  }
  if (is_one_of(name, {"ex2", "lg2", "sin", "cos", "tanh"})) return {Pipe::special, 1, 20, 1};
  return {Pipe::alu, wide ? 2.0f : 1.0f, 5};  // min, max, copysign
}

Cost cost_of(const Decoder& d) {
  const Instruction& in = d.in;
  const std::string& name = d.st.name;
  const bool wide = bytes_of(in.type) == 8;
  const bool real = in.type == Type::f32 || in.type == Type::f64 || in.type == Type::f16 || in.type == Type::bf16 ||
                    in.type == Type::f16x2 || in.type == Type::bf16x2 || in.type == Type::f32x2;
  if (in.flow != Flow::next) return {Pipe::control, 1, 0};
  if (is_one_of(name, {"bar", "barrier", "membar", "fence"})) return {Pipe::control, 1, 0};
  if (name == "mma") return {Pipe::tensor, 1, 33};
  if (name == "cp") return in.pipe == Pipe::memory ? Cost{Pipe::memory, 1, 560} : Cost{Pipe::control, 1, 0};
  if (name == "ldmatrix") return {Pipe::memory, 1, 33};
  if (in.pipe == Pipe::memory) {
    const int bytes = bytes_of(in.type) * in.vector;
    switch (in.space) {
      case Space::param: return {Pipe::memory, 0, 0};  // an operand of what uses it
      case Space::shared: return {Pipe::memory, 1, name == "ld" ? 23 + bytes / 2 : 30};
      case Space::constant: return {Pipe::memory, 1, 30};
      case Space::local: case Space::frame: return {Pipe::memory, 1, 33};
      default: return {Pipe::memory, 1, d.has("relaxed") || d.has("volatile") || name == "atom" ? 700 : 560};
    }
  }
  if (is_one_of(name, {"shfl", "vote", "match", "redux"})) return {Pipe::memory, 1, 24};
  if (is_one_of(name, {"setp", "set"})) return {real && wide ? Pipe::fp64 : Pipe::alu, wide && !real ? 2.0f : 1.0f, wide ? 10 : 5};
  if (is_one_of(name, {"selp", "slct"})) return {Pipe::alu, wide ? 2.0f : 1.0f, 5};
  if (name == "mov") {
    const bool special = in.run != nullptr && d.op(1).text[0] == '%' && d.find_register(d.op(1).text) == nullptr;
    return special ? Cost{Pipe::alu, 1, 20} : Cost{Pipe::alu, 0, 0};
  }
  if (name == "cvta" || name == "implicit-def") return {Pipe::alu, 0, 0};
  if (name == "cvt") {
    const bool from_real = in.from == Type::f32 || in.from == Type::f64 || in.from == Type::f16 || in.from == Type::bf16;
    if (!real && !from_real) return {Pipe::alu, wide ? (d.in.from == Type::s32 ? 1.0f : 0.0f) : 0.0f, wide ? 4 : 0};
    if (wide || bytes_of(in.from) == 8) return {Pipe::fp64, 1, 12, 1};
    return {Pipe::special, 0, 12, 0.5f};  // a quarter of the rate of additions
  }
  if (in.type == Type::pred) return {Pipe::alu, 0.5f, 5};  // two are one instruction, often a part of a comparison
  if (is_one_of(name, {"and", "or", "xor", "not", "lop3"})) return {Pipe::alu, (wide ? 2.0f : 1.0f) * 0.8f, 4};  // of three operands
  if (real) return of_floats(name, in.type, !d.has("approx") && !d.has("full"));
  const bool product = (name == "mul" || name == "mad") && !d.has("wide") ? true : false;
  if (name == "mul" || name == "mad") return d.has("wide") ? Cost{Pipe::integer, 1, 5} : of_integers(name, wide, product);
  return of_integers(name, wide, false);
}

}  // namespace

void set_cost(Decoder& d) {
  const Cost cost = cost_of(d);
  d.in.pipe = cost.pipe;
  d.in.slots = cost.slots;
  d.in.latency = uint16_t(cost.latency);
  d.in.special = cost.special;
  d.in.divides = d.st.name == "div" && d.in.type == Type::f32 && !d.has("approx") && !d.has("full");
}

}  // namespace ptx
