// Builds a Plan from the compiler's records. Checks every index, so that running a plan needs no checks.
#include "plan.h"

#include <algorithm>
#include <string>

#include "device.h"
#include "fields.h"
#include "module.h"
#include "profile.h"

namespace weft {
namespace {

bool plan_error(const char* format, long long a = 0, long long b = 0) {
  PyErr_Format(PyExc_ValueError, format, a, b);
  return false;
}

// The classes given to install_instructions, in the order of the enums; never released.
enum Opcode { kKernel, kOffset, kProduct, kCopy, kCopyRows, kFill, kSort, kLibrary, kCallback, kLoop, kRoutine, kBranch, kGuard,
              kExchange, kDone, kLaunch, kForeign, kLibraryProduct, kOpcodes };
PyTypeObject* g_instructions[kOpcodes];
PyTypeObject* g_outputs[4];  // by OutputKind

int index_of(PyTypeObject* const* types, int count, PyObject* record) {
  for (int i = 0; i < count; ++i)
    if (Py_TYPE(record) == types[i]) return i;
  return -1;
}

bool read_output(PyObject* record, const Plan& plan, size_t position, OutputPlan* out) {
  int kind = index_of(g_outputs, 4, record);
  if (kind < 0) return plan_error("[executable] output %lld is not an output record", (long long)position);
  Fields fields(record);
  out->kind = OutputKind(kind);
  const bool owns = out->kind == OutputKind::fresh || out->kind == OutputKind::donated;
  const int64_t source = out->kind == OutputKind::fresh ? -1 : fields.integer("source");
  out->nbytes = owns ? fields.integer("nbytes") : 0;
  Ref aval = fields.object("aval");
  if (!fields.ok()) return false;
  if (!is_shaped_array(aval.get())) return plan_error("[executable] output %lld has no aval", (long long)position);
  int64_t aval_bytes = reinterpret_cast<ShapedArray*>(aval.get())->nbytes;
  if (aval_bytes < 0) return plan_error("[executable] output %lld is too large", (long long)position);
  if ((out->kind == OutputKind::input || out->kind == OutputKind::donated) && (source < 0 || source >= plan.n_inputs))
    return plan_error("[executable] output %lld names input %lld", (long long)position, source);
  if (out->kind == OutputKind::output && (source < 0 || size_t(source) >= position))
    return plan_error("[executable] output %lld names output %lld", (long long)position, source);
  out->source = int32_t(source);
  if (owns) {
    if (out->nbytes < aval_bytes)
      return plan_error("[executable] output %lld has %lld bytes, too few for its aval", (long long)position,
                        out->nbytes);
  } else {
    out->nbytes = aval_bytes;
    int64_t bytes =
        out->kind == OutputKind::output ? plan.outputs[size_t(source)].nbytes : plan.in_avals[size_t(source)]->nbytes;
    if (bytes < aval_bytes) return plan_error("[executable] output %lld shares a smaller buffer", (long long)position);
  }
  out->aval = reinterpret_cast<ShapedArray*>(aval.release());
  return true;
}

bool read_temps(PyObject* temps, Plan* plan) {
  Ref sequence = steal(in_python<PySequence_Fast>(temps, "[executable] temps must be a sequence"));
  if (!sequence) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); ++i) {
    long long offset, nbytes;
    PyObject* item = PySequence_Fast_GET_ITEM(sequence.get(), i);
    if (!PyTuple_Check(item)) return plan_error("[executable] temporary %lld is not (offset, nbytes)", i);
    if (!PyArg_ParseTuple(item, "LL;[executable] a temporary is (offset, nbytes)", &offset, &nbytes)) return false;
    if (offset < 0 || nbytes < 0 || offset > plan->arena_bytes || nbytes > plan->arena_bytes - offset)
      return plan_error("[executable] temporary %lld is outside the arena", i);
    plan->temps.emplace_back(offset, nbytes);
  }
  return true;
}

std::unique_ptr<Step> read_step(PyObject* instruction, LocationReader& locations) {
  const int opcode = index_of(g_instructions, kOpcodes, instruction);
  if ((opcode == kExchange || opcode == kDone) && !locations.device()->is_host()) {
    PyErr_Format(PyExc_NotImplementedError, "[executable] programs on %s exchange nothing with other processes",
                 locations.device()->name.c_str());
    return nullptr;
  }
  switch (opcode) {
    case kKernel: return make_kernel_step(instruction, locations);
    case kOffset: return make_offset_step(instruction, locations);
    case kProduct: return make_gemm_step(instruction, locations);
    case kCopy: return make_copy_step(instruction, locations);
    case kCopyRows: return make_copy_rows_step(instruction, locations);
    case kFill: return make_fill_step(instruction, locations);
    case kSort: return make_sort_step(instruction, locations);
    case kLibrary: return make_library_step(instruction, locations);
    case kCallback: return make_python_step(instruction, locations);
    case kLoop: return make_loop_step(instruction, locations);
    case kRoutine: return make_routine_step(instruction, locations);
    case kBranch: return make_branch_step(instruction, locations);
    case kGuard: return make_guard_step(instruction, locations);
    case kExchange: return make_exchange_step(instruction, locations);
    case kDone: return make_done_step(instruction, locations);
    case kLaunch: return make_launch_step(instruction, locations);
    case kForeign: return make_foreign_step(instruction, locations);
    case kLibraryProduct: return make_library_product_step(instruction, locations);
  }
  PyErr_Format(PyExc_ValueError, "[executable] %R is not an instruction", instruction);
  return nullptr;
}

