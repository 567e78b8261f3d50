// Matrix products as a plan states them: the instruction is read and checked.
#include <climits>
#include <new>

#include "fields.h"
#include "gemm_step.h"
#include "module.h"

namespace weft {

namespace {

bool read_epilogue(int form, PyObject* kernel, const PlaceReader& places, GemmStep* step) {
  step->form = GemmStep::Form(form);
  if (step->form == GemmStep::Form::none || step->c_row != step->n)
    return invalid_gemm("[gemm] an epilogue cannot be run like this");
  step->epilogue = make_kernel_step(kernel, places);
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

std::unique_ptr<Step> make_gemm_step(PyObject* record, const PlaceReader& places) {
  static constexpr const char* forms[] = {"", "flat", "grid", "rows", "products"};
  Fields fields(record);
  auto step = std::make_unique<GemmStep>();
  const char source = fields.character("source"), result = fields.character("result");
  const int64_t m = fields.integer("m"), n = fields.integer("n"), k = fields.integer("k");
  Ref a = fields.object("a"), b = fields.object("b"), c = fields.object("c");
  const int64_t a_row = fields.integer("a_row"), a_k = fields.integer("a_k"), b_k = fields.integer("b_k"),
                b_column = fields.integer("b_column"), c_row = fields.integer("c_row");
  Ref batch = fields.tuple("batch"), outer = fields.tuple("outer"), whole = fields.tuple("whole");
  const int form = fields.word("form", forms, 5);
  Ref epilogue = fields.object("epilogue");
  if (!fields.ok()) return nullptr;
  long long outer_k = 1, a_outer = 0, b_outer = 0, rows, columns;
  int exchanged;
  if (PyTuple_GET_SIZE(outer.get()) != 0 && !PyArg_ParseTuple(outer.get(),
                                                              "LLL;[gemm] an outer sum has an extent and two strides",
                                                              &outer_k, &a_outer, &b_outer))
    return nullptr;
  if (!PyArg_ParseTuple(whole.get(), "LLp;[gemm] a whole product has rows, columns and whether operands are exchanged",
                        &rows, &columns, &exchanged))
    return nullptr;
  for (int64_t value : {m, n, k, a_row, a_k, b_k, b_column, c_row, int64_t(outer_k), int64_t(a_outer), int64_t(b_outer)})
    if (value < 0 || value > INT64_MAX / 64) {
      invalid_gemm("[gemm] a size or stride is negative or too large");
      return nullptr;
    }
  step->kernels = gemm_kernels(source, result);
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
  step->kernels = gemm_kernels(source, result, rows, columns, k * outer_k);
  step->exchanged = exchanged != 0;
  step->result = result;
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
  if (!step->batch.read(batch.get())) return nullptr;
  if (!read_places(a.get(), b.get(), c.get(), k, outer_k, places, step.get())) return nullptr;
  if (epilogue.get() != Py_None && !read_epilogue(form, epilogue.get(), places, step.get())) return nullptr;
  step->plan();
  return step;
}

}  // namespace weft
