// Plans of Fourier transforms: factors of lengths, tables of roots of unity, and which way a length is computed.
#include <pthread.h>

#include <cmath>
#include <map>
#include <mutex>
#include <numbers>

#include "fft_sequences.h"

namespace weft {
namespace {

constexpr int64_t kLeastSplit = 256;  // shorter sequences fill lanes only beside others

// Roots of unity are computed in a wider type than the transform's, and rounded once.
template <class R>
using Wide = std::conditional_t<sizeof(R) == 4, double, long double>;

template <class W>
struct Root {
  W cosine, sine;
};

// exp(-2 pi i k / n), by the angle in the first octant, so that its error is that of a small number.
template <class W>
Root<W> exact_root(int64_t k, int64_t n) {
  k %= n;
  const int64_t octant = 8 * k / n, rest = 8 * k - octant * n;  // of 8 n for a whole turn
  const W angle = W(octant % 2 == 0 ? rest : n - rest) / W(n) * (std::numbers::pi_v<W> / 4);
  W c = std::cos(angle), s = std::sin(angle);
  if (octant % 4 == 1 || octant % 4 == 2) std::swap(c, s);
  if (octant >= 2 && octant < 6) c = -c;
  if (octant < 4) s = -s;
  return {c, s};
}

// Many roots of one n: products of one of `step` neighbours and one of n / step multiples of `step`.
template <class R>
class Roots {
 public:
  using W = Wide<R>;
  explicit Roots(int64_t n) : n(n) {
    while (step * step < n) step *= 2, ++bits;
    for (int64_t k = 0; k < step && k < n; ++k) near.push_back(exact_root<W>(k, n));
    for (int64_t k = 0; k < n; k += step) far.push_back(exact_root<W>(k, n));
  }
  Root<W> at(int64_t k) const {
    k %= n;
    const Root<W> a = far[size_t(k >> bits)], b = near[size_t(k & (step - 1))];
    if (k < step || (k & (step - 1)) == 0) return k < step ? b : a;
    return {a.cosine * b.cosine - a.sine * b.sine, a.cosine * b.sine + a.sine * b.cosine};
  }
  void append(std::vector<R>& table, int64_t k) const {
    const Root<W> root = at(k);
    table.push_back(R(root.cosine));
    table.push_back(R(root.sine));
  }

