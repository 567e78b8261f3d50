// Fourier transforms over the last dimensions of an array, as a step of a plan: native, on all threads.
//
//   ("library", "fft", "F", sizes (2, 8, 30, 1024))    RFFT over 30 x 1024 elements, of eight such arrays
//
// One dimension after the other, in place from the second on. Interrupts are handled between groups of sequences.
#include <algorithm>
#include <cstring>

#include "buffer.h"
#include "fft_sequences.h"
#include "figures.h"
#include "gemm_kernels.h"
#include "library.h"
#include "plan.h"
#include "stream.h"

namespace weft {
namespace {

enum class Kind { forward, inverse, real_forward, real_inverse };

constexpr double kAloneNs = 50e3;  // a sequence above this is worth all threads
constexpr int64_t kBlock = 8;      // long strided sequences that are copied at a time: a cache line or more of each element

template <class R>
class FftStep final : public Step {
 public:
  using Plan = std::shared_ptr<const FftPlan<R>>;

  Status run(Frame& frame) const override {
    const R* source = reinterpret_cast<const R*>(in.address(frame));
    R* out_data = reinterpret_cast<R*>(out.address(frame));
    if (kind != Kind::real_inverse) {
      Status status = kind == Kind::real_forward ? real_rows(frame, source, out_data) : over(frame, last(), source, out_data);
      for (size_t d = lengths.size() - 1; d-- > 0 && status == Status::ok;)
        status = over(frame, axes[d], out_data, out_data);
      return status;
    }
    if (lengths.size() == 1) return real_rows_back(frame, source, out_data);
    Buffer* staged = buffer_allocate(batch * complex_elements() * 2 * int64_t(sizeof(R)));
    if (staged == nullptr) return Status::no_memory;
    R* middle = reinterpret_cast<R*>(staged->data);
    Status status = Status::ok;
    for (size_t d = lengths.size() - 1; d-- > 0 && status == Status::ok; source = middle)
      status = over(frame, axes[d], source, middle);
    if (status == Status::ok) status = real_rows_back(frame, middle, out_data);
    buffer_release(staged);
    return status;
  }
  double cost_ns() const override { return cost; }

  // Bytes of operand and result; the plans of all dimensions are made here.
  void prepare(int64_t* in_bytes, int64_t* out_bytes) {
    const int64_t n = lengths.back(), one = int64_t(sizeof(R));
    const bool real = kind == Kind::real_forward || kind == Kind::real_inverse;
    width = real ? n / 2 + 1 : n;
    double count = 1;
    for (int64_t length : lengths) count *= double(length);
    if (kind == Kind::inverse || kind == Kind::real_inverse) scale = R(1 / count);
    int64_t inner = width, outer = batch;
    for (size_t d = 0; d + 1 < lengths.size(); ++d) outer *= lengths[d];
    rows = outer;
    const int64_t row_length = real && n % 2 == 0 ? n / 2 : n;
    axes.resize(lengths.size());
    axes.back() = {fft_plan<R>(row_length, false), rows, 1, real ? R(1) : scale};
    for (size_t d = lengths.size() - 1; d-- > 0;) {
      outer /= lengths[d];
      axes[d] = {fft_plan<R>(lengths[d], lengths[d] <= kFftMostInLanes), outer, inner, R(1)};
      inner *= lengths[d];
    }
    if (real && n % 2 == 0) factors = fft_half_factors<R>(n / 2);
    for (const Axis& axis : axes) cost += double(axis.outer * axis.inner) * (axis.plan->flops * figures.fft_flop_ns + 20);
    const int64_t complex_bytes = batch * complex_elements() * 2 * one, real_bytes = rows * n * one;
    *in_bytes = kind == Kind::real_forward ? real_bytes : complex_bytes;
    *out_bytes = kind == Kind::real_inverse ? real_bytes : complex_bytes;
  }

  Kind kind = Kind::forward;
  int64_t batch = 1;
  std::vector<int64_t> lengths;
  Location in, out;

 private:
  // Sequences along one dimension: of outer x n x inner elements.
  struct Axis {
    Plan plan;
    int64_t outer, inner;
    R scale;
  };

  const Axis& last() const { return axes.back(); }
  int64_t complex_elements() const { return rows / batch * width; }
  FftOrder<R> order(R by) const { return {kind == Kind::inverse || kind == Kind::real_inverse, by}; }

