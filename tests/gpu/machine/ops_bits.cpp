// Bits: logic, shifts, counts, fields, permutations.
#include <algorithm>

#include "decode.h"
#include "warp.h"

namespace ptx {

namespace {

struct And { template <class T> T operator()(T a, T b) { return a & b; } };
struct Or { template <class T> T operator()(T a, T b) { return a | b; } };
struct Xor { template <class T> T operator()(T a, T b) { return a ^ b; } };
struct Not { template <class T> T operator()(T a) { return T(~a); } };
struct Cnot { template <class T> T operator()(T a) { return a == 0; } };
struct Brev {
  template <class T> T operator()(T a) {
    T r = 0;
    for (size_t k = 0; k < 8 * sizeof(T); ++k) r = T(r << 1 | (a >> k & 1));
    return r;
  }
};

template <class T>
void shift_left(Warp& w, const Instruction& in) {
  const T* a = w.src<T>(in.s[0]);
  const uint32_t* b = w.src<uint32_t>(in.s[1]);
  fill<T>(w, in.d[0], [=](int l) { return b[l] < 8 * sizeof(T) ? T(a[l] << (b[l] & 63)) : T(0); });
}
template <class T>
void shift_right(Warp& w, const Instruction& in) {  // of a signed T: the sign stays
  const T* a = w.src<T>(in.s[0]);
  const uint32_t* b = w.src<uint32_t>(in.s[1]);
  constexpr uint32_t most = 8 * sizeof(T);
  fill<T>(w, in.d[0], [=](int l) {
    if (b[l] < most) return T(a[l] >> (b[l] & 63));
    return a[l] < 0 ? T(-1) : T(0);
  });
}

template <class T>
void popc(Warp& w, const Instruction& in) {
  const T* a = w.src<T>(in.s[0]);
  fill<uint32_t>(w, in.d[0], [=](int l) { return uint32_t(__builtin_popcountll(a[l])); });
}
template <class T>
void clz(Warp& w, const Instruction& in) {
  const T* a = w.src<T>(in.s[0]);
  fill<uint32_t>(w, in.d[0], [=](int l) {
    return a[l] ? uint32_t(__builtin_clzll(a[l])) - (64 - 8 * uint32_t(sizeof(T))) : 8 * uint32_t(sizeof(T));
  });
}
template <class T, bool Signed>
void bfind(Warp& w, const Instruction& in) {  // mode: the amount of the shift that brings the bit to the top
  const T* a = w.src<T>(in.s[0]);
  fill<uint32_t>(w, in.d[0], [=](int l) {
    T x = a[l];
    if (Signed && (x >> (8 * sizeof(T) - 1) & 1)) x = T(~x);
    if (x == 0) return ~0u;
    const uint32_t at = 63 - uint32_t(__builtin_clzll(x));
    return in.mode ? 8 * uint32_t(sizeof(T)) - 1 - at : at;
  });
}
template <class T, bool Signed>
void bfe(Warp& w, const Instruction& in) {
  const T* a = w.src<T>(in.s[0]);
  const uint32_t *b = w.src<uint32_t>(in.s[1]), *c = w.src<uint32_t>(in.s[2]);
  constexpr uint32_t top = 8 * sizeof(T) - 1;
  fill<T>(w, in.d[0], [=](int l) {
    const uint32_t at = b[l] & 0xFF, length = c[l] & 0xFF;
    const bool sign = Signed && length && (a[l] >> std::min(at + length - 1, top) & 1);
    T r = 0;
    for (uint32_t k = 0; k <= top; ++k) {
      const bool bit = k < length && at + k <= top ? (a[l] >> (at + k) & 1) : sign;
      r |= T(T(bit) << k);
    }
    return r;
  });
}
template <class T>
void bfi(Warp& w, const Instruction& in) {
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]);
  const uint32_t *c = w.src<uint32_t>(in.s[2]), *n = w.src<uint32_t>(in.s[3]);
  fill<T>(w, in.d[0], [=](int l) {
    const uint32_t at = c[l] & 0xFF, length = n[l] & 0xFF;
    T r = b[l];
    for (uint32_t k = 0; k < length && at + k < 8 * sizeof(T); ++k)
      r = T((r & ~(T(1) << (at + k))) | (T(a[l] >> k & 1) << (at + k)));
    return r;
  });
}
void funnel(Warp& w, const Instruction& in) {  // mode: 1: to the right, 2: clamped
  const uint32_t *a = w.src<uint32_t>(in.s[0]), *b = w.src<uint32_t>(in.s[1]), *c = w.src<uint32_t>(in.s[2]);
  fill<uint32_t>(w, in.d[0], [=](int l) {
    const uint32_t n = in.mode & 2 ? std::min(c[l], 32u) : c[l] & 31;
    const uint64_t both = uint64_t(b[l]) << 32 | a[l];
    return in.mode & 1 ? uint32_t(both >> n) : uint32_t((both << n) >> 32);
  });
}
void prmt(Warp& w, const Instruction& in) {
  const uint32_t *a = w.src<uint32_t>(in.s[0]), *b = w.src<uint32_t>(in.s[1]), *c = w.src<uint32_t>(in.s[2]);
  fill<uint32_t>(w, in.d[0], [=](int l) {
    const uint64_t both = uint64_t(b[l]) << 32 | a[l];
    uint32_t r = 0;
    const uint32_t n = c[l] & 3;
    for (uint32_t k = 0; k < 4; ++k) {
      uint32_t from = c[l] >> (4 * k) & 15;
      switch (in.mode) {
        case 1: from = n + k; break;                       // f4e
        case 2: from = (n + 8 - k) & 7; break;             // b4e
        case 3: from = n; break;                           // rc8
        case 4: from = std::max(n, k); break;              // ecl
        case 5: from = std::min(n, k); break;              // ecr
        case 6: from = (n & 1) * 2 + (k & 1); break;       // rc16
        default: break;
      }
      uint8_t byte = uint8_t(both >> (8 * (from & 7)));
      if (from & 8) byte = byte & 0x80 ? 0xFF : 0;
      r |= uint32_t(byte) << (8 * k);
    }
    return r;
  });
}
void lop3(Warp& w, const Instruction& in) {
  const uint32_t *a = w.src<uint32_t>(in.s[0]), *b = w.src<uint32_t>(in.s[1]), *c = w.src<uint32_t>(in.s[2]);
  const uint32_t table = in.extra;
  fill<uint32_t>(w, in.d[0], [=](int l) {
    uint32_t r = 0;
    for (uint32_t k = 0; k < 8; ++k)
      if (table >> k & 1) r |= (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
    return r;
  });
}

// Predicates are masks of lanes.
template <class Op>
void logic_of_predicates(Warp& w, const Instruction& in) {
  w.set_pred(in.d[0], Op()(w.pred(in.s[0]), w.pred(in.s[1])));
}
void not_of_predicate(Warp& w, const Instruction& in) { w.set_pred(in.d[0], ~w.pred(in.s[0])); }

template <class Op>
Run logic(int bytes) {
  return bytes == 2 ? Run(binary<uint16_t, Op>) : bytes == 4 ? Run(binary<uint32_t, Op>) : binary<uint64_t, Op>;
}

bool decode_logic(Decoder& d) {
  const std::string& name = d.st.name;
  const int bytes = bytes_of(d.in.type);
  const bool one = name == "not" || name == "cnot";
  d.count(one ? 2 : 3, one ? 2 : 3);
  d.result(d.op(0).text, bytes);
  for (size_t k = 1; k < (one ? 2 : 3); ++k) d.operand(d.op(k), d.in.type);
  if (d.in.type == Type::pred) {
    d.in.run = name == "and"  ? logic_of_predicates<And>
               : name == "or"  ? logic_of_predicates<Or>
               : name == "xor" ? logic_of_predicates<Xor>
               : name == "not" ? not_of_predicate
                               : Run(nullptr);
  } else if (name == "not") {
    d.in.run = bytes == 2 ? Run(unary<uint16_t, Not>) : bytes == 4 ? Run(unary<uint32_t, Not>) : unary<uint64_t, Not>;
  } else if (name == "cnot") {
    d.in.run = bytes == 2 ? Run(unary<uint16_t, Cnot>) : bytes == 4 ? Run(unary<uint32_t, Cnot>) : unary<uint64_t, Cnot>;
  } else {
    d.in.run = name == "and" ? logic<And>(bytes) : name == "or" ? logic<Or>(bytes) : logic<Xor>(bytes);
  }
  return true;
}

bool decode_shift(Decoder& d) {
  const int bytes = bytes_of(d.in.type);
  d.count(3, 3);
  d.result(d.op(0).text, bytes);
  d.operand(d.op(1), d.in.type);
  d.operand(d.op(2), Type::u32);
  if (d.st.name == "shl") {
    d.in.run = bytes == 2   ? Run(shift_left<uint16_t>)
               : bytes == 4 ? Run(shift_left<uint32_t>)
                            : shift_left<uint64_t>;
    return true;
  }
  switch (d.in.type) {
    case Type::s16: d.in.run = shift_right<int16_t>; break;
    case Type::s32: d.in.run = shift_right<int32_t>; break;
    case Type::s64: d.in.run = shift_right<int64_t>; break;
    case Type::u16: case Type::b16: d.in.run = shift_right<uint16_t>; break;
    case Type::u32: case Type::b32: d.in.run = shift_right<uint32_t>; break;
    default: d.in.run = shift_right<uint64_t>;
  }
  return true;
}

bool decode_counts(Decoder& d) {
  const std::string& name = d.st.name;
  const bool wide = bytes_of(d.in.type) == 8, is_signed = d.in.type == Type::s32 || d.in.type == Type::s64;
  d.count(2, 2);
  d.result(d.op(0).text, name == "brev" ? bytes_of(d.in.type) : 4);
  d.operand(d.op(1), d.in.type);
  if (name == "popc") d.in.run = wide ? popc<uint64_t> : popc<uint32_t>;
  if (name == "clz") d.in.run = wide ? clz<uint64_t> : clz<uint32_t>;
  if (name == "brev") d.in.run = wide ? unary<uint64_t, Brev> : unary<uint32_t, Brev>;
  if (name == "bfind") {
    d.in.mode = d.has("shiftamt");
    d.in.run = is_signed ? (wide ? bfind<uint64_t, true> : bfind<uint32_t, true>)
                         : (wide ? bfind<uint64_t, false> : bfind<uint32_t, false>);
  }
  return true;
}

bool decode_fields(Decoder& d) {
  const bool wide = bytes_of(d.in.type) == 8, is_signed = d.in.type == Type::s32 || d.in.type == Type::s64;
  const bool inserts = d.st.name == "bfi";
  d.count(inserts ? 5 : 4, inserts ? 5 : 4);
  d.result(d.op(0).text, bytes_of(d.in.type));
  d.operand(d.op(1), d.in.type);
  d.operand(d.op(2), inserts ? d.in.type : Type::u32);
  d.operand(d.op(3), Type::u32);
  if (inserts) d.operand(d.op(4), Type::u32);
  if (inserts) {
    d.in.run = wide ? bfi<uint64_t> : bfi<uint32_t>;
  } else {
    d.in.run = is_signed ? (wide ? bfe<uint64_t, true> : bfe<uint32_t, true>)
                         : (wide ? bfe<uint64_t, false> : bfe<uint32_t, false>);
  }
  return true;
}

}  // namespace

