"""Derivatives of functions of trees: jvp, linearize, vjp, linear_transpose.

Arguments and results are pytrees; tangents and cotangents have their structure, shapes and dtypes (float0 for integers
and bools).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar, overload

from weft import runtime, tree_util
from weft.autodiff import (
    gradient_refs,
    known_values,
    transpose,
)
from weft.autodiff import (
    jvp as jvp_module,
)
from weft.autodiff import (
    linearize as linearize_module,
)
from weft.autodiff import (
    loop_derivatives as loop_derivatives,  # imported for the rules that it defines
)
from weft.control import carry
from weft.core import avals
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import DebugInfo, Jaxpr
from weft.core.tangents import FLOAT0, Undefined, Zero, is_differentiable, tangent_aval
from weft.core.tracing import trace as tracing
from weft.core.tracing import tracebacks
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import flat_functions, function_names, signature, struct
from weft.dispatch.calls import jit as jit_module
from weft.operations import linear as linear_operations

R = TypeVar("R")


def _named(fun: Callable[..., Any], in_tree: Any, index: int) -> str:
    """The user's name of one leaf of the positional arguments."""
    args = runtime.tree_unflatten(in_tree, list(range(in_tree.num_leaves)))
    return signature.leaf_path(fun, signature.Call(tuple(args), {}, (), len(args)), index)


# -- forward ----------------------------------------------------------------------------------------------------------


@tracebacks.boundary
@overload
def jvp(fun: Callable[..., R], primals: Any, tangents: Any, has_aux: Literal[False] = False) -> tuple[R, R]: ...


@overload
def jvp(fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool) -> tuple[Any, ...]: ...


