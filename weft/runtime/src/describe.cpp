// Describing: the equations of a program written into its shape-free key.
//
// weft/compiler/flat.py says what the key is for. Every first call with new sizes describes its whole program: what most
// equations have in common is written here, the rest is asked for.
#include "module.h"
#include "numpy_api.h"
#include "record.h"

namespace weft {
namespace {

// What one program's description is written into, and what is known of types and literals; all borrowed.
struct Tables {
  PyObject* writer;
  PyObject *rows, *avals, *literals, *key, *pattern, *values;  // lists
  PyObject *types, *floats;                                    // aval, literal -> what of it is in key and pattern
  PyObject *alone, *division;  // kind -> what describes an equation without a look at its operands, or None where all
                               // its parameters are in the key; the primitive that divides
  PyObject *describe, *type_of, *value;  // functions of the writer: of any equation, of an aval that is not in types,
                                         // of a literal that is not in floats
  Py_ssize_t most;  // equations at most

  bool read(PyObject* owner, PyObject* given) {
    writer = owner;
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != 14) return false;
    PyObject** fields[] = {&rows,   &avals, &literals, &key,      &pattern,  &values,
                           &types, &floats, &alone,    &division, &describe, &type_of, &value};
    for (int i = 0; i < 13; ++i) *fields[i] = PyTuple_GET_ITEM(given, i);
    for (PyObject* list : {rows, avals, literals, key, pattern, values})
      if (!PyList_CheckExact(list)) return false;
    if (!PyDict_CheckExact(types) || !PyDict_CheckExact(floats) || !PyDict_CheckExact(alone)) return false;
    most = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, 13));
    return !PyErr_Occurred();
  }
};

bool extend(PyObject* list, PyObject* items) {
  const Py_ssize_t size = PyList_GET_SIZE(list);
  return PyList_SetSlice(list, size, size, items) == 0;
}

// The numbers of an equation's operands: those of literals are -1, -2, ... in the order in which they are met.
PyObject* numbers_of(const Tables& to, PyObject* invars, PyObject* env) {
  const Py_ssize_t count = PyList_GET_SIZE(invars);
  Ref numbers = steal(PyList_New(count));
  if (!numbers) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* atom = PyList_GET_ITEM(invars, i);
    PyObject* number;
    if (is_literal(atom)) {
      if (PyList_Append(to.literals, atom) < 0) return nullptr;
      number = PyLong_FromSsize_t(-PyList_GET_SIZE(to.literals));
    } else {
      number = Py_XNewRef(PyDict_GetItemWithError(env, atom));
      if (number == nullptr && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, atom);
    }
    if (number == nullptr) return nullptr;
    PyList_SET_ITEM(numbers.get(), i, number);
  }
  return numbers.release();
}

enum Found { kError = -1, kUnknown = 0, kKnown = 1 };  // a Python error is set; has to be asked for; written

// The dtype of a floating-point scalar: None of Python's, nullptr of any other object.
PyObject* scalar_dtype(PyObject* value) {
  if (PyFloat_CheckExact(value)) return Py_NewRef(Py_None);
  if (PyArray_CheckExact(value)) {
    auto* array = reinterpret_cast<PyArrayObject*>(value);
    const bool is_float = PyArray_NDIM(array) == 0 && PyArray_ISFLOAT(array);
    return is_float ? Py_NewRef(reinterpret_cast<PyObject*>(PyArray_DESCR(array))) : nullptr;
  }
  return PyArray_IsScalar(value, Floating) ? reinterpret_cast<PyObject*>(PyArray_DescrFromScalar(value)) : nullptr;
}

// Write what is known of a literal under the key that flat.py enters it with; of zeros, which are two, nothing is.
Found write_known(const Tables& to, PyObject* literal, PyObject* divides) {
  const LiteralFields fields = literal_fields(literal);
  if (fields.val == nullptr || fields.aval == nullptr) return kUnknown;
  Ref dtype = steal(scalar_dtype(fields.val));
  if (!dtype) return PyErr_Occurred() ? kError : kUnknown;
  Ref real = PyFloat_CheckExact(fields.val) ? borrow(fields.val) : steal(PyNumber_Float(fields.val));
  if (!real) return kError;
  if (PyFloat_AS_DOUBLE(real.get()) == 0) return kUnknown;
  PyObject* kind = reinterpret_cast<PyObject*>(Py_TYPE(fields.val));
  Ref key = steal(PyTuple_Pack(5, real.get(), kind, dtype.get(), fields.aval, divides));
  if (!key) return kError;
  PyObject* entry = PyDict_GetItemWithError(to.floats, key.get());  // (in the key, in the pattern, is its value not)
  if (entry == nullptr) return PyErr_Occurred() ? kError : kUnknown;
  if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 3) return kUnknown;
  if (PyList_Append(to.key, PyTuple_GET_ITEM(entry, 0)) < 0 || !extend(to.pattern, PyTuple_GET_ITEM(entry, 1)))
    return kError;
  const int is_open = PyObject_IsTrue(PyTuple_GET_ITEM(entry, 2));
  return is_open < 0 || (is_open && PyList_Append(to.values, real.get()) < 0) ? kError : kKnown;
}

