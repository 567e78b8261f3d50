// A call of a foreign function as a step of a plan.
//
//   ("Foreign", "rms_norm", 4, attributes, b"", ((location, dtype, extents), ...), ((location, dtype, extents),), "in f at a.py:3")
//
// The plan has the function's name, and looks its address up when it is made. The GIL is released while it runs. On a GPU
// a function that is registered for CUDA gets the addresses there and the stream; a function of the CPU gets copies.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <optional>
#include <thread>

#include "cuda_device.h"
#include "device.h"
#include "fields.h"
#include "figures.h"
#include "foreign.h"
#include "module.h"
#include "plan.h"
#include "stream.h"

namespace weft {
namespace {

PyObject* g_error = nullptr;  // the exception class; never released

// Attributes with the memory that they point to.
class AttributeTree {
 public:
  bool read(PyObject* tuple) {
    const auto count = size_t(PyTuple_GET_SIZE(tuple));
    names_.resize(count);
    spans_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const char *name, *bytes = nullptr;
      Py_ssize_t length = 0;
      int type, dtype;
      PyObject* data;
      PyObject* item = PyTuple_GET_ITEM(tuple, Py_ssize_t(i));
      if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "siiO", &name, &type, &dtype, &data)) return wrong();
      names_[i] = name;
      spans_[i] = {names_[i].data(), names_[i].size()};
      name_pointers_.push_back(&spans_[i]);
      types_.push_back(type);
      if (type == foreign::kDictionary) {
        children_.push_back(std::make_unique<AttributeTree>());
        if (!PyTuple_Check(data)) return wrong();
        if (!children_.back()->read(data)) return false;
        items_.push_back(&children_.back()->head);
        continue;
      }
      long long size = 1;
      if (type == foreign::kArray && !PyArg_ParseTuple(data, "Ly#", &size, &bytes, &length)) return wrong();
      if (type != foreign::kArray && PyBytes_AsStringAndSize(data, const_cast<char**>(&bytes), &length) < 0) return false;
      blocks_.push_back(std::make_unique<char[]>(size_t(length) + 1));
      char* block = blocks_.back().get();
      std::memcpy(block, bytes, size_t(length));
      entries_.push_back(std::make_unique<Entry>());
      Entry& entry = *entries_.back();
      if (type == foreign::kString) entry.string = {block, size_t(length)};
      else if (type == foreign::kScalar) entry.scalar = {dtype, block};
      else if (type == foreign::kArray) entry.array = {dtype, size_t(size), block};
      else return wrong();
      items_.push_back(&entry);
    }
    head = {foreign::end_of(&foreign::Attributes::items), nullptr, int64_t(count), types_.data(), name_pointers_.data(),
            items_.data()};
    return true;
  }

  foreign::Attributes head{};

 private:
  union Entry {
    foreign::Span string;
    foreign::ScalarAttribute scalar;
    foreign::ArrayAttribute array;
    Entry() : string{} {}
  };

  static bool wrong() {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "[executable] an attribute is (name, type, dtype, data)");
    return false;
  }

  std::vector<std::string> names_;
  std::vector<foreign::Span> spans_;
  std::vector<foreign::Span*> name_pointers_;
  std::vector<int32_t> types_;
  std::vector<void*> items_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<AttributeTree>> children_;
};

// Operands or results: where they are, and what the function is told of them.
struct Side {
  std::vector<Location> locations;
  std::vector<foreign::Array> arrays;  // without addresses
  std::vector<std::vector<int64_t>> extents;
  std::vector<int64_t> nbytes;
  std::vector<int32_t> types;  // all 1

  bool read(PyObject* tuple, const LocationReader& reader) {
    const auto count = size_t(PyTuple_GET_SIZE(tuple));
    extents.resize(count);
    for (size_t i = 0; i < count; ++i) {
      PyObject *location, *shape;
      int dtype;
      long long bytes;
      PyObject* item = PyTuple_GET_ITEM(tuple, Py_ssize_t(i));
      if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "OLiO!", &location, &bytes, &dtype, &PyTuple_Type, &shape))
        return false;
      for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(shape); ++d) {
        extents[i].push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d)));
        if (PyErr_Occurred()) return false;
      }
      Location found{};
      if (!reader.location(location, bytes, &found)) return false;
      locations.push_back(found);
      nbytes.push_back(bytes);
      types.push_back(1);
      arrays.push_back({foreign::end_of(&foreign::Array::extents), nullptr, dtype, nullptr, int64_t(extents[i].size()),
                        extents[i].data()});
    }
    return true;
  }
};

