// A program inside of a program, as a step of loops and branches runs it.
//
// Its inputs are addresses in the outer frame, its results are written where the outer plan asks.
#pragma once

#include <utility>
#include <vector>

#include "array.h"
#include "device.h"
#include "exec.h"
#include "plan.h"
#include "profile.h"

namespace weft {

// A program and the constants that are its first inputs.
struct Nested {
  Executable* program = nullptr;  // owned
  std::vector<PyObject*> consts;  // owned Arrays
  std::vector<Buffer*> held;    // owned: their memory, on the program's device

  ~Nested() {
    Py_XDECREF(reinterpret_cast<PyObject*>(program));
    for (PyObject* array : consts) Py_DECREF(array);
    for (Buffer* buffer : held) buffer_release(buffer);
  }
  const Plan& plan() const { return *program->plan; }
  bool is_guardable() const {
    for (const auto& step : plan().steps)
      if (!step->is_guardable()) return false;
    return true;
  }
  bool may_stall() const {
    for (const auto& step : plan().steps)
      if (step->may_stall()) return true;
    return false;
  }
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(program);
    return 0;
  }
};

// The frame of a nested program: its slots, and temporaries at `arena`.
class NestedFrame {
 public:
  explicit NestedFrame(const Nested& nested)
      : nested_(nested), slots_(size_t(nested.plan().n_slots())), owners_(slots_.size()),
        dynamic_(size_t(nested.plan().n_dynamic)), times_(profile_times(nested.plan())) {
    for (size_t i = 0; i < nested.held.size(); ++i) slots_[i] = nested.held[i]->data;
  }

  void set_arena(char* arena) {
    const Plan& plan = nested_.plan();
    size_t slot = size_t(plan.n_inputs) + plan.outputs.size();
    for (const auto& temp : plan.temps) slots_[slot++] = arena + temp.first;
  }
  char*& input(size_t i) { return slots_[nested_.consts.size() + i]; }
  char*& output(size_t i) { return slots_[size_t(nested_.plan().n_inputs) + i]; }

  // An output without memory of its own gets the address of what it shares.
  void resolve_outputs() {
    const Plan& plan = nested_.plan();
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      const OutputPlan& spec = plan.outputs[i];
      if (spec.kind == OutputKind::output) output(i) = output(size_t(spec.source));
      else if (spec.kind != OutputKind::fresh) output(i) = slots_[size_t(spec.source)];
    }
  }

  Status run(Frame& outer) {
    Frame frame{slots_.data(), owners_.data(), dynamic_.data(), &nested_.plan()};
    frame.suspended = outer.suspended;
    frame.on_stream = outer.on_stream;
    frame.number = outer.number;
    frame.in_callback = outer.in_callback;
    frame.run = outer.run;
    Status status = Status::ok;
    if (times_ != nullptr && times_->start(false)) {
      status = profile_steps(nested_.plan(), frame, *times_);
    } else {
      for (const auto& step : nested_.plan().steps) {
        status = run_step(*step, frame);
        if (status != Status::ok) break;
      }
    }
    outer.suspended = frame.suspended;
    outer.run = frame.run;
    if (frame.error != nullptr) {
      outer.error = frame.error;
      outer.error_traceback = frame.error_traceback;
    }
    return status;
  }

 private:
  const Nested& nested_;
  std::vector<char*> slots_;
  std::vector<Buffer*> owners_;
  std::vector<int64_t> dynamic_;
  PlanTimes* times_;  // while a profile is taken
};

// False, with an error set.
inline bool wrong(const char* message) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, message);
  return false;
}

// Owned parts of `out`, from (Executable, constants); false with an error set.
bool read_nested(PyObject* object, const LocationReader& locations, Nested* out);

// Whether an input or output of a nested program is exactly as large as what it is bound to; if not, an error is set.
bool fits(const Nested& nested, size_t input, int64_t nbytes);
bool gives(const Nested& nested, size_t output, int64_t nbytes);

}  // namespace weft
