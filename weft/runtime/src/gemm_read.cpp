// Matrix products as a plan states them: the instruction is read and checked.
#include <climits>
#include <new>

#include "fields.h"
#include "gemm_step.h"
#include "module.h"

namespace weft {

namespace {

bool read_epilogue(int form, PyObject* kernel, const LocationReader& locations, GemmStep* step) {
  step->form = GemmStep::Form(form);
  if (step->form == GemmStep::Form::none || step->c_rows.count > 1 || step->c_row != step->n)
    return invalid_gemm("[gemm] an epilogue cannot be run like this");
  step->epilogue = make_kernel_step(kernel, locations);
  return step->epilogue != nullptr;
}

// A tuple of dimensions, outermost first: the extent of each and its stride in one array or in two.
bool read_digits(PyObject* dims, GemmDigits* first, GemmDigits* second, int64_t* total) {
  const Py_ssize_t count = PyTuple_GET_SIZE(dims);
  if (count > kGemmDigits) return invalid_gemm("[gemm] rows, columns or terms have too many dimensions");
  *total = 1;
  first->count = std::max(int(count), 1);
  for (Py_ssize_t i = 0; i < count; ++i) {
    long long extent, stride, other = 0;
    PyObject* dim = PyTuple_GET_ITEM(dims, count - 1 - i);
    if (!PyTuple_Check(dim)) return invalid_gemm("[gemm] a dimension is no tuple");
    if (!PyArg_ParseTuple(dim, second == nullptr ? "LL;[gemm] a dimension has an extent and a stride"
                                                 : "LLL;[gemm] a dimension has an extent and two strides",
                          &extent, &stride, &other))
      return false;
    for (long long value : {extent, stride, other})
      if (value < 0 || value > INT64_MAX / 64) return invalid_gemm("[gemm] a size or stride is negative or too large");
    if (__builtin_mul_overflow(*total, int64_t(extent), total) || *total > INT64_MAX / 64)
      return invalid_gemm("[gemm] rows, columns or terms are too many");
    first->extents[i] = extent;
    first->strides[i] = stride;
    if (second == nullptr) continue;
    second->count = first->count;
    second->extents[i] = extent;
    second->strides[i] = other;
  }
  return true;
}

bool read_dims(PyObject* rows, PyObject* columns, PyObject* summed, GemmStep* step) {
  if (!read_digits(rows, &step->a_rows, &step->c_rows, &step->m) ||
      !read_digits(columns, &step->b_columns, nullptr, &step->n) ||
      !read_digits(summed, &step->a_sum, &step->b_sum, &step->k))
    return false;
  for (GemmDigits* digits : {&step->a_rows, &step->c_rows, &step->b_columns, &step->a_sum, &step->b_sum}) digits->join();
  step->a_row = step->a_rows.strides[0];
  step->a_k = step->a_sum.strides[0];
  step->b_k = step->b_sum.strides[0];
  step->b_column = step->b_columns.strides[0];
  step->c_row = step->c_rows.strides[0];
  for (int digit = 0; digit < step->c_rows.count; ++digit)
    if (step->c_rows.extents[digit] > 1 && step->c_rows.strides[digit] < step->n)
      return invalid_gemm("[gemm] rows of the result overlap");
  return true;
}

// Where the operands and the result lie, within their slots.
bool read_locations(PyObject* a, PyObject* b, PyObject* c, const LocationReader& locations, GemmStep* step) {
  const int64_t item = step->kernels->source_bytes;
  GemmDigits columns;
  columns.extents[0] = step->n;
  columns.strides[0] = 1;
  const int64_t bytes[3] = {step->batch.reach(step->a_rows, step->a_sum, item, &GemmBatch::Dim::a),
                            step->batch.reach(step->b_sum, step->b_columns, item, &GemmBatch::Dim::b),
                            step->batch.reach(step->c_rows, columns, step->kernels->result_bytes, &GemmBatch::Dim::c)};
  if (bytes[0] < 0 || bytes[1] < 0 || bytes[2] < 0) return invalid_gemm("[gemm] the operands are too large");
  return locations.location(a, bytes[0], &step->a) && locations.location(b, bytes[1], &step->b) &&
         locations.location(c, bytes[2], &step->c);
}

}  // namespace

std::unique_ptr<Step> make_gemm_step(PyObject* record, const LocationReader& locations) {
  static constexpr const char* forms[] = {"", "flat", "grid", "rows", "products"};
  Fields fields(record);
  auto step = std::make_unique<GemmStep>();
  const char source = fields.character("source"), result = fields.character("result");
  Ref a = fields.object("a"), b = fields.object("b"), c = fields.object("c");
  Ref rows = fields.tuple("rows"), columns = fields.tuple("columns"), summed = fields.tuple("summed");
  Ref batch = fields.tuple("batch"), whole = fields.tuple("whole");
  step->in_chains = fields.flag("in_chains");
  const bool unit = fields.flag("unit");
  const int form = fields.word("form", forms, 5);
  Ref epilogue = fields.object("epilogue");
  if (!fields.ok()) return nullptr;
  long long all_rows, all_columns;
  int exchanged;
  if (!PyArg_ParseTuple(whole.get(), "LLp;[gemm] a whole product has rows, columns and whether operands are exchanged",
                        &all_rows, &all_columns, &exchanged))
    return nullptr;
  if (!read_dims(rows.get(), columns.get(), summed.get(), step.get())) return nullptr;
  step->kernels = unit ? gemm_kernels(source, result, all_rows, all_columns, step->k) : gemm_kernels(source, result);
  if (step->kernels == nullptr) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_ValueError, "[gemm] no kernels multiply dtype %c to dtype %c", source, result);
    return nullptr;
  }
  step->exchanged = exchanged != 0;
  step->result = result;
  if (!step->batch.read(batch.get())) return nullptr;
  if (!read_locations(a.get(), b.get(), c.get(), locations, step.get())) return nullptr;
  if (epilogue.get() != Py_None && !read_epilogue(form, epilogue.get(), locations, step.get())) return nullptr;
  step->plan();
  return step;
}

}  // namespace weft
