// The common steps of a plan: kernels, dynamic offsets, copies, fills.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "cuda_device.h"
#include "device.h"
#include "fields.h"
#include "figures.h"
#include "plan.h"
#include "pool.h"
#include "stream.h"

namespace weft {
namespace {

constexpr int kStackOperands = 24;
// most time that absorbed steps may take together: interrupts are handled between steps
constexpr double kTurnsNs = 20e3;
// a longer kernel is cut into chunks even on one thread, so that interrupts are handled between them
constexpr double kLongNs = 50e6;

enum class Split { none, first, vector, blocks };

// elements between two checks for an interrupt, about a millisecond; whole vectors
constexpr int64_t kStretch = int64_t{1} << 20;

constexpr int64_t kAllBlocks = int64_t{1} << 40;  // more blocks of rows than there are

int64_t align_up(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

// A loop nest in machine code, and the outer dimensions that this step iterates around it.
class KernelStep final : public Step {
 public:
  ~KernelStep() override { Py_XDECREF(kernel); }

  Status run(Frame& frame) const override {
    void* stack[kStackOperands];
    std::vector<void*> heap;
    void** bases = stack;
    if (count > kStackOperands) {
      heap.resize(count);
      bases = heap.data();
    }
    Status status = Status::ok;
    const Location* location = operands.data();
    for (size_t turn = 0; turn < turns && status == Status::ok; ++turn) {
      for (size_t i = 0; i < count; ++i) bases[i] = location++->address(frame);
      if (outer_count == 1) status = run_nest(frame, bases, cost);
      else if (outer_count != 0) status = run_outer(frame, bases);
    }
    if (scratch_bytes + partial_bytes > 0) trim_thread_scratch();
    return status;
  }
  double cost_ns() const override { return cost * double(turns); }
  bool is_kernel() const override { return true; }
  bool absorb(const Step& other) override {
    const auto* next = dynamic_cast<const KernelStep*>(&other);
    if (next == nullptr || next->kernel != kernel || next->count != count || next->params != params ||
        next->outer_extents != outer_extents || next->outer_strides != outer_strides || next->split != split ||
        next->extent != extent || next->grain != grain || next->cost != cost ||
        next->scratch_bytes != scratch_bytes || next->partial_bytes != partial_bytes ||
        next->full_first != full_first || next->full_vector != full_vector || cost * double(turns + 1) > kTurnsNs)
      return false;
    operands.insert(operands.end(), next->operands.begin(), next->operands.end());
    for (const auto& slot : next->touched)
      if (std::find(touched.begin(), touched.end(), slot) == touched.end()) touched.push_back(slot);
    ++turns;
    return true;
  }
  bool needs_scratch() const override { return scratch_bytes + partial_bytes > 0; }

  Status run_part(const Frame& frame, const int64_t (&part)[4]) const override {
    void* stack[kStackOperands];
    std::vector<void*> heap;
    void** bases = stack;
    if (count > kStackOperands) {
      heap.resize(count);
      bases = heap.data();
    }
    for (size_t i = 0; i < count; ++i) bases[i] = operands[i].address(frame);
    char* memory;
    if (!scratch(&memory)) return Status::no_memory;
    int64_t range[7] = {part[0], part[1] < 0 ? full_first : part[1], part[2], part[3] < 0 ? full_vector : part[3]};
    range[6] = reinterpret_cast<int64_t>(stream_stop_word(frame.number));
    function(bases, params.data(), range, memory);
    return Status::ok;
  }

  Kernel* kernel = nullptr;  // owned
  KernelFunction function = nullptr;
  std::vector<Location> operands;  // all operands of the first turn, then of the second, ...
  size_t count = 0, turns = 1;  // operands of a turn
  std::vector<int64_t> params;
  std::vector<int64_t> outer_extents;  // outermost first
  std::vector<int64_t> outer_strides;  // bytes, dimension by dimension, one per operand
  int64_t outer_count = 1;
  Split split = Split::none;
  int64_t extent = 0, grain = 1;
  double cost = 0;
  int64_t scratch_bytes = 0, partial_bytes = 0;
  int64_t full_first = 0, full_vector = 0;

 private:
  struct Chunks {
    const KernelStep* step;
    void* const* bases;
    char* partial;
    uint64_t number;  // number of the stream task, for cancellation
    std::atomic<bool> failed{false};
  };

  // The nest's scratch memory of this thread, followed by `more` bytes.
  bool scratch(char** out, int64_t more = 0) const {
    int64_t bytes = align_up(scratch_bytes) + more;
    *out = bytes == 0 ? nullptr : static_cast<char*>(thread_scratch(bytes));
    return bytes == 0 || *out != nullptr;
  }

  void call(uint64_t number, void* const* bases, int64_t low, int64_t high, int64_t mode, char* partial,
            char* memory) const {
    int64_t range[7] = {0, full_first, 0, full_vector, mode, reinterpret_cast<int64_t>(partial)};
    range[6] = reinterpret_cast<int64_t>(stream_stop_word(number));
    if (split == Split::vector) {  // a nest of this one dimension does not check for interrupts itself
      for (; low < high && !stream_cancelled(number); low = range[3]) {
        range[2] = low;
        range[3] = std::min(high, low + kStretch);
        if (partial == nullptr) function(bases, params.data(), range, memory);
        else call_in_passes(number, bases, low, range[3], partial, memory);
      }
      return;
    }
    if (split == Split::first) {
      range[0] = low;
      range[1] = high;
    } else if (split == Split::blocks) {
      range[2] = low;
      range[3] = high;
    }
    function(bases, params.data(), range, memory);
  }

  // Columns whose sums wait in memory while some rows are added at a time, then are finished.
  void call_in_passes(uint64_t number, void* const* bases, int64_t low, int64_t high, char* partial,
                      char* memory) const {
    int64_t range[7] = {low, high, 0, kAllBlocks, 0, reinterpret_cast<int64_t>(partial)};
    range[6] = reinterpret_cast<int64_t>(stream_stop_word(number));
    for (; range[4] < 2; ++range[4]) function(bases, params.data(), range, memory);
  }

  static void run_chunk(void* context, int64_t low, int64_t high) {
    Chunks* chunks = static_cast<Chunks*>(context);
    if (stream_cancelled(chunks->number)) return;
    char* memory;
    if (!chunks->step->scratch(&memory)) {
      chunks->failed.store(true);
      return;
    }
    chunks->step->call(chunks->number, chunks->bases, low, high, 0, chunks->partial, memory);
  }

  // The nest at one outer index, its split range cut into chunks if that is worth it.
  Status run_nest(const Frame& frame, void* const* bases, double nest_cost) const {
    char* memory;
    if (!scratch(&memory, partial_bytes)) return Status::no_memory;
    char* partial = partial_bytes == 0 ? nullptr : memory + align_up(scratch_bytes);
    if (split == Split::none) {
      call(frame.number, bases, 0, 0, 0, partial, memory);
      return Status::ok;
    }
    if (extent > 0) {
      if (extent > grain && (nest_cost >= kLongNs || pool_worth(nest_cost))) {
        Chunks chunks{this, bases, partial, frame.number};
        pool_run(run_chunk, &chunks, extent, grain, nest_cost);
        if (chunks.failed.load()) return Status::no_memory;
        if (stream_cancelled(frame.number)) return Status::cancelled;
      } else {
        call(frame.number, bases, 0, extent, 0, partial, memory);
      }
    }
    if (split == Split::blocks) call(frame.number, bases, 0, extent, 1, partial, memory);
    return Status::ok;
  }

  struct OuterChunks {
    const KernelStep* step;
    const Frame* frame;
    void* const* bases;
    bool parallel;
    std::atomic<Status> status{Status::ok};
  };

  Status run_outer(const Frame& frame, void* const* bases) const {
    OuterChunks chunks{this, &frame, bases, false};
    if ((split == Split::none || outer_count >= 2 * pool_threads()) && (cost >= kLongNs || pool_worth(cost))) {
      chunks.parallel = true;
      pool_run(run_outer_chunk, &chunks, outer_count, 1, cost);
    } else {
      run_outer_chunk(&chunks, 0, outer_count);
    }
    return chunks.status.load();
  }

  static void run_outer_chunk(void* context, int64_t low, int64_t high) {
    OuterChunks* chunks = static_cast<OuterChunks*>(context);
    if (stream_cancelled(chunks->frame->number)) {
      chunks->status.store(Status::cancelled);
      return;
    }
    Status status = Status::no_memory;
    try {  // a worker must not throw
      status = chunks->step->walk(*chunks->frame, chunks->bases, low, high, chunks->parallel);
    } catch (const std::bad_alloc&) {
    }
    if (status != Status::ok) chunks->status.store(status);
  }

  // Iterates the outer dimensions like an odometer; only the operand addresses change.
  Status walk(const Frame& frame, void* const* bases, int64_t low, int64_t high, bool parallel) const {
    size_t rank = outer_extents.size();
    std::vector<void*> addresses(bases, bases + count);
    std::vector<int64_t> index(rank);
    int64_t rest = low;
    for (size_t d = rank; d-- > 0;) {
      index[d] = rest % outer_extents[d];
      rest /= outer_extents[d];
      for (size_t i = 0; i < count; ++i)
        addresses[i] = static_cast<char*>(addresses[i]) + index[d] * outer_strides[d * count + i];
    }
    // In a parallel loop over outer dimensions the nest is not cut: pool jobs do not nest, and its cost is small.
    double nest_cost = parallel ? 0 : cost / double(outer_count);
    for (int64_t point = low; point < high; ++point) {
      if (Status status = run_nest(frame, addresses.data(), nest_cost); status != Status::ok) return status;
      for (size_t d = rank; d-- > 0;) {
        const int64_t* strides = &outer_strides[d * count];
        bool carry = ++index[d] == outer_extents[d];
        int64_t moves = carry ? 1 - outer_extents[d] : 1;
        for (size_t i = 0; i < count; ++i) addresses[i] = static_cast<char*>(addresses[i]) + moves * strides[i];
        if (!carry) break;
        index[d] = 0;
      }
    }
    return Status::ok;
  }
};

// Reads scalar indices, clamps them, and stores the sum of index * stride as one dynamic byte offset.
class OffsetStep final : public Step {
 public:
  struct Term {
    Location location;
    char dtype;
    int64_t nbytes, largest, stride;
  };

  Status run(Frame& frame) const override {
    int64_t sum = 0;
    bool moved = false;
    Device& device = *frame.plan->device;
    const bool here = device.is_host();  // a warm call need not make views
    for (const Term& term : terms) {
      const char* address = term.location.address(frame);
      if (here) {
        sum += clamped(term, address, &moved) * term.stride;
        continue;
      }
      View index(device, address, term.nbytes);
      if (index.data() == nullptr) return Status::no_memory;
      sum += clamped(term, index.data(), &moved) * term.stride;
    }
    frame.dynamic[id] = sum;
    if (!moved || word.slot < 0) return Status::ok;
    constexpr char one = 1;
    return device.upload(word.address(frame), &one, 1);
  }
  bool on_host() const override { return true; }

  int32_t id = 0;
  std::vector<Term> terms;
  Location word{-1, -1, 0};  // the byte that is set if an index was clamped; slot -1: none

 private:
  template <class T>
  static int64_t clamp(const char* address, int64_t largest, bool* moved) {
    T value;
    std::memcpy(&value, address, sizeof(T));
    if (value >= T(0) && uint64_t(value) <= uint64_t(largest)) return int64_t(value);
    *moved = true;
    return value < T(0) ? 0 : largest;
  }
  static int64_t clamped(const Term& term, const char* address, bool* moved) {
    switch (term.dtype) {
      case 'b': return clamp<int8_t>(address, term.largest, moved);
      case 'h': return clamp<int16_t>(address, term.largest, moved);
      case 'i': return clamp<int32_t>(address, term.largest, moved);
      case 'l':
      case 'q': return clamp<int64_t>(address, term.largest, moved);
      case 'B':
      case '?': return clamp<uint8_t>(address, term.largest, moved);
      case 'H': return clamp<uint16_t>(address, term.largest, moved);
      case 'I': return clamp<uint32_t>(address, term.largest, moved);
      default: return clamp<uint64_t>(address, term.largest, moved);
    }
  }
};

struct MoveJob {
  char* to;
  const char* from;  // nullptr: fill
  int byte;
};

void move_chunk(void* context, int64_t low, int64_t high) {
  const MoveJob* job = static_cast<const MoveJob*>(context);
  if (job->from != nullptr) std::memmove(job->to + low, job->from + low, size_t(high - low));
  else std::memset(job->to + low, job->byte, size_t(high - low));
}

void move_bytes(MoveJob job, int64_t nbytes, double cost) {
  if (job.from == job.to) return;
  bool overlapping = job.from != nullptr && job.from < job.to + nbytes && job.to < job.from + nbytes;
  if (!overlapping && pool_worth(cost)) pool_run(move_chunk, &job, nbytes, 4096, cost);
  else if (nbytes > 0) move_chunk(&job, 0, nbytes);
}

class CopyStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    move_bytes({to.address(frame), from.address(frame), 0}, nbytes, cost_ns());
    return Status::ok;
  }
  bool is_enqueued() const override { return true; }
  bool is_guardable() const override { return true; }
  bool enqueue(CudaDevice& device, Frame& frame, Status* status) const override {
    *status = device.copy(to.address(frame), from.address(frame), nbytes);
    return true;
  }
  double cost_ns() const override { return double(nbytes) * figures.copy_byte_ns; }
  Location to, from;
  int64_t nbytes;
};

class FillStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    move_bytes({to.address(frame), nullptr, byte}, nbytes, cost_ns());
    return Status::ok;
  }
  bool is_enqueued() const override { return true; }
  bool is_guardable() const override { return true; }
  bool enqueue(CudaDevice& device, Frame& frame, Status* status) const override {
    *status = device.fill(to.address(frame), byte, nbytes);
    return true;
  }
  double cost_ns() const override { return double(nbytes) * figures.fill_byte_ns; }
  Location to;
  int64_t nbytes;
  int byte;
};

