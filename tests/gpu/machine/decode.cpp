// Operands of instructions, and the families of instructions in turn.
#include "decode.h"

#include <algorithm>

namespace ptx {

bool Decoder::has(const std::string& part) const {
  return std::find(st.parts.begin(), st.parts.end(), part) != st.parts.end();
}

Type Decoder::type(int from_end) const {
  for (auto part = st.parts.rbegin(); part != st.parts.rend(); ++part) {
    const Type found = type_named(*part);
    if (found != Type::none && from_end-- == 0) return found;
  }
  return Type::none;
}

void Decoder::refuse(const std::string& why) const {
  throw Error("text", function.name + ", line " + std::to_string(st.line) + ": " + why + ": " + st.text);
}

const Register* Decoder::find_register(const std::string& name) const {
  for (Scope* at = scope.get(); at != nullptr; at = at->outer.get()) {
    auto used = at->registers.find(name);
    if (used != at->registers.end()) return &used->second;
    Type type = Type::none;
    if (auto exact = at->names.find(name); exact != at->names.end()) {
      type = exact->second;
    } else {
      auto family = at->families.find(name.substr(0, name.find_last_not_of("0123456789") + 1));
      if (family != at->families.end()) type = family->second;
    }
    if (type == Type::none) continue;
    const uint32_t size = type == Type::pred ? 4 : uint32_t(std::max(2, bytes_of(type))) * kLanes;
    const uint32_t align = std::min(size, 64u), slot = (function.register_bytes + align - 1) / align * align;
    function.register_bytes = slot + size;
    return &at->registers.emplace(name, Register{slot, function.registers++, type}).first->second;
  }
  return nullptr;
}

const Register& Decoder::reg(const std::string& name) const {
  const Register* found = find_register(name);
  if (found == nullptr) refuse("there is no register " + name);
  return *found;
}

namespace {
int width(Type type) { return type == Type::pred ? 4 : std::max(2, bytes_of(type)); }
}  // namespace

int Decoder::result(const std::string& name, int bytes) {
  if (in.nd >= 8) refuse("too many results");
  if (name == "_") {  // a register for what nobody reads
    const std::string sink = "_" + std::to_string(bytes ? bytes : 8);
    Scope* outermost = scope.get();
    while (outermost->outer) outermost = outermost->outer.get();
    outermost->names[sink] = bytes == 2 ? Type::b16 : bytes == 4 ? Type::b32 : bytes == 16 ? Type::b128 : Type::b64;
    return result(sink, bytes);
  }
  const Register& r = reg(name);
  if (bytes && width(r.type) != bytes) refuse(name + " has " + std::to_string(width(r.type)) + " bytes");
  in.d[in.nd] = r.slot;
  in.di[in.nd++] = r.index;
  return width(r.type);
}

uint32_t Decoder::constant(uint64_t value, int bytes) {
  auto [found, fresh] = constants.emplace(std::make_pair(value, bytes), 0);
  if (fresh) {
    auto& words = function.constants;
    while (words.size() % 8) words.push_back(0);
    found->second = kConstant | uint32_t(words.size() * 8);
    if (bytes == 16) {
      for (int lane = 0; lane < kLanes; ++lane) {
        words.push_back(value);
        words.push_back(0);
      }
    } else {
      const uint64_t word = bytes == 8   ? value
                            : bytes == 4 ? (value & 0xFFFFFFFF) * 0x100000001
                                         : (value & 0xFFFF) * 0x1000100010001;
      words.insert(words.end(), size_t(kLanes * bytes / 8), word);
    }
  }
  return found->second;
}

bool Decoder::variable(const std::string& name, uint64_t* value) const {
  for (const Parameter& input : function.inputs)
    if (input.name == name) {
      *value = input.offset;
      return true;
    }
  auto found = module.addresses.find(name);
  if (found == module.addresses.end()) found = module.addresses.find(function.name + "/" + name);
  if (found != module.addresses.end()) {
    *value = found->second;
    return true;
  }
  auto called = module.functions.find(name);
  if (called == module.functions.end()) return false;
  *value = uint64_t(called->second->number);
  return true;
}

int Decoder::operand(const std::string& text, Type type, bool any_width) {
  if (in.ns >= 10) refuse("too many operands");
  const int bytes = width(type);
  uint64_t value;
  if (parse_number(text, type, &value) || variable(text, &value)) {
    if (type == Type::pred) value = value ? ~uint64_t{0} : 0;
    in.s[in.ns++] = constant(value, bytes);
    return bytes;
  }
  const Register& r = reg(text);
  if (!any_width && width(r.type) != bytes) refuse(text + " has " + std::to_string(width(r.type)) + " bytes");
  in.s[in.ns] = r.slot;
  in.si[in.ns++] = r.index;
  return width(r.type);
}

int Decoder::operand(const RawOperand& raw, Type type, bool any_width) {
  if (raw.kind == RawOperand::list || raw.kind == RawOperand::address) refuse("an operand of another kind is expected");
  if (raw.offset) {
    uint64_t value;
    if (!variable(raw.text, &value)) refuse("there is no variable " + raw.text);
    in.s[in.ns++] = constant(value + uint64_t(raw.offset), width(type));
    return width(type);
  }
  return operand(raw.text, type, any_width);
}

void Decoder::address(const RawOperand& raw, Space space) {
  if (raw.kind != RawOperand::address) refuse("an address is expected");
  in.space = space;
  in.offset = raw.offset;
  if (space == Space::param) {
    for (Scope* at = scope.get(); at != nullptr; at = at->outer.get()) {
      auto found = at->params.find(raw.text);
      if (found == at->params.end()) continue;
      in.space = Space::frame;
      in.offset += found->second;
      in.s[in.ns++] = constant(0, 8);
      return;
    }
    if (!function.entry) in.space = Space::frame;
  }
  if (raw.text.empty()) {
    in.s[in.ns++] = constant(0, 8);
    return;
  }
  if (const Register* r = find_register(raw.text); r != nullptr && width(r->type) == 4) {
    in.width[1] = 4;
    operand(raw.text, Type::b32);
    return;
  }
  if (module.locals.count(function.name + "/" + raw.text)) in.space = Space::frame;
  operand(raw.text, Type::b64);
}

const RawOperand& Decoder::op(size_t k) const {
  if (k >= st.operands.size()) refuse("operands are missing");
  return st.operands[k];
}

void Decoder::count(size_t least, size_t most) const {
  if (st.operands.size() < least || st.operands.size() > most) refuse("a wrong number of operands");
}

Rounding Decoder::rounding() const {
  for (const std::string& part : st.parts) {
    if (part == "rn" || part == "rni") return kNearest;
    if (part == "rz" || part == "rzi") return kZero;
    if (part == "rm" || part == "rmi") return kDown;
    if (part == "rp" || part == "rpi") return kUp;
    if (part == "rna") return kAway;
  }
  return kNearest;
}

void decode(Decoder& d) {
  d.in.line = d.st.line;
  d.in.text = d.st.text;
  d.in.ftz = d.has("ftz");
  d.in.sat = d.has("sat");
  d.in.rounding = d.rounding();
  if (!d.st.guard.empty()) {
    const Register& r = d.reg(d.st.guard);
    d.in.guard = r.slot + 1;  // so that 0 is none
    d.in.guard_index = r.index;
    d.in.negated = d.st.negated;
  }
  using Family = bool (*)(Decoder&);
  for (Family family : {decode_float, decode_half, decode_integer, decode_bits, decode_convert, decode_compare, decode_move,
                        decode_memory, decode_atomic, decode_warp, decode_async, decode_tensor, decode_control})
    if (family(d)) {
      if (d.in.run == nullptr) d.refuse("the machine has no such form");
      set_cost(d);
      return;
    }
  d.refuse("the machine has no such instruction");
}

}  // namespace ptx
