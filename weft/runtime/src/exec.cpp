// Runs plans: outputs are allocated or shared, steps run in order, temporaries are parts of one block (the arena).
#include "exec.h"

#include <algorithm>
#include <new>
#include <vector>

#include "device.h"
#include "figures.h"
#include "module.h"
#include "pjrt.h"
#include "pool.h"
#include "profile.h"
#include "stream.h"

namespace weft {

PyTypeObject* ExecutableType = nullptr;

namespace {

constexpr int32_t kStackSlots = 128;
constexpr int32_t kStackDynamic = 16;

bool donation_possible(const Plan& plan, const Operand* operands, const bool* donated, const OutputPlan& output) {
  const Operand& operand = operands[output.source];
  if (donated == nullptr || !donated[output.source] || operand.buffer == nullptr) return false;
  if (!buffer_is_exclusive(operand.buffer) || operand.buffer->nbytes < output.nbytes) return false;
  int32_t uses = 0;  // in f(x, x) the other operand still reads the buffer
  for (int32_t i = 0; i < plan.n_inputs; ++i) uses += operands[i].buffer == operand.buffer;
  return uses == 1;
}

// Owned buffer for one output, or nullptr if there is no memory.
Buffer* make_output(const Plan& plan, const Operand* operands, const bool* donated, Buffer* const* outputs,
                    const OutputPlan& output) {
  switch (output.kind) {
    case OutputKind::fresh: return allocate_on(*plan.device, output.nbytes);
    case OutputKind::output: return buffer_retain(outputs[output.source]);
    case OutputKind::donated:
      if (donation_possible(plan, operands, donated, output)) return buffer_retain(operands[output.source].buffer);
      return allocate_on(*plan.device, output.nbytes);
    case OutputKind::input: {
      const Operand& operand = operands[output.source];
      if (operand.buffer != nullptr) return buffer_retain(operand.buffer);
      Buffer* copy = buffer_allocate(output.nbytes);
      if (copy != nullptr) std::copy_n(operand.data, output.nbytes, copy->data);
      return copy;
    }
  }
  return nullptr;
}

// Waits for the inputs; a stream waits only for donated ones, whose memory may be reused below.
int wait_for_inputs(const Plan& plan, const Operand* operands, const bool* only) {
  for (int32_t i = 0; i < plan.n_inputs; ++i)
    if (operands[i].buffer != nullptr && (only == nullptr || only[i]) && buffer_wait(operands[i].buffer) < 0) return -1;
  return 0;
}

// Memory that a plan asked for on a device other than the host was not given: sets the device's own error, if it has
// one, otherwise MemoryError.
void set_device_memory_error(const Plan& plan, const std::string& what, int64_t nbytes) {
  if (PyErr_Occurred() || plan.device->explain(plan.name.c_str())) return;
  set_memory_error_text(("RESOURCE_EXHAUSTED: Out of memory: [" + plan.name + "] " + what + ": " +
                         requested_text(nbytes) + " requested on " + plan.device->name + plan.device->memory_text())
                            .c_str());
}

// Runs the steps; on an error a Python error is set. `keep`: the GIL stays held. `timed`: a profile may be taken.
template <bool timed>
int run_steps(const Plan& plan, Frame& frame, bool keep) {
  if (!keep) frame.suspended = PyEval_SaveThread();
  Status status = Status::ok;
  PlanTimes* times = timed ? profile_times(plan) : nullptr;
  try {
    if (times != nullptr && times->start(keep)) {
      status = profile_steps(plan, frame, *times);
    } else if (plan.replay != nullptr) {
      status = plan.replay->run(plan, frame);
    } else {
      for (const auto& step : plan.steps) {
        status = run_step(*step, frame);
        if (status != Status::ok) break;
      }
    }
  } catch (const std::bad_alloc&) {
    status = Status::no_memory;
  }
  if (frame.suspended != nullptr) in_python<PyEval_RestoreThread>(std::exchange(frame.suspended, nullptr));
  if (status != Status::ok) break_off_exchanges(plan, frame);
  // A kernel that an interrupt cut short does not report it.
  if (status != Status::python_error && stream_cancelled(frame.number))
    return PyErr_SetNone(PyExc_KeyboardInterrupt), -1;
  if (status == Status::ok) return 0;
  constexpr const char* what = "a kernel's working memory";
  if (status != Status::python_error && !plan.device->is_host()) set_device_memory_error(plan, what, -1);
  else if (status != Status::python_error) set_memory_error(-1, plan.name.c_str(), what);
  return -1;
}

// MemoryError for output i: its number, its type.
void set_output_error(const Plan& plan, size_t i) {
  const OutputPlan& output = plan.outputs[i];
  std::string what = "result " + std::to_string(i);
  if (!plan.device->is_host()) set_device_memory_error(plan, what, output.nbytes);
  else if (output.aval != nullptr) set_array_memory_error(output.aval, plan.name.c_str(), what);
  else set_memory_error(output.nbytes, plan.name.c_str(), what.c_str());
}

// Makes the owned output buffers; 0, or -1 with MemoryError set.
int make_outputs(const Plan& plan, const Operand* operands, const bool* donated, Buffer** outputs) {
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    outputs[i] = make_output(plan, operands, donated, outputs, plan.outputs[i]);
    if (outputs[i] != nullptr) continue;
    set_output_error(plan, i);
    while (i-- > 0) buffer_release(outputs[i]);
    return -1;
  }
  return 0;
}

template <bool timed>
int run_with_buffers(const Plan& plan, const Operand* operands, const bool* donated, Buffer** outputs, bool keep) {
  if (make_outputs(plan, operands, donated, outputs) < 0) return kNotStarted;
  int32_t n_outputs = int32_t(plan.outputs.size());
  Buffer* arena = nullptr;
  int status = 0;
  if (!plan.steps.empty()) {
    Small<char*, kStackSlots> slots(plan.n_slots());
    Small<Buffer*, kStackSlots> owners(plan.n_slots());
    Small<int64_t, kStackDynamic> dynamic(plan.n_dynamic);
    int32_t slot = 0;
    for (int32_t i = 0; i < plan.n_inputs; ++i, ++slot) {
      slots[slot] = operands[i].data;
      owners[slot] = operands[i].buffer;
    }
    for (int32_t i = 0; i < n_outputs; ++i, ++slot) {
      slots[slot] = outputs[i]->data;
      owners[slot] = outputs[i];
    }
    if (allocate_temporaries(plan, &arena, slots.data(), owners.data())) {
      Frame frame{slots.data(), owners.data(), dynamic.data(), &plan};
      frame.number = stream_running();
      frame.in_callback = frame.number != 0;
      status = run_steps<timed>(plan, frame, keep);
    } else {
      if (plan.device->is_host()) set_memory_error(plan.arena_bytes, plan.name.c_str(), "temporaries");
      else set_device_memory_error(plan, "temporaries", plan.arena_bytes);
      status = kNotStarted;
    }
  }
  if (arena != nullptr) buffer_release(arena);
  if (status < 0)
    for (int32_t i = 0; i < n_outputs; ++i) buffer_release(outputs[i]);
  return status;
}

int launch(Executable* executable, const Operand* operands, const bool* donated, Buffer** outputs) {
  const Plan& plan = *executable->plan;
  if (donated != nullptr && wait_for_inputs(plan, operands, donated) < 0) return kNotStarted;
  if (make_outputs(plan, operands, donated, outputs) < 0) return kNotStarted;
  int status = stream_launch(executable, operands, outputs);
  if (status < 0)
    for (size_t i = 0; i < plan.outputs.size(); ++i) buffer_release(outputs[i]);
  return status;
}

// Other threads may run meanwhile: references of our own keep everything alive.
int run_held(Executable* executable, const Operand* operands, const bool* donated, Buffer** outputs, bool on_stream) {
  const Plan& plan = *executable->plan;
  // A donated operand's buffer is not retained: whether it may be reused is decided by its reference count.
  for (int32_t i = 0; i < plan.n_inputs; ++i)
    if (operands[i].buffer != nullptr && (donated == nullptr || !donated[i])) buffer_retain(operands[i].buffer);
  Py_INCREF(executable);
  int status;
  if (on_stream) {
    status = launch(executable, operands, donated, outputs);
  } else {
    status = wait_for_inputs(plan, operands, nullptr) < 0 ? kNotStarted : 0;
    if (status == 0) status = run_with_buffers<true>(plan, operands, donated, outputs, plan.cost_ns <= figures.inline_ns);
  }
  for (int32_t i = 0; i < plan.n_inputs; ++i)
    if (operands[i].buffer != nullptr && (donated == nullptr || !donated[i])) buffer_release(operands[i].buffer);
  Py_DECREF(executable);
  return status;
}

// Drops the events of finished tasks. 1: all inputs are ready, 0: some are pending, -1: one has failed (error set).
int inputs_ready(const Plan& plan, const Operand* operands) {
  int ready = 1;
  for (int32_t i = 0; i < plan.n_inputs; ++i) {
    Buffer* buffer = operands[i].buffer;
    if (buffer == nullptr || buffer->pending == nullptr) continue;
    if (!stream_event_over(buffer->pending)) ready = 0;
    else if (buffer_wait(buffer) < 0) return -1;
  }
  return ready;
}

#ifdef WEFT_GUARD_BUFFERS
// Sanitizer builds: every temporary has its own buffer; the buffer returned as the arena owns them all.
Buffer* guarded_temporaries(const Plan& plan, char** slots, Buffer** owners) {
  auto* blocks = new std::vector<Buffer*>;
  auto release = [](void* held) {
    auto* owned = static_cast<std::vector<Buffer*>*>(held);
    for (Buffer* block : *owned) buffer_release(block);
    delete owned;
  };
  size_t first = size_t(plan.n_slots()) - plan.temps.size();
  for (size_t i = 0; i < plan.temps.size(); ++i) {
    Buffer* block = buffer_allocate(plan.temps[i].second);
    if (block == nullptr) {
      release(blocks);
      return nullptr;
    }
    blocks->push_back(block);
    slots[first + i] = block->data;
    owners[first + i] = block;
  }
  Buffer* arena = buffer_wrap(nullptr, 0, release, blocks);
  if (arena == nullptr) release(blocks);
  return arena;
}
#endif

}  // namespace

