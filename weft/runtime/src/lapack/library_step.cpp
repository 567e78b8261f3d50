// Library calls as steps of a plan: a routine runs on every matrix of a batch.
//
//   ("library", "cholesky", "f", 8, (300,), (location of a,), (location of l,))    eight matrices f32[300,300]
//
// Several matrices: each is computed by one thread of the pool. A single matrix, or a few large ones: LAPACK uses as many
// threads as the pool has, and the pool waits. LAPACK's threads wait for each other without sleeping; where another
// process has one of the processors each such meeting takes milliseconds (an inverse of 60 rows: 16 ms, one thread 15
// us). So they are used for large matrices only. Interrupts are handled between two matrices.
#include <algorithm>
#include <atomic>

#include "buffer.h"
#include "figures.h"
#include "library.h"
#include "fields.h"
#include "plan.h"
#include "pool.h"
#include "stream.h"

namespace weft {
namespace {

constexpr double kAloneNs = 1e3;  // for a smaller matrix no BLAS takes a second thread
constexpr double kLargeNs = 500e3;  // with fewer matrices than threads, each one above this is computed by all threads

class LibraryStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    Job job{this, &frame};
    int threads = pool_threads();
    bool several = batch > 1 && (batch >= threads || one_ns() < kLargeNs) && pool_worth(cost_ns());
    if (!routine->is_library || (!several && one_ns() < kAloneNs)) {
      several ? pool_run(some, &job, batch, grain(), cost_ns()) : some(&job, 0, batch);
    } else {
      LapackThreads guard(several || routine->flops < routine->flops_for_threads ? 1 : threads);
      several ? pool_run(some, &job, batch, grain(), cost_ns()) : some(&job, 0, batch);
    }
    return job.status.load();
  }
  double cost_ns() const override { return double(batch) * one_ns(); }

  std::unique_ptr<Routine> routine;
  int64_t batch = 1;
  std::vector<Location> in, out;

 private:
  struct Job {
    const LibraryStep* step;
    const Frame* frame;
    std::atomic<Status> status{Status::ok};
  };

  double one_ns() const { return figures.matrix_ns + routine->flops * figures.matrix_flop_ns; }
  int64_t grain() const { return std::max<int64_t>(1, std::min<int64_t>(batch, int64_t(20e3 / one_ns()))); }

  static void some(void* context, int64_t low, int64_t high) {
    Job& job = *static_cast<Job*>(context);
    const LibraryStep& step = *job.step;
    Buffer* work = buffer_allocate(step.routine->work_bytes);
    if (work == nullptr) {
      job.status.store(Status::no_memory);
      return;
    }
    char* operands[8];
    size_t n_in = step.in.size();
    for (int64_t i = low; i < high && job.status.load() == Status::ok; ++i) {
      if (stream_cancelled(job.frame->number)) {
        job.status.store(Status::cancelled);
        break;
      }
      for (size_t k = 0; k < n_in; ++k) operands[k] = step.in[k].address(*job.frame) + i * step.routine->in_bytes[k];
      for (size_t k = 0; k < step.out.size(); ++k)
        operands[n_in + k] = step.out[k].address(*job.frame) + i * step.routine->out_bytes[k];
      step.routine->run(operands, operands + n_in, work->data);
    }
    buffer_release(work);
  }
};

bool invalid_call(const char* message) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, message);
  return false;
}

bool read_sizes(PyObject* tuple, std::vector<int64_t>* sizes) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    long long size = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    if (size == -1 && PyErr_Occurred()) return false;
    if (size < 0 || size > std::numeric_limits<int32_t>::max() / 2)
      return invalid_call("[executable] a library call has a size that is negative or too large");
    sizes->push_back(size);
  }
  return true;
}

bool read_operands(PyObject* tuple, const std::vector<int64_t>& bytes, int64_t batch, const LocationReader& locations,
                   std::vector<Location>* operands) {
  if (size_t(PyTuple_GET_SIZE(tuple)) != bytes.size())
    return invalid_call("[executable] a library call has the wrong number of operands");
  for (size_t i = 0; i < bytes.size(); ++i) {
    Location location;
    int64_t all;
    if (__builtin_mul_overflow(bytes[i], batch, &all)) return invalid_call("[executable] a library call is too large");
    if (!locations.location(PyTuple_GET_ITEM(tuple, Py_ssize_t(i)), all, &location)) return false;
    operands->push_back(location);
  }
  return true;
}

}  // namespace

std::unique_ptr<Step> make_library_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  Ref routine = fields.object("routine"), sizes = fields.tuple("sizes"), in = fields.tuple("operands"),
      out = fields.tuple("results");
  const char type = fields.character("type");
  const int64_t batch = fields.integer("batch");
  if (!fields.ok()) return nullptr;
  const char* name = PyUnicode_AsUTF8(routine.get());
  if (name == nullptr) return nullptr;
  std::vector<int64_t> read;
  if (!read_sizes(sizes.get(), &read)) return nullptr;
  if (std::strcmp(name, "fft") == 0) return make_fft_step(type, read, in.get(), out.get(), locations);
  auto step = std::make_unique<LibraryStep>();
  for (auto* make : {make_factorization, make_solver, make_spectral, make_counter})
    if (step->routine == nullptr) step->routine = make(name, type);
  if (step->routine == nullptr) {
    PyErr_Format(PyExc_ValueError, "[executable] there is no library routine %s for elements of type %c", name, type);
    return nullptr;
  }
  if (batch < 1) invalid_call("[executable] a library call without a matrix");
  if (batch < 1) return nullptr;
  if (!step->routine->prepare(read)) {
    invalid_call("[executable] a library call with the wrong number of sizes");
    return nullptr;
  }
  step->batch = batch;
  if (!read_operands(in.get(), step->routine->in_bytes, batch, locations, &step->in) ||
      !read_operands(out.get(), step->routine->out_bytes, batch, locations, &step->out))
    return nullptr;
  return step;
}

}  // namespace weft