 private:
  int64_t n, step = 1;
  int bits = 0;  // step is 2^bits
  std::vector<Root<W>> near, far;
};

// The radices of the passes of a length, largest powers of two last; empty where a prime factor is above 13.
std::vector<int> radices_of(int64_t n) {
  std::vector<int> found;
  for (int p : {13, 11, 7, 5, 3})
    for (; n % p == 0; n /= p) found.push_back(p);
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  if (n != 1) return {};
  for (; twos > 4 || twos == 3; twos -= 3) found.push_back(8);
  for (; twos > 1; twos -= 2) found.push_back(4);
  if (twos == 1) found.push_back(2);
  return found;
}

bool is_smooth(int64_t n) { return n == 1 || !radices_of(n).empty(); }

// Additions and products of one sequence.
double flops_of(int64_t n) {
  double sum = 0;
  for (int r : radices_of(n)) sum += r == 8 ? 15 : r == 4 ? 10 : r == 2 ? 5 : 4 * r;
  return sum * double(n);
}

template <class R>
FftPasses<R> passes_of(int64_t n, std::vector<std::vector<R>>& tables) {
  FftPasses<R> passes;
  passes.n = n;
  const Roots<R> all(n);
  int64_t before = 1;
  for (int radix : radices_of(n)) {
    const int64_t after = n / before / radix;
    const Roots<R> own(radix);
    std::vector<R> factors, roots;
    for (int64_t k = 0; k < after; ++k)
      for (int j = 1; j < radix; ++j) all.append(factors, j * k * before);
    for (int k = 0; k < radix; ++k) own.append(roots, radix - k);
    tables.push_back(std::move(factors));
    tables.push_back(std::move(roots));
    passes.pass[passes.count++] = {radix, before, after, tables[tables.size() - 2].data(), tables.back().data()};
    before *= radix;
  }
  return passes;
}

// n1 of n = n1 n2: near the root, both multiples of the block if there are such; 0 if there is none worth it.
int64_t columns_of(int64_t n) {
  if (n < kLeastSplit) return 0;
  int64_t best = 0;
  double least = 0;
  for (int64_t d = 2; d * d <= n; ++d) {
    if (n % d != 0) continue;
    for (int64_t n1 : {d, n / d}) {
      auto filled = [](int64_t m) { return double((m + kFftBlock - 1) / kFftBlock * kFftBlock) / double(m); };
      const double waste = filled(n1) + filled(n / n1), balance = double(n1) / double(n / n1);
      const double cost = waste + 0.1 * std::abs(std::log2(balance));
      if (best == 0 || cost < least) best = n1, least = cost;
    }
  }
  return best * best < n * 64 && n < best * best * 64 ? best : 0;
}

template <class R>
void plan_split(FftPlan<R>& plan, int64_t n1) {
  const int64_t n = plan.n, n2 = n / n1;
  plan.way = FftWay::split;
  plan.split.columns = passes_of(n1, plan.tables);
  plan.split.rows = passes_of(n2, plan.tables);
  const Roots<R> roots(n);
  std::vector<R> base, within;
  for (int64_t j = 0; j < n2; j += kFftBlock)
    for (int64_t k = 0; k < n1; ++k) roots.append(base, k * j);
  // Lanes of real parts, then lanes of imaginary ones, of one k after the other.
  for (int64_t k = 0; k < n1; ++k) {
    for (int64_t j = 0; j < kFftBlock; ++j) within.push_back(R(roots.at(k * j).cosine));
    for (int64_t j = 0; j < kFftBlock; ++j) within.push_back(R(roots.at(k * j).sine));
  }
  plan.tables.push_back(std::move(base));
  plan.split.base = plan.tables.back().data();
  plan.tables.push_back(std::move(within));
  plan.split.within = plan.tables.back().data();
}

// The least length from `least` on that splits well: 2^a, or 3, 5, 9 or 15 times that.
int64_t convolution_length(int64_t least) {
  int64_t best = 0;
  for (int64_t odd : {1, 3, 5, 9, 15}) {
    int64_t m = odd;
    while (m < least) m *= 2;
    if (best == 0 || m < best) best = m;
  }
  return best;
}

template <class R>
void plan_chirp(FftPlan<R>& plan, bool in_lanes) {
  const int64_t n = plan.n, m = convolution_length(2 * n - 1);
  plan.way = FftWay::chirp;
  plan.longer = fft_plan<R>(m, in_lanes && m <= kFftMostInLanes);
  const Roots<R> roots(2 * n);
  std::vector<R> filter(size_t(2 * m));
  int64_t square = 0;  // k^2 modulo 2 n
  for (int64_t k = 0; k < n; square = (square + 2 * k++ + 1) % (2 * n)) {
    roots.append(plan.chirp, square);
    for (int64_t at : {k, (m - k) % m}) {
      filter[size_t(2 * at)] = plan.chirp[size_t(2 * k)];
      filter[size_t(2 * at + 1)] = -plan.chirp[size_t(2 * k + 1)];
    }
  }
  plan.filter.resize(size_t(2 * m));
  std::vector<char> scratch(size_t(fft_scratch_bytes(*plan.longer)));
  fft_sequence(*plan.longer, filter.data(), plan.filter.data(), FftOrder<R>{false, R(1) / R(m)}, scratch.data());
  plan.flops = 2 * plan.longer->flops + 20 * double(m);
}

template <class R>
std::shared_ptr<const FftPlan<R>> made(int64_t n, bool in_lanes) {
  auto plan = std::make_shared<FftPlan<R>>();
  plan->n = n;
  plan->flops = flops_of(n);
  const int64_t n1 = is_smooth(n) && !in_lanes ? columns_of(n) : 0;
  if (n1 != 0) plan_split(*plan, n1);
  else if (is_smooth(n)) plan->passes = passes_of(n, plan->tables);
  else plan_chirp(*plan, in_lanes);
  return plan;
}

std::mutex g_mutex;  // of the plans that are kept; held over a fork, so that the child finds them whole
[[maybe_unused]] const int g_at_fork =
    pthread_atfork([] { g_mutex.lock(); }, [] { g_mutex.unlock(); }, [] { g_mutex.unlock(); });

}  // namespace

template <class R>
std::shared_ptr<const FftPlan<R>> fft_plan(int64_t n, bool in_lanes) {
  static std::map<std::pair<int64_t, bool>, std::weak_ptr<const FftPlan<R>>> kept;
  {
    std::lock_guard<std::mutex> guard(g_mutex);
    if (auto found = kept[{n, in_lanes}].lock()) return found;
  }
  auto plan = made<R>(n, in_lanes);  // may ask for another length
  std::lock_guard<std::mutex> guard(g_mutex);
  std::erase_if(kept, [](const auto& item) { return item.second.expired(); });
  kept[{n, in_lanes}] = plan;
  return plan;
}

template <class R>
std::vector<R> fft_half_factors(int64_t h) {
  std::vector<R> factors;
  const Roots<R> roots(2 * h);
  for (int64_t k = 0; k <= h / 2; ++k) roots.append(factors, k);
  return factors;
}

template std::shared_ptr<const FftPlan<float>> fft_plan(int64_t, bool);
template std::shared_ptr<const FftPlan<double>> fft_plan(int64_t, bool);
template std::vector<float> fft_half_factors(int64_t);
template std::vector<double> fft_half_factors(int64_t);

}  // namespace weft