def jvp(fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """``(fun(*primals), derivative of fun at primals along tangents)``; with ``has_aux`` followed by the auxiliary
    value.

    Both lists have the structure of the arguments. TypeError if structures or dtypes differ, ValueError if shapes do.

    >>> y, dy = weft.jvp(jnp.sin, (0.0,), (2.0,))
    >>> print(y, dy)
    0.0 2.0
    """
    jit_module.check_callable(fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            "primal and tangent arguments to jax.jvp must be tuples or lists; "
            f"found {type(primals).__name__} and {type(tangents).__name__}."
        )
    leaves, in_tree = runtime.tree_flatten(tuple(primals))
    given, tangent_tree = runtime.tree_flatten(tuple(tangents))
    if in_tree != tangent_tree:
        raise TypeError(
            "primal and tangent arguments to jax.jvp must have the same tree structure; primals have tree structure "
            f"{in_tree} whereas tangents have tree structure {tangent_tree}."
        )
    checked = [
        _checked_tangent(fun, in_tree, index, x, t) for index, (x, t) in enumerate(zip(leaves, given, strict=True))
    ]
    function = flat_functions.FlatFunction(fun, in_tree, has_aux)
    outs, out_tangents = jvp_module.jvp_flat(function, leaves, checked)
    made = [linear_operations.instantiate(t) for t in out_tangents]
    result = flat_functions.rebuilt(function.out_tree, outs), flat_functions.rebuilt(function.out_tree, made)
    return (*result, function.aux) if has_aux else result


def _checked_tangent(fun: Callable[..., Any], in_tree: Any, index: int, primal: Any, tangent: Any) -> Any:
    """The tangent of one leaf, checked and converted; a Zero if the leaf has no tangents."""
    aval, found = flat_functions.check_leaf(primal), flat_functions.check_leaf(tangent)
    expected = tangent_aval(aval)
    if found.dtype != expected.dtype:
        wanted = "[('float0', 'V')]" if expected.dtype == FLOAT0 else expected.dtype.name
        raise TypeError(
            "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in case of int/bool primal "
            f"dtype the tangent dtype must be float0. Got primal dtype {aval.dtype} and so expected tangent dtype "
            f"{wanted}, but got tangent dtype {found.dtype} instead. The argument is {_named(fun, in_tree, index)}."
        )
    if found.shape != expected.shape:
        raise ValueError(
            f"jvp called with different primal and tangent shapes; Got primal shape {aval.shape} and tangent shape as "
            f"{found.shape} for the argument {_named(fun, in_tree, index)}"
        )
    return Zero(expected) if expected.dtype == FLOAT0 else tangent


class _Linear:
    """The linear function that ``linearize`` returns; a leaf of ``Partial``, which holds the residuals."""

    def __init__(self, made: linearize_module.Linearized, in_avals: Sequence[Any], in_tree: Any, out_tree: Any) -> None:
        self.jaxpr = made.jaxpr
        self.in_live, self.out_live = made.in_live, made.out_live
        self.in_avals, self.in_tree, self.out_tree = list(in_avals), in_tree, out_tree
        self.out_avals = [tangent_aval(avals.get_aval(x)) for x in made.outs]

    @tracebacks.boundary
    def __call__(self, residuals: list[Any], *tangents: Any) -> Any:
        leaves, in_tree = runtime.tree_flatten(tuple(tangents))
        if in_tree != self.in_tree:
            raise TypeError(f"expected {self.in_tree}, got {in_tree}")
        for aval, leaf in zip(self.in_avals, leaves, strict=True):
            found, expected = flat_functions.check_leaf(leaf), tangent_aval(aval)
            if (found.dtype, found.shape) != (expected.dtype, expected.shape):
                raise ValueError(
                    "linearized function called on tangent values inconsistent with the original primal values:\n"
                    f"Got tangent aval {avals.long_text(found)} for primal aval {avals.long_text(aval)} but expected "
                    f"{avals.long_text(expected)}."
                )
        live = [leaf for leaf, has in zip(leaves, self.in_live, strict=True) if has]
        made = iter(eval_jaxpr(self.jaxpr, residuals, *live))
        outs = [
            next(made) if has else linear_operations.zeros(aval)
            for has, aval in zip(self.out_live, self.out_avals, strict=True)
        ]
        return flat_functions.rebuilt(self.out_tree, outs)

    def __repr__(self) -> str:
        return f"linearized {self.jaxpr}"


@tracebacks.boundary
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """``(fun(*primals), linear function from tangents of the arguments to the tangent of the result)``.

    ``fun`` runs once, however often the linear function is called.

    >>> y, f_jvp = weft.linearize(jnp.sin, 0.0)
    >>> print(y, f_jvp(2.0))
    0.0 2.0
    """
    jit_module.check_callable(fun)
    leaves, in_tree = runtime.tree_flatten(tuple(primals))
    in_avals = [flat_functions.check_leaf(leaf) for leaf in leaves]
    function = flat_functions.FlatFunction(fun, in_tree, has_aux)
    made = linearize_module.without_dead(
        linearize_module.linearize_flat(function, flat_functions.kept(leaves, in_avals))
    )
    linear = tree_util.Partial(_Linear(made, in_avals, in_tree, function.out_tree), made.residuals)
    result = flat_functions.rebuilt(function.out_tree, made.outs), linear
    return (*result, function.aux) if has_aux else result


# -- backward ---------------------------------------------------------------------------------------------------------


class NotNeeded:
    """An empty container that stands in ``VJP.args_res`` for an argument that the pullback does not read."""

    def __repr__(self) -> str:
        return "NotNeeded()"


class VJP:
    """The function that ``vjp`` returns: from the cotangent of the result to those of the arguments.

    It is a pytree of its residuals, so that it can be passed through ``jit``. ``args_res`` holds the residuals that are
    arguments, with tuples for the arguments' containers; ``opaque_residuals`` holds the others. Both lists may
    be replaced, for instance to free arguments and supply them again later. ``jaxpr`` is the linear program; its
    constants are the residuals.

    >>> y, f_vjp = weft.vjp(lambda x, y: x * y, jnp.array(2.0), jnp.array(3.0))
    >>> f_vjp.args_res[0] = jnp.array(10.0)
    >>> print(*f_vjp(jnp.array(1.0)))
    3.0 10.0
    """

    __slots__ = ("args_res", "facts", "opaque_residuals")

    def __init__(self, facts: _Facts, args_res: list[Any], opaque_residuals: list[Any]) -> None:
        self.facts = facts
        self.args_res = args_res
        self.opaque_residuals = opaque_residuals

    @property
    def residuals(self) -> list[Any]:
        """The constants of ``jaxpr``. TypeError if a list was replaced by one of another structure."""
        facts, opaque = self.facts, self.opaque_residuals
        try:
            given = facts.args_tree.flatten_up_to(self.args_res)
        except ValueError as error:
            raise TypeError(f"[vjp] args_res no longer has the structure of the arguments: {error}") from error
        if len(opaque) != facts.leaf_indices.count(None):
            raise TypeError(f"[vjp] {facts.leaf_indices.count(None)} opaque_residuals are needed, got {len(opaque)}")
        others = iter(opaque)
        found = [next(others) if index is None else given[index] for index in facts.leaf_indices]
        for index, value in zip(facts.leaf_indices, found, strict=True):
            if value is None or isinstance(value, NotNeeded):
                where = "opaque_residuals" if index is None else "args_res"
                raise TypeError(f"[vjp] {where} has {value!r} where the pullback of {facts.source} needs a value")
        return found

    def show_arguments(self, primals: Any) -> None:
        """Move the residuals that are arguments from ``opaque_residuals``, which has all at first, to ``args_res``.

        Tuples replace the arguments' containers, since a user's class might not accept ``NotNeeded`` as a child.
        """
        facts, leaves = self.facts, runtime.tree_flatten(primals)[0]
        facts.leaf_indices = _argument_indices(leaves, self.opaque_residuals)
        shown = iter([leaf if index in facts.leaf_indices else NotNeeded() for index, leaf in enumerate(leaves)])
        arguments = facts.in_tree.children()
        self.args_res = _in_tuples(arguments, shown)
        facts.args_tree = runtime.tree_flatten(_in_tuples(arguments, iter(range(len(leaves)))))[1]
        pairs = zip(self.opaque_residuals, facts.leaf_indices, strict=True)
        self.opaque_residuals = [value for value, index in pairs if index is None]

    @property
    def jaxpr(self) -> Jaxpr:
        return self.facts.jaxpr

    @property
    def in_tree(self) -> Any:
        return self.facts.in_tree

    @property
    def out_tree(self) -> Any:
        return self.facts.out_tree

    @tracebacks.boundary
    def __call__(self, *cts: Any) -> Any:
        facts = self.facts
        if len(cts) != 1:
            raise TypeError(_ONE_COTANGENT.format(name=facts.source, count=len(cts)))
        leaves = _checked_cotangents(facts, cts[0])
        return runtime.tree_unflatten(facts.in_tree, [flat_functions.finished(x) for x in self.pull(leaves)])

    def with_refs(self, *wanted: Any) -> Callable[[Any], Any]:
        """The same function, which adds to references instead of giving values.

        ``wanted`` has the structure of the arguments. A leaf that is a reference gets the cotangent added to it, and
        ``ad.GradRef()`` replaces it; for ``ad.DontWant()`` there is ``ad.DidntWant()``; any other leaf, such as
        ``ad.GradValue()``, asks for the value. ValueError for another structure.

        >>> total = weft.new_ref(jnp.array(1.0))
        >>> _, f_vjp = weft.vjp(lambda x, y: x * y, jnp.array(2.0), jnp.array(3.0))
        >>> _ = f_vjp.with_refs(total, weft.ad.DontWant())(jnp.array(1.0))
        >>> print(total[...])
        4.0
        """
        facts, (requests, tree) = self.facts, runtime.tree_flatten(tuple(wanted))
        if tree != facts.in_tree:
            raise ValueError(
                f"[with_refs] the arguments of {facts.source} have the structure {facts.in_tree}, but what to do with "
                f"their cotangents was given as {tree}"
            )

        @tracebacks.boundary
        def pulled(ct: Any) -> Any:
            cts = self.pull(_checked_cotangents(facts, ct))
            pairs = zip(requests, cts, strict=True)
            return runtime.tree_unflatten(facts.in_tree, [gradient_refs.delivered(*pair) for pair in pairs])

        return pulled

    def pull(self, cts: Sequence[Any]) -> list[Any]:
        """The cotangents of the argument leaves, from those of the result leaves (Zeros allowed)."""
        facts = self.facts
        live = [ct for ct, has in zip(cts, facts.out_live, strict=True) if has]
        operands = [Undefined(v.aval) for v in facts.jaxpr.invars]
        found = iter(transpose.backward_pass(facts.jaxpr, self.residuals, operands, live))
        pulled = [
            next(found) if has else Zero(tangent_aval(aval))
            for has, aval in zip(facts.in_live, facts.in_avals, strict=True)
        ]
        return [linear_operations.instantiate(ct) for ct in pulled]

    def __repr__(self) -> str:
        return f"VJP(fun={self.facts.source}, in_tree={self.in_tree}, out_tree={self.out_tree})"


class _Facts:
    """The parts of a VJP that are not arrays; they belong to its pytree structure, compared by identity."""

    __slots__ = (
        "args_tree", "in_avals", "in_live", "in_tree", "jaxpr", "leaf_indices", "out_avals", "out_live", "out_tree",
        "source",
    )  # fmt: skip

    def __init__(self, source: str, made: linearize_module.Linearized, in_avals: Any, in_tree: Any, out_tree: Any):
        self.args_tree = runtime.tree_flatten([])[1]  # the structure of ``args_res``
        self.leaf_indices: list[int | None] = [None] * len(
            made.residuals
        )  # for each residual the argument leaf that it is
        self.source = source
        self.jaxpr: Jaxpr = made.jaxpr
        self.in_live, self.out_live = made.in_live, made.out_live
        self.in_avals, self.in_tree, self.out_tree = in_avals, in_tree, out_tree
        self.out_avals = [avals.get_aval(x) for x in made.outs]


tree_util.register_pytree_node(
    VJP, lambda vjp: ((vjp.args_res, vjp.opaque_residuals), vjp.facts), lambda facts, rest: VJP(facts, *rest)
)
tree_util.register_pytree_node(NotNeeded, lambda _: ((), None), lambda _, rest: NotNeeded())

_ONE_COTANGENT = """
The function returned by `jax.vjp` applied to {name} was called with {count} arguments,
but it takes a single one: the cotangent of the single value that {name} returned, in its structure
(a tuple, if it returned a tuple). If f returns a pair, its pullback is called as

  x_bar, = f_vjp((2.0, 2.0))
"""


def _checked_cotangents(facts: _Facts, ct: Any) -> list[Any]:
    leaves, tree = runtime.tree_flatten(ct)
    if tree != facts.out_tree:
        difference = errors_of_structure(facts.out_tree, tree)
        raise ValueError(
            "unexpected tree structure.\n\nThe argument to a VJP function returned by `jax.vjp` must match the pytree\n"
            f"structure of the differentiated function {facts.source}.\n\nBut the tree structures differ:\n{difference}"
        )
    checked = []
    paths = signature.tree_paths(facts.out_tree)
    for path, aval, leaf in zip(paths, facts.out_avals, leaves, strict=True):
        found, expected = flat_functions.check_leaf(leaf), tangent_aval(aval)
        if found.shape != expected.shape or expected.dtype not in (FLOAT0, found.dtype):
            raise ValueError(
                "unexpected JAX type (e.g. shape/dtype) for argument to VJP function: "
                f"got {avals.long_text(found)}, but expected {avals.long_text(expected)} because the corresponding "
                f"output of the differentiated function had JAX type {avals.long_text(aval)}"
                + (f" (output component {path})" if path else "")
            )
        checked.append(Zero(expected) if expected.dtype == FLOAT0 else leaf)
    return checked


def errors_of_structure(expected: Any, found: Any) -> str:
    """How two structures differ."""
    lines = []
    for part in carry.differences(expected, found):
        lines.append(
            f"  * out{part.path} was a {part.before} in the original output, but a {part.after} here, so {part.why}."
        )
    return "\n".join(lines)


@tracebacks.boundary
@overload
def vjp(
    fun: Callable[..., R], *primals: Any, has_aux: Literal[False] = False, reduce_axes: Any = ()
) -> tuple[R, VJP]: ...


@overload
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool, reduce_axes: Any = ()) -> tuple[Any, ...]: ...


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, reduce_axes: Any = ()) -> Any:
    """``(fun(*primals), function from the cotangent of the result to the tuple of cotangents of the arguments)``.

    >>> y, f_vjp = weft.vjp(lambda x, y: x * y, 2.0, 3.0)
    >>> print(*f_vjp(1.0))
    3.0 2.0
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to vjp is deprecated")
    jit_module.check_callable(fun)
    alone = _told_apart(primals)
    (outs, pullback), function = vjp_flat(fun, alone, has_aux)
    pullback.show_arguments(alone)
    result = flat_functions.rebuilt(function.out_tree, outs), pullback
    return (*result, function.aux) if has_aux else result


def _told_apart(primals: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with an alias for each Array that was given before."""
    leaves, tree = runtime.tree_flatten(primals)
    if len({id(leaf) for leaf in leaves}) == len(leaves):
        return primals
    seen: set[int] = set()
    for index, leaf in enumerate(leaves):
        if id(leaf) in seen and type(leaf) is runtime.Array:
            leaves[index] = runtime.array_alias(leaf, leaf.aval)
        seen.add(id(leaf))
    return runtime.tree_unflatten(tree, leaves)


