// The step of a plan that is a matrix product by NVIDIA's library, and what Python asks of that library.
#include <memory>

#include "cuda_library.h"
#include "cuda_module.h"
#include "exec.h"
#include "fields.h"
#include "module.h"
#include "pjrt.h"
#include "plan.h"

namespace weft {
namespace {

using cuda::bytes_of;
using cuda::LibraryMatrix;
using cuda::LibraryProblem;
using enum cuda::LibraryType;

constexpr int kSumsFloat32 = 68, kSumsFloat64 = 70, kTf32 = 77;  // how it computes, by the library's numbers
const char* const kEpilogues[] = {"", "bias", "gelu", "gelu_bias"};
constexpr int kEpilogueNumbers[] = {1, 4, 32, 36};

class LibraryProductStep final : public Step {
 public:
  Status run(Frame&) const override { return Status::device_error; }  // it has no form for the host
  bool is_enqueued() const override { return true; }
  size_t n_launches() const override { return 1; }
  const char* where() const override { return lines.c_str(); }
  bool enqueue(CudaDevice& device, Frame& frame, Status* status) const override {
    // the library's left operand is b, since it has matrices by columns
    const cuda::LibraryOperands operands{b.address(frame), a.address(frame), c.address(frame),
                                         has_bias ? bias.address(frame) : nullptr};
    *status = cuda::LibraryProducts::of(device).multiply(problem, operands, lines.c_str());
    return true;
  }

  LibraryProblem problem{};
  Location a{}, b{}, c{}, bias{};
  bool has_bias = false;
  std::string lines;  // in the user's program
};

bool read_type(Fields& fields, const char* name, int64_t* out) {
  switch (fields.character(name)) {
    case 'f': *out = kFloat32; return true;
    case 'd': *out = kFloat64; return true;
    case 'e': *out = kFloat16; return true;
    case 'E': *out = kBfloat16; return true;
    default:
      if (fields.ok()) PyErr_SetString(PyExc_ValueError, "[executable] the library multiplies no such type");
      return false;
  }
}

bool read_numbers(Fields& fields, const char* name, Py_ssize_t count, int64_t* out) {
  Ref tuple = fields.tuple(name);
  if (!tuple) return false;
  if (PyTuple_GET_SIZE(tuple.get()) != count)
    return PyErr_Format(PyExc_ValueError, "[executable] %s of a product has %zd numbers", name, count), false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    out[i] = in_python<PyLong_AsLongLong>(PyTuple_GET_ITEM(tuple.get(), i));
    if (out[i] == -1 && PyErr_Occurred()) return false;
    if (out[i] < 0) return PyErr_Format(PyExc_ValueError, "[executable] %s of a product has a negative number", name), false;
  }
  return true;
}

// A matrix of `rows` by `columns` (as it lies by rows here) for the library; one of the steps is 1.
bool lay(int64_t rows, int64_t columns, int64_t row_step, int64_t column_step, int64_t apart, LibraryMatrix* out) {
  const bool plain = column_step == 1 && row_step >= columns;
  if (!plain && (row_step != 1 || column_step < rows))
    return PyErr_SetString(PyExc_ValueError, "[executable] a matrix for the library has neither rows nor columns side by side"), false;
  *out = plain ? LibraryMatrix{0, columns, rows, row_step, apart} : LibraryMatrix{1, rows, columns, column_step, apart};
  return true;
}

bool read_problem(PyObject* record, LibraryProblem* out) {
  Fields fields(record);
  int64_t extents[4], steps[5], apart[3];
  if (!read_type(fields, "source", &out->type) || !read_type(fields, "result", &out->result_type)) return false;
  if (!read_numbers(fields, "extents", 4, extents) || !read_numbers(fields, "steps", 5, steps) ||
      !read_numbers(fields, "apart", 3, apart))
    return false;
  const bool tf32 = fields.flag("tf32");
  const int epilogue = fields.word("epilogue", kEpilogues, 4);
  if (!fields.ok()) return false;
  const auto [rows, columns, terms, batch] = extents;
  if (rows < 1 || columns < 1 || terms < 1 || batch < 1 || batch > INT32_MAX)
    return PyErr_SetString(PyExc_ValueError, "[executable] a product by the library has no elements, or too many"), false;
  out->compute = out->type == kFloat64 ? kSumsFloat64 : tf32 ? kTf32 : kSumsFloat32;
  out->scale = out->type == kFloat64 ? kFloat64 : kFloat32;
  out->epilogue = kEpilogueNumbers[epilogue];
  out->batch = batch;
  return lay(terms, columns, steps[2], steps[3], apart[1], &out->left) &&
         lay(rows, terms, steps[0], steps[1], apart[0], &out->right) &&
         lay(rows, columns, steps[4], 1, apart[2], &out->result);
}

int64_t extent_of(const LibraryMatrix& matrix, int64_t batch) {  // elements from its first to its last
  return (matrix.columns - 1) * matrix.step + matrix.rows + (batch - 1) * matrix.apart;
}

// open_product_library(path) -> its version
PyObject* open_product_library(PyObject*, PyObject* argument) {
  const char* path = PyUnicode_AsUTF8(argument);
  if (path == nullptr || refuse_after_fork()) return nullptr;
  std::string reason;
  PyThreadState* state = PyEval_SaveThread();
  const int version = cuda::open_library_of_products(path, &reason);
  in_python<PyEval_RestoreThread>(state);
  return version != 0 ? PyLong_FromLong(version) : set_runtime_error(reason);
}

// product_library_has(number, record) -> whether the library has an algorithm for a product, on a GPU
PyObject* product_library_has(PyObject*, PyObject* args) {
  unsigned long number;
  PyObject* record;
  if (!PyArg_ParseTuple(args, "kO:product_library_has", &number, &record) || refuse_after_fork()) return nullptr;
  CudaDevice* device = cuda_device(native_device(uint32_t(number)));
  if (device == nullptr) return PyErr_Format(PyExc_ValueError, "[devices] device %lu is no GPU", number);
  LibraryProblem problem{};
  if (!read_problem(record, &problem)) return nullptr;
  bool found = false;
  PyThreadState* state = PyEval_SaveThread();
  const Status status = cuda::LibraryProducts::of(*device).ask(problem, &found);
  in_python<PyEval_RestoreThread>(state);
  if (status == Status::ok) return PyBool_FromLong(found);
  if (!PyErr_Occurred() && !device->explain(nullptr)) set_runtime_error("INTERNAL: the library of products failed");
  return nullptr;
}

PyMethodDef kFunctions[] = {
    {"open_product_library", entry_point<open_product_library>, METH_O,
     "open_product_library(path) -> the version of a library of matrix products, which is opened."},
    {"product_library_has", entry_point<product_library_has>, METH_VARARGS,
     "product_library_has(number, product) -> whether the library that was opened has it, on a GPU."},
    {},
};

}  // namespace