// Write the literal that an operand is.
bool write_literal(const Tables& to, PyObject* equation, PyObject* primitive, PyObject* number, Py_ssize_t place) {
  const Py_ssize_t index = -1 - PyLong_AsSsize_t(number);
  if (index < 0 || index >= PyList_GET_SIZE(to.literals) || !is_literal(PyList_GET_ITEM(to.literals, index))) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "[describe_equations] a number stands for no literal");
    return false;
  }
  PyObject* divides = primitive == to.division && place == 1 ? Py_True : Py_False;
  const Found found = write_known(to, PyList_GET_ITEM(to.literals, index), divides);
  if (found != kUnknown) return found == kKnown;
  Ref there = steal(PyLong_FromSsize_t(place));
  PyObject* given[] = {to.writer, number, equation, there.get()};
  return there && steal(PyObject_Vectorcall(to.value, given, 4, nullptr));
}

bool is_negative(PyObject* number) { return PyLong_AsLong(number) < 0; }  // -1 of an error, which the caller looks for

// Write the literals among the operands of an equation.
Found write_literals(const Tables& to, PyObject* equation, const EquationFields& eqn, PyObject* numbers, bool is_plain) {
  const Py_ssize_t count = PyList_GET_SIZE(numbers);
  bool may_be_known = is_plain && count > 0;  // where the last two are literals, it may be one itself
  for (Py_ssize_t i = count > 2 ? count - 2 : 0; i < count; ++i)
    may_be_known = may_be_known && is_negative(PyList_GET_ITEM(numbers, i));
  if (PyErr_Occurred()) return kError;
  if (may_be_known) return kUnknown;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* number = PyList_GET_ITEM(numbers, i);
    if (is_negative(number) && (PyErr_Occurred() || !write_literal(to, equation, eqn.primitive, number, i)))
      return kError;
  }
  return kKnown;
}

// The parameters of an equation as pairs; nullptr with an error set.
PyObject* all_parameters(PyObject* params) {
  if (PyDict_GET_SIZE(params) == 0) return PyTuple_New(0);
  Ref items = steal(PyDict_Items(params));
  return items ? PyList_AsTuple(items.get()) : nullptr;
}

// What is in the key of an equation of a kind that is described alone; kUnknown if it is one of the others.
Found own_parameters(const Tables& to, PyObject* equation, const EquationFields& eqn, PyObject* numbers, Ref& params) {
  static PyObject* const name = PyUnicode_InternFromString("kind");
  Ref kind = steal(name == nullptr ? nullptr : PyObject_GetAttr(eqn.primitive, name));
  if (!kind) return kError;
  Ref describe = borrow(PyDict_GetItemWithError(to.alone, reinterpret_cast<PyObject*>(Py_TYPE(kind.get()))));
  if (!describe) return PyErr_Occurred() ? kError : kUnknown;
  const int effects = PyObject_IsTrue(eqn.effects);
  if (effects != 0) return effects < 0 ? kError : kUnknown;
  if (PyList_GET_SIZE(to.rows) >= to.most || !PyDict_CheckExact(eqn.params)) return kUnknown;
  const Found found = write_literals(to, equation, eqn, numbers, describe.get() == Py_None);
  if (found != kKnown) return found;
  if (describe.get() == Py_None) {
    params = steal(all_parameters(eqn.params));
  } else {
    PyObject* given[] = {to.writer, equation};
    params = steal(PyObject_Vectorcall(describe.get(), given, 2, nullptr));
  }
  return params ? kKnown : kError;
}