  // one(i, scratch, on_pool) for all i on the pool; few large ones one after the other, each cut among its threads, if
  // they can be (`bytes_alone` is not 0).
  template <class One>
  Status each(const Frame& frame, int64_t total, double one_ns, int64_t bytes, int64_t bytes_alone, One one) const {
    bool stopped = false, ok = true;
    auto checked = [&](int64_t i, char* scratch) {
      if (stream_cancelled(frame.number)) std::atomic_ref<bool>(stopped).store(true);
      else one(i, scratch, false);
    };
    if (bytes_alone == 0 || total >= pool_threads() || one_ns < kAloneNs) {
      ok = fft_on_pool(total, double(total) * one_ns, bytes, checked);
    } else {
      Buffer* scratch = buffer_allocate(bytes_alone);
      ok = scratch != nullptr;
      for (int64_t i = 0; i < total && ok && !stopped; ++i) {
        stopped = stream_cancelled(frame.number);
        if (!stopped) ok = one(i, scratch->data, true);
      }
      if (scratch != nullptr) buffer_release(scratch);
    }
    return !ok ? Status::no_memory : stopped ? Status::cancelled : Status::ok;
  }

  Status over(const Frame& frame, const Axis& axis, const R* source, R* to) const {
    const FftPlan<R>& plan = *axis.plan;
    if (axis.inner > 1) return fft_by_groups(plan) ? beside(frame, axis, source, to) : strided(frame, axis, source, to);
    const FftOrder<R> how = order(axis.scale);
    const int64_t n = plan.n, lanes = fft_kernels<R>().lanes;
    if (!fft_by_groups(plan)) {
      auto one = [&, how, n](int64_t i, char* scratch, bool on_pool) {
        return fft_sequence(plan, source + 2 * i * n, to + 2 * i * n, how, scratch, on_pool);
      };
      return each(frame, axis.outer, one_ns(plan), fft_scratch_bytes(plan), fft_scratch_bytes(plan, true), one);
    }
    auto group = [&, how, n, lanes](int64_t i, char* scratch, bool) {
      const int64_t first = i * lanes * n * 2;
      fft_group(plan, source + first, {n, 1}, to + first, {n, 1}, how, count_of(axis.outer, i), scratch);
      return true;
    };
    return each(frame, groups(axis.outer), group_ns(plan), fft_scratch_bytes(plan), 0, group);
  }

  // Sequences beside each other fill the lanes as they lie.
  Status beside(const Frame& frame, const Axis& axis, const R* source, R* to) const {
    const FftPlan<R>& plan = *axis.plan;
    const int64_t inner = axis.inner, lanes = fft_kernels<R>().lanes, across = groups(inner);
    auto group = [&, how = order(axis.scale)](int64_t i, char* scratch, bool) {
      const int64_t g = i % across, first = 2 * (i / across * plan.n * inner + g * lanes);
      fft_group(plan, source + first, {1, inner}, to + first, {1, inner}, how, count_of(inner, g), scratch);
      return true;
    };
    return each(frame, axis.outer * across, group_ns(plan), fft_scratch_bytes(plan), 0, group);
  }

  // Long sequences: some are copied side by side, transformed and copied back.
  Status strided(const Frame& frame, const Axis& axis, const R* source, R* to) const {
    const FftPlan<R>& plan = *axis.plan;
    const int64_t n = plan.n, inner = axis.inner, across = (inner + kBlock - 1) / kBlock;
    const int64_t staged_bytes = rounded_to_lines(kBlock * n * 2 * int64_t(sizeof(R)));
    auto block = [&, how = order(axis.scale)](int64_t i, char* scratch, bool on_pool) {
      const int64_t g = i % across, first = i / across * n * inner + g * kBlock, columns = std::min(kBlock, inner - g * kBlock);
      R* staged = reinterpret_cast<R*>(scratch);
      for (int64_t j = 0; j < n; ++j)
        for (int64_t c = 0; c < columns; ++c) copy(source + 2 * (first + j * inner + c), staged + 2 * (c * n + j));
      bool ok = true;
      for (int64_t c = 0; c < columns && ok; ++c)
        ok = fft_sequence(plan, staged + 2 * c * n, staged + 2 * c * n, how, scratch + staged_bytes, on_pool);
      for (int64_t j = 0; j < n; ++j)
        for (int64_t c = 0; c < columns; ++c) copy(staged + 2 * (c * n + j), to + 2 * (first + j * inner + c));
      return ok;
    };
    return each(frame, axis.outer * across, double(std::min(kBlock, inner)) * one_ns(plan),
                staged_bytes + fft_scratch_bytes(plan), staged_bytes + fft_scratch_bytes(plan, true), block);
  }

