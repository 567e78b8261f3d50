// Programs on devices of plugins: how they are kept, and a call's arguments and results.
#include <cstring>

#include "device.h"
#include "module.h"
#include "operands.h"
#include "pjrt.h"

namespace weft {

using pjrt::Function;

namespace {

constexpr int32_t kStackRemotes = 96;

PyTypeObject* g_program_type = nullptr;

DeviceProgram* as_program(PyObject* self) { return reinterpret_cast<DeviceProgram*>(self); }

void program_dealloc(PyObject* self) {
  DeviceProgram* program = as_program(self);
  if (program->executable != nullptr && !is_forked_child()) {
    pjrt::ExecutableArgs args{};
    args.executable = program->executable;
    const Plugin& plugin = *program->device->plugin;
    pjrt::Error* error = pjrt_call(plugin, Function::executable_destroy, args);
    if (error != nullptr) report_pjrt_error(plugin, error, "release of a program");
  }
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// The program of an executable, to be destroyed by program_destroy; nullptr with an error set.
pjrt::Program* program_of(const DeviceProgram* self) {
  pjrt::ExecutableProgramArgs args{};
  args.executable = self->executable;
  if (pjrt::Error* error = pjrt_call(*self->device->plugin, Function::executable_program, args)) {
    set_pjrt_error(*self->device->plugin, error, "program");
    return nullptr;
  }
  return args.program;
}

// An answer of `ask` about the program, for Python.
template <PyObject* (*ask)(const Plugin&, pjrt::Program*)>
PyObject* about(PyObject* object, PyObject*) {
  DeviceProgram* self = as_program(object);
  pjrt::Program* program = refuse_after_fork() ? nullptr : program_of(self);
  if (program == nullptr) return nullptr;
  PyObject* answer = ask(*self->device->plugin, program);
  program_destroy(*self->device->plugin, program);
  return answer;
}

// References to the memory of a call's inputs; those that must not be donated.
class Inputs {
 public:
  explicit Inputs(int32_t capacity) { held_.reserve(size_t(capacity)); }
  ~Inputs() {
    for (Remote* remote : held_) remote_release(remote);
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  bool add(Remote* remote) {  // steals; nullptr: an error is set
    if (remote != nullptr) held_.push_back(remote);
    return remote != nullptr;
  }
  Remote* const* data() const { return held_.data(); }

 private:
  std::vector<Remote*> held_;
};

// Takes the memory of donated Arrays, which count as deleted from now on. `array(i)` is input i, or nullptr.
template <class ArrayOf>
bool donate(const Plan& plan, const bool* donated, ArrayOf array) {
  for (int32_t i = 0; i < plan.n_inputs; ++i) {
    Array* given = donated[i] ? array(i) : nullptr;
    if (given == nullptr) continue;
    for (int32_t j = 0; j < plan.n_inputs; ++j) {
      if (j == i || array(j) != given) continue;
      set_donated_twice_error(plan.name.c_str(), given);
      return false;
    }
  }
  return true;
}

}  // namespace

PyObject* device_program_new(uint32_t number, pjrt::Executable* executable) {
  Ref made = steal(g_program_type->tp_alloc(g_program_type, 0));
  PluginDevice* device = plugin_devices()[number].get();
  if (!made) return nullptr;  // without memory for one object the process is at its end: the program leaks
  DeviceProgram* self = as_program(made.get());
  self->device = device;
  self->number = number;
  self->executable = executable;
  pjrt::Program* program = program_of(self);
  if (program == nullptr) return nullptr;
  pjrt::ProgramCountArgs args{};
  args.program = program;
  pjrt::Error* error = pjrt_call(*device->plugin, Function::program_output_count, args);
  program_destroy(*device->plugin, program);
  if (error != nullptr) return set_pjrt_error(*device->plugin, error, "number of results");
  self->n_outputs = uint32_t(args.count);
  return made.release();
}

namespace {

// The caller and the Array hold a reference each; whoever else holds one keeps the memory.
bool may_take(const Remote* remote) { return remote->references <= 2 && !remote->lent; }

int run_native(Executable* executable, Remote* const* inputs, const bool* donated, Remote** outputs) {
  const Plan& plan = *executable->plan;
  Small<Operand, kStackRemotes> operands(plan.n_inputs);
  Small<bool, kStackRemotes> taken(plan.n_inputs);
  for (int32_t i = 0; i < plan.n_inputs; ++i) {
    operands[i] = {inputs[i]->memory->data, inputs[i]->memory};
    taken[i] = donated != nullptr && donated[i] && may_take(inputs[i]);
  }
  Small<Buffer*, kStackRemotes> results(int32_t(plan.outputs.size()));
  int status = executable_run_on_device(executable, operands.data(), taken.data(), results.data());
  if (status < 0) return status;
  for (size_t i = 0; i < plan.outputs.size(); ++i) outputs[i] = remote_new_native(plan.number, results[int32_t(i)]);
  return 0;
}

}  // namespace

int device_run(Executable* executable, Remote* const* inputs, const bool* donated, Remote** outputs) {
  if (refuse_after_fork()) return kNotStarted;
  const Plan& plan = *executable->plan;
  const DeviceProgram* program = plan.device_program;
  if (program == nullptr) return run_native(executable, inputs, donated, outputs);
  Small<pjrt::DeviceBuffer*, kStackRemotes> arguments(plan.n_inputs);
  Small<int64_t, kStackRemotes> kept(plan.n_inputs);
  int32_t n_kept = 0;
  for (int32_t i = 0; i < plan.n_inputs; ++i) {
    arguments[i] = inputs[i]->handle;
    if (donated == nullptr || !donated[i] || !may_take(inputs[i])) kept[n_kept++] = i;
  }
  int32_t n_outputs = int32_t(plan.outputs.size());
  Small<pjrt::DeviceBuffer*, kStackRemotes> results(n_outputs);
  pjrt::ExecuteOptions options{};
  options.struct_size = sizeof options;
  options.kept_inputs = kept.data();
  options.kept_count = size_t(n_kept);
  pjrt::DeviceBuffer* const* argument_list = arguments.data();
  pjrt::DeviceBuffer** result_list = results.data();
  pjrt::ExecuteArgs args{};
  args.executable = program->executable;
  args.options = &options;
  args.arguments = &argument_list;
  args.device_count = 1;
  args.argument_count = size_t(plan.n_inputs);
  args.outputs = &result_list;
  PyThreadState* state = PyEval_SaveThread();
  pjrt::Error* error = pjrt_call(*program->device->plugin, Function::executable_execute, args);
  in_python<PyEval_RestoreThread>(state);
  if (error != nullptr) {
    set_pjrt_error(*program->device->plugin, error, plan.name.c_str());
    return kNotStarted;
  }
  for (int32_t i = 0; i < n_outputs; ++i) outputs[i] = remote_new(program->number, results[i]);
  return 0;
}

PyObject* call_on_device(Entry* entry, Signature& signature, bool* handled) {
  const CacheEntry* cached = entry->cached;
  const Plan& plan = *cached->executable->plan;
  const auto& leaves = signature.leaves();
  int32_t n_consts = int32_t(cached->consts->size());
  signature.retain();  // other threads run meanwhile
  Ref held = borrow(reinterpret_cast<PyObject*>(cached->executable));
  Inputs inputs(plan.n_inputs);
  std::unique_ptr<bool[]> donated(new bool[size_t(plan.n_inputs) + 1]());
  auto array_of = [&](int32_t i) -> Array* {
    if (i < n_consts) return (*cached->consts)[size_t(i)];
    const Leaf& leaf = leaves[entry->order[size_t(i - n_consts)]];
    return leaf.kind == LeafKind::array ? reinterpret_cast<Array*>(leaf.object) : nullptr;
  };
  for (int32_t i = 0; i < plan.n_inputs; ++i) {
    Array* array = array_of(i);
    if (array != nullptr) {
      if (!inputs.add(remote_of_array(plan.number, array))) return nullptr;
      donated[size_t(i)] = i >= n_consts && (*cached->donated)[size_t(i - n_consts)] != 0;
      continue;
    }
    const Leaf& leaf = leaves[entry->order[size_t(i - n_consts)]];
    ShapedArray* aval = plan.in_avals[size_t(i)];
    if (leaf.kind < LeafKind::ndarray) {
      ScalarBytes scalar;
      if (!put_scalar(leaf, aval, &scalar)) return *handled = false, nullptr;
      if (!inputs.add(remote_from_host(plan.number, aval, scalar.bytes, nullptr))) return nullptr;
      continue;
    }
    Buffer* copy = copy_numpy(leaf, aval, plan.name.c_str());
    if (copy == nullptr) return *handled = PyErr_Occurred() != nullptr, nullptr;
    Remote* remote = remote_from_host(plan.number, aval, copy->data, copy);
    buffer_release(copy);
    if (!inputs.add(remote)) return nullptr;
  }
  if (cached->any_donated && !donate(plan, donated.get(), array_of)) return nullptr;
  Small<Remote*, kStackRemotes> outputs(int32_t(plan.outputs.size()));
  int status = device_run(cached->executable, inputs.data(), donated.get(), outputs.data());
  for (int32_t i = 0; status != kNotStarted && i < plan.n_inputs; ++i)
    if (donated[size_t(i)]) array_drop_buffer(array_of(i));
  if (status < 0) return nullptr;
  return remote_results(cached, outputs.data());
}

PyObject* run_on_device(Executable* executable, PyObject* inputs, const bool* donated,
                        const std::vector<uint32_t>& places) {
  const Plan& plan = *executable->plan;
  const uint32_t number = plan.number;
  Inputs held(plan.n_inputs);
  bool committed = false;
  for (uint32_t place : places)
    if (place != 0 && (device_number(place) != number || is_host_place(place)))
      return PyErr_Format(PyExc_ValueError, "[%U] place %u is not on the program's device", executable->name, place);
  for (int32_t i = 0; i < plan.n_inputs; ++i) {
    PyObject* item = PyTuple_GET_ITEM(inputs, i);
    if (!is_array(item)) {
      PyErr_Format(PyExc_TypeError, "[%U] input %d is %R, not an Array", executable->name, int(i), item);
      return nullptr;
    }
    Array* array = reinterpret_cast<Array*>(item);
    if (array->aval->nbytes != plan.in_avals[size_t(i)]->nbytes) {
      PyErr_Format(PyExc_TypeError, "[%U] input %d is %R, but the program was compiled for %R", executable->name, int(i),
                   array->aval, plan.in_avals[size_t(i)]);
      return nullptr;
    }
    committed = committed || (array->place & 1) != 0;
    if (!held.add(remote_of_array(number, array))) return nullptr;
  }
  auto array_of = [&](int32_t i) { return reinterpret_cast<Array*>(PyTuple_GET_ITEM(inputs, i)); };
  if (donated != nullptr && !donate(plan, donated, array_of)) return nullptr;
  Small<Remote*, kStackRemotes> outputs(int32_t(plan.outputs.size()));
  Ref alive = borrow(reinterpret_cast<PyObject*>(executable));
  int status = device_run(executable, held.data(), donated, outputs.data());
  for (int32_t i = 0; donated != nullptr && status != kNotStarted && i < plan.n_inputs; ++i)
    if (donated[i]) array_drop_buffer(array_of(i));
  if (status < 0) return nullptr;
  Py_ssize_t count = Py_ssize_t(plan.outputs.size());
  Ref list = steal(PyList_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    uint32_t where = places.empty() ? uint32_t(committed) : places[places.size() > 1 ? size_t(i) : 0];
    if (where <= 1) where |= number << 1;
    PyObject* made = remote_result_new(plan.outputs[size_t(i)].aval, outputs[int32_t(i)], where);
    if (list && made != nullptr) PyList_SET_ITEM(list.get(), i, made);
    else Py_XDECREF(made), list = Ref();
  }
  return list.release();
}

namespace {

// device_executable(program, in_avals, out_avals, name) -> Executable
PyObject* device_executable(PyObject*, PyObject* args) {
  PyObject *program, *in_avals, *out_avals, *name;
  if (!PyArg_ParseTuple(args, "O!O!O!U:device_executable", g_program_type, &program, &PyTuple_Type, &in_avals,
                        &PyTuple_Type, &out_avals, &name))
    return nullptr;
  if (PyTuple_GET_SIZE(out_avals) != Py_ssize_t(as_program(program)->n_outputs)) {
    PyErr_Format(PyExc_ValueError, "[pjrt] the plugin says that %U has %u results, and it has %zd", name,
                 as_program(program)->n_outputs, PyTuple_GET_SIZE(out_avals));
    return nullptr;
  }
  for (PyObject* avals : {in_avals, out_avals})
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(avals); ++i)
      if (!is_shaped_array(PyTuple_GET_ITEM(avals, i)))
        return PyErr_Format(PyExc_TypeError, "[pjrt] expected avals, got %R", PyTuple_GET_ITEM(avals, i));
  auto plan = std::make_unique<Plan>(&host_device());
  plan->number = as_program(program)->number;
  plan->n_inputs = int32_t(PyTuple_GET_SIZE(in_avals));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(in_avals); ++i)
    plan->in_avals.push_back(reinterpret_cast<ShapedArray*>(Py_NewRef(PyTuple_GET_ITEM(in_avals, i))));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(out_avals); ++i) {
    auto* aval = reinterpret_cast<ShapedArray*>(Py_NewRef(PyTuple_GET_ITEM(out_avals, i)));
    plan->outputs.push_back({OutputKind::fresh, -1, aval->nbytes, aval});
  }
  if (const char* text = PyUnicode_AsUTF8(name)) plan->name = text;
  else return nullptr;
  Executable* made = reinterpret_cast<Executable*>(ExecutableType->tp_alloc(ExecutableType, 0));
  if (made == nullptr) return nullptr;
  plan->device_program = as_program(Py_NewRef(program));
  made->plan = plan.release();
  made->name = Py_NewRef(name);
  return reinterpret_cast<PyObject*>(made);
}

PyMethodDef kFunctions[] = {
    {"device_executable", entry_point<device_executable>, METH_VARARGS,
     "device_executable(program, in_avals, out_avals, name) -> Executable that runs it on its device."},
    {},
};
PyMethodDef kMethods[] = {
    {"serialize", entry_point<about<program_bytes>>, METH_NOARGS, "serialize() -> bytes, for the same plugin."},
    {"cost", entry_point<about<program_cost>>, METH_NOARGS, "cost() -> dict of the plugin's estimates."},
    {"memory", entry_point<about<program_memory>>, METH_NOARGS, "memory() -> dict of sizes in bytes."},
    {"text", entry_point<about<program_text>>, METH_NOARGS, "text() -> (format, bytes): what the compiler made."},
    {},
};
PyMemberDef kMembers[] = {
    {"number", T_UINT, offsetof(DeviceProgram, number), READONLY, "Of its device."},
    {"n_outputs", T_UINT, offsetof(DeviceProgram, n_outputs), READONLY, "Number of results."},
    {},
};
PyType_Slot kSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(program_dealloc)},
    {Py_tp_methods, kMethods},
    {Py_tp_members, kMembers},
    {0, nullptr},
};
PyType_Spec kSpec = {"weft.runtime.PjrtProgram", sizeof(DeviceProgram), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kSlots};

}  // namespace

int register_pjrt_programs(PyObject* module) {
  g_program_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (g_program_type == nullptr || PyModule_AddFunctions(module, kFunctions) < 0) return -1;
  return PyModule_AddObjectRef(module, "PjrtProgram", reinterpret_cast<PyObject*>(g_program_type));
}

}  // namespace weft