bool allocate_temporaries(const Plan& plan, Buffer** arena, char** slots, Buffer** owners) {
  *arena = nullptr;
#ifdef WEFT_GUARD_BUFFERS
  if (plan.arena_bytes > 0 && plan.device->is_host()) return (*arena = guarded_temporaries(plan, slots, owners)) != nullptr;
#endif
  if (plan.arena_bytes > 0 && (*arena = allocate_on(*plan.device, plan.arena_bytes)) == nullptr) return false;
  size_t slot = size_t(plan.n_slots()) - plan.temps.size();
  for (const auto& temp : plan.temps) {
    slots[slot] = *arena == nullptr ? nullptr : (*arena)->data + temp.first;
    owners[slot++] = *arena;
  }
  return true;
}

int executable_run(Executable* executable, const Operand* operands, const bool* donated, Buffer** outputs) {
  const Plan& plan = *executable->plan;
  ++executable->runs;
  int ready = inputs_ready(plan, operands);
  if (ready < 0) return kNotStarted;
  bool at_once = ready == 1 && plan.cost_ns <= g_inline_ns;
  if (at_once && !plan.has_python) return run_with_buffers<false>(plan, operands, donated, outputs, true);
  if (g_inline_ns < 0) {  // a profile is taken
    if (profile_times(plan) == nullptr) profile_enter(executable);
    at_once = ready == 1 && plan.cost_ns <= figures.inline_ns;
    if (at_once && !plan.has_python) return run_with_buffers<true>(plan, operands, donated, outputs, true);
  }
  // Callbacks keep their order: they run here only if none can be waiting on the stream. A program with guards runs
  // here, so that the call raises what they find.
  bool guarded = plan.has_python && !plan.has_callbacks;
  bool on_stream = stream_enabled() && !guarded && (!at_once || !stream_idle());
  return run_held(executable, operands, donated, outputs, on_stream);
}