bool read_classes(PyObject* classes, PyTypeObject** out, Py_ssize_t count) {
  if (PyTuple_GET_SIZE(classes) != count) return plan_error("[install_instructions] expected %lld classes", count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!PyType_Check(PyTuple_GET_ITEM(classes, i)))
      return plan_error("[install_instructions] class %lld is not a class", i);
    Py_XSETREF(out[i], reinterpret_cast<PyTypeObject*>(Py_NewRef(PyTuple_GET_ITEM(classes, i))));
  }
  return true;
}

PyObject* install_instructions(PyObject*, PyObject* args) {
  PyObject *instructions, *outputs;
  if (!PyArg_ParseTuple(args, "O!O!:install_instructions", &PyTuple_Type, &instructions, &PyTuple_Type, &outputs))
    return nullptr;
  if (!read_classes(instructions, g_instructions, kOpcodes) || !read_classes(outputs, g_outputs, 4)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* iterations(PyObject*, PyObject*) { return loop_iterations(); }

PyMethodDef g_methods[] = {
    {"loop_iterations", iterations, METH_NOARGS,
     "loop_iterations() -> the iterations of the loops that a program runs on this thread, the outermost first."},
    {"install_instructions", install_instructions, METH_VARARGS,
     "install_instructions(instructions, outputs): the classes of a plan's records, in the order of plan.cpp."},
    {nullptr, nullptr, 0, nullptr},
};

bool read_in_avals(PyObject* in_avals, Plan* plan) {
  Ref sequence = steal(in_python<PySequence_Fast>(in_avals, "[executable] in_avals must be a sequence"));
  if (!sequence) return false;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence.get());
  if (count != plan->n_inputs) return plan_error("[executable] %lld in_avals for %lld inputs", count, plan->n_inputs);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* aval = PySequence_Fast_GET_ITEM(sequence.get(), i);
    if (!is_shaped_array(aval) || reinterpret_cast<ShapedArray*>(aval)->nbytes < 0)
      return plan_error("[executable] in_avals[%lld] is not a ShapedArray of a possible size", i);
    plan->in_avals.push_back(reinterpret_cast<ShapedArray*>(Py_NewRef(aval)));
  }
  return true;
}

}  // namespace

thread_local Iteration* Iteration::innermost = nullptr;

PyObject* loop_iterations() {
  std::vector<int64_t> found;
  for (const Iteration* at = Iteration::innermost; at != nullptr; at = at->outer) found.insert(found.begin(), at->index);
  Ref tuple = steal(PyTuple_New(Py_ssize_t(found.size())));
  for (size_t i = 0; tuple && i < found.size(); ++i) {
    PyObject* index = PyLong_FromLongLong(found[i]);
    if (index == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), index);
  }
  return tuple.release();
}

Plan::~Plan() {
  for (ShapedArray* aval : in_avals) Py_DECREF(aval);
  for (OutputPlan& output : outputs) Py_XDECREF(output.aval);
  Py_XDECREF(reinterpret_cast<PyObject*>(device_program));
  delete times.load();
}

bool LocationReader::check(const Location& location, int64_t nbytes) const {
  if (location.slot < 0 || location.slot >= plan_.n_slots())
    return plan_error("[executable] an instruction names slot %lld", location.slot);
  if (!plan_.device->is_host()) touched_.push_back(location.slot);
  if (location.offset < 0) return plan_error("[executable] negative offset %lld into slot %lld", location.offset, location.slot);
  int64_t dynamic = 0;
  if (location.dynamic >= 0) {
    if (size_t(location.dynamic) >= largest_.size() || largest_[size_t(location.dynamic)] < 0)
      return plan_error("[executable] dynamic offset %lld is used before it is computed", location.dynamic);
    dynamic = largest_[size_t(location.dynamic)];
  }
  int64_t size = slot_bytes_[size_t(location.slot)], end;
  if (__builtin_add_overflow(location.offset, dynamic, &end) ||
      (nbytes > 0 && __builtin_add_overflow(end, nbytes, &end)) || end > size)
    return plan_error("[executable] an instruction accesses byte %lld of slot %lld, which is smaller", location.offset,
                      location.slot);
  return true;
}

