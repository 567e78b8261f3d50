// Python functions on whole arrays, as a step of a plan.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "array.h"
#include "device.h"
#include "fields.h"
#include "figures.h"
#include "host_copy.h"
#include "numpy_api.h"
#include "plan.h"
#include "pool.h"
#include "stream.h"

namespace weft {
namespace {

struct TypedLocation {
  Location location;
  ShapedArray* aval;  // owned
};

void release_view(PyObject* capsule) {
  buffer_release(static_cast<Buffer*>(PyCapsule_GetPointer(capsule, "weft.buffer")));
}

PyArray_Descr* descr_of(const ShapedArray* aval) {  // owned
  if (aval->type_number == kExtendedType || !PyArray_DescrCheck(aval->dtype)) {
    PyErr_SetString(PyExc_TypeError, "[executable] a callback cannot take or return an extended dtype");
    return nullptr;
  }
  return reinterpret_cast<PyArray_Descr*>(Py_NewRef(aval->dtype));
}

// A Python callable on whole arrays. Runs with the GIL held, whichever thread it is on.
class PythonStep : public Step {
 public:
  ~PythonStep() override {
    Py_XDECREF(callable);
    for (TypedLocation& location : in) Py_DECREF(location.aval);
    for (TypedLocation& location : out) Py_DECREF(location.aval);
  }

  Status run(Frame& frame) const override {
    PyGILState_STATE state{};
    if (frame.suspended != nullptr) in_python<PyEval_RestoreThread>(frame.suspended);
    else if (frame.on_stream) state = in_python<PyGILState_Ensure>();
    bool in_task = frame.number != 0 && !frame.in_callback;
    if (in_task) stream_calls(true);
    bool ok = !PyErr_Occurred() && call(frame);  // looking at the device's memory may have been interrupted
    if (in_task) stream_calls(false);
    // A native routine that saw the interrupt has ended early, as a kernel does.
    bool ended = !ok && stream_cancelled(frame.number) && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    if (ended) PyErr_Clear();
    if (frame.suspended != nullptr) {
      frame.suspended = ok || ended ? PyEval_SaveThread() : nullptr;
    } else if (frame.on_stream) {
      if (!ok && !ended) take_exception(frame);
      PyGILState_Release(state);
    }
    return ok ? Status::ok : ended ? Status::cancelled : Status::python_error;
  }
  bool on_host() const override { return true; }
  bool is_python() const override { return true; }
  bool has_callbacks() const override { return true; }
  double cost_ns() const override { return cost; }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(callable);
    return 0;
  }
  void clear() override { Py_XSETREF(callable, Py_NewRef(Py_None)); }

  PyObject* callable = nullptr;  // owned
  std::vector<TypedLocation> in, out;
  double cost = 0;

 private:
  static void take_exception(Frame& frame) {
    PyObject* type;
    PyErr_Fetch(&type, &frame.error, &frame.error_traceback);
    PyErr_NormalizeException(&type, &frame.error, &frame.error_traceback);
    if (frame.error_traceback != nullptr) PyException_SetTraceback(frame.error, frame.error_traceback);
    Py_XDECREF(type);
  }

  static void set_failed(Device& device, int64_t nbytes) {
    if (!PyErr_Occurred() && !device.explain("callback")) set_memory_error(nbytes, "callback", device.name.c_str());
  }

  // Without the GIL: the device may have much to do before.
  static bool fetch(Device& device, char* to, const char* from, int64_t nbytes) {
    PyThreadState* state = device.is_host() ? nullptr : PyEval_SaveThread();
    Status status = device.fetch(to, from, nbytes);
    if (state != nullptr) in_python<PyEval_RestoreThread>(state);
    if (status != Status::ok) set_failed(device, nbytes);
    return status == Status::ok;
  }

  static PyObject* view_of(const Frame& frame, const TypedLocation& typed) {
    PyArray_Descr* descr = descr_of(typed.aval);
    if (descr == nullptr) return nullptr;
    Device& device = *frame.plan->device;
    char* data = typed.location.address(frame);
    Buffer* owner = device.is_host() ? frame.owners[typed.location.slot] : nullptr;  // another device's memory is copied
    npy_intp extents[kMaxRank];
    for (int d = 0; d < typed.aval->ndim; ++d) extents[d] = typed.aval->extents[d];
    PyObject* view = PyArray_NewFromDescr(&PyArray_Type, descr, typed.aval->ndim, extents, nullptr,
                                          owner != nullptr ? data : nullptr, 0, nullptr);
    if (view == nullptr) return nullptr;
    PyArrayObject* array = reinterpret_cast<PyArrayObject*>(view);
    if (owner == nullptr) {
      if (!fetch(device, PyArray_BYTES(array), data, typed.aval->nbytes)) {
        Py_DECREF(view);
        return nullptr;
      }
    } else {
      PyObject* capsule = PyCapsule_New(buffer_retain(owner), "weft.buffer", release_view);
      if (capsule == nullptr) buffer_release(owner);
      if (capsule == nullptr || PyArray_SetBaseObject(array, capsule) < 0) {
        Py_DECREF(view);
        return nullptr;
      }
    }
    PyArray_CLEARFLAGS(array, NPY_ARRAY_WRITEABLE);
    return view;
  }

