// Loads and stores of all spaces, alone and in vectors.
#include "access.h"
#include "decode.h"
#include "launch.h"
#include "warp.h"

namespace ptx {

namespace {

uint64_t read(const char* at, int bytes, bool is_signed) {
  switch (bytes) {
    case 1: { uint8_t x; memcpy(&x, at, 1); return is_signed ? uint64_t(int64_t(int8_t(x))) : x; }
    case 2: { uint16_t x; memcpy(&x, at, 2); return is_signed ? uint64_t(int64_t(int16_t(x))) : x; }
    case 4: { uint32_t x; memcpy(&x, at, 4); return is_signed ? uint64_t(int64_t(int32_t(x))) : x; }
    default: { uint64_t x; memcpy(&x, at, 8); return x; }
  }
}

void load(Warp& w, const Instruction& in) {
  Access access;
  const int bytes = bytes_of(in.type);
  reach(w, in, uint32_t(bytes) * in.vector, Kind::read, access);
  const bool is_signed = in.type == Type::s8 || in.type == Type::s16 || in.type == Type::s32;
  for (int k = 0; k < in.vector; ++k) {
    uint32_t known = ~0u;
    for (uint32_t rest = access.missing; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      if (!is_defined(w, access, l, uint32_t(bytes * k), uint32_t(bytes))) known &= ~(1u << l);
    }
    w.define(in.di[k], known);
    if (bytes == 4 && in.width[0] == 4) {
      uint32_t* d = w.dst<uint32_t>(in.d[k]);
      for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        const int l = __builtin_ctz(rest);
        memcpy(&d[l], access.at[l] + 4 * k, 4);
      }
      continue;
    }
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      set_lane(w, in.d[k], in.width[0], l, read(access.at[l] + bytes * k, bytes, is_signed));
    }
  }
  if (in.strong) w.yields = true;
}

void store(Warp& w, const Instruction& in) {
  Access access;
  const int bytes = bytes_of(in.type);
  reach(w, in, uint32_t(bytes) * in.vector, Kind::write, access);
  const bool tracked = w.launch->checks(kUninitialised);
  for (int k = 0; k < in.vector; ++k)
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      const uint64_t value = lane_value(w, in.s[k + 1], in.width[0], l);
      memcpy(access.at[l] + bytes * k, &value, size_t(bytes));
      if (tracked && !(w.written[in.si[k + 1]] >> l & 1)) undefine(w, access, l, uint32_t(bytes * k), uint32_t(bytes));
    }
}

// Of the parameters of a kernel: the same for all lanes.
void load_param(Warp& w, const Instruction& in) {
  const int bytes = bytes_of(in.type);
  const auto& params = w.launch->params;
  const uint64_t at = w.src<uint64_t>(in.s[0])[w.first_lane()] + uint64_t(in.offset);
  if (at + uint64_t(bytes) * in.vector > params.size()) w.fault("out of bounds", "a parameter that the kernel does not have");
  const bool is_signed = in.type == Type::s8 || in.type == Type::s16 || in.type == Type::s32;
  for (int k = 0; k < in.vector; ++k) {
    const uint64_t value = read(params.data() + at + uint64_t(bytes * k), bytes, is_signed);
    w.define(in.di[k], ~0u);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) set_lane(w, in.d[k], in.width[0], __builtin_ctz(rest), value);
  }
}

Space space_of(const Decoder& d) {
  for (const std::string& part : d.st.parts) {
    if (part == "global") return Space::global;
    if (part == "shared" || part == "shared::cta") return Space::shared;
    if (part == "local") return Space::local;
    if (part == "const") return Space::constant;
    if (part == "param" || part == "param::entry" || part == "param::func") return Space::param;
  }
  return Space::generic;
}

}  // namespace

bool decode_memory(Decoder& d) {
  const std::string& name = d.st.name;
  if (name != "ld" && name != "st" && name != "ldu") return false;
  Instruction& in = d.in;
  in.type = d.type();
  in.pipe = Pipe::memory;
  in.vector = d.has("v2") ? 2 : d.has("v4") ? 4 : d.has("v8") ? 8 : 1;
  in.strong = d.has("volatile") || d.has("relaxed") || d.has("acquire") || d.has("release") || d.has("mmio");
  in.acquire = d.has("acquire");
  in.release = d.has("release");
  d.count(2, 3);
  const bool loads = name != "st";
  d.address(d.op(loads ? 1 : 0), space_of(d));
  const RawOperand& data = d.op(loads ? 0 : 1);
  std::vector<std::string> parts = data.kind == RawOperand::list ? data.parts : std::vector<std::string>{data.text};
  if (parts.size() != in.vector) d.refuse("a wrong number of elements");
  if (in.type == Type::b128 || bytes_of(in.type) * in.vector > 32) return false;
  for (const std::string& part : parts) {
    const int width = loads ? d.result(part, 0) : d.operand(part, in.type, true);
    if (width < bytes_of(in.type)) d.refuse(part + " is too narrow");
    if (in.width[0] && in.width[0] != width) d.refuse("the elements have different widths");
    in.width[0] = uint8_t(width);
  }
  in.masks = loads;
  in.run = !loads ? Run(store) : in.space == Space::param ? Run(load_param) : Run(load);
  return true;
}

}  // namespace ptx