bool invalid(const char* message) {
  PyErr_SetString(PyExc_ValueError, message);
  return false;
}

bool read_outer(PyObject* outer, KernelStep* step) {
  for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(outer); ++d) {
    long long extent;
    PyObject* strides;
    PyObject* dimension = PyTuple_GET_ITEM(outer, d);
    if (!PyTuple_Check(dimension) || !PyArg_ParseTuple(dimension, "LO!", &extent, &PyTuple_Type, &strides)) {
      PyErr_Clear();
      return invalid("[executable] an outer dimension is (extent, strides)");
    }
    if (extent < 0 || size_t(PyTuple_GET_SIZE(strides)) != step->count)
      return invalid("[executable] an outer dimension needs one stride per operand");
    if (__builtin_mul_overflow(step->outer_count, int64_t(extent), &step->outer_count))
      return invalid("[executable] too many outer points");
    step->outer_extents.push_back(extent);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(strides); ++i) {
      long long stride = PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i));
      if (stride == -1 && PyErr_Occurred()) return false;
      step->outer_strides.push_back(stride);
    }
  }
  return true;
}

}  // namespace

std::unique_ptr<Step> make_kernel_step(PyObject* record, const LocationReader& locations) {
  static constexpr const char* splits[] = {"none", "first", "vector", "blocks"};
  Fields fields(record);
  auto step = std::make_unique<KernelStep>();
  Ref kernel = fields.object("kernel"), operands = fields.tuple("operands"), outer = fields.tuple("outer");
  fields.words64("params", &step->params);
  step->split = Split(fields.word("split", splits, 4));
  step->extent = fields.integer("extent");
  step->grain = std::max<int64_t>(fields.integer("grain"), 1);
  double cost = fields.real("cost_ns");
  step->scratch_bytes = fields.integer("scratch_bytes");
  step->partial_bytes = fields.integer("partial_bytes");
  step->full_first = fields.integer("first");
  step->full_vector = fields.integer("vector");
  if (!fields.ok()) return nullptr;
  if (Py_TYPE(kernel.get()) != KernelType) {
    invalid("[executable] a kernel instruction has no Kernel");
    return nullptr;
  }
  step->kernel = reinterpret_cast<Kernel*>(kernel.release());
  step->function = step->kernel->function;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operands.get()); ++i) {
    Location location;
    if (!locations.location(PyTuple_GET_ITEM(operands.get(), i), -1, &location)) return nullptr;
    step->operands.push_back(location);
  }
  step->count = step->operands.size();
  if (!read_outer(outer.get(), step.get())) return nullptr;
  constexpr int64_t kMost = int64_t{1} << 46;
  if (step->extent < 0 || step->scratch_bytes < 0 || step->partial_bytes < 0 || step->scratch_bytes > kMost ||
      step->partial_bytes > kMost || std::isnan(cost)) {
    invalid("[executable] a kernel instruction has a negative or impossible size");
    return nullptr;
  }
  step->cost = std::clamp(cost, 0.0, 1e18);
  return step;
}

