// The step of a plan that launches kernels of a GPU, one after the other.
#include <atomic>
#include <cstring>
#include <memory>

#include "cuda_module.h"
#include "exec.h"
#include "fields.h"
#include "guard.h"
#include "plan.h"

namespace weft {
namespace {

constexpr int64_t kMostParamBytes = 4096;  // bytes of parameters that a kernel takes
constexpr int32_t kStackWords = 64;
constexpr int64_t kMostRows = 65535;  // blocks in y

struct Grid {
  std::string entry, aligned;  // the entry for any addresses, and that for multiples of 16: empty if there is none
  unsigned blocks[2] = {}, threads = 0, shared_bytes = 0;
  mutable std::atomic<cuda::Handle> functions[2]{nullptr, nullptr};  // of the two, on the step's device
};

class LaunchStep final : public Step {
 public:
  ~LaunchStep() override { Py_XDECREF(reinterpret_cast<PyObject*>(module)); }

  Status run(Frame& frame) const override { return Status::device_error; }  // it has no form for the host
  bool is_enqueued() const override { return true; }
  bool is_guardable() const override { return true; }
  bool is_kernel() const override { return true; }
  size_t n_launches() const override { return n_grids; }
  const char* where() const override { return lines.c_str(); }
  double cost_ns() const override { return cost; }

  bool enqueue(CudaDevice& device, Frame& frame, Status* status) const override {
    const size_t count = operands.size();
    Small<int64_t, kStackWords> words(int32_t(count + 1));
    Small<void*, kStackWords> pointers(int32_t(count + 3 + params.size()));
    for (size_t i = 0; i < count; ++i) words[int32_t(i)] = reinterpret_cast<int64_t>(operands[i].address(frame));
    Buffer* scratch = scratch_bytes > 0 ? device.allocate(scratch_bytes) : nullptr;
    if (scratch_bytes > 0 && scratch == nullptr) return *status = Status::no_memory, true;
    words[int32_t(count)] = scratch == nullptr ? 0 : reinterpret_cast<int64_t>(scratch->data);
    for (int32_t i = 0; i <= int32_t(count); ++i) pointers[i] = &words[i];
    for (size_t i = 0; i < params.size(); ++i) pointers[int32_t(count + 1 + i)] = const_cast<int64_t*>(&params[i]);
    int64_t guard[] = {reinterpret_cast<int64_t>(t_guard.word), t_guard.range()};
    for (size_t i = 0; i < 2; ++i) pointers[int32_t(count + 1 + params.size() + i)] = &guard[i];
    bool aligned = true;
    for (int32_t operand : wide) aligned = aligned && words[operand] % 16 == 0;
    *status = Status::ok;
    const auto n_params = unsigned(count + 3 + params.size());
    for (size_t i = 0; i < n_grids && *status == Status::ok; ++i)
      *status = launch(device, grids[i], aligned, pointers.data(), n_params);
    if (scratch != nullptr) device.end_scratch(scratch);
    return true;
  }

  DeviceModule* module = nullptr;  // owned
  std::vector<Location> operands;
  std::vector<int64_t> params;
  std::unique_ptr<Grid[]> grids;
  size_t n_grids = 0;
  std::vector<int32_t> wide;
  int64_t scratch_bytes = 0;
  double cost = 0;
  std::string lines;  // in the user's program

 private:
  Status launch(CudaDevice& device, const Grid& grid, bool aligned, void** pointers, unsigned n_params) const {
    if (grid.blocks[0] == 0 || grid.blocks[1] == 0) return Status::ok;
    const bool second = aligned && !grid.aligned.empty();
    cuda::Handle function = grid.functions[second].load(std::memory_order_acquire);
    if (function == nullptr) {
      function = module_function(module, device, second ? grid.aligned : grid.entry, grid.shared_bytes);
      if (function == nullptr) return Status::device_error;
      grid.functions[second].store(function, std::memory_order_release);
    }
    return device.launch_kernel(
        {function, {grid.blocks[0], grid.blocks[1]}, grid.threads, grid.shared_bytes, pointers, n_params,
         lines.c_str()});
  }
};

bool wrong(const char* format, const char* word = "") {
  if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, format, word);
  return false;
}

bool read_grid(PyObject* item, const DeviceModule* module, Grid* out) {
  const char *entry, *aligned;
  long long x, y, threads, shared;
  if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "ssLLLL", &entry, &aligned, &x, &y, &threads, &shared))
    return PyErr_Clear(), wrong("[executable] a launch is (entry, entry for aligned addresses, blocks, blocks, threads, shared bytes)");
  for (const char* name : {entry, aligned})
    if ((*name != 0 || name == entry) && !module_has(module, name))
      return wrong("[executable] a launch names the entry '%s', which its module does not have", name);
  if (x < 0 || y < 0 || x > INT32_MAX || y > kMostRows || threads < 1 || threads > 1024 || shared < 0 || shared > INT32_MAX)
    return wrong("[executable] a launch of '%s' has an impossible size", entry);
  out->entry = entry;
  out->aligned = aligned;
  out->blocks[0] = unsigned(x);
  out->blocks[1] = unsigned(y);
  out->threads = unsigned(threads);
  out->shared_bytes = unsigned(shared);
  return true;
}

bool read_wide(PyObject* tuple, size_t count, std::vector<int32_t>* out) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    const long long operand = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    if (operand < 0 || operand >= (long long)count) return wrong("[executable] a launch names no operand of its own as wide");
    out->push_back(int32_t(operand));
  }
  return true;
}

}  // namespace

std::unique_ptr<Step> make_launch_step(PyObject* record, const LocationReader& locations) {
  if (cuda_device(locations.device()) == nullptr)
    return wrong("[executable] kernels of a GPU are launched on one, not on %s", locations.device()->name.c_str()), nullptr;
  Fields fields(record);
  auto step = std::make_unique<LaunchStep>();
  Ref module = fields.object("module"), operands = fields.tuple("operands"), grids = fields.tuple("grids"),
      wide = fields.tuple("wide");
  fields.words64("params", &step->params);
  step->scratch_bytes = fields.integer("scratch_bytes");
  step->cost = fields.real("cost_ns");
  Ref where = fields.object("where");
  if (!fields.ok()) return nullptr;
  if (const char* text = PyUnicode_AsUTF8(where.get())) step->lines = text;
  else return nullptr;
  if (Py_TYPE(module.get()) != DeviceModuleType) return wrong("[executable] a launch has no DeviceModule"), nullptr;
  step->module = reinterpret_cast<DeviceModule*>(module.release());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operands.get()); ++i) {
    Location location;
    if (!locations.location(PyTuple_GET_ITEM(operands.get(), i), -1, &location)) return nullptr;
    step->operands.push_back(location);
  }
  if (int64_t(step->operands.size() + 3 + step->params.size()) * 8 > kMostParamBytes)
    return wrong("[executable] a launch has more parameters than a kernel takes (4096 bytes)"), nullptr;
  if (step->scratch_bytes < 0) return wrong("[executable] a launch with a negative size"), nullptr;
  if (!read_wide(wide.get(), step->operands.size(), &step->wide)) return nullptr;
  step->n_grids = size_t(PyTuple_GET_SIZE(grids.get()));
  step->grids = std::make_unique<Grid[]>(step->n_grids);
  for (size_t i = 0; i < step->n_grids; ++i)
    if (!read_grid(PyTuple_GET_ITEM(grids.get(), Py_ssize_t(i)), step->module, &step->grids[i])) return nullptr;
  return step;
}

}  // namespace weft