  // Real rows. Rows of an even length are transformed as half as many complex numbers.
  Status real_rows(const Frame& frame, const R* source, R* to) const {
    const FftPlan<R>& plan = *last().plan;
    const int64_t n = lengths.back(), h = n / 2;
    auto some = [&](int64_t first, int count, char* scratch, bool on_pool) {
      const R* from = source + first * n;
      R* rows_out = to + first * width * 2;
      if (n % 2 == 0) {
        if (!transform(from, {h, 1}, rows_out, {width, 1}, {}, count, scratch, on_pool)) return false;
        for (int s = 0; s < count; ++s) untangle(rows_out + s * width * 2, on_pool);
        return true;
      }
      R* staged = reinterpret_cast<R*>(scratch);
      for (int64_t i = 0; i < count * n; ++i) staged[2 * i] = from[i], staged[2 * i + 1] = 0;
      if (!transform(staged, {n, 1}, staged, {n, 1}, {}, count, scratch + staged_bytes(), on_pool)) return false;
      for (int s = 0; s < count; ++s)
        std::memcpy(rows_out + s * width * 2, staged + s * n * 2, size_t(width) * 2 * sizeof(R));
      return true;
    };
    return each_rows(frame, plan, some);
  }

  Status real_rows_back(const Frame& frame, const R* source, R* to) const {
    const FftPlan<R>& plan = *last().plan;
    const int64_t n = lengths.back(), h = n / 2;
    auto some = [&](int64_t first, int count, char* scratch, bool on_pool) {
      const R* from = source + first * width * 2;
      R* rows_out = to + first * n;
      if (n % 2 == 0) {
        for (int s = 0; s < count; ++s) tangle(from + s * width * 2, rows_out + s * n, on_pool);
        return transform(rows_out, {h, 1}, rows_out, {h, 1}, order(scale), count, scratch, on_pool);
      }
      R* staged = reinterpret_cast<R*>(scratch);
      for (int s = 0; s < count; ++s) unfold(from + s * width * 2, staged + s * n * 2);
      if (!transform(staged, {n, 1}, staged, {n, 1}, order(scale), count, scratch + staged_bytes(), on_pool)) return false;
      for (int64_t i = 0; i < count * n; ++i) rows_out[i] = staged[2 * i];
      return true;
    };
    return each_rows(frame, plan, some);
  }

  template <class Some>
  Status each_rows(const Frame& frame, const FftPlan<R>& plan, Some some) const {
    const int64_t more = lengths.back() % 2 == 0 ? 0 : staged_bytes(), bytes = more + fft_scratch_bytes(plan);
    if (!fft_by_groups(plan)) {
      auto one = [&](int64_t i, char* scratch, bool on_pool) { return some(i, 1, scratch, on_pool); };
      return each(frame, rows, one_ns(plan), bytes, more + fft_scratch_bytes(plan, true), one);
    }
    const int64_t lanes = fft_kernels<R>().lanes;
    auto group = [&, lanes](int64_t i, char* scratch, bool) { return some(i * lanes, count_of(rows, i), scratch, false); };
    return each(frame, groups(rows), group_ns(plan), bytes, 0, group);
  }

  bool transform(const R* from, FftStrides strides, R* to, FftStrides to_strides, FftOrder<R> how, int count, char* scratch,
                 bool on_pool) const {
    const FftPlan<R>& plan = *last().plan;
    if (!fft_by_groups(plan)) return fft_sequence(plan, from, to, how, scratch, on_pool);
    fft_group(plan, from, strides, to, to_strides, how, count, scratch);
    return true;
  }