// One side of one call: the structs with their addresses.
struct Given {
  Given(const Side& side, char* const* data) : arrays(side.arrays), items(side.arrays.size()) {
    for (size_t i = 0; i < items.size(); ++i) {
      arrays[i].data = data[i];
      items[i] = &arrays[i];
    }
    list = {foreign::end_of(&foreign::List::items), nullptr, int64_t(items.size()), const_cast<int32_t*>(side.types.data()),
            items.data()};
  }
  std::vector<foreign::Array> arrays;
  std::vector<void*> items;
  foreign::List list{};
};

struct LegacyStatus {  // as the older interface lays it out
  std::optional<std::string> message;
};

int64_t next_run() {
  static std::atomic<int64_t> last{0};
  return ++last;
}

using ErrorPointer = std::unique_ptr<foreign::Error>;

class ForeignStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    if (stream_cancelled(frame.number)) return Status::cancelled;
    return without_gil(frame, [&](ErrorPointer* error) {
      return frame.plan->device->is_host() ? run_here(frame, error) : run_on_copies(frame, error);
    });
  }
  bool on_host() const override { return !on_gpu; }
  bool is_enqueued() const override { return on_gpu; }
  bool enqueue(CudaDevice& device, Frame& frame, Status* status) const override {
    if (!on_gpu) return false;
    *status = without_gil(frame, [&](ErrorPointer* error) { return run_here(frame, error, device.stream()); });
    return true;
  }
  const char* where() const override { return lines.c_str(); }
  bool is_python() const override { return true; }  // kept in the order of the program, and it may raise
  bool has_callbacks() const override { return true; }
  double cost_ns() const override { return cost; }

  // The function's stage for what belongs to the plan. GIL held.
  bool instantiate() {
    if (version < 4 || target.bundle.stages[foreign::kInstantiate] == nullptr) return true;
    foreign::Context context;
    context.states[foreign::kInstantiate] = &instance;
    const Given nothing(Side{}, nullptr);
    ErrorPointer error;
    Py_BEGIN_ALLOW_THREADS;
    error = stage(foreign::kInstantiate, context, nothing, nothing);
    Py_END_ALLOW_THREADS;
    if (error != nullptr) set_error(*error);
    return error == nullptr;
  }

  std::string name, lines, opaque;
  foreign::Target target;
  int version = 4;
  bool on_gpu = false;
  int32_t ordinal = 0;
  AttributeTree attributes;
  Side in, out;
  double cost = 0;
  mutable foreign::State instance;

 private:
  // What `function` gives, run while other threads may run Python; an error that it leaves is raised.
  template <class Function>
  Status without_gil(Frame& frame, Function function) const {
    const bool held = frame.suspended == nullptr && !frame.on_stream;
    PyThreadState* state = held ? PyEval_SaveThread() : nullptr;
    ErrorPointer error;
    Status status;
    try {
      status = function(&error);
    } catch (const std::bad_alloc&) {
      status = Status::no_memory;
    }
    if (state != nullptr) in_python<PyEval_RestoreThread>(state);
    return error == nullptr ? status : raise(frame, *error);
  }

  std::vector<char*> addresses(const Side& side, const Frame& frame) const {
    std::vector<char*> found;
    for (const Location& location : side.locations) found.push_back(location.address(frame));
    return found;
  }

  Status run_here(Frame& frame, ErrorPointer* error, void* stream = nullptr) const {
    *error = call(frame, addresses(in, frame).data(), addresses(out, frame).data(), frame.plan->device, stream);
    return Status::ok;
  }

  // For a device whose memory the function cannot read.
  Status run_on_copies(Frame& frame, ErrorPointer* error) const {
    Device& device = *frame.plan->device;
    std::vector<std::unique_ptr<char[]>> blocks;
    std::vector<char*> given, made;
    Status status = Status::ok;
    auto block = [&](int64_t nbytes) {
      blocks.push_back(std::make_unique<char[]>(size_t(nbytes) + 64));
      const auto at = reinterpret_cast<uintptr_t>(blocks.back().get());
      return reinterpret_cast<char*>((at + 63) / 64 * 64);
    };
    for (size_t i = 0; i < in.locations.size() && status == Status::ok; ++i) {
      given.push_back(block(in.nbytes[i]));
      status = device.fetch(given[i], in.locations[i].address(frame), in.nbytes[i]);
    }
    for (size_t i = 0; i < out.locations.size() && status == Status::ok; ++i) {
      char* shared = nullptr;  // an operand in the memory of this result
      for (size_t k = 0; k < in.locations.size(); ++k)
        if (in.nbytes[k] == out.nbytes[i] && in.locations[k].address(frame) == out.locations[i].address(frame)) shared = given[k];
      made.push_back(shared != nullptr ? shared : block(out.nbytes[i]));
    }
    if (status == Status::ok) *error = call(frame, given.data(), made.data(), &host_device(), nullptr);
    for (size_t i = 0; i < out.locations.size() && status == Status::ok && *error == nullptr; ++i)
      status = device.upload(out.locations[i].address(frame), made[i], out.nbytes[i]);
    return status;
  }

  ErrorPointer call(Frame& frame, char* const* operands, char* const* results, Device* device, void* stream) const {
    if (version < 4) return call_untyped(operands, results, stream);
    if (frame.run == 0) frame.run = next_run();
    foreign::State prepared, initialized;
    foreign::Context context;
    context.states[foreign::kInstantiate] = &instance;
    context.states[foreign::kPrepare] = &prepared;
    context.states[foreign::kInitialize] = &initialized;
    context.device = device;
    context.stream = stream;
    context.run = frame.run;
    context.ordinal = ordinal;
    const Given given(in, operands), made(out, results);
    for (foreign::Stage number : {foreign::kPrepare, foreign::kInitialize, foreign::kExecute})
      if (auto error = stage(number, context, given, made)) return error;
    return nullptr;
  }

  ErrorPointer stage(foreign::Stage number, foreign::Context& context, const Given& given, const Given& made) const {
    foreign::Handler* handler = target.bundle.stages[number];
    if (handler == nullptr) return nullptr;
    foreign::Call call{};
    call.struct_size = foreign::end_of(&foreign::Call::attributes);
    call.api = foreign::the_api();
    call.context = &context;
    call.stage = number;
    call.operands = given.list;
    call.results = made.list;
    call.attributes = attributes.head;
    return caught([&] {
      ErrorPointer error(handler(&call));
      if (call.future != nullptr) {
        ErrorPointer later(foreign::wait_and_free(call.future));
        if (error == nullptr) error = std::move(later);
      }
      return error;
    });
  }

  // Versions 1 to 3: void (result, operands), (result, operands, status), (result, operands, text, length, status), where
  // several results are an array of addresses; on a GPU (stream, operands and results[, text, length[, status]]).
  ErrorPointer call_untyped(char* const* operands, char* const* results, void* stream) const {
    std::vector<const void*> given(operands, operands + in.locations.size());
    std::vector<void*> made(results, results + out.locations.size());
    void* result = made.size() == 1 ? made[0] : made.data();
    LegacyStatus status;
    return caught([&]() -> ErrorPointer {
      void* function = target.untyped;
      const char* text = opaque.data();
      if (stream != nullptr) {
        given.insert(given.end(), made.begin(), made.end());
        using OnGpu = void(void*, const void**, const char*, size_t, LegacyStatus*);
        reinterpret_cast<OnGpu*>(function)(stream, given.data(), text, opaque.size(), &status);
      } else if (version <= 1) {
        reinterpret_cast<void (*)(void*, const void**)>(function)(result, given.data());
      } else if (version == 2) {
        reinterpret_cast<void (*)(void*, const void**, LegacyStatus*)>(function)(result, given.data(), &status);
      } else {
        using Unified = void(void*, const void**, const char*, size_t, LegacyStatus*);
        reinterpret_cast<Unified*>(function)(result, given.data(), text, opaque.size(), &status);
      }
      if (!status.message.has_value()) return nullptr;
      return ErrorPointer(foreign::make_error(foreign::kInternal, *status.message));
    });
  }

  template <class Function>
  static ErrorPointer caught(Function function) {
    std::string thrown;
    try {
      return function();
    } catch (const std::exception& exception) {
      thrown = exception.what();
    } catch (const abi::__forced_unwind&) {  // it asked for the GIL while Python ends: see in_python
      for (;;) pause();
    } catch (...) {
      thrown = "no std::exception";
    }
    return ErrorPointer(foreign::make_error(foreign::kInternal, "the function threw a C++ exception: " + thrown));
  }

  void set_error(const foreign::Error& error) const {
    const std::string text = std::string(foreign::code_name(error.code)) + ": " + error.message + "\n[ffi] This is what '" +
                             name + "' answered" + (lines.empty() ? "" : ", called at " + lines) + ".";
    Ref words = steal(PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "replace"));
    if (words) PyErr_SetObject(g_error != nullptr ? g_error : PyExc_RuntimeError, words.get());
  }

  Status raise(Frame& frame, const foreign::Error& error) const {
    if (frame.on_stream) {
      PyGILState_STATE state = in_python<PyGILState_Ensure>();
      set_error(error);
      PyObject* type;
      PyErr_Fetch(&type, &frame.error, &frame.error_traceback);
      PyErr_NormalizeException(&type, &frame.error, &frame.error_traceback);
      Py_XDECREF(type);
      PyGILState_Release(state);
      return Status::python_error;
    }
    if (frame.suspended != nullptr) in_python<PyEval_RestoreThread>(std::exchange(frame.suspended, nullptr));
    set_error(error);
    return Status::python_error;
  }
};

