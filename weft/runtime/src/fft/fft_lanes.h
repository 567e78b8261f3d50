// The kernels of Fourier transforms on vectors, at the width the file is compiled for.
//
// A sequence's elements are vectors of real parts and of imaginary ones, whose lanes are different sequences. As in
// gemm_lanes.h everything is in an unnamed namespace, and nothing of the standard library is instantiated.
#pragma once

#include "fft_kernels.h"
#include "gemm_lanes.h"

namespace weft {
namespace {

template <class R>
struct Fourier {
  using L = Lanes<R>;
  using V = typename L::V;
  static constexpr int W = L::W;

  struct C {
    V re, im;
    C operator+(const C& b) const { return {re + b.re, im + b.im}; }
    C operator-(const C& b) const { return {re - b.re, im - b.im}; }
    C turned() const { return {im, -re}; }  // times -i
    C conjugate() const { return {re, -im}; }
    C scaled(V by) const { return {re * by, im * by}; }
    C exchanged(bool swap) const { return swap ? C{im, re} : *this; }
  };

  static inline C times(C a, C b) {
    return {L::fma(a.re, b.re, -(a.im * b.im)), L::fma(a.re, b.im, a.im * b.re)};
  }
  static inline C splat(const R* p) { return {L::splat(p[0]), L::splat(p[1])}; }

  // ---- vectors of complex numbers that lie beside each other

  template <int... i>
  static inline C parted(V a, V b, Indices<i...>) {
    return {__builtin_shufflevector(a, b, (2 * i)...), __builtin_shufflevector(a, b, (2 * i + 1)...)};
  }
  template <int... i>
  static inline V lower(C c, Indices<i...>) {
    return __builtin_shufflevector(c.re, c.im, (i / 2 + i % 2 * W)...);
  }
  template <int... i>
  static inline V upper(C c, Indices<i...>) {
    return __builtin_shufflevector(c.re, c.im, (W / 2 + i / 2 + i % 2 * W)...);
  }
  template <int... i>
  static inline V backwards(V v, Indices<i...>) {
    return __builtin_shufflevector(v, v, (W - 1 - i)...);
  }
  using All = typename MakeIndices<W>::Type;

  static inline C load(const R* p) { return parted(L::load(p), L::load(p + W), All{}); }
  static inline C load(const R* p, int n) {
    if (n == W) return load(p);
    const V none{};
    if (2 * n <= W) return parted(L::load(p, 2 * n), none, All{});
    return parted(L::load(p), 2 * n == W ? none : L::load(p + W, 2 * n - W), All{});
  }
  static inline void store(R* p, C c) {
    L::store(p, lower(c, All{}));
    L::store(p + W, upper(c, All{}));
  }
  static inline void store(R* p, C c, int n) {
    if (n == W) return store(p, c);
    if (2 * n <= W) return L::store(p, lower(c, All{}), 2 * n);
    L::store(p, lower(c, All{}));
    L::store(p + W, upper(c, All{}), 2 * n - W);
  }
  static inline C reversed(C c) { return {backwards(c.re, All{}), backwards(c.im, All{})}; }

  // ---- W x W elements, rows and columns exchanged: blocks of half the size in each step

  template <int step, int... i>
  static inline V kept(V a, V b, Indices<i...>) {
    return __builtin_shufflevector(a, b, ((i & step) == 0 ? i : i - step + W)...);
  }
  template <int step, int... i>
  static inline V moved(V a, V b, Indices<i...>) {
    return __builtin_shufflevector(a, b, ((i & step) == 0 ? i + step : i + W)...);
  }
  template <int step>
  static inline void exchange(V* rows) {
    if constexpr (step > 0) {
      for (int i = 0; i < W; ++i) {
        if ((i & step) != 0) continue;
        const V a = rows[i], b = rows[i + step];
        rows[i] = kept<step>(a, b, All{});
        rows[i + step] = moved<step>(a, b, All{});
      }
      exchange<step / 2>(rows);
    }
  }
  static inline void transpose(V* rows) { exchange<W / 2>(rows); }

  // ---- butterflies: the transforms of 2, 4, 8 or an odd number of elements