def vjp_flat(
    fun: Callable[..., Any], primals: Sequence[Any], has_aux: bool
) -> tuple[tuple[list[Any], VJP], flat_functions.FlatFunction]:
    """((result leaves, pullback), the function with its structures)."""
    leaves, in_tree = runtime.tree_flatten(tuple(primals))
    in_avals = [flat_functions.check_leaf(leaf) for leaf in leaves]
    function = flat_functions.FlatFunction(fun, in_tree, has_aux)
    made = linearize_module.without_dead(
        linearize_module.linearize_flat(function, flat_functions.kept(leaves, in_avals))
    )
    facts = _Facts(function_names.source_of(fun), made, in_avals, in_tree, function.out_tree)
    return (made.outs, VJP(facts, [], made.residuals)), function


def _in_tuples(trees: Sequence[Any], leaves: Iterator[Any]) -> list[Any]:
    """The next leaves in the structures of ``trees``, with tuples as containers. No recursion: trees may be deep."""
    whole: list[Any] = []
    waiting = [(iter(trees), whole)]
    while waiting:
        children, made = waiting[-1]
        child = next(children, None)
        if child is None:
            waiting.pop()
            if waiting:
                waiting[-1][1].append(tuple(made))
        elif child.node_data() is None:
            made.append(next(leaves))
        else:
            waiting.append((iter(child.children()), []))
    return whole


