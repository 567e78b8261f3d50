// The step of a plan that runs a whole loop as one native function, with the loop's state in registers.
#include <utility>
#include <vector>

#include "fields.h"
#include "plan.h"
#include "stream.h"

namespace weft {
namespace {

// What poll_interrupt needs of the routine that runs on this thread, and the outcome.
struct Polled {
  Frame* frame = nullptr;
  Status status = Status::ok;
};
thread_local Polled t_polled;

// What a routine calls now and then: whether it should stop.
int32_t poll_interrupt() {
  Frame* frame = t_polled.frame;
  Status status = Status::ok;
  if (frame != nullptr && stream_cancelled(frame->number)) {
    status = Status::cancelled;
  } else if (frame != nullptr && !frame->on_stream && frame->number == 0) {
    // The caller's own thread: handle signals here, and let other threads have the GIL.
    PyThreadState* suspended = std::exchange(frame->suspended, nullptr);
    in_python<PyEval_RestoreThread>(suspended != nullptr ? suspended : PyEval_SaveThread());
    if (in_python<PyErr_CheckSignals>() != 0) status = Status::python_error;
    else if (suspended != nullptr) frame->suspended = PyEval_SaveThread();
  }
  t_polled.status = status;
  return status != Status::ok;
}

class RoutineStep final : public Step {
 public:
  ~RoutineStep() override { Py_XDECREF(kernel); }

  Status run(Frame& frame) const override {
    void* stack[24];
    std::vector<void*> heap;
    void** bases = stack;
    if (operands.size() > 24) {
      heap.resize(operands.size());
      bases = heap.data();
    }
    for (size_t i = 0; i < operands.size(); ++i) bases[i] = operands[i].address(frame);
    int64_t range[7] = {};
    range[6] = reinterpret_cast<int64_t>(poll_interrupt);
    Polled before = std::exchange(t_polled, Polled{&frame, Status::ok});  // a signal handler may run another routine
    kernel->function(bases, params.data(), range, nullptr);
    return std::exchange(t_polled, before).status;
  }
  double cost_ns() const override { return cost; }
  bool is_kernel() const override { return true; }

  Kernel* kernel = nullptr;  // owned
  std::vector<Location> operands;
  std::vector<int64_t> params;
  double cost = 0;
};

}  // namespace

std::unique_ptr<Step> make_routine_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  auto step = std::make_unique<RoutineStep>();
  Ref kernel = fields.object("kernel"), operands = fields.tuple("operands");
  fields.words64("params", &step->params);
  step->cost = fields.real("cost_ns");
  if (!fields.ok()) return nullptr;
  if (Py_TYPE(kernel.get()) != KernelType) {
    PyErr_SetString(PyExc_ValueError, "[executable] a routine has no Kernel");
    return nullptr;
  }
  step->kernel = reinterpret_cast<Kernel*>(kernel.release());
  std::vector<int64_t> bytes;
  if (!locations.sized(operands.get(), &step->operands, &bytes)) return nullptr;
  return step;
}

}  // namespace weft