  static inline void two(C* x) {
    const C sum = x[0] + x[1];
    x[1] = x[0] - x[1];
    x[0] = sum;
  }
  static inline void four(C* x) {
    const C a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = (x[1] - x[3]).turned();
    x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
  }
  static inline void eight(C* x) {
    C even[4] = {x[0], x[2], x[4], x[6]}, odd[4] = {x[1], x[3], x[5], x[7]};
    four(even), four(odd);
    const V half = L::splat(R(0.70710678118654752440));
    const C o1 = C{odd[1].re + odd[1].im, odd[1].im - odd[1].re}.scaled(half);
    const C o3 = C{odd[3].im - odd[3].re, -(odd[3].re + odd[3].im)}.scaled(half);
    const C o2 = odd[2].turned();
    x[0] = even[0] + odd[0], x[4] = even[0] - odd[0];
    x[1] = even[1] + o1, x[5] = even[1] - o1;
    x[2] = even[2] + o2, x[6] = even[2] - o2;
    x[3] = even[3] + o3, x[7] = even[3] - o3;
  }
  // Elements j and r - j have the same sums of cosines, and sums of sines of opposite sign.
  template <int r>
  static inline void odd(C* x, const R* roots) {
    constexpr int half = (r - 1) / 2;
    C sums[half], differences[half];
    C all = x[0];
    for (int k = 0; k < half; ++k) {
      sums[k] = x[k + 1] + x[r - 1 - k];
      differences[k] = (x[k + 1] - x[r - 1 - k]).turned();
      all = all + sums[k];
    }
    C found[r];
    for (int j = 1; j <= half; ++j) {
      C even = x[0];
      C uneven{};
      for (int k = 0; k < half; ++k) {
        const R* root = roots + 2 * (j * (k + 1) % r);
        const V c = L::splat(root[0]), s = L::splat(root[1]);
        even = {L::fma(sums[k].re, c, even.re), L::fma(sums[k].im, c, even.im)};
        uneven = k == 0 ? differences[k].scaled(s)
                        : C{L::fma(differences[k].re, s, uneven.re), L::fma(differences[k].im, s, uneven.im)};
      }
      found[j] = even + uneven;
      found[r - j] = even - uneven;
    }
    x[0] = all;
    for (int j = 1; j < r; ++j) x[j] = found[j];
  }
  template <int r>
  static inline void butterfly(C* x, const R* roots) {
    if constexpr (r == 2) two(x);
    else if constexpr (r == 4) four(x);
    else if constexpr (r == 8) eight(x);
    else odd<r>(x, roots);
  }

  // ---- passes: the first may read elements where they lie in memory, the last write them where they belong

  struct Work {
    R* p;
    C get(int64_t at) const { return {L::load(p + at * 2 * W), L::load(p + at * 2 * W + W)}; }
    void put(int64_t at, C c) const {
      L::store(p + at * 2 * W, c.re);
      L::store(p + at * 2 * W + W, c.im);
    }
  };
  // Sequences that lie beside each other in memory.
  struct Beside {
    R* p;
    int64_t entry;
    int count;
    bool swap;
    R scale;
    C get(int64_t at) const { return load(p + 2 * at * entry, count).exchanged(swap); }
    void put(int64_t at, C c) const { store(p + 2 * at * entry, c.scaled(L::splat(scale)).exchanged(swap), count); }
  };

  template <int r, class From, class To>
  static void pass(const FftPass<R>& of, From from, To to) {
    const int64_t before = of.before, after = of.after;
    for (int64_t k = 0; k < after; ++k) {
      C factors[r];
      if (k > 0)
        for (int j = 1; j < r; ++j) factors[j] = splat(of.factors + 2 * (k * (r - 1) + j - 1));
      for (int64_t i = 0; i < before; ++i) {
        C x[r];
        for (int j = 0; j < r; ++j) x[j] = from.get(k + after * (j + r * i));
        butterfly<r>(x, of.roots);
        for (int j = 0; j < r; ++j) to.put(k + after * (i + before * j), j == 0 || k == 0 ? x[j] : times(x[j], factors[j]));
      }
    }
  }
  template <class From, class To>
  static void pass(const FftPass<R>& of, From from, To to) {
    switch (of.radix) {
      case 2: return pass<2>(of, from, to);
      case 3: return pass<3>(of, from, to);
      case 4: return pass<4>(of, from, to);
      case 5: return pass<5>(of, from, to);
      case 7: return pass<7>(of, from, to);
      case 8: return pass<8>(of, from, to);
      case 11: return pass<11>(of, from, to);
      default: return pass<13>(of, from, to);
    }
  }