  bool store(const Frame& frame, const TypedLocation& typed, PyObject* result, size_t position) const {
    PyArray_Descr* descr = descr_of(typed.aval);
    if (descr == nullptr) return false;
    Ref array = steal(in_python([&] {
      return PyArray_FromAny(result, descr, 0, 0, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST, nullptr);
    }));
    if (!array) return false;
    PyArrayObject* values = reinterpret_cast<PyArrayObject*>(array.get());
    bool same = PyArray_NDIM(values) == typed.aval->ndim;
    for (int d = 0; same && d < typed.aval->ndim; ++d) same = PyArray_DIM(values, d) == typed.aval->extents[d];
    if (!same) {
      Ref shape = steal(in_python<PyObject_GetAttrString>(array.get(), "shape"));
      Ref wanted = steal(aval_text(typed.aval, true));
      if (shape && wanted)
        PyErr_Format(PyExc_ValueError, "[callback] result %zd of %R has shape %R, but %U was promised",
                     Py_ssize_t(position), callable, shape.get(), wanted.get());
      return false;
    }
    Device& device = *frame.plan->device;
    if (device.is_host()) return copy_bytes(typed.location.address(frame), PyArray_BYTES(values), typed.aval->nbytes) == 0;
    if (device.upload(typed.location.address(frame), PyArray_BYTES(values), typed.aval->nbytes) == Status::ok) return true;
    set_failed(device, typed.aval->nbytes);
    return false;
  }

  bool call(Frame& frame) const {
    Ref args = steal(PyTuple_New(Py_ssize_t(in.size())));
    if (!args) return false;
    for (size_t i = 0; i < in.size(); ++i) {
      PyObject* view = view_of(frame, in[i]);
      if (view == nullptr) return false;
      PyTuple_SET_ITEM(args.get(), Py_ssize_t(i), view);
    }
    Ref result = steal(in_python<PyObject_CallObject>(callable, args.get()));
    if (!result) return false;
    if (out.empty()) return true;
    if (out.size() == 1 && !PyTuple_Check(result.get())) return store(frame, out[0], result.get(), 0);
    Ref items = steal(in_python<PySequence_Fast>(result.get(), "[callback] a callback with several results returns a sequence"));
    if (!items) return false;
    if (size_t(PySequence_Fast_GET_SIZE(items.get())) != out.size()) {
      PyErr_Format(PyExc_ValueError, "[callback] %R returned %zd results, but %zd were promised", callable,
                   PySequence_Fast_GET_SIZE(items.get()), Py_ssize_t(out.size()));
      return false;
    }
    for (size_t i = 0; i < out.size(); ++i)
      if (!store(frame, out[i], PySequence_Fast_GET_ITEM(items.get(), Py_ssize_t(i)), i)) return false;
    return true;
  }
};

// Words of floats, bad where the bits without the sign are at least `least`.
struct Scan {
  Location location;
  int64_t count;
  int width;  // bytes of a word
  uint64_t least;
};

#if defined(__x86_64__)
#define WEFT_AVX2 __attribute__((target("avx2")))
#else
#define WEFT_AVX2
#endif

// T: a signed integer, so that processors have the comparison.
template <class T>
__attribute__((always_inline)) inline bool any_bad(const char* data, int64_t count, T least) {
  constexpr T kMagnitude = std::numeric_limits<T>::max();
  constexpr int64_t kBlock = 4096;
  for (int64_t start = 0; start < count; start += kBlock) {
    T bad = 0;
    const int64_t stop = std::min(count, start + kBlock);
    for (int64_t i = start; i < stop; ++i) {
      T word;
      std::memcpy(&word, data + i * int64_t(sizeof(T)), sizeof(T));
      bad |= T((word & kMagnitude) >= least ? -1 : 0);
    }
    if (bad != 0) return true;
  }
  return false;
}

__attribute__((always_inline)) inline bool any_bad_of(const char* data, int64_t count, int width, uint64_t least) {
  if (width == 2) return any_bad<int16_t>(data, count, int16_t(least));
  if (width == 4) return any_bad<int32_t>(data, count, int32_t(least));
  return any_bad<int64_t>(data, count, int64_t(least));
}

WEFT_AVX2 bool any_bad_wide(const char* data, int64_t count, int width, uint64_t least) {
  return any_bad_of(data, count, width, least);
}

bool any_bad_plain(const char* data, int64_t count, int width, uint64_t least) {
  return any_bad_of(data, count, width, least);
}

bool looks_bad(const char* data, int64_t count, int width, uint64_t least) {
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  if (wide) return any_bad_wide(data, count, width, least);
#endif
  return any_bad_plain(data, count, width, least);
}

struct ScanJob {
  const char* data;
  int width;
  uint64_t least;
  std::atomic<bool> bad{false};
};

void scan_chunk(void* context, int64_t low, int64_t high) {
  ScanJob* job = static_cast<ScanJob*>(context);
  const char* data = job->data + low * job->width;
  if (looks_bad(data, high - low, job->width, job->least)) job->bad.store(true, std::memory_order_relaxed);
}

// A Python callable that runs only if a kernel has set the byte `word`, or if a scanned result is bad.
class GuardStep final : public PythonStep {
 public:
  Status run(Frame& frame) const override {
    return told(frame) || scanned(frame) ? PythonStep::run(frame) : Status::ok;
  }
  bool has_callbacks() const override { return false; }
  double cost_ns() const override { return guard_ns; }