  void untangle(R* row, bool on_pool) const {
    pairs(on_pool, [&](int64_t low, int64_t high) {
      fft_kernels<R>().untangle(row, factors.data(), lengths.back() / 2, low, high);
    });
  }
  void tangle(const R* from, R* row, bool on_pool) const {
    pairs(on_pool, [&](int64_t low, int64_t high) {
      fft_kernels<R>().tangle(from, row, factors.data(), lengths.back() / 2, low, high);
    });
  }
  // function(low, high) for all pairs of a row of an even length.
  template <class Function>
  void pairs(bool on_pool, Function function) const {
    const int64_t total = lengths.back() / 4 + 1;
    if (!on_pool) return function(int64_t{0}, total);
    auto some = [](void* context, int64_t low, int64_t high) { (*static_cast<Function*>(context))(low, high); };
    pool_run(some, &function, total, 1024, double(total));
  }

  // All of the spectrum of a real row of odd length, from the half that is given.
  void unfold(const R* from, R* row) const {
    const int64_t n = lengths.back();
    row[0] = from[0], row[1] = 0;
    for (int64_t k = 1; k < width; ++k) {
      copy(from + 2 * k, row + 2 * k);
      row[2 * (n - k)] = from[2 * k], row[2 * (n - k) + 1] = -from[2 * k + 1];
    }
  }

  static void copy(const R* from, R* to) { to[0] = from[0], to[1] = from[1]; }
  static int64_t groups(int64_t count) { return FftKernels<R>::groups(count, fft_kernels<R>().lanes); }
  static int count_of(int64_t total, int64_t group) {
    const int64_t lanes = fft_kernels<R>().lanes;
    return int(std::min(lanes, total - group * lanes));
  }
  static double one_ns(const FftPlan<R>& plan) { return plan.flops * figures.fft_flop_ns + 100; }
  static double group_ns(const FftPlan<R>& plan) { return one_ns(plan) * fft_kernels<R>().lanes; }
  int64_t staged_bytes() const { return rounded_to_lines(fft_kernels<R>().lanes * lengths.back() * 2 * int64_t(sizeof(R))); }

  std::vector<Axis> axes;
  std::vector<R> factors;  // of real rows of even length
  int64_t width = 0, rows = 0;  // complex elements of a row, and how many rows there are
  R scale = 1;
  double cost = 0;
};

template <class R>
std::unique_ptr<Step> made(const std::vector<int64_t>& sizes, const LocationReader& locations, PyObject* in, PyObject* out) {
  auto step = std::make_unique<FftStep<R>>();
  step->kind = Kind(sizes[0]);
  step->batch = sizes[1];
  step->lengths.assign(sizes.begin() + 2, sizes.end());
  int64_t in_bytes, out_bytes;
  step->prepare(&in_bytes, &out_bytes);
  if (!locations.location(PyTuple_GET_ITEM(in, 0), in_bytes, &step->in)) return nullptr;
  if (!locations.location(PyTuple_GET_ITEM(out, 0), out_bytes, &step->out)) return nullptr;
  return step;
}

}  // namespace

template <class R>
const FftKernels<R>& fft_kernels() {
#if defined(__x86_64__)
  static const FftKernels<R>& chosen = takes_v4() ? fft_kernels_v4<R>() : fft_kernels_v3<R>();
  return chosen;
#else
  return fft_kernels_neon<R>();
#endif
}
template const FftKernels<float>& fft_kernels();
template const FftKernels<double>& fft_kernels();

// Sizes: which transform, how many arrays, and the lengths of the dimensions; all positive.
std::unique_ptr<Step> make_fft_step(char type, const std::vector<int64_t>& sizes, PyObject* in, PyObject* out,
                                    const LocationReader& locations) {
  bool ok = sizes.size() >= 3 && sizes[0] <= 3 && PyTuple_GET_SIZE(in) == 1 && PyTuple_GET_SIZE(out) == 1;
  int64_t elements = 2 * int64_t(sizeof(double)) * 2;
  for (size_t i = 1; ok && i < sizes.size(); ++i)
    ok = sizes[i] > 0 && !__builtin_mul_overflow(elements, sizes[i], &elements);
  if (!ok || std::strchr("fdFD", type) == nullptr) {
    PyErr_SetString(PyExc_ValueError, "[executable] a Fourier transform with the wrong type, sizes or operands");
    return nullptr;
  }
  if (type == 'f' || type == 'F') return made<float>(sizes, locations, in, out);
  return made<double>(sizes, locations, in, out);
}

}  // namespace weft
