// Steps that copy parts of arrays: runs of bytes at regular distances.
#include <cstring>
#include <vector>

#include "cuda_device.h"
#include "fields.h"
#include "plan.h"

namespace weft {
namespace {

struct Walk {
  int64_t count, stride;
};

class CopyRowsStep final : public Step {
 public:
  Status run(Frame& frame) const override {
    copy(to.address(frame), from.address(frame), 0);
    return Status::ok;
  }
  bool enqueue(CudaDevice& device, Frame& frame, Status* status) const override {
    constexpr int64_t kMostCopies = 1024;  // copies, each of a few microseconds
    const int64_t rows = walks.empty() ? 1 : walks.back().count;
    if (runs / rows > kMostCopies) return false;
    *status = Status::ok;
    return ask(device, to.address(frame), from.address(frame), 0, status);
  }
  double cost_ns() const override { return 0.1 * double(nbytes) * double(runs) + double(runs); }

  Location to, from;
  int64_t nbytes = 0, runs = 1;
  std::vector<Walk> walks;  // outermost first

 private:
  // False if the driver does not copy all of them so.
  bool ask(CudaDevice& device, char* target, char* source, size_t depth, Status* status) const {
    if (walks.empty()) return *status = device.copy(target, source, nbytes), true;
    const Walk& walk = walks[depth];
    if (depth + 1 == walks.size()) return device.copy_rows(target, source, nbytes, walk.count, walk.stride, status);
    for (int64_t i = 0; i < walk.count && *status == Status::ok; ++i)
      if (!ask(device, target + i * walk.stride, source + i * walk.stride, depth + 1, status)) return false;
    return true;
  }

  void copy(char* target, const char* source, size_t depth) const {
    if (depth == walks.size()) {
      std::memcpy(target, source, size_t(nbytes));
      return;
    }
    const Walk& walk = walks[depth];
    if (depth + 1 == walks.size() && (nbytes == 4 || nbytes == 8)) {
      columns(target, source, walk);
      return;
    }
    for (int64_t i = 0; i < walk.count; ++i) copy(target + i * walk.stride, source + i * walk.stride, depth + 1);
  }

  void columns(char* target, const char* source, const Walk& walk) const {
    for (int64_t i = 0; i < walk.count; ++i) {
      if (nbytes == 4) std::memcpy(target + i * walk.stride, source + i * walk.stride, 4);
      else std::memcpy(target + i * walk.stride, source + i * walk.stride, 8);
    }
  }
};

}  // namespace

std::unique_ptr<Step> make_copy_rows_step(PyObject* record, const LocationReader& locations) {
  Fields fields(record);
  Ref to = fields.object("to"), from = fields.object("source"), read = fields.tuple("steps");
  const int64_t nbytes = fields.integer("nbytes");
  if (!fields.ok()) return nullptr;
  PyObject* steps = read.get();
  auto step = std::make_unique<CopyRowsStep>();
  step->nbytes = nbytes;
  int64_t reach = nbytes;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); ++i) {
    long long count, stride;
    PyObject* item = PyTuple_GET_ITEM(steps, i);
    int64_t span;
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "LL", &count, &stride) || count < 1 || stride < 0 ||
        __builtin_mul_overflow(int64_t(count - 1), int64_t(stride), &span) ||
        __builtin_add_overflow(reach, span, &reach)) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "[executable] a step of copyrows is (count, stride)");
      return nullptr;
    }
    step->walks.push_back({count, stride});
    step->runs *= count;
  }
  if (nbytes < 0 || !locations.location(to.get(), reach, &step->to) || !locations.location(from.get(), reach, &step->from)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "[executable] a copy of negative length");
    return nullptr;
  }
  return step;
}

}  // namespace weft
