// The classes of weft.core that install_recording was given, as other sources look at their instances.
#pragma once

#include "python.h"

namespace weft {

bool is_tracer(PyObject* object);  // exactly a DynamicJaxprTracer
bool is_literal(PyObject* object);
bool is_equation(PyObject* object);

struct TracerFields {
  PyObject *trace, *aval, *val;  // borrowed; nullptr where never set
};

TracerFields tracer_fields(PyObject* tracer);

struct LiteralFields {
  PyObject *val, *aval;
};

LiteralFields literal_fields(PyObject* literal);

struct EquationFields {
  PyObject *invars, *outvars, *primitive, *params, *effects, *source;
};

EquationFields equation_fields(PyObject* equation);

}  // namespace weft