bool LocationReader::location(PyObject* object, int64_t nbytes, Location* out) const {
  long long offset;
  if (!PyTuple_Check(object)) return plan_error("[executable] a location is (slot, offset, dynamic)");
  if (!PyArg_ParseTuple(object, "iLi;[executable] a location is (slot, offset, dynamic)", &out->slot, &offset,
                        &out->dynamic))
    return false;
  out->offset = offset;
  return check(*out, nbytes);
}

bool LocationReader::typed_location(PyObject* object, Location* out, ShapedArray** aval) const {
  long long offset;
  PyObject* type;
  if (!PyTuple_Check(object)) return plan_error("[executable] a location is (slot, offset, aval)");
  if (!PyArg_ParseTuple(object, "iLO;[executable] a location is (slot, offset, aval)", &out->slot, &offset, &type))
    return false;
  if (!is_shaped_array(type)) return plan_error("[executable] a location is (slot, offset, aval)");
  *aval = reinterpret_cast<ShapedArray*>(type);
  out->offset = offset;
  out->dynamic = -1;
  return check(*out, (*aval)->nbytes);
}

bool LocationReader::sized(PyObject* sequence, std::vector<Location>* out, std::vector<int64_t>* sizes) const {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sequence); ++i) {
    PyObject* object;
    long long nbytes;
    PyObject* item = PyTuple_GET_ITEM(sequence, i);
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "OL", &object, &nbytes) || nbytes < 0)
      return PyErr_Occurred() != nullptr ? false : plan_error("[executable] operand %lld is not (location, bytes)", i);
    Location found{};
    if (!location(object, nbytes, &found)) return false;
    out->push_back(found);
    sizes->push_back(nbytes);
  }
  return true;
}

std::vector<std::pair<int32_t, int64_t>> LocationReader::take_touched() {
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  std::vector<std::pair<int32_t, int64_t>> found;
  for (int32_t slot : touched_) found.emplace_back(slot, slot_bytes_[size_t(slot)]);
  touched_.clear();
  return found;
}

void LocationReader::note_dynamic(int32_t id, int64_t largest) {
  if (size_t(id) >= largest_.size()) largest_.resize(size_t(id) + 1, -1);
  int64_t& known = largest_[size_t(id)];
  if (largest > known) known = largest;
}

std::unique_ptr<Plan> plan_from_python(Device* device, Py_ssize_t n_inputs, PyObject* outputs, PyObject* temps,
                                       Py_ssize_t arena_bytes, PyObject* instructions, PyObject* in_avals) {
  auto plan = std::make_unique<Plan>(device);
  plan->number = device->number;
  if (n_inputs < 0 || n_inputs > 10'000'000 || arena_bytes < 0) {
    plan_error("[executable] n_inputs and arena_bytes must not be negative");
    return nullptr;
  }
  plan->n_inputs = int32_t(n_inputs);
  plan->arena_bytes = arena_bytes;
  if (!read_in_avals(in_avals, plan.get())) return nullptr;
  Ref specs = steal(in_python<PySequence_Fast>(outputs, "[executable] outputs must be a sequence"));
  if (!specs) return nullptr;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(specs.get()); ++i) {
    OutputPlan output{};
    if (!read_output(PySequence_Fast_GET_ITEM(specs.get(), i), *plan, plan->outputs.size(), &output)) return nullptr;
    plan->outputs.push_back(output);
  }
  if (!read_temps(temps, plan.get())) return nullptr;

  std::vector<int64_t> slot_bytes;
  for (const ShapedArray* aval : plan->in_avals) slot_bytes.push_back(aval->nbytes);
  for (const OutputPlan& output : plan->outputs) slot_bytes.push_back(output.nbytes);
  for (const auto& temp : plan->temps) slot_bytes.push_back(temp.second);
  LocationReader locations(*plan, std::move(slot_bytes));

  Ref list = steal(in_python<PySequence_Fast>(instructions, "[executable] instructions must be a sequence"));
  if (!list) return nullptr;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
    std::unique_ptr<Step> step = read_step(PySequence_Fast_GET_ITEM(list.get(), i), locations);
    if (!step) return nullptr;
    plan->cost_ns += step->cost_ns();
    plan->n_kernels += step->is_kernel();
    plan->has_python = plan->has_python || step->is_python();
    plan->has_callbacks = plan->has_callbacks || step->has_callbacks();
    plan->unbounded = plan->unbounded || step->is_unbounded();
    if (!device->is_host()) {
      std::vector<std::pair<int32_t, int64_t>> touched = locations.take_touched();
      plan->all_enqueued = plan->all_enqueued && step->is_enqueued();
      if (!step->on_host()) {
        step->device = device;
        step->touched = std::move(touched);
      }
    }
    if (!plan->steps.empty() && plan->steps.back()->absorb(*step)) continue;
    plan->steps.push_back(std::move(step));
    plan->first_instruction.push_back(int32_t(i));
  }
  plan->n_dynamic = locations.n_dynamic();
  return plan;
}

int register_plan(PyObject* module) { return PyModule_AddFunctions(module, g_methods); }

}  // namespace weft
