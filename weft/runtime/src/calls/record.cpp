// Recording: equations and the values they give, made as instances of the classes of weft.core without their __init__.
//
// The collector is not shown what it cannot free: an equation whose parameters lead to no container other than tuples
// of leaves can be part of no cycle, nor can its variables (an aval leads to no program) or literals, so they are
// untracked, as Python itself does with tuples and dicts of leaves. A program of 200,000 equations is otherwise a
// million objects which every full collection walks: 2 us an equation.
#include "record.h"

#include "module.h"

namespace weft {
namespace {

constexpr int kDeepestTuple = 8;

// A class with slots, and where in an instance each of them lies.
template <int count>
struct Slotted {
  PyTypeObject* type = nullptr;
  Py_ssize_t offsets[count];

  int install(PyObject* given, const char* const (&names)[count]) {
    if (!PyType_Check(given)) {
      PyErr_Format(PyExc_TypeError, "[install_recording] expected a class, got %R", given);
      return -1;
    }
    for (int i = 0; i < count; ++i) {
      Ref found = steal(in_python<PyObject_GetAttrString>(given, names[i]));
      if (!found) return -1;
      auto* descr = reinterpret_cast<PyMemberDescrObject*>(found.get());
      if (Py_TYPE(found.get()) != &PyMemberDescr_Type || descr->d_member->type != T_OBJECT_EX) {
        PyErr_Format(PyExc_TypeError, "[install_recording] %s of %R is no slot", names[i], given);
        return -1;
      }
      offsets[i] = descr->d_member->offset;
    }
    PyTypeObject* before = std::exchange(type, reinterpret_cast<PyTypeObject*>(Py_NewRef(given)));
    Py_XDECREF(reinterpret_cast<PyObject*>(before));
    return 0;
  }

  PyObject* make() const { return type->tp_alloc(type, 0); }
  PyObject*& slot(PyObject* instance, int index) const {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(instance) + offsets[index]);
  }
};

Slotted<1> g_var;       // aval
Slotted<2> g_literal;   // val, aval
Slotted<6> g_equation;  // invars, outvars, primitive, params, effects, source
Slotted<4> g_tracer;    // _trace, aval, val, source

void untrack(PyObject* object) {
  if (PyObject_GC_IsTracked(object)) PyObject_GC_UnTrack(object);
}

// Whether a value is no container, or a tuple that leads to none but tuples, which is untracked in passing.
bool is_leaf(PyObject* value, int depth = 0) {
  if (!PyObject_IS_GC(value)) return true;
  if (!PyTuple_CheckExact(value) || depth == kDeepestTuple) return false;
  if (!PyObject_GC_IsTracked(value)) return true;  // known already
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i)
    if (!is_leaf(PyTuple_GET_ITEM(value, i), depth + 1)) return false;
  untrack(value);
  return true;
}

bool all_leaves(PyObject* params) {
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(params, &position, &key, &value))
    if (!is_leaf(value)) return false;
  return true;
}

// Variables of any kind, and literals of leaves; these are untracked in passing.
bool atoms_are_leaves(PyObject* atoms) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(atoms); ++i) {
    PyObject* atom = PyList_GET_ITEM(atoms, i);
    if (!PyObject_GC_IsTracked(atom) || Py_TYPE(atom) == g_var.type) continue;
    if (Py_TYPE(atom) != g_literal.type) return false;
    PyObject* value = g_literal.slot(atom, 0);
    if (value == nullptr || !is_leaf(value)) return false;
    untrack(atom);
  }
  return true;
}

PyObject* new_var(PyObject* aval) {
  PyObject* v = g_var.make();
  if (v == nullptr) return nullptr;
  g_var.slot(v, 0) = Py_NewRef(aval);
  if (!PyObject_GC_IsTracked(aval)) untrack(v);
  return v;
}

// A list of new variables; avals is one aval or a tuple of them.
PyObject* new_vars(PyObject* avals) {
  const bool several = PyTuple_CheckExact(avals);
  const Py_ssize_t count = several ? PyTuple_GET_SIZE(avals) : 1;
  Ref list = steal(PyList_New(count));
  if (!list) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* v = new_var(several ? PyTuple_GET_ITEM(avals, i) : avals);
    if (v == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), i, v);
  }
  return list.release();
}

struct Fields {
  PyObject *invars, *avals, *primitive, *params, *effects, *source;
};

// The fields of an equation from arguments; false with an error set.
bool read_fields(PyObject* const* args, const char* function, Fields& fields) {
  fields = {args[0], args[1], args[2], args[3], args[4], args[5]};
  if (!PyList_CheckExact(fields.invars) || !PyDict_CheckExact(fields.params)) {
    PyErr_Format(PyExc_TypeError, "[%s] expected a list of operands and a dict of parameters, got %R and %R", function,
                 fields.invars, fields.params);
    return false;
  }
  if (g_tracer.type != nullptr) return true;
  PyErr_Format(PyExc_RuntimeError, "[%s] install_recording has not been called", function);
  return false;
}