std::unique_ptr<Step> make_library_product_step(PyObject* record, const LocationReader& locations) {
  if (cuda_device(locations.device()) == nullptr)
    return PyErr_Format(PyExc_ValueError, "[executable] the library multiplies on a GPU, not on %s", locations.device()->name.c_str()),
           nullptr;
  auto step = std::make_unique<LibraryProductStep>();
  const LibraryProblem& problem = step->problem;
  if (!read_problem(record, &step->problem)) return nullptr;
  Fields fields(record);
  Ref a = fields.tuple("a"), b = fields.tuple("b"), c = fields.tuple("c"), bias = fields.object("bias"),
      where = fields.object("where");
  if (!fields.ok()) return nullptr;
  const auto read = [&](PyObject* location, const LibraryMatrix& matrix, int64_t type, Location* out) {
    return locations.location(location, extent_of(matrix, problem.batch) * bytes_of(type), out);
  };
  if (!read(a.get(), problem.right, problem.type, &step->a) || !read(b.get(), problem.left, problem.type, &step->b) ||
      !read(c.get(), problem.result, problem.result_type, &step->c))
    return nullptr;
  step->has_bias = bias.get() != Py_None;
  if (step->has_bias && !locations.location(bias.get(), problem.result.rows * bytes_of(problem.result_type), &step->bias)) return nullptr;
  const char* text = PyUnicode_AsUTF8(where.get());
  if (text == nullptr) return nullptr;
  step->lines = text;
  return step;
}

int register_product_library(PyObject* module) { return PyModule_AddFunctions(module, kFunctions); }

}  // namespace weft