  // All passes, with the elements in `work`, which holds two arrays, in between. Returns where the result lies if it is
  // to stay there (To: Work), and expects them at its start if they are there (From: Work).
  template <class From, class To>
  static R* passes(const FftPasses<R>& of, From from, To to, R* work) {
    constexpr bool reads = !kSame<From, Work>, writes = !kSame<To, Work>;
    Work here{work}, other{work + of.n * 2 * W};
    int p = 0;
    if constexpr (reads) {
      if (of.count > 1) pass(of.pass[p++], from, here);
      else for (int64_t i = 0; i < of.n; ++i) here.put(i, from.get(i));
    }
    for (; p < of.count - (writes ? 1 : 0); ++p) {
      pass(of.pass[p], here, other);
      const Work last = here;
      here = other, other = last;
    }
    if constexpr (writes) {
      if (p < of.count) pass(of.pass[p], here, to);
      else for (int64_t i = 0; i < of.n; ++i) to.put(i, here.get(i));
    }
    return here.p;
  }

  // ---- sequences into lanes, and out of them

  static void gather(const R* in, FftStrides from, bool swap, int64_t n, int count, R* work) {
    for (int64_t j = 0; j < n; j += W) {
      const int width = n - j < W ? int(n - j) : W;
      V re[W], im[W];
      for (int s = 0; s < W; ++s) {
        const C row = s < count ? load_entries(in + 2 * (s * from.lane + j * from.entry), from.entry, width) : C{};
        re[s] = swap ? row.im : row.re;
        im[s] = swap ? row.re : row.im;
      }
      transpose(re), transpose(im);
      for (int i = 0; i < width; ++i) Work{work}.put(j + i, {re[i], im[i]});
    }
  }
  static inline C load_entries(const R* p, int64_t entry, int width) {
    if (entry == 1) return load(p, width);
    R parts[2 * W] = {};
    for (int i = 0; i < width; ++i) parts[2 * i] = p[2 * i * entry], parts[2 * i + 1] = p[2 * i * entry + 1];
    return load(parts);
  }

  static void scatter(R* work, R* out, FftStrides to, bool swap, R scale, int64_t n, int count) {
    const V by = L::splat(scale);
    for (int64_t j = 0; j < n; j += W) {
      const int width = n - j < W ? int(n - j) : W;
      V re[W], im[W];
      for (int i = 0; i < W; ++i) {
        const C c = i < width ? Work{work}.get(j + i).scaled(by).exchanged(swap) : C{};
        re[i] = c.re, im[i] = c.im;
      }
      transpose(re), transpose(im);
      for (int s = 0; s < count; ++s) store_entries(out + 2 * (s * to.lane + j * to.entry), to.entry, {re[s], im[s]}, width);
    }
  }
  static inline void store_entries(R* p, int64_t entry, C c, int width) {
    if (entry == 1) return store(p, c, width);
    R parts[2 * W];
    store(parts, c);
    for (int i = 0; i < width; ++i) p[2 * i * entry] = parts[2 * i], p[2 * i * entry + 1] = parts[2 * i + 1];
  }

  static void transform(const FftPasses<R>& of, const R* in, FftStrides from, bool swap_in, R* out, FftStrides to,
                        bool swap_out, R scale, int count, R* work) {
    const Work none{work};
    const Beside source{const_cast<R*>(in), from.entry, count, swap_in, R(1)}, result{out, to.entry, count, swap_out, scale};
    if (from.lane == 1 && to.lane == 1) {
      passes(of, source, result, work);
    } else if (from.lane == 1) {
      scatter(passes(of, source, none, work), out, to, swap_out, scale, of.n, count);
    } else {
      gather(in, from, swap_in, of.n, count, work);
      if (to.lane == 1) passes(of, none, result, work);
      else scatter(passes(of, none, none, work), out, to, swap_out, scale, of.n, count);
    }
  }

  // ---- splits. The middle array has a row for every element of the columns' transforms, of vectors as in `work`.

  struct Middle {
    R* p;
    int64_t groups, group;
    const R* base;
    const R* within;
    void put(int64_t k, C c) const {
      const C inside{L::load(within + k * 2 * kFftBlock), L::load(within + (k * 2 + 1) * kFftBlock)};
      Work{p}.put(k * groups + group, times(c, times(inside, splat(base + 2 * k))));
    }
  };

  static void columns(const FftSplit<R>& split, const R* in, bool swap, int64_t group, R* middle, R* work) {
    const int64_t n1 = split.columns.n, n2 = split.rows.n, first = group * W, groups = (n2 + W - 1) / W;
    const int count = n2 - first < W ? int(n2 - first) : W;
    const Beside source{const_cast<R*>(in) + 2 * first, n2, count, swap, R(1)};
    const R* base = split.base + first / kFftBlock * n1 * 2;
    passes(split.columns, source, Middle{middle, groups, group, base, split.within + first % kFftBlock}, work);
  }