  Location word{-1, -1, 0};  // slot -1: none
  std::vector<Scan> scans;
  double guard_ns = 2;

 private:
  // What cannot be looked at counts as found: the call that follows then raises.
  bool told(const Frame& frame) const {
    if (word.slot < 0) return false;
    View set(*frame.plan->device, word.address(frame), 1);
    return set.data() == nullptr || *set.data() != 0;
  }
  bool scanned(const Frame& frame) const {
    for (const Scan& scan : scans) {
      View seen(*frame.plan->device, scan.location.address(frame), scan.count * scan.width);
      if (seen.data() == nullptr) return true;
      ScanJob job{seen.data(), scan.width, scan.least};
      const double cost = double(scan.count * scan.width) * figures.scan_byte_ns;
      if (pool_worth(cost)) pool_run(scan_chunk, &job, scan.count, 4096, cost);
      else scan_chunk(&job, 0, scan.count);
      if (job.bad.load(std::memory_order_relaxed)) return true;
    }
    return false;
  }
};

bool read_typed(PyObject* sequence, const LocationReader& locations, std::vector<TypedLocation>* out) {
  Ref items = steal(in_python<PySequence_Fast>(sequence, "[executable] locations must be a sequence"));
  if (!items) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    TypedLocation typed{};
    if (!locations.typed_location(PySequence_Fast_GET_ITEM(items.get(), i), &typed.location, &typed.aval)) return false;
    Py_INCREF(typed.aval);
    out->push_back(typed);
  }
  return true;
}

}  // namespace

std::unique_ptr<Step> make_python_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  Ref callable = fields.object("callable"), in = fields.object("operands"), out = fields.object("results");
  if (!fields.ok()) return nullptr;
  auto step = std::make_unique<PythonStep>();
  step->callable = callable.release();
  if (!read_typed(in.get(), locations, &step->in) || !read_typed(out.get(), locations, &step->out)) return nullptr;
  for (const auto* side : {&step->in, &step->out})
    for (const TypedLocation& typed : *side) step->cost += double(typed.aval->nbytes) * figures.python_byte_ns;
  return step;
}

std::unique_ptr<Step> make_guard_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  Ref callable = fields.object("callable"), in = fields.object("operands");
  Ref word = fields.object("word"), scans = fields.tuple("scans");
  if (!fields.ok()) return nullptr;
  auto step = std::make_unique<GuardStep>();
  step->callable = callable.release();
  if (!read_typed(in.get(), locations, &step->in)) return nullptr;
  if (word.get() != Py_None && !locations.location(word.get(), 1, &step->word)) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(scans.get()); ++i) {
    Scan scan{};
    PyObject* location;
    long long count;
    unsigned long long least;
    PyObject* item = PyTuple_GET_ITEM(scans.get(), i);
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "OLiK", &location, &count, &scan.width, &least) || count < 0 ||
        (scan.width != 2 && scan.width != 4 && scan.width != 8)) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "[executable] a scan is (location, count, width, least)");
      return nullptr;
    }
    scan.count = count;
    scan.least = least;
    int64_t bytes;
    if (__builtin_mul_overflow(scan.count, int64_t(scan.width), &bytes)) {
      PyErr_SetString(PyExc_ValueError, "[executable] a scan is too long");
      return nullptr;
    }
    if (!locations.location(location, bytes, &scan.location)) return nullptr;
    step->guard_ns += double(bytes) * figures.scan_byte_ns;
    step->scans.push_back(scan);
  }
  return step;
}

}  // namespace weft