int executable_run_on_device(Executable* executable, const Operand* operands, const bool* donated, Buffer** outputs) {
  const Plan& plan = *executable->plan;
  ++executable->runs;
  int status = run_with_buffers<true>(plan, operands, donated, outputs, plan.all_enqueued && !plan.device->keeps_steps());
  if (status < 0) return status;
  Event* event = plan.device->record();
  for (size_t i = 0; i < plan.outputs.size() && event != nullptr; ++i) {
    const OutputKind kind = plan.outputs[i].kind;
    if (kind != OutputKind::fresh && kind != OutputKind::donated) continue;
    event->retain();
    if (Event* before = std::exchange(outputs[i]->pending, event)) before->release();
  }
  if (event != nullptr) event->release();
  return 0;
}

int executable_check_input(const Executable* executable, int32_t i, const Array* array) {
  const Plan& plan = *executable->plan;
  if (array_is_deleted(array)) {
    set_deleted_error(array);
    return -1;
  }
  if (plan.in_avals.empty()) return 0;
  int64_t nbytes = plan.in_avals[size_t(i)]->nbytes;
  if (array->remote == nullptr ? array->buffer->nbytes >= nbytes
      : array->remote->block != nullptr ? array->remote->block->nbytes >= nbytes
                                        : array->aval->nbytes == nbytes)
    return 0;
  Ref given = steal(aval_text(array->aval, true)), wanted = steal(aval_text(plan.in_avals[size_t(i)], true));
  if (given && wanted)
    PyErr_Format(PyExc_TypeError, "[%U] input %d is %U, but the program was compiled for %U", executable->name, int(i),
                 given.get(), wanted.get());
  return -1;
}