PyObject* set_error_type(PyObject*, PyObject* type) {
  if (!PyExceptionClass_Check(type))
    return PyErr_SetString(PyExc_TypeError, "[set_foreign_error_type] takes an exception class"), nullptr;
  Py_XSETREF(g_error, Py_NewRef(type));
  Py_RETURN_NONE;
}

PyMethodDef g_methods[] = {
    {"set_foreign_error_type", set_error_type, METH_O,
     "set_foreign_error_type(cls): what is raised where a foreign function fails."},
    {nullptr, nullptr, 0, nullptr},
};

bool find(ForeignStep* step, Device& device) {
  step->on_gpu = cuda_device(&device) != nullptr && foreign::find_target(step->name, "CUDA", &step->target);
  if (step->on_gpu || foreign::find_target(step->name, "cpu", &step->target)) {
    if ((step->version < 4) == (step->target.untyped != nullptr)) return true;
    PyErr_Format(PyExc_ValueError,
                 "[ffi] the target '%s' is called with custom_call_api_version=%d, but was registered with api_version=%d",
                 step->name.c_str(), step->version, step->target.untyped != nullptr ? 0 : 1);
    return false;
  }
  std::string text = foreign::missing_text(step->name, cuda_device(&device) != nullptr ? "CUDA" : "cpu");
  if (!step->lines.empty()) text += ". It is called at " + step->lines + ".";
  PyErr_SetString(g_error != nullptr ? g_error : PyExc_RuntimeError, text.c_str());
  return false;
}

}  // namespace