PyObject* new_equation(const Fields& fields) {
  Ref outvars = steal(new_vars(fields.avals));
  if (!outvars) return nullptr;
  PyObject* equation = g_equation.make();
  if (equation == nullptr) return nullptr;
  PyObject* values[] = {fields.invars, outvars.get(), fields.primitive, fields.params, fields.effects, fields.source};
  for (int i = 0; i < 6; ++i) g_equation.slot(equation, i) = Py_NewRef(values[i]);
  const bool pure = PyFrozenSet_CheckExact(fields.effects) && PySet_GET_SIZE(fields.effects) == 0;
  if (pure && atoms_are_leaves(fields.invars) && atoms_are_leaves(outvars.get()) && all_leaves(fields.params) &&
      is_leaf(fields.source)) {
    untrack(fields.invars);
    untrack(outvars.get());
    untrack(fields.params);
    untrack(equation);
  }
  return equation;
}

PyObject* new_tracer(PyObject* trace, PyObject* var, PyObject* source) {
  PyObject* tracer = g_tracer.make();
  if (tracer == nullptr) return nullptr;
  PyObject* values[] = {trace, g_var.slot(var, 0), var, source};
  for (int i = 0; i < 4; ++i) g_tracer.slot(tracer, i) = Py_NewRef(values[i]);
  return tracer;
}

PyObject* install_recording(PyObject*, PyObject* args) {
  PyObject *var, *literal, *equation, *tracer;
  if (!PyArg_ParseTuple(args, "OOOO:install_recording", &var, &literal, &equation, &tracer)) return nullptr;
  if (g_var.install(var, {"aval"}) < 0 || g_literal.install(literal, {"val", "aval"}) < 0 ||
      g_equation.install(equation, {"invars", "outvars", "primitive", "params", "effects", "source"}) < 0 ||
      g_tracer.install(tracer, {"_trace", "aval", "val", "source"}) < 0)
    return nullptr;
  Py_RETURN_NONE;
}

PyObject* equation(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Fields fields;
  if (count != 6) return PyErr_Format(PyExc_TypeError, "[equation] expected 6 arguments, got %zd", count);
  return read_fields(args, "equation", fields) ? new_equation(fields) : nullptr;
}

PyObject* record(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Fields fields;
  if (count != 8) return PyErr_Format(PyExc_TypeError, "[record] expected 8 arguments, got %zd", count);
  PyObject *trace = args[0], *equations = args[1];
  if (!PyList_CheckExact(equations)) return PyErr_Format(PyExc_TypeError, "[record] expected a list, got %R", equations);
  if (!read_fields(args + 2, "record", fields)) return nullptr;
  Ref made = steal(new_equation(fields));
  if (!made) return nullptr;
  PyObject* outvars = g_equation.slot(made.get(), 1);
  Ref result;
  if (!PyTuple_CheckExact(fields.avals)) {
    result = steal(new_tracer(trace, PyList_GET_ITEM(outvars, 0), fields.source));
    if (!result) return nullptr;
  } else {
    result = steal(PyList_New(PyList_GET_SIZE(outvars)));
    for (Py_ssize_t i = 0; result && i < PyList_GET_SIZE(outvars); ++i) {
      PyObject* tracer = new_tracer(trace, PyList_GET_ITEM(outvars, i), fields.source);
      if (tracer == nullptr) return nullptr;
      PyList_SET_ITEM(result.get(), i, tracer);
    }
  }
  return result && PyList_Append(equations, made.get()) == 0 ? result.release() : nullptr;
}

// What an equation of a template reads: an atom by its number, or a literal that is given as it is. Owned.
PyObject* read_atoms(PyObject* reads, PyObject* atoms) {
  const Py_ssize_t count = PyTuple_GET_SIZE(reads);
  Ref invars = steal(PyList_New(count));
  for (Py_ssize_t i = 0; invars && i < count; ++i) {
    PyObject* atom = PyTuple_GET_ITEM(reads, i);
    if (PyLong_CheckExact(atom)) {
      const Py_ssize_t number = PyLong_AsSsize_t(atom);
      if (number < 0 || number >= PyList_GET_SIZE(atoms))
        return PyErr_Format(PyExc_IndexError, "[replay] there is no atom %R", atom);
      atom = PyList_GET_ITEM(atoms, number);
    }
    PyList_SET_ITEM(invars.get(), i, Py_NewRef(atom));
  }
  return invars.release();
}

// Append one equation of a template, (primitive, params, effects, reads, avals), and its variables to `atoms`.
bool replay_step(PyObject* equations, PyObject* step, PyObject* atoms, PyObject* source) {
  const bool fine = PyTuple_CheckExact(step) && PyTuple_GET_SIZE(step) == 5 &&
                    PyDict_CheckExact(PyTuple_GET_ITEM(step, 1)) && PyTuple_CheckExact(PyTuple_GET_ITEM(step, 3)) &&
                    PyTuple_CheckExact(PyTuple_GET_ITEM(step, 4));
  if (!fine) {
    PyErr_Format(PyExc_TypeError, "[replay] %R is no step of a template", step);
    return false;
  }
  Ref invars = steal(read_atoms(PyTuple_GET_ITEM(step, 3), atoms));
  if (!invars) return false;
  Ref made = steal(new_equation({invars.get(), PyTuple_GET_ITEM(step, 4), PyTuple_GET_ITEM(step, 0),
                                 PyTuple_GET_ITEM(step, 1), PyTuple_GET_ITEM(step, 2), source}));
  if (!made || PyList_Append(equations, made.get()) < 0) return false;
  const Py_ssize_t size = PyList_GET_SIZE(atoms);
  return PyList_SetSlice(atoms, size, size, g_equation.slot(made.get(), 1)) == 0;
}

