// setp, set, selp and slct.
#include "decode.h"
#include "warp.h"

namespace ptx {

namespace {

enum Comparison : uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan_, none };

Comparison comparison(const std::vector<std::string>& parts, size_t* at) {
  static const std::map<std::string, Comparison> names = {
      {"eq", eq}, {"ne", ne}, {"lt", lt}, {"le", le}, {"gt", gt}, {"ge", ge}, {"lo", lt}, {"ls", le},
      {"hi", gt}, {"hs", ge}, {"equ", equ}, {"neu", neu}, {"ltu", ltu}, {"leu", leu}, {"gtu", gtu}, {"geu", geu},
      {"num", num}, {"nan", nan_}};
  for (*at = 0; *at < parts.size(); ++*at)
    if (auto found = names.find(parts[*at]); found != names.end()) return found->second;
  return none;
}

template <class T, class C>
uint32_t compare_as(const Warp& w, const Instruction& in, C value) {
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]);
  switch (in.mode & 15) {
    case eq: return gather_mask(w, [=](int l) { return value(a[l]) == value(b[l]); });
    case ne: return gather_mask(w, [=](int l) { return value(a[l]) < value(b[l]) || value(a[l]) > value(b[l]); });
    case lt: return gather_mask(w, [=](int l) { return value(a[l]) < value(b[l]); });
    case le: return gather_mask(w, [=](int l) { return value(a[l]) <= value(b[l]); });
    case gt: return gather_mask(w, [=](int l) { return value(a[l]) > value(b[l]); });
    case ge: return gather_mask(w, [=](int l) { return value(a[l]) >= value(b[l]); });
    case equ: return gather_mask(w, [=](int l) { return !(value(a[l]) < value(b[l]) || value(a[l]) > value(b[l])); });
    case neu: return gather_mask(w, [=](int l) { return !(value(a[l]) == value(b[l])); });
    case ltu: return gather_mask(w, [=](int l) { return !(value(a[l]) >= value(b[l])); });
    case leu: return gather_mask(w, [=](int l) { return !(value(a[l]) > value(b[l])); });
    case gtu: return gather_mask(w, [=](int l) { return !(value(a[l]) <= value(b[l])); });
    case geu: return gather_mask(w, [=](int l) { return !(value(a[l]) < value(b[l])); });
    case num: return gather_mask(w, [=](int l) { return value(a[l]) == value(a[l]) && value(b[l]) == value(b[l]); });
    default: return gather_mask(w, [=](int l) { return value(a[l]) != value(a[l]) || value(b[l]) != value(b[l]); });
  }
}
template <class T>
uint32_t compare(const Warp& w, const Instruction& in) {
  return compare_as<T>(w, in, [](T x) { return x; });
}
inline float flush(float x) { return std::fabs(x) < 0x1p-126f ? 0.0f : x; }
uint32_t compare_flushed(const Warp& w, const Instruction& in) { return compare_as<float>(w, in, flush); }
uint32_t compare_half(const Warp& w, const Instruction& in) { return compare_as<uint16_t>(w, in, half_value); }
uint32_t compare_bfloat(const Warp& w, const Instruction& in) { return compare_as<uint16_t>(w, in, bfloat_value); }

using Compare = uint32_t (*)(const Warp&, const Instruction&);

// The result with the second predicate: mode >> 4 is 1 for and, 2 for or, 3 for xor.
uint32_t combined(const Warp& w, const Instruction& in, uint32_t result) {
  if (!(in.mode >> 4)) return result;
  uint32_t other = w.pred(in.s[2]);
  if (in.extra) other = ~other;
  return in.mode >> 4 == 1 ? result & other : in.mode >> 4 == 2 ? result | other : result ^ other;
}

template <Compare C>
void setp(Warp& w, const Instruction& in) {
  const uint32_t result = C(w, in);
  w.set_pred(in.d[0], combined(w, in, result));
  if (in.nd > 1) w.set_pred(in.d[1], combined(w, in, ~result));
}
template <Compare C>
void set(Warp& w, const Instruction& in) {
  const uint32_t result = combined(w, in, C(w, in));
  const uint64_t yes = in.vector == 4 ? 0x3F800000 : ~uint64_t{0};  // 1.0 or -1
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    set_lane(w, in.d[0], in.width[0], l, result >> l & 1 ? yes : 0);
  }
}

template <float (*Value)(uint16_t)>
void setp_pair(Warp& w, const Instruction& in) {
  const uint32_t *a = w.src<uint32_t>(in.s[0]), *b = w.src<uint32_t>(in.s[1]);
  uint32_t result[2] = {};
  for (uint32_t rest = w.active; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    for (int k = 0; k < 2; ++k) {
      const float x = Value(uint16_t(a[l] >> (16 * k))), y = Value(uint16_t(b[l] >> (16 * k)));
      const bool apart = x != x || y != y;
      bool r = false;
      switch (in.mode & 15) {
        case eq: r = x == y; break;
        case ne: r = !apart && x != y; break;
        case lt: r = x < y; break;
        case le: r = x <= y; break;
        case gt: r = x > y; break;
        case ge: r = x >= y; break;
        case equ: r = apart || x == y; break;
        case neu: r = x != y; break;
        case ltu: r = !(x >= y); break;
        case leu: r = !(x > y); break;
        case gtu: r = !(x <= y); break;
        case geu: r = !(x < y); break;
        case num: r = !apart; break;
        default: r = apart;
      }
      result[k] |= uint32_t(r) << l;
    }
  }
  w.set_pred(in.d[0], combined(w, in, result[0]));
  w.set_pred(in.d[1], combined(w, in, result[1]));
}