namespace {

PyObject* executable_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"n_inputs",     "outputs", "temps",    "arena_bytes",
                                "instructions", "name",    "in_avals", "device",      nullptr};
  unsigned int number = 0;
  Py_ssize_t n_inputs, arena_bytes;
  PyObject *outputs, *temps, *instructions, *name, *in_avals = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nOOnOU|OI", const_cast<char**>(names), &n_inputs, &outputs, &temps,
                                   &arena_bytes, &instructions, &name, &in_avals, &number))
    return nullptr;
  Ref none = steal(PyTuple_New(0));
  Device* device = number == 0 ? &host_device() : native_device(number);
  if (device == nullptr) return PyErr_Format(PyExc_ValueError, "[executable] %u is no device that runs plans", number);
  if (!none) return nullptr;
  std::unique_ptr<Plan> plan = plan_from_python(device, n_inputs, outputs, temps, arena_bytes, instructions,
                                                in_avals == nullptr ? none.get() : in_avals);
  if (!plan) return nullptr;
  if (const char* text = PyUnicode_AsUTF8(name)) plan->name = text;
  else PyErr_Clear();
  device->made(plan.get());
  Executable* self = reinterpret_cast<Executable*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->plan = plan.release();
  self->name = Py_NewRef(name);
  return reinterpret_cast<PyObject*>(self);
}

int executable_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const Plan* plan = reinterpret_cast<Executable*>(self)->plan;
  if (plan == nullptr) return 0;
  for (const auto& step : plan->steps)
    if (int status = step->traverse(visit, arg); status != 0) return status;
  return 0;
}

int executable_clear(PyObject* self) {
  for (const auto& step : reinterpret_cast<Executable*>(self)->plan->steps) step->clear();
  return 0;
}

void executable_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Executable* executable = reinterpret_cast<Executable*>(self);
  if (executable->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  if (executable->plan != nullptr && executable->plan->device->keeps_steps()) executable->plan->device->drain();
  delete executable->plan;
  Py_XDECREF(executable->name);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

bool read_donated(PyObject* donated, Py_ssize_t count, std::unique_ptr<bool[]>* out) {
  if (donated == nullptr || donated == Py_None) return true;
  Ref flags = steal(in_python<PySequence_Fast>(donated, "[run] donated must be a sequence of bool"));
  if (!flags) return false;
  if (PySequence_Fast_GET_SIZE(flags.get()) != count) {
    PyErr_Format(PyExc_ValueError, "[run] %zd flags of donation for %zd inputs", PySequence_Fast_GET_SIZE(flags.get()),
                 count);
    return false;
  }
  *out = std::make_unique<bool[]>(size_t(count) + 1);
  for (Py_ssize_t i = 0; i < count; ++i) {
    int truth = in_python<PyObject_IsTrue>(PySequence_Fast_GET_ITEM(flags.get(), i));
    if (truth < 0) return false;
    (*out)[size_t(i)] = truth != 0;
  }
  return true;
}

PyObject* wrap_outputs(const Plan& plan, Buffer** outputs, const std::vector<uint32_t>& places) {
  Py_ssize_t count = Py_ssize_t(plan.outputs.size());
  Ref list = steal(PyList_New(count));
  Py_ssize_t i = 0;
  for (; list && i < count; ++i) {
    PyObject* array = result_new(plan.outputs[size_t(i)].aval, outputs[i]);
    if (array == nullptr) {
      ++i;
      list = Ref();
      break;
    }
    PyList_SET_ITEM(list.get(), i, array);
    if (is_array(array)) reinterpret_cast<Array*>(array)->place = places[places.size() > 1 ? size_t(i) : 0];
  }
  for (; i < count; ++i) buffer_release(outputs[i]);
  return list.release();
}

}  // namespace