  static void rows(const FftSplit<R>& split, const R* middle, int64_t group, R* out, bool swap, R scale, R* work) {
    const int64_t n1 = split.columns.n, n2 = split.rows.n, first = group * W, groups = (n2 + W - 1) / W;
    const int count = n1 - first < W ? int(n1 - first) : W;
    const Work source{const_cast<R*>(middle)}, lanes{work};
    for (int64_t g = 0; g < groups; ++g) {
      V re[W], im[W];
      for (int s = 0; s < W; ++s) {
        const C c = source.get((first + (s < count ? s : 0)) * groups + g);
        re[s] = c.re, im[s] = c.im;
      }
      transpose(re), transpose(im);
      const int width = n2 - g * W < W ? int(n2 - g * W) : W;
      for (int i = 0; i < width; ++i) lanes.put(g * W + i, {re[i], im[i]});
    }
    passes(split.rows, lanes, Beside{out + 2 * first, n1, count, swap, scale}, work);
  }

  // ---- whole sequences

  static void product(const R* a, bool swap_in, const R* b, R* out, bool swap_out, R scale, int64_t n) {
    const V by = L::splat(scale);
    for (int64_t i = 0; i < n; i += W) {
      const int width = n - i < W ? int(n - i) : W;
      const C c = times(load(a + 2 * i, width).exchanged(swap_in), load(b + 2 * i, width));
      store(out + 2 * i, c.scaled(by).exchanged(swap_out), width);
    }
  }

  struct Pair {
    C a, b;
  };
  // Elements k + lane and h - k - lane, the second in the order of the first.
  static inline Pair load_pair(const R* row, int64_t h, int64_t k, int width) {
    const R* last = row + 2 * (h - k - width + 1);
    return {load(row + 2 * k, width), width == W ? reversed(load(last)) : reversed_few(last, width)};
  }
  static inline C reversed_few(const R* p, int width) {
    R parts[2 * W] = {};
    for (int i = 0; i < width; ++i) parts[2 * i] = p[2 * (width - 1 - i)], parts[2 * i + 1] = p[2 * (width - 1 - i) + 1];
    return load(parts);
  }
  // The first is stored last: of an element that is its own partner it is the one kept.
  static inline void store_pair(R* row, int64_t h, int64_t k, int width, C a, C b) {
    R* last = row + 2 * (h - k - width + 1);
    if (width == W) {
      store(last, reversed(b));
    } else {
      R parts[2 * W];
      store(parts, b);
      for (int i = 0; i < width; ++i)
        last[2 * (width - 1 - i)] = parts[2 * i], last[2 * (width - 1 - i) + 1] = parts[2 * i + 1];
    }
    store(row + 2 * k, a, width);
  }

  static void untangle(R* row, const R* factors, int64_t h, int64_t low, int64_t high) {
    if (low == 0) {
      const R re = row[0], im = row[1];
      row[0] = re + im, row[1] = 0;
      row[2 * h] = re - im, row[2 * h + 1] = 0;
      low = 1;
    }
    const V half = L::splat(R(0.5));
    for (int64_t k = low; k < high; k += W) {
      const int width = high - k < W ? int(high - k) : W;
      const Pair z = load_pair(row, h, k, width);
      const C b = z.b.conjugate(), even = (z.a + b).scaled(half), odd = (z.a - b).scaled(half).turned();
      const C t = times(odd, load(factors + 2 * k, width));
      store_pair(row, h, k, width, even + t, (even - t).conjugate());
    }
  }

  static void tangle(const R* in, R* out, const R* factors, int64_t h, int64_t low, int64_t high) {
    if (low == 0) {
      out[0] = in[0] + in[2 * h];
      out[1] = in[0] - in[2 * h];
      low = 1;
    }
    for (int64_t k = low; k < high; k += W) {
      const int width = high - k < W ? int(high - k) : W;
      const Pair x = load_pair(in, h, k, width);
      const C b = x.b.conjugate(), sum = x.a + b;
      const C t = times(x.a - b, load(factors + 2 * k, width).conjugate()).turned();  // times -i, of i wanted
      store_pair(out, h, k, width, sum - t, (sum + t).conjugate());
    }
  }
};

template <class R>
constexpr FftKernels<R> kFftKernels = {Lanes<R>::W,          Fourier<R>::transform, Fourier<R>::columns, Fourier<R>::rows,
                                       Fourier<R>::product, Fourier<R>::untangle,  Fourier<R>::tangle};

}  // namespace
}  // namespace weft