std::unique_ptr<Step> make_foreign_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  auto step = std::make_unique<ForeignStep>();
  Ref target = fields.object("target"), where = fields.object("where"), opaque = fields.object("opaque");
  step->version = int(fields.integer("version"));
  Ref attributes = fields.tuple("attributes"), in = fields.tuple("operands"), out = fields.tuple("results");
  if (!fields.ok()) return nullptr;
  const char *name = PyUnicode_AsUTF8(target.get()), *lines = name == nullptr ? nullptr : PyUnicode_AsUTF8(where.get());
  char* text;
  Py_ssize_t length;
  if (lines == nullptr || PyBytes_AsStringAndSize(opaque.get(), &text, &length) < 0) return nullptr;
  step->name = name;
  step->lines = lines;
  step->opaque.assign(text, size_t(length));
  if (!step->attributes.read(attributes.get()) || !step->in.read(in.get(), locations) || !step->out.read(out.get(), locations))
    return nullptr;
  for (const Side* side : {&step->in, &step->out})
    for (int64_t nbytes : side->nbytes) step->cost += double(nbytes) * figures.python_byte_ns;
  if (!find(step.get(), *locations.device())) return nullptr;
  if (step->on_gpu) step->ordinal = cuda_device(locations.device())->facts.ordinal;
  if (!step->instantiate()) return nullptr;
  return step;
}

int register_foreign_step(PyObject* module) { return PyModule_AddFunctions(module, g_methods); }

}  // namespace weft