bool decode_bits(Decoder& d) {
  const std::string& name = d.st.name;
  d.in.type = d.type();
  if (name == "and" || name == "or" || name == "xor" || name == "not" || name == "cnot") return decode_logic(d);
  if (name == "shl" || name == "shr") return decode_shift(d);
  if (name == "popc" || name == "clz" || name == "brev" || name == "bfind") return decode_counts(d);
  if (name == "bfe" || name == "bfi") return decode_fields(d);
  if (name != "shf" && name != "prmt" && name != "lop3") return false;
  d.count(4, 5);
  d.result(d.op(0).text, 4);
  for (size_t k = 1; k < 4; ++k) d.operand(d.op(k), Type::b32);
  if (name == "shf") {
    d.in.mode = uint8_t((d.has("r") ? 1 : 0) | (d.has("clamp") ? 2 : 0));
    d.in.run = funnel;
  } else if (name == "prmt") {
    const char* modes[] = {"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
    for (uint8_t k = 1; k < 7; ++k)
      if (d.has(modes[k])) d.in.mode = k;
    d.in.run = prmt;
  } else {
    uint64_t table;
    if (!parse_number(d.op(4).text, Type::u32, &table)) d.refuse("a number is expected as the table of lop3");
    d.in.extra = uint32_t(table);
    d.in.run = lop3;
  }
  return true;
}

}  // namespace ptx