bool write_row(const Tables& to, PyObject* equation, const EquationFields& eqn, PyObject* numbers, PyObject* params,
               PyObject* expanded) {
  Ref first = steal(PyLong_FromSsize_t(PyList_GET_SIZE(to.avals)));
  if (!first) return false;
  Ref row = steal(PyTuple_Pack(4, equation, numbers, first.get(), expanded == Py_None ? eqn.source : expanded));
  return row && PyList_Append(to.rows, row.get()) == 0 && PyList_Append(to.key, eqn.primitive) == 0 &&
         PyList_Append(to.key, params) == 0 && extend(to.key, numbers);
}

// Number a variable and write its type.
bool write_result(const Tables& to, PyObject* variable, PyObject* env) {
  static PyObject* const name = PyUnicode_InternFromString("aval");
  Ref aval = steal(name == nullptr ? nullptr : PyObject_GetAttr(variable, name));
  Ref number = steal(PyLong_FromSsize_t(PyList_GET_SIZE(to.avals)));
  if (!aval || !number || PyDict_SetItem(env, variable, number.get()) < 0 || PyList_Append(to.avals, aval.get()) < 0)
    return false;
  Ref type = borrow(PyDict_GetItemWithError(to.types, aval.get()));
  if (!type && PyErr_Occurred()) return false;
  if (!type) {
    PyObject* given[] = {to.writer, aval.get()};
    type = steal(PyObject_Vectorcall(to.type_of, given, 2, nullptr));
  }
  if (!type) return false;
  if (!PyTuple_CheckExact(type.get()) || PyTuple_GET_SIZE(type.get()) != 2) {
    PyErr_SetString(PyExc_TypeError, "[describe_equations] a type is described by a pair");
    return false;
  }
  return extend(to.pattern, PyTuple_GET_ITEM(type.get(), 1)) &&
         PyList_Append(to.key, PyTuple_GET_ITEM(type.get(), 0)) == 0;
}

bool write_equation(const Tables& to, PyObject* equation, PyObject* env, PyObject* expanded) {
  const EquationFields eqn = equation_fields(equation);
  for (PyObject* field : {eqn.invars, eqn.outvars, eqn.primitive, eqn.params, eqn.effects, eqn.source}) {
    if (field != nullptr) continue;
    PyErr_SetString(PyExc_TypeError, "[describe_equations] an equation without all its fields");
    return false;
  }
  if (!PyList_CheckExact(eqn.invars) || !PyList_CheckExact(eqn.outvars)) {
    PyErr_SetString(PyExc_TypeError, "[describe_equations] an equation without lists of variables");
    return false;
  }
  Ref numbers = steal(numbers_of(to, eqn.invars, env)), params;
  if (!numbers) return false;
  const Found own = own_parameters(to, equation, eqn, numbers.get(), params);
  if (own == kError) return false;
  if (own == kUnknown) {
    PyObject* given[] = {to.writer, equation, numbers.get(), env, expanded};
    params = steal(PyObject_Vectorcall(to.describe, given, 5, nullptr));
    if (!params) return false;
    if (params.get() == Py_None) return true;  // described as other equations, or as its operands
  }
  if (!write_row(to, equation, eqn, numbers.get(), params.get(), expanded)) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(eqn.outvars); ++i)
    if (!write_result(to, PyList_GET_ITEM(eqn.outvars, i), env)) return false;
  return true;
}

PyObject* describe_equations(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Tables to;
  if (count != 5 || !to.read(args[0], args[1]) || !PyList_CheckExact(args[2]) || !PyDict_CheckExact(args[3])) {
    if (PyErr_Occurred()) return nullptr;
    return PyErr_Format(PyExc_TypeError,
                        "[describe_equations] expected a writer, its tables, a list of equations, a dict and a position");
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[2]); ++i) {
    Ref equation = borrow(PyList_GET_ITEM(args[2], i));
    if (!is_equation(equation.get()))
      return PyErr_Format(PyExc_TypeError, "[describe_equations] %R is no equation", equation.get());
    if (!write_equation(to, equation.get(), args[3], args[4])) return nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef kFunctions[] = {
    {"describe_equations",
     reinterpret_cast<PyCFunction>(describe_equations),
     METH_FASTCALL,
     "describe_equations(writer, tables, equations, numbers of variables, position or None): write equations into the "
     "tables of a description. tables: (rows, avals, literals, key, pattern, values, types, floats, kinds that are "
     "described alone, the primitive that divides, describe(writer, equation, operands, numbers, position) -> "
     "parameters or None, type_of(writer, aval), value(writer, number, equation, place), most rows)."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_describe(PyObject* module) { return PyModule_AddFunctions(module, kFunctions); }

}  // namespace weft
