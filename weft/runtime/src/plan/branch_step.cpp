// The step of a plan that runs one of several programs.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "ahead.h"
#include "array.h"
#include "device.h"
#include "exec.h"
#include "fields.h"
#include "guard.h"
#include "nested_program.h"
#include "pjrt.h"
#include "plan.h"
#include "workspace.h"

namespace weft {
namespace {

// Steps of all programs together; with more the host reads which program is meant. An estimate: on an H100 a launch takes
// the host 3.6 us and a wait 8 us more than one, in which the GPU has nothing to do and after which nothing is queued.
constexpr size_t kMostGuarded = 32;

class BranchStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    if (Ahead* ahead = Ahead::current) return run_guarded(frame, *ahead);
    if (may_be_guarded(*frame.plan->device)) {
      const Guarded as_before(t_guard);
      Ahead ahead(nullptr);
      return run_guarded(frame, ahead);
    }
    int32_t index;
    View asked(*frame.plan->device, which.address(frame), sizeof index);
    if (asked.data() == nullptr) return Status::no_memory;
    std::memcpy(&index, asked.data(), sizeof index);
    size_t last = branches.size() - 1;
    const Nested& nested = branches[index < 0 ? 0 : size_t(index) > last ? last : size_t(index)];
    try {
      return run_branch(frame, nested);
    } catch (const std::bad_alloc&) {
      return Status::no_memory;
    }
  }
  bool on_host() const override { return true; }
  double cost_ns() const override {
    double most = 0;
    for (const Nested& nested : branches) most = most < nested.plan().cost_ns ? nested.plan().cost_ns : most;
    return most;
  }
  bool is_python() const override {
    for (const Nested& nested : branches)
      if (nested.plan().has_python) return true;
    return false;
  }
  bool has_callbacks() const override {
    for (const Nested& nested : branches)
      if (nested.plan().has_callbacks) return true;
    return false;
  }
  bool is_unbounded() const override {
    for (const Nested& nested : branches)
      if (nested.plan().unbounded) return true;
    return false;
  }
  int traverse(visitproc visit, void* arg) const override {
    for (const Nested& nested : branches)
      if (int status = nested.traverse(visit, arg); status != 0) return status;
    return 0;
  }

  Executable* inner_program(size_t number) const override {
    return number < branches.size() ? branches[number].program : nullptr;
  }

  bool is_guardable() const override {
    size_t count = 0;
    for (const Nested& nested : branches) {
      count += nested.plan().steps.size() + results.size();
      if (!nested.is_guardable()) return false;
    }
    return count <= kMostGuarded;
  }
  bool may_stall() const override {
    for (const Nested& nested : branches)
      if (nested.may_stall()) return true;
    return false;
  }

  Location which;
  std::vector<Nested> branches;
  std::vector<Location> operands, results;
  std::vector<int64_t> result_bytes;

 private:
  // Whether all programs may be asked for. The GPU then does one.
  bool may_be_guarded(const Device& device) const { return device.guards() && is_guardable() && !may_stall(); }

  Status run_guarded(Frame& frame, Ahead& ahead) const {
    try {
      return ask_for_all(frame, ahead);
    } catch (const std::bad_alloc&) {
      return Status::no_memory;
    }
  }

  // All programs, each under the guard of this thread and that it is meant; then that none of them has stalled.
  Status ask_for_all(Frame& frame, Ahead& ahead) const {
    Device& device = *frame.plan->device;
    const Guard outer = t_guard;
    Workspace& words = ahead.kept(this).words;  // which is meant, and whether to go on
    if (words.empty() && !words.allocate(device, 2 * sizeof(int32_t))) return Status::no_memory;
    const char* word = outer.word == nullptr ? which.address(frame) : words.at(0);
    Status status = outer.word == nullptr ? Status::ok : device.narrow(words.at(0), which.address(frame), ahead.stalled);
    for (size_t b = 0; b < branches.size() && status == Status::ok; ++b) {
      const bool was_skipping = t_skipping;
      guard_by({word, b > 0 ? int32_t(b) : outer.word == nullptr ? INT32_MIN : 0,
                b + 1 == branches.size() ? INT32_MAX : int32_t(b)});
      status = run_branch(frame, branches[b]);
      if (was_skipping && !t_skipping) break;  // this one was meant
    }
    t_guard = outer;
    if (status != Status::ok || ahead.waits > 0 || !may_stall()) return status;
    status = device.narrow(words.at(sizeof(int32_t)), nullptr, ahead.stalled);
    guard_by({words.at(sizeof(int32_t)), 0, 0});
    return status;
  }

  int64_t most_bytes() const {  // of temporaries of a program
    int64_t most = 0;
    for (const Nested& nested : branches) most = std::max(most, nested.plan().arena_bytes);
    return most;
  }