def _argument_indices(leaves: Sequence[Any], residuals: Sequence[Any]) -> list[int | None]:
    """For each residual the number of the argument leaf that it is; None if there is no such leaf, or more than one."""
    known: dict[int, int | None] = {}
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, (runtime.Array, Tracer)):
            known[id(leaf)] = None if id(leaf) in known else index
    return [known.get(id(value)) for value in residuals]


def fwd_and_bwd(
    fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(``fwd``, ``bwd``): ``vjp`` as two functions, to be called separately; jitted unless ``jitted=False``.

    ``fwd(*args)`` gives ``(result, residuals)``, with ``has_aux`` ``(result, residuals, aux)``; ``bwd(residuals, ct)``
    the cotangent of the argument that ``argnums`` names, or a tuple of them.

    >>> fwd, bwd = weft.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
    >>> y, residuals = fwd(2.0, 3.0)
    >>> print(y, *bwd(residuals, 1.0))
    6.0 3.0 2.0
    """
    jit_module.check_callable(fun)
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)

    def fwd(*args: Any, **kwargs: Any) -> Any:
        indices = [range(len(args))[number] for number in numbers]

        def of_selected(*given: Any) -> Any:
            whole = list(args)
            for index, value in zip(indices, given, strict=True):
                whole[index] = value
            return fun(*whole, **kwargs)

        return vjp(of_selected, *[args[index] for index in indices], has_aux=has_aux)

    def bwd(residuals: Any, ct: Any) -> Any:
        made = residuals(ct)
        return made[0] if isinstance(argnums, int) else made

    return (jit_module.jit(fwd), jit_module.jit(bwd)) if jitted else (fwd, bwd)


def _aval_of(leaf: Any) -> Any:
    """The type of a leaf that may only describe an array."""
    aval = struct.described(leaf) if avals.find_rule(leaf) is None else None
    return flat_functions.check_leaf(leaf) if aval is None else aval


# -- linear functions -------------------------------------------------------------------------------------------------


@tracebacks.boundary
def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Any = ()) -> Callable[..., Any]:
    """The transpose of a function that is linear in all its arguments; only the types of ``primals`` count.

    The result takes the cotangent of ``fun``'s result and gives a tuple, one cotangent per argument.

    >>> f_t = weft.linear_transpose(lambda x: 3.0 * x, 1.0)
    >>> print(*f_t(2.0))
    6.0
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to linear_transpose is deprecated")
    jit_module.check_callable(fun)
    leaves, in_tree = runtime.tree_flatten(tuple(primals))
    in_avals = [_aval_of(leaf) for leaf in leaves]
    function = flat_functions.FlatFunction(fun, in_tree)
    info = DebugInfo("linear_transpose", function_names.source_of(fun))
    closed, out_avals = tracing.trace_to_jaxpr(function, in_avals, info)
    closed = known_values.with_counted_loops(closed)
    out_tree = function.out_tree
    if len({is_differentiable(aval.dtype) for aval in (*in_avals, *out_avals)}) > 1:
        dtypes_in, dtypes_out = ([aval.dtype for aval in side] for side in (in_avals, out_avals))
        raise TypeError(
            "linear_transpose only supports [float or complex] -> [float or complex], and integer -> integer "
            f"functions, but got {dtypes_in} -> {dtypes_out}. The function is {function_names.source_of(fun)}."
        )

    @tracebacks.boundary
    def transposed(consts: Sequence[Any], ct: Any) -> Any:
        cts, ct_tree = runtime.tree_flatten(ct)
        if ct_tree != out_tree:
            raise TypeError(f"cotangent tree does not match function output, expected {out_tree} but got {ct_tree}")
        found = [flat_functions.check_leaf(leaf) for leaf in cts]
        if any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in zip(found, out_avals, strict=True)):
            raise TypeError(f"cotangent type does not match function output, expected {tuple(out_avals)} but got {cts}")
        operands = [Undefined(aval) for aval in in_avals]
        pulled = transpose.backward_pass(closed.jaxpr, consts, operands, cts)
        made = [linear_operations.zeros(aval) if type(x) is Zero else x for x, aval in zip(pulled, in_avals)]
        return flat_functions.rebuilt(in_tree, made)

    return tree_util.Partial(transposed, closed.consts)  # which jit can return: the constants are its leaves