bool read_places(PyObject* given, size_t count, std::vector<uint32_t>* places) {
  bool each = PyTuple_Check(given);
  if (each && size_t(PyTuple_GET_SIZE(given)) != count) {
    PyErr_Format(PyExc_ValueError, "[place] %zd places for %zd results", PyTuple_GET_SIZE(given), Py_ssize_t(count));
    return false;
  }
  for (size_t i = 0; i < (each ? count : 1); ++i) {
    unsigned long place = PyLong_AsUnsignedLong(each ? PyTuple_GET_ITEM(given, Py_ssize_t(i)) : given);
    if (PyErr_Occurred()) return false;
    if (place >= 1ul << 31) {
      PyErr_Format(PyExc_ValueError, "[place] %lu is no place", place);
      return false;
    }
    places->push_back(uint32_t(place));
  }
  return true;
}

namespace {

// Copies on the host of those inputs that are on other devices, made before the others are read: the wait for them lets
// other threads run, which may delete Arrays.
class Fetched {
 public:
  Fetched() = default;
  ~Fetched() {
    for (const auto& [input, buffer] : copies_) buffer_release(buffer);
  }
  Fetched(const Fetched&) = delete;
  Fetched& operator=(const Fetched&) = delete;

  bool fetch(PyObject* inputs) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); ++i) {
      PyObject* item = PyTuple_GET_ITEM(inputs, i);
      if (!is_array(item) || reinterpret_cast<Array*>(item)->remote == nullptr) continue;
      Buffer* block = reinterpret_cast<Array*>(item)->remote->block;
      Buffer* buffer = block != nullptr ? block : array_ready_buffer(reinterpret_cast<Array*>(item));
      if (buffer == nullptr) return false;
      copies_.emplace_back(int32_t(i), buffer_retain(buffer));
    }
    return true;
  }
  Buffer* at(int32_t input) const {
    for (const auto& [index, buffer] : copies_)
      if (index == input) return buffer;
    return nullptr;
  }

 private:
  std::vector<std::pair<int32_t, Buffer*>> copies_;
};