PyObject* replay(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 4 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || !PyList_CheckExact(args[2]))
    return PyErr_Format(PyExc_TypeError, "[replay] expected lists of equations, steps and atoms, and a position");
  if (g_tracer.type == nullptr)
    return PyErr_Format(PyExc_RuntimeError, "[replay] install_recording has not been called");
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[1]); ++i) {
    Ref step = borrow(PyList_GET_ITEM(args[1], i));
    if (!replay_step(args[0], step.get(), args[2], args[3])) return nullptr;
  }
  Py_RETURN_NONE;
}

// The atom that stands for a value in the program of a trace: owned.
PyObject* atom_of(PyObject* trace, PyObject* value, PyObject* method) {
  if (Py_TYPE(value) == g_tracer.type && g_tracer.slot(value, 0) == trace && g_tracer.slot(value, 2) != nullptr)
    return Py_NewRef(g_tracer.slot(value, 2));
  return in_python<PyObject_CallMethodOneArg>(trace, method, value);
}

PyObject* aval_of(PyObject* atom) {
  PyObject* aval = Py_TYPE(atom) == g_var.type ? g_var.slot(atom, 0) : nullptr;
  if (Py_TYPE(atom) == g_literal.type) aval = g_literal.slot(atom, 1);
  return aval != nullptr ? Py_NewRef(aval) : in_python<PyObject_GetAttrString>(atom, "aval");
}

PyObject* atoms(PyObject*, PyObject* const* args, Py_ssize_t count) {
  static PyObject* const method = PyUnicode_InternFromString("atom");
  if (count != 2 || !PyTuple_CheckExact(args[1]))
    return PyErr_Format(PyExc_TypeError, "[atoms] expected a trace and a tuple of operands");
  PyObject *trace = args[0], *operands = args[1];
  const Py_ssize_t size = PyTuple_GET_SIZE(operands);
  Ref found = steal(PyList_New(size)), avals = steal(PyTuple_New(size));
  if (!found || !avals || method == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* atom = atom_of(trace, PyTuple_GET_ITEM(operands, i), method);
    if (atom == nullptr) return nullptr;
    PyList_SET_ITEM(found.get(), i, atom);
    PyObject* aval = aval_of(atom);
    if (aval == nullptr) return nullptr;
    PyTuple_SET_ITEM(avals.get(), i, aval);
  }
  return PyTuple_Pack(2, found.get(), avals.get());
}

PyMethodDef kFunctions[] = {
    {"atoms", reinterpret_cast<PyCFunction>(atoms), METH_FASTCALL,
     "atoms(trace, operands) -> (list of atoms, tuple of their avals); what is no tracer of the trace is asked of its "
     "method atom."},
    {"install_recording", install_recording, METH_VARARGS,
     "install_recording(Var, Literal, JaxprEqn, DynamicJaxprTracer): the classes that are made here."},
    {"equation", reinterpret_cast<PyCFunction>(equation), METH_FASTCALL,
     "equation(invars, avals, primitive, params, effects, source): a JaxprEqn with new variables; avals is one or a "
     "tuple."},
    {"replay", reinterpret_cast<PyCFunction>(replay), METH_FASTCALL,
     "replay(equations, steps, atoms, source): appends an equation for each (primitive, params, effects, reads, avals), "
     "and their variables to the atoms that reads number."},
    {"record", reinterpret_cast<PyCFunction>(record), METH_FASTCALL,
     "record(trace, equations, ...): appends an equation; gives its tracer, or a list of them where avals is a tuple."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool is_tracer(PyObject* object) { return Py_TYPE(object) == g_tracer.type; }
bool is_literal(PyObject* object) { return Py_TYPE(object) == g_literal.type; }
bool is_equation(PyObject* object) { return Py_TYPE(object) == g_equation.type; }

TracerFields tracer_fields(PyObject* tracer) {
  return {g_tracer.slot(tracer, 0), g_tracer.slot(tracer, 1), g_tracer.slot(tracer, 2)};
}

LiteralFields literal_fields(PyObject* literal) { return {g_literal.slot(literal, 0), g_literal.slot(literal, 1)}; }

EquationFields equation_fields(PyObject* equation) {
  return {g_equation.slot(equation, 0), g_equation.slot(equation, 1), g_equation.slot(equation, 2),
          g_equation.slot(equation, 3), g_equation.slot(equation, 4), g_equation.slot(equation, 5)};
}

int register_record(PyObject* module) { return PyModule_AddFunctions(module, kFunctions); }

}  // namespace weft
