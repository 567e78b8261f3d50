"""Derivatives of solutions of equations: custom_linear_solve, custom_root.

The user says how to solve the equation. Derivatives follow from the equation itself, not from the solver's steps::

    A x = b      x' solves  A x' = b' - A' x      (backward: the transposed equation)
    f(x) = 0     x' solves  J x' = -f'            J the derivative of f at x
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime, tree_util
from weft._base.record import NamedTuple
from weft.autodiff import custom_jvp, derivatives
from weft.autodiff.jvp import jvp_flat
from weft.batching.batch_trace import batch_jaxpr, in_front
from weft.control import bodies
from weft.core import kinds
from weft.core.avals import get_aval
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, DebugInfo, Var
from weft.core.ref_types import ProgramPrimitive
from weft.core.sharding import varying
from weft.core.tangents import Zero
from weft.core.tracing import trace as tracing
from weft.core.tracing import tracebacks
from weft.dispatch.calls import flat_functions, function_names
from weft.operations import linear as linear_operations
from weft.operations.pointwise import arithmetic

# -- linear equations -------------------------------------------------------------------------------------------------

PARTS = ("matvec", "vecmat", "solve", "transpose_solve")  # each takes its own constants, then a vector


def _inlined(params: dict[str, Any]) -> ClosedJaxpr:
    """The program of ``solve`` on all operands."""
    program: ClosedJaxpr = params["solve"]
    before, own = sum(params["const_lengths"][:2]), params["const_lengths"][2]
    avals = [aval for part in PARTS[:2] if params[part] is not None for aval in _constants(params, part)]
    after = _constants(params, "transpose_solve") if params["transpose_solve"] is not None else []
    assert len(avals) == before
    invars = program.jaxpr.invars
    whole = [*[Var(aval) for aval in avals], *invars[:own], *[Var(aval) for aval in after], *invars[own:]]
    return ClosedJaxpr(program.jaxpr.replace(invars=whole), program.consts)


def _constants(params: dict[str, Any], part: str) -> list[Any]:
    """The types of the constants of a part."""
    count = params["const_lengths"][PARTS.index(part)]
    return [v.aval for v in params[part].jaxpr.invars[:count]]


linear_solve_p = ProgramPrimitive(
    "custom_linear_solve", kinds.Higher(inline=_inlined), multiple_results=True, memoize=False
)
linear_solve_p.def_effectful_abstract_eval(lambda *in_avals, solve, **params: (solve.out_avals, solve.effects))


class _LinearSolveTuple(NamedTuple):
    """Values for each part, as printed equations show them."""

    matvec: Any
    vecmat: Any
    solve: Any
    transpose_solve: Any


def _shown(params: dict[str, Any]) -> dict[str, Any]:
    programs = [None if params[part] is None else params[part].jaxpr for part in PARTS]
    return {"const_lengths": _LinearSolveTuple(*params["const_lengths"]), "jaxprs": _LinearSolveTuple(*programs)}


linear_solve_p.print_params = _shown


def _split(values: Sequence[Any], lengths: Sequence[int]) -> tuple[list[list[Any]], list[Any]]:
    """(the constants of each part, the right-hand side)."""
    parts, start = [], 0
    for length in lengths:
        parts.append(list(values[start : start + length]))
        start += length
    return parts, list(values[start:])


def _jvp_linear_solve(primals: Any, tangents: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    outs = linear_solve_p.bind(*primals, **params)
    parts, b = _split(primals, params["const_lengths"])
    part_tangents, b_tangents = _split(tangents, params["const_lengths"])
    solution, matvec = outs[: len(b)], params["matvec"]
    moved: list[Any] = [Zero.from_primal_value(x) for x in solution]
    if any(type(t) is not Zero for t in part_tangents[0]):
        _, moved = jvp_flat(
            lambda *consts: eval_jaxpr(matvec.jaxpr, matvec.consts, *consts, *solution), parts[0], part_tangents[0]
        )
    right = [t if type(m) is Zero else _minus(t, m) for t, m in zip(b_tangents, moved, strict=True)]
    zeros = [Zero.from_primal_value(x) for x in outs]
    if all(type(t) is Zero for t in right):
        return outs, zeros
    consts = [x for part in parts for x in part]
    made = linear_solve_p.bind(*consts, *[linear_operations.instantiate(t) for t in right], **params)
    return outs, [*made[: len(b)], *zeros[len(b) :]]


def _minus(x: Any, y: Any) -> Any:
    return arithmetic.neg(y) if type(x) is Zero else arithmetic.sub(x, y)


def _transpose_linear_solve(cts: Any, *operands: Any, **params: Any) -> list[Any]:
    if params["transpose_solve"] is None:
        raise TypeError("transpose_solve required for backwards mode automatic differentiation of custom_linear_solve")
    (matvec, vecmat, solve, transpose_solve), b = _split(operands, params["const_lengths"])
    lengths = params["const_lengths"]
    swapped = {
        "const_lengths": (lengths[1], lengths[0], lengths[3], lengths[2]),
        "matvec": params["vecmat"],
        "vecmat": params["matvec"],
        "solve": params["transpose_solve"],
        "transpose_solve": params["solve"],
    }
    given = [linear_operations.instantiate(ct) for ct in cts[: len(b)]]
    made = linear_solve_p.bind(*vecmat, *matvec, *transpose_solve, *solve, *given, **swapped)
    return [None] * sum(lengths) + made[: len(b)]


def _batch_linear_solve(axis: Any, values: list[Any], dims: list[Any], *, const_lengths: Any, **params: Any) -> Any:
    """Batch all programs, with mapped right-hand sides and solutions."""
    parts, b = _split(values, const_lengths)
    part_dims, b_dims = _split(dims, const_lengths)
    made, consts, lengths = {}, [], []
    for name, own, own_dims in zip(PARTS, parts, part_dims, strict=True):
        program = params[name]
        if program is not None:
            mapped = (*own_dims, *[0] * len(b))
            program, _ = batch_jaxpr(program, axis, mapped, (True,) * len(program.out_avals))
            program, captured = bodies.without_constants(program)
            own = [*captured, *own]
        made[name] = program
        consts += own
        lengths.append(len(own))
    right = [in_front(axis.size, x, dim) for x, dim in zip(b, b_dims, strict=True)]
    outs = linear_solve_p.bind(*consts, *right, const_lengths=tuple(lengths), **made)
    return outs, [0] * len(outs)


linear_solve_p.jvp, linear_solve_p.transpose = _jvp_linear_solve, _transpose_linear_solve
linear_solve_p.batch_axis = _batch_linear_solve


def _traced(
    function: Callable[..., Any], avals: Sequence[Any], what: str, source: Any
) -> tuple[ClosedJaxpr, list[Any]]:
    """(the program with its constants as leading inputs, their values)."""
    closed, _ = tracing.trace_to_jaxpr(function, avals, DebugInfo(what, function_names.source_of(source)))
    program, captured = bodies.without_constants(closed)
    return program, list(captured)


class _Checked:
    """Adapts a function of trees to flat lists, and checks that its result has the structure and shapes of ``b``."""

    def __init__(self, name: str, function: Callable[..., Any], tree: Any, avals: Sequence[Any], aux: bool) -> None:
        self.name, self.function, self.tree, self.avals, self.aux = name, function, tree, avals, aux
        self.out_tree: Any = None

    def __call__(self, *leaves: Any) -> list[Any]:
        made = self.function(runtime.tree_unflatten(self.tree, list(leaves)))
        rest: list[Any] = []
        solution = made
        if self.aux:
            if not isinstance(made, (tuple, list)) or len(made) != 2:
                raise ValueError(f"{self.name}() with has_aux=True must return a pair (solution, aux), got {made}")
            solution, aux = made
            rest, aux_tree = runtime.tree_flatten(aux)
            self.out_tree = aux_tree
        flat_solution, tree = runtime.tree_flatten(solution)
        shapes = [get_aval(x).shape for x in flat_solution]
        expected = [aval.shape for aval in self.avals]
        if shapes != expected:
            raise ValueError(f"{self.name}() output shapes must match b, got {shapes} and {expected}")
        if tree != self.tree:
            raise TypeError(f"{self.name}() output pytree structure must match b, got {tree} and {self.tree}.")
        return [*flat_solution, *rest]


@tracebacks.boundary
def custom_linear_solve(
    matvec: Callable[..., Any],
    b: Any,
    solve: Callable[..., Any],
    transpose_solve: Callable[..., Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """``solve(matvec, b)``, the solution of ``matvec(x) = b``, differentiated through the equation.

    ``matvec`` is linear and preserves the structure and shapes of ``b``. Values that it closes over are differentiated.
    ``transpose_solve(vecmat, b)`` solves the transposed equation, which reverse differentiation needs; with
    ``symmetric`` it is the same as ``solve``. With ``has_aux`` both return ``(x, aux)``. ValueError for other shapes,
    TypeError for other structures, and for reverse differentiation without ``transpose_solve``.

    >>> half = lambda matvec, b: b / 2
    >>> print(lax.custom_linear_solve(lambda x: 2 * x, 3.0, half, symmetric=True))
    1.5
    """
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    leaves, tree = runtime.tree_flatten(b)
    avals = [flat_functions.check_leaf(leaf) for leaf in leaves]

    def traced(name: str, function: Any, source: Any, aux: bool = False) -> tuple[ClosedJaxpr, list[Any], _Checked]:
        checked = _Checked(name, function, tree, avals, aux)
        return *_traced(checked, avals, f"custom_linear_solve {name}", source), checked

    forward, forward_consts, _ = traced("matvec", matvec, matvec)
    along = varying.union([getattr(get_aval(x), "varying", ()) for x in forward_consts])
    if any(not set(along) <= set(aval.varying) for aval in avals):  # the solution varies as the equation does
        leaves = [varying.widened(leaf, along) for leaf in leaves]
        b = runtime.tree_unflatten(tree, leaves)
        avals = [get_aval(leaf) for leaf in leaves]
        forward, forward_consts, _ = traced("matvec", matvec, matvec)
    solver, solver_consts, solved = traced("solve", lambda rhs: solve(matvec, rhs), solve, has_aux)
    backward, backward_consts, solver_t, solver_t_consts = None, [], None, []
    if transpose_solve is not None:
        transposed = matvec if symmetric else lambda y: derivatives.linear_transpose(matvec, b)(y)[0]
        backward, backward_consts = forward, forward_consts
        if not symmetric:
            backward, backward_consts, _ = traced("vecmat", transposed, matvec)
        solver_t, solver_t_consts, _ = traced(
            "transpose_solve", lambda rhs: transpose_solve(transposed, rhs), transpose_solve, has_aux
        )
    groups = (forward_consts, backward_consts, solver_consts, solver_t_consts)
    outs = linear_solve_p.bind(
        *[x for group in groups for x in group], *leaves, const_lengths=tuple(map(len, groups)),
        matvec=forward, vecmat=backward, solve=solver, transpose_solve=solver_t,
    )  # fmt: skip
    solution = runtime.tree_unflatten(tree, outs[: len(leaves)])
    return (solution, runtime.tree_unflatten(solved.out_tree, outs[len(leaves) :])) if has_aux else solution


# -- roots ------------------------------------------------------------------------------------------------------------


def _same_structure(name: str, tree: Any, what: str, expected: Any) -> None:
    if tree != expected:
        raise TypeError(f"{name} output pytree structure must match {what}, got {tree} and {expected}.")


def _root_tangents(
    equation: ClosedJaxpr, tree: Any, tangent_solve: Callable[..., Any], consts: Any, moving: Any, solution: list[Any]
) -> list[Any]:
    """How the solution moves with the constants of its equation f(c, x) = 0: the dx of df/dx dx = -df/dc dc."""

    def at(consts: Any, x: Any) -> Any:
        return runtime.tree_unflatten(tree, eval_jaxpr(equation.jaxpr, equation.consts, *consts, *x))

    _, right = derivatives.jvp(lambda *consts: at(consts, solution), tuple(consts), tuple(moving))
    _, linear = derivatives.linearize(
        lambda x: at(consts, runtime.tree_flatten(x)[0]), runtime.tree_unflatten(tree, solution)
    )
    made, found = runtime.tree_flatten(tangent_solve(linear, right))
    _same_structure("tangent_solve()", found, "x", tree)
    return [arithmetic.neg(x) for x in made]


@tracebacks.boundary
def _root(equation: ClosedJaxpr, solver: ClosedJaxpr, tree: Any, tangent_solve: Callable[..., Any]) -> Any:
    """The root as a function of the equation's constants, the solver's, and the guess, with its derivative.

    The rule calls a new function instead of ``root``: a rule that refers to ``root`` would be a cycle, which only the
    garbage collector frees.
    """

    @custom_jvp.custom_jvp
    def root(consts: Any, solver_consts: Any, guess: Any) -> list[Any]:
        return eval_jaxpr(solver.jaxpr, solver.consts, *solver_consts, *guess)

    @root.defjvp
    def root_jvp(primals: Any, tangents: Any) -> Any:
        count = tree.num_leaves
        outs = _root(equation, solver, tree, tangent_solve)(*primals)
        moved = _root_tangents(equation, tree, tangent_solve, primals[0], tangents[0], outs[:count])
        zeros = [linear_operations.instantiate(Zero.from_primal_value(x)) for x in outs[count:]]
        return outs, [*moved, *zeros]

    return root


def custom_root(
    f: Callable[..., Any],
    initial_guess: Any,
    solve: Callable[..., Any],
    tangent_solve: Callable[..., Any],
    has_aux: bool = False,
) -> Any:
    """``solve(f, initial_guess)``, a root of ``f``, differentiated through the equation ``f(x) = 0``.

    ``f`` preserves the structure of its argument; values that it closes over are differentiated. ``tangent_solve(g,
    y)`` solves ``g(x) = y`` for a linear ``g``. With ``has_aux``, ``solve`` returns ``(x, aux)``. TypeError for other
    structures.

    >>> root = lambda a: lax.custom_root(lambda x: x**2 - a, a, lambda f, x: jnp.sqrt(a), lambda g, y: y / g(1.0))
    >>> print(root(4.0), weft.grad(root)(4.0))
    2.0 0.25
    """
    guess, tree = runtime.tree_flatten(initial_guess)
    avals = [flat_functions.check_leaf(leaf) for leaf in guess]
    aux_tree: Any = None

    def residual(*leaves: Any) -> list[Any]:
        outs, found = runtime.tree_flatten(f(runtime.tree_unflatten(tree, list(leaves))))
        _same_structure("f()", found, "initial_guess", tree)
        return outs

    def solved(*leaves: Any) -> list[Any]:
        nonlocal aux_tree
        made = solve(f, runtime.tree_unflatten(tree, list(leaves)))
        solution, aux = flat_functions.checked_pair(made) if has_aux else (made, ())
        outs, found = runtime.tree_flatten(solution)
        _same_structure("solve()", found, "initial_guess", tree)
        rest, aux_tree = runtime.tree_flatten(aux)
        return [*outs, *rest]

    equation, equation_consts = _traced(residual, avals, "custom_root", f)
    solver, solver_consts = _traced(solved, avals, "custom_root solve", solve)
    count = len(guess)
    outs = _root(equation, solver, tree, tangent_solve)(equation_consts, solver_consts, guess)
    solution = tree_util.tree_unflatten(tree, [flat_functions.finished(x) for x in outs[:count]])
    if not has_aux:
        return solution
    return solution, tree_util.tree_unflatten(aux_tree, [flat_functions.finished(x) for x in outs[count:]])