PyObject* run_from_python(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"args", "donated", "place", nullptr};
  PyObject *arrays, *donated = nullptr, *asked = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO", const_cast<char**>(names), &arrays, &donated, &asked))
    return nullptr;
  Executable* executable = reinterpret_cast<Executable*>(self);
  const Plan& plan = *executable->plan;
  // A tuple of our own: nobody else can change it while other threads run.
  Ref inputs = steal(in_python<PySequence_Tuple>(arrays));
  if (!inputs) return nullptr;
  if (PyTuple_GET_SIZE(inputs.get()) != plan.n_inputs) {
    PyErr_Format(PyExc_TypeError, "[%U] takes %d inputs, but %zd were given", executable->name, int(plan.n_inputs),
                 PyTuple_GET_SIZE(inputs.get()));
    return nullptr;
  }
  std::unique_ptr<bool[]> flags;
  if (!read_donated(donated, plan.n_inputs, &flags)) return nullptr;
  std::vector<uint32_t> places;
  if (asked != nullptr && !read_places(asked, plan.outputs.size(), &places)) return nullptr;
  if (plan.number != 0)
    return run_on_device(executable, inputs.get(), flags.get(), places);
  if (places.empty()) places.push_back(0);
  Small<Operand, kStackSlots> operands(plan.n_inputs);
  Fetched fetched;
  if (!fetched.fetch(inputs.get())) return nullptr;
  for (int32_t i = 0; i < plan.n_inputs; ++i) {
    PyObject* item = PyTuple_GET_ITEM(inputs.get(), i);
    if (!is_array(item)) {
      PyErr_Format(PyExc_TypeError, "[%U] input %d is %R, not an Array", executable->name, int(i), item);
      return nullptr;
    }
    const Array* array = reinterpret_cast<Array*>(item);
    if (executable_check_input(executable, i, array) < 0) return nullptr;
    Buffer* buffer = array->remote == nullptr ? array->buffer : fetched.at(i);
    operands[i] = {buffer->data, buffer};
    if (asked == nullptr) places[0] |= array->place & 1;
  }
  Small<Buffer*, kStackSlots> outputs(int32_t(plan.outputs.size()));
  Donation donation;
  for (int32_t i = 0; flags && i < 2 * plan.n_inputs; ++i) {  // first what is donated, then the others
    int32_t input = i % plan.n_inputs;
    Array* array = reinterpret_cast<Array*>(PyTuple_GET_ITEM(inputs.get(), input));
    if (flags[size_t(input)] != (i < plan.n_inputs)) continue;
    if (array->remote != nullptr) {
      if (i < plan.n_inputs && array->remote->block != nullptr) donation.take(array);
      continue;
    }
    if (array->buffer == nullptr && fetched.at(input) == nullptr) {
      donation.give_back();
      set_donated_twice_error(plan.name.c_str(), array);
      return nullptr;
    }
    if (flags[size_t(input)]) donation.take(array);
  }
  int status = executable_run(executable, operands.data(), flags.get(), outputs.data());
  if (status == kNotStarted) donation.give_back();
  return status < 0 ? nullptr : wrap_outputs(plan, outputs.data(), places);
}

const Plan& plan_of(PyObject* self) { return *reinterpret_cast<Executable*>(self)->plan; }

PyObject* get_n_kernels(PyObject* self, void*) { return PyLong_FromLongLong(plan_of(self).n_kernels); }
PyObject* get_n_inputs(PyObject* self, void*) { return PyLong_FromLong(plan_of(self).n_inputs); }
PyObject* get_temp_bytes(PyObject* self, void*) { return PyLong_FromLongLong(plan_of(self).arena_bytes); }
PyObject* get_cost_ns(PyObject* self, void*) { return PyFloat_FromDouble(plan_of(self).cost_ns); }

PyMethodDef kMethods[] = {
    {"run", reinterpret_cast<PyCFunction>(entry_point<run_from_python>), METH_VARARGS | METH_KEYWORDS,
     "run(args, donated=None, place) -> list of Arrays. Donated Arrays are deleted. place: where the results are, or a "
     "tuple with the place of each; without it they are committed if an operand is."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef kMembers[] = {
    {"name", T_OBJECT, offsetof(Executable, name), READONLY, "Name of the program."},
    {"runs", T_ULONGLONG, offsetof(Executable, runs), READONLY, "Number of times it was started."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Executable, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef kGetSet[] = {
    {"n_kernels", get_n_kernels, nullptr, "Number of kernel instructions.", nullptr},
    {"n_inputs", get_n_inputs, nullptr, "Number of inputs.", nullptr},
    {"temp_bytes", get_temp_bytes, nullptr, "Bytes of temporaries that one run holds.", nullptr},
    {"cost_ns", get_cost_ns, nullptr, "Estimated time of one run on one thread.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot kSlots[] = {
    {Py_tp_doc,
     const_cast<char*>("Executable(n_inputs, outputs, temps, arena_bytes, instructions, name, in_avals=(), device=0): one aval per input; "
                       "the number of the device that runs it")},
    {Py_tp_new, reinterpret_cast<void*>(entry_point<executable_new>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(executable_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(executable_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(executable_clear)},
    {Py_tp_methods, kMethods},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kGetSet},
    {0, nullptr},
};
PyType_Spec kSpec = {"weft.runtime.Executable", sizeof(Executable), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, kSlots};

}  // namespace

int register_exec(PyObject* module) {
  ExecutableType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (ExecutableType == nullptr) return -1;
  if (PyModule_AddObjectRef(module, "Executable", reinterpret_cast<PyObject*>(ExecutableType)) < 0) return -1;
  if (register_kernel(module) < 0 || register_pool(module) < 0) return -1;
  if (register_profile(module) < 0) return -1;
  return register_stream(module);
}

}  // namespace weft