template <class T>
void selp(Warp& w, const Instruction& in) {
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]);
  const uint32_t p = w.pred(in.s[2]);
  const uint32_t chosen = (p & w.written[in.si[0]]) | (~p & w.written[in.si[1]]);
  w.define(in.di[0], chosen & w.written[in.si[2]]);
  fill<T>(w, in.d[0], [=](int l) { return p >> l & 1 ? a[l] : b[l]; });
}
template <class T, class C>
void slct(Warp& w, const Instruction& in) {
  const T *a = w.src<T>(in.s[0]), *b = w.src<T>(in.s[1]);
  const C* c = w.src<C>(in.s[2]);
  fill<T>(w, in.d[0], [=](int l) { return c[l] >= 0 ? a[l] : b[l]; });
}

template <template <Compare> class H>
Run by_type(Type type, bool ftz) {
  switch (type) {
    case Type::b16: case Type::u16: return H<compare<uint16_t>>::run;
    case Type::s16: return H<compare<int16_t>>::run;
    case Type::b32: case Type::u32: return H<compare<uint32_t>>::run;
    case Type::s32: return H<compare<int32_t>>::run;
    case Type::b64: case Type::u64: return H<compare<uint64_t>>::run;
    case Type::s64: return H<compare<int64_t>>::run;
    case Type::f32: return ftz ? H<compare_flushed>::run : H<compare<float>>::run;
    case Type::f64: return H<compare<double>>::run;
    case Type::f16: return H<compare_half>::run;
    case Type::bf16: return H<compare_bfloat>::run;
    default: return nullptr;
  }
}
template <Compare C> struct Setp { static constexpr Run run = setp<C>; };
template <Compare C> struct Set { static constexpr Run run = set<C>; };

bool decode_setp(Decoder& d) {
  Instruction& in = d.in;
  const bool sets = d.st.name == "set";
  in.type = d.type();
  size_t at;
  const Comparison found = comparison(d.st.parts, &at);
  if (found == none) d.refuse("no comparison is named");
  d.count(3, 4);
  in.mode = found;
  if (d.st.operands.size() == 4) in.mode |= d.has("and") ? 16 : d.has("or") ? 32 : 48;
  const RawOperand& to = d.op(0);
  if (sets) {
    in.width[0] = uint8_t(d.result(to.text, 0));
    in.vector = d.type(1) == Type::f32 ? 4 : 1;
  } else {
    d.result(to.kind == RawOperand::pair ? to.parts[0] : to.text, 4);
    if (to.kind == RawOperand::pair) d.result(to.parts[1], 4);
  }
  d.operand(d.op(1), in.type);
  d.operand(d.op(2), in.type);
  if (d.st.operands.size() == 4) {
    d.operand(d.op(3), Type::pred);
    in.extra = d.op(3).negated;
  }
  if (!sets && (in.type == Type::f16x2 || in.type == Type::bf16x2)) {
    if (in.nd < 2) d.refuse("two results are expected");
    in.run = in.type == Type::f16x2 ? setp_pair<half_value> : setp_pair<bfloat_value>;
    return true;
  }
  in.run = sets ? by_type<Set>(in.type, in.ftz) : by_type<Setp>(in.type, in.ftz);
  return true;
}

}  // namespace

bool decode_compare(Decoder& d) {
  const std::string& name = d.st.name;
  if (name == "setp" || name == "set") return decode_setp(d);
  if (name != "selp" && name != "slct") return false;
  Instruction& in = d.in;
  const bool by_sign = name == "slct";
  in.type = d.type(by_sign ? 1 : 0);
  const int bytes = bytes_of(in.type);
  d.count(4, 4);
  d.result(d.op(0).text, bytes);
  d.operand(d.op(1), in.type);
  d.operand(d.op(2), in.type);
  d.operand(d.op(3), by_sign ? d.type() : Type::pred);
  in.masks = !by_sign;
  if (by_sign) {
    const bool real = d.type() == Type::f32;
    in.run = bytes == 2   ? (real ? Run(slct<uint16_t, float>) : slct<uint16_t, int32_t>)
             : bytes == 4 ? (real ? Run(slct<uint32_t, float>) : slct<uint32_t, int32_t>)
                          : (real ? Run(slct<uint64_t, float>) : slct<uint64_t, int32_t>);
  } else {
    in.run = bytes == 2 ? Run(selp<uint16_t>) : bytes == 4 ? Run(selp<uint32_t>) : selp<uint64_t>;
  }
  return true;
}

}  // namespace ptx