std::unique_ptr<Step> make_offset_step(PyObject* record, LocationReader& locations) {
  Fields fields(record);
  auto step = std::make_unique<OffsetStep>();
  int64_t number = fields.integer("number");
  Ref read = fields.tuple("terms"), word = fields.object("word");
  if (!fields.ok()) return nullptr;
  if (word.get() != Py_None && !locations.location(word.get(), 1, &step->word)) return nullptr;
  PyObject* terms = read.get();
  if (number < 0 || number > 1'000'000) {
    invalid("[executable] a dynamic offset has a wrong number");
    return nullptr;
  }
  step->id = int32_t(number);
  int64_t largest = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(terms); ++i) {
    OffsetStep::Term term{};
    long long offset, most, stride;
    int dtype;
    if (!PyTuple_Check(PyTuple_GET_ITEM(terms, i)) ||
        !PyArg_ParseTuple(PyTuple_GET_ITEM(terms, i), "iLCLL", &term.location.slot, &offset, &dtype, &most, &stride)) {
      if (!PyErr_Occurred()) invalid("[executable] an offset term is (slot, offset, dtype, largest, stride)");
      return nullptr;
    }
    term.location.offset = offset;
    term.location.dynamic = -1;
    term.dtype = dtype < 128 ? char(dtype) : '\0';
    term.largest = most;
    term.stride = stride;
    static constexpr char kinds[] = "bhilqBHILQ?";
    static constexpr int64_t sizes[] = {1, 2, 4, 8, 8, 1, 2, 4, 8, 8, 1};
    const char* kind = term.dtype == '\0' ? nullptr : std::strchr(kinds, term.dtype);
    int64_t reach;
    if (kind == nullptr || most < 0 || __builtin_mul_overflow(int64_t(most), int64_t(stride), &reach) ||
        __builtin_add_overflow(largest, std::max<int64_t>(reach, 0), &largest)) {
      invalid("[executable] an offset term has a wrong dtype or bound");
      return nullptr;
    }
    term.nbytes = sizes[kind - kinds];
    if (!locations.check(term.location, term.nbytes)) return nullptr;
    step->terms.push_back(term);
  }
  locations.note_dynamic(step->id, largest);
  return step;
}

std::unique_ptr<Step> make_copy_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  Ref to = fields.object("to"), from = fields.object("source");
  auto step = std::make_unique<CopyStep>();
  step->nbytes = fields.integer("nbytes");
  if (!fields.ok()) return nullptr;
  if (step->nbytes < 0) invalid("[executable] a copy of negative length");
  if (step->nbytes < 0 || !locations.location(to.get(), step->nbytes, &step->to) ||
      !locations.location(from.get(), step->nbytes, &step->from))
    return nullptr;
  return step;
}

std::unique_ptr<Step> make_fill_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  Ref to = fields.object("to");
  auto step = std::make_unique<FillStep>();
  step->nbytes = fields.integer("nbytes");
  step->byte = int(fields.integer("byte"));
  if (!fields.ok()) return nullptr;
  if (step->nbytes < 0) invalid("[executable] a fill of negative length");
  if (step->nbytes < 0 || !locations.location(to.get(), step->nbytes, &step->to)) return nullptr;
  return step;
}

}  // namespace weft
