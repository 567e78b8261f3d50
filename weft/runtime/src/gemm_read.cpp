// Matrix products as a plan states them: the instruction is read and checked.
#include <climits>
#include <cstring>
#include <new>

#include "gemm_step.h"
#include "module.h"

namespace weft {

namespace {

bool read_epilogue(const char* form, PyObject* kernel, const PlaceReader& places, GemmStep* step) {
  static constexpr const char* names[] = {"none", "flat", "grid", "rows", "products"};
  for (int i = 1; i < 5; ++i)
    if (std::strcmp(form, names[i]) == 0) step->form = GemmStep::Form(i);
  if (step->form == GemmStep::Form::none || step->c_row != step->n)
    return invalid_gemm("[gemm] an epilogue cannot be run like this");
  Ref fields = steal(PyTuple_GetSlice(kernel, 1, PyTuple_GET_SIZE(kernel)));
  if (!fields) return false;
  step->epilogue = make_kernel_step(fields.get(), places);
  return step->epilogue != nullptr;
}

// Where the operands and the result lie, within their slots. The sum is of outer_k times k terms.
bool read_places(PyObject* a, PyObject* b, PyObject* c, int64_t k, int64_t outer_k, const PlaceReader& places,
                 GemmStep* step) {
  const GemmStep& of = *step;
  const GemmBatch& batch = of.batch;
  const int64_t item = of.kernels->source_bytes, blocks = outer_k - 1;
  const int64_t bytes[3] = {batch.reach(of.m, k, of.a_row, of.a_k, item, &GemmBatch::Dim::a, blocks, of.a_outer),
                            batch.reach(k, of.n, of.b_k, of.b_column, item, &GemmBatch::Dim::b, blocks, of.b_outer),
                            batch.reach(of.m, of.n, of.c_row, 1, of.kernels->result_bytes, &GemmBatch::Dim::c)};
  if (bytes[0] < 0 || bytes[1] < 0 || bytes[2] < 0) return invalid_gemm("[gemm] the operands are too large");
  return places.place(a, bytes[0], &step->a) && places.place(b, bytes[1], &step->b) &&
         places.place(c, bytes[2], &step->c);
}

}  // namespace

std::unique_ptr<Step> make_gemm_step(PyObject* fields, const PlaceReader& places) {
  auto step = std::make_unique<GemmStep>();
  PyObject *a, *b, *c, *batch, *outer, *whole;
  int source, result;
  long long m, n, k, a_row, a_k, b_k, b_column, c_row, outer_k = 1, a_outer = 0, b_outer = 0;
  int exchanged;
  long long rows, columns;  // of which m and n may be a part
  const char* form = "";
  PyObject* epilogue = nullptr;
  if (!PyArg_ParseTuple(fields,
                        "CCLLLOLLOLLOLO!O!O!|sO!;[executable] a gemm instruction has 16 or 18 fields after its name",
                        &source, &result, &m, &n, &k, &a, &a_row, &a_k, &b, &b_k, &b_column, &c, &c_row, &PyTuple_Type,
                        &batch, &PyTuple_Type, &outer, &PyTuple_Type, &whole, &form, &PyTuple_Type, &epilogue))
    return nullptr;
  if (PyTuple_GET_SIZE(outer) != 0 &&
      !PyArg_ParseTuple(outer, "LLL;[gemm] an outer sum has an extent and two strides", &outer_k, &a_outer, &b_outer))
    return nullptr;
  if (!PyArg_ParseTuple(whole, "LLp;[gemm] a whole product has rows, columns and whether operands are exchanged",
                        &rows, &columns, &exchanged))
    return nullptr;
  for (int64_t value : {m, n, k, a_row, a_k, b_k, b_column, c_row, outer_k, a_outer, b_outer})
    if (value < 0 || value > INT64_MAX / 64) {
      invalid_gemm("[gemm] a size or stride is negative or too large");
      return nullptr;
    }
  step->kernels = gemm_kernels(char(source), char(result));
  if (step->kernels == nullptr) {
    PyErr_Format(PyExc_ValueError, "[gemm] no kernels multiply dtype %c to dtype %c", source, result);
    return nullptr;
  }
  if (outer_k > 1 && (step->kernels->depth != 1 || k == 0 || outer_k > INT64_MAX / 64 / k)) {
    invalid_gemm("[gemm] sums over two dimensions: too long, or of a dtype whose terms are added in pairs");
    return nullptr;
  }
  if (m > 1 && c_row < n) {
    invalid_gemm("[gemm] rows of the result overlap");
    return nullptr;
  }
  step->kernels = gemm_kernels(char(source), char(result), rows, columns, k * outer_k);
  step->exchanged = exchanged != 0;
  step->result = char(result);
  step->m = m;
  step->n = n;
  step->k = k * outer_k;
  step->k_inner = outer_k > 1 ? k : std::max<int64_t>(k, 1);
  step->a_outer = a_outer;
  step->b_outer = b_outer;
  step->a_row = a_row;
  step->a_k = a_k;
  step->b_k = b_k;
  step->b_column = b_column;
  step->c_row = c_row;
  if (!step->batch.read(batch)) return nullptr;
  if (!read_places(a, b, c, k, outer_k, places, step.get())) return nullptr;
  if (epilogue != nullptr && !read_epilogue(form, epilogue, places, step.get())) return nullptr;
  step->plan();
  return step;
}

}  // namespace weft
