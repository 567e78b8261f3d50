// Tensor cores: matrices that a warp loads from shared memory, and products of matrices that it holds.
//
// An element of mma is the exact sum of its products and of what it is added to, in float64, rounded once: the
// hardware does not say in which order it adds, nor how it rounds within.
#include "access.h"
#include "decode.h"
#include "halves.h"
#include "launch.h"
#include "warp.h"

namespace ptx {

namespace {

void whole_warp(const Warp& w) {
  if (w.active != ~0u) w.fault("divergent", "all lanes of a warp take part in it", w.first_lane());
}

// vector: matrices of 8 rows of 16 bytes; a lane has two neighbours of a row, or of a column (mode).
void load_matrices(Warp& w, const Instruction& in) {
  whole_warp(w);
  Access access;
  const int rows = 8 * in.vector;
  w.active = rows == kLanes ? ~0u : (1u << rows) - 1;
  reach(w, in, 16, Kind::read, access);
  w.active = ~0u;
  for (int k = 0; k < in.vector; ++k) {
    uint32_t known = 0;
    fill<uint32_t>(w, in.d[k], [&](int l) {
      uint16_t pair[2];
      for (int e = 0; e < 2; ++e) {
        const int row = 8 * k + (in.mode ? 2 * (l % 4) + e : l / 4), column = in.mode ? l / 4 : 2 * (l % 4) + e;
        memcpy(&pair[e], access.at[row] + 2 * column, 2);
      }
      return pair[0] | uint32_t{pair[1]} << 16;
    });
    for (int l = 0; l < kLanes; ++l) {
      bool good = true;
      for (int e = 0; e < 2; ++e) {
        const int row = 8 * k + (in.mode ? 2 * (l % 4) + e : l / 4), column = in.mode ? l / 4 : 2 * (l % 4) + e;
        good = good && (!(access.missing >> row & 1) || is_defined(w, access, row, uint32_t(2 * column), 2));
      }
      known |= uint32_t(good) << l;
    }
    w.define(in.di[k], known);
  }
}

double value_of(uint32_t word, int half, Type type) {
  if (type == Type::tf32) return double(as_float(word & 0xFFFFE000u));  // of the rest nothing is read
  const uint16_t x = uint16_t(word >> (16 * half));
  return type == Type::bf16 ? double(bfloat_value(x)) : double(half_value(x));
}

// d[16, 8] = a[16, k] b[k, 8] + c: k is 16 halves or 8 of tf32; s: 4 words of a, 2 of b, 4 of c.
void multiply(Warp& w, const Instruction& in) {
  whole_warp(w);
  const int per = in.from == Type::tf32 ? 1 : 2, half = 4 * per;
  double a[16][16], b[8][16];
  for (int l = 0; l < kLanes; ++l)
    for (int e = 0; e < per; ++e) {
      const int k = per * (l % 4) + e;
      for (int q = 0; q < 4; ++q) a[l / 4 + 8 * (q % 2)][k + half * (q / 2)] = value_of(w.src<uint32_t>(in.s[q])[l], e, in.from);
      for (int q = 0; q < 2; ++q) b[l / 4][k + half * q] = value_of(w.src<uint32_t>(in.s[4 + q])[l], e, in.from);
    }
  float result[4][kLanes];
  for (int q = 0; q < 4; ++q)
    for (int l = 0; l < kLanes; ++l) {
      double sum = double(w.src<float>(in.s[6 + q])[l]);
      const double *row = a[l / 4 + 8 * (q / 2)], *column = b[2 * (l % 4) + q % 2];
      for (int k = 0; k < 2 * half; ++k) sum += row[k] * column[k];
      result[q][l] = float(sum);
    }
  bool known = true;
  if (w.launch->checks(kUninitialised))
    for (int k = 0; k < in.ns; ++k) known = known && w.written[in.si[k]] == ~0u;
  for (int q = 0; q < 4; ++q) {
    fill<float>(w, in.d[q], [&](int l) { return std::isnan(result[q][l]) ? as_float(0x7FFFFFFF) : result[q][l]; });
    w.define(in.di[q], known ? ~0u : 0);
  }
}

}  // namespace

bool decode_tensor(Decoder& d) {
  Instruction& in = d.in;
  if (d.st.name == "ldmatrix") {
    d.count(2, 2);
    if (!d.has("m8n8") || !d.has("b16")) return false;
    in.type = Type::b32;
    in.vector = d.has("x4") ? 4 : d.has("x2") ? 2 : 1;
    in.mode = d.has("trans");
    in.pipe = Pipe::memory;
    d.address(d.op(1), Space::shared);
    if (d.op(0).parts.size() != in.vector) d.refuse("a wrong number of matrices");
    for (const std::string& part : d.op(0).parts) d.result(part, 4);
    in.masks = true;
    in.run = load_matrices;
    return true;
  }
  if (d.st.name != "mma") return false;
  d.count(4, 4);
  const bool wide = d.has("tf32");
  in.from = wide ? Type::tf32 : d.has("bf16") ? Type::bf16 : Type::f16;
  in.type = Type::f32;
  const size_t words[] = {4, 4, 2, 4};
  for (size_t k = 0; k < 4; ++k)
    if (d.op(k).parts.size() != words[k]) d.refuse("a wrong number of words");
  for (const std::string& part : d.op(0).parts) d.result(part, 4);
  for (size_t k = 1; k < 4; ++k)
    for (const std::string& part : d.op(k).parts) d.operand(part, k == 3 ? Type::f32 : Type::b32);
  in.masks = true;
  in.run = d.has("row") && d.has("col") && d.has("f32") && d.has(wide ? "m16n8k8" : "m16n8k16") ? Run(multiply) : Run(nullptr);
  return true;
}

}  // namespace ptx