  Status run_branch(Frame& frame, const Nested& nested) const {
    NestedFrame inner(nested);
    Workspace own;
    Workspace& memory = Ahead::current == nullptr ? own : Ahead::current->kept(this).memory;
    if (nested.plan().arena_bytes > 0) {
      if (memory.empty() && !memory.allocate(*frame.plan->device, Ahead::current == nullptr ? nested.plan().arena_bytes : most_bytes()))
        return Status::no_memory;
      inner.set_arena(memory.at(0));
    }
    for (size_t i = 0; i < operands.size(); ++i) inner.input(i) = operands[i].address(frame);
    for (size_t i = 0; i < results.size(); ++i) inner.output(i) = results[i].address(frame);
    inner.resolve_outputs();
    if (Status status = inner.run(frame); status != Status::ok) return status;
    for (size_t i = 0; i < results.size(); ++i) {
      char* to = results[i].address(frame);
      if (inner.output(i) == to) continue;
      Status status = copy_on(*frame.plan->device, to, inner.output(i), result_bytes[i]);
      if (status != Status::ok) return status;
    }
    return Status::ok;
  }
};

// Keeps the constant's memory, which is moved to the program's device if it is elsewhere.
bool hold_constant(Nested* nested, Array* array) {
  Device& device = *nested->plan().device;
  if (device.is_host()) {
    if (array->remote != nullptr) return wrong("[executable] a constant of a nested program is an Array of the CPU");
    if (buffer_wait(array->buffer) < 0) return false;
    nested->held.push_back(buffer_retain(array->buffer));
    return true;
  }
  Remote* remote = remote_of_array(device.number, array);
  if (remote == nullptr) return false;
  nested->held.push_back(buffer_retain(remote->memory));
  remote_release(remote);
  return true;
}

}  // namespace

bool read_nested(PyObject* object, const LocationReader& locations, Nested* out) {
  PyObject *program, *consts;
  if (!PyTuple_Check(object) || !PyArg_ParseTuple(object, "O!O!", ExecutableType, &program, &PyTuple_Type, &consts))
    return wrong("[executable] a nested program is (Executable, constants)");
  out->program = reinterpret_cast<Executable*>(Py_NewRef(program));
  if (out->program->plan->device_program != nullptr || out->program->plan->device != locations.device())
    return wrong("[executable] a nested program runs on the device of the program around it");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(consts); ++i) {
    PyObject* array = PyTuple_GET_ITEM(consts, i);
    if (!is_array(array)) return wrong("[executable] a constant of a nested program is an Array");
    out->consts.push_back(Py_NewRef(array));
    auto* constant = reinterpret_cast<Array*>(array);
    if (executable_check_input(out->program, int32_t(i), constant) < 0 || !hold_constant(out, constant)) return false;
  }
  return true;
}

bool fits(const Nested& nested, size_t input, int64_t nbytes) {
  const Plan& plan = nested.plan();
  size_t slot = nested.consts.size() + input;
  if (slot < plan.in_avals.size() && plan.in_avals[slot]->nbytes == nbytes) return true;
  return wrong("[executable] a nested program takes operands of other sizes");
}

bool gives(const Nested& nested, size_t output, int64_t nbytes) {
  const Plan& plan = nested.plan();
  if (output < plan.outputs.size() && plan.outputs[output].nbytes == nbytes) return true;
  return wrong("[executable] a nested program gives results of other sizes");
}

std::unique_ptr<Step> make_branch_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  Ref which = fields.object("which"), branches = fields.tuple("branches"), operands = fields.tuple("operands"),
      results = fields.tuple("results");
  if (!fields.ok()) return nullptr;
  auto step = std::make_unique<BranchStep>();
  if (!locations.location(which.get(), 4, &step->which)) return nullptr;
  if (PyTuple_GET_SIZE(branches.get()) == 0) return wrong("[executable] a branch needs programs"), nullptr;
  std::vector<int64_t> bytes;
  if (!locations.sized(operands.get(), &step->operands, &bytes) ||
      !locations.sized(results.get(), &step->results, &step->result_bytes))
    return nullptr;
  step->branches = std::vector<Nested>(size_t(PyTuple_GET_SIZE(branches.get())));
  for (size_t b = 0; b < step->branches.size(); ++b) {
    Nested& nested = step->branches[b];
    if (!read_nested(PyTuple_GET_ITEM(branches.get(), Py_ssize_t(b)), locations, &nested)) return nullptr;
    if (size_t(nested.plan().n_inputs) != nested.consts.size() + bytes.size() ||
        nested.plan().outputs.size() != step->result_bytes.size())
      return wrong("[executable] a branch takes or gives another number of values"), nullptr;
    for (size_t i = 0; i < bytes.size(); ++i)
      if (!fits(nested, i, bytes[i])) return nullptr;
    for (size_t i = 0; i < step->result_bytes.size(); ++i)
      if (!gives(nested, i, step->result_bytes[i])) return nullptr;
  }
  return step;
}

}  // namespace weft
