"""weft.example_libraries.optimizers: first-order optimizers as triples of functions, and schedules of step sizes.

An optimizer is made for one array (``init``, ``update``, ``get_params``); ``optimizer`` makes it one for trees::

    init, update, get_params = sgd(0.1)
    state = update(0, gradients, init(parameters))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from weft import numpy as wnp
from weft import tree_util
from weft._base import unbuilt
from weft._base.record import NamedTuple

__getattr__ = unbuilt.fallback(__name__)
Schedule = Callable[[Any], Any]


class Optimizer(NamedTuple):
    """``init_fn(params)`` gives a state, ``update_fn(step, gradients, state)`` the next, ``params_fn`` parameters."""

    init_fn: Callable[[Any], Any]
    update_fn: Callable[[Any, Any, Any], Any]
    params_fn: Callable[[Any], Any]


class OptimizerState(NamedTuple):
    """The states of all arrays, flat, the tree of the parameters, and the tree of each state."""

    packed_state: Any
    tree_def: Any
    subtree_defs: Any


def _flatten(state: OptimizerState) -> tuple[tuple[Any], tuple[Any, Any]]:
    return (state.packed_state,), (state.tree_def, state.subtree_defs)


def _unflatten(static: tuple[Any, Any], children: tuple[Any]) -> OptimizerState:
    return OptimizerState(children[0], *static)


tree_util.register_pytree_node(OptimizerState, _flatten, _unflatten)


def optimizer(opt_maker: Callable[..., tuple[Any, Any, Any]]) -> Callable[..., Optimizer]:
    """An optimizer of trees from one of arrays; a decorator.

    ``opt_maker`` gives ``init(x0)``, ``update(step, gradient, state)`` and ``get_params(state)``, where a state is any
    tree. TypeError where gradients have another structure than parameters.
    """

    @functools.wraps(opt_maker)
    def make(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def tree_init(x0_tree: Any) -> OptimizerState:
            leaves, tree = tree_util.tree_flatten(x0_tree)
            return _packed([init(x) for x in leaves], tree)

        def tree_update(i: Any, grad_tree: Any, state: OptimizerState) -> OptimizerState:
            gradients, tree = tree_util.tree_flatten(grad_tree)
            if tree != state.tree_def:
                raise TypeError(
                    f"optimizer update function was passed a gradient tree that did not match the parameter tree "
                    f"structure with which it was initialized: parameter tree {state.tree_def} and grad tree {tree}"
                )
            states = _unpacked(state)
            return _packed([update(i, g, s) for g, s in zip(gradients, states, strict=True)], tree, state)

        def tree_params(state: OptimizerState) -> Any:
            return tree_util.tree_unflatten(state.tree_def, [get_params(s) for s in _unpacked(state)])

        return Optimizer(tree_init, tree_update, tree_params)

    return make


def _packed(states: list[Any], tree: Any, before: OptimizerState | None = None) -> OptimizerState:
    flat = [tree_util.tree_flatten(state) for state in states]
    subtrees = tuple([subtree for _, subtree in flat])
    if before is not None and subtrees != before.subtree_defs:
        raise TypeError(
            f"optimizer update function produced an output structure that did not match its input structure: "
            f"input {before.subtree_defs} and output {subtrees}"
        )
    return OptimizerState(tuple([tuple(leaves) for leaves, _ in flat]), tree, subtrees)


def _unpacked(state: OptimizerState) -> list[Any]:
    pairs = zip(state.subtree_defs, state.packed_state, strict=True)
    return [tree_util.tree_unflatten(subtree, list(leaves)) for subtree, leaves in pairs]


class JoinPoint:
    """One array's part of a state in a tree of them; a leaf for ``tree_map``, so that the two trees stay apart."""

    __slots__ = ("subtree",)

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Iterator[Any]:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """A state as a tree of the structure of the parameters, whose leaves are ``JoinPoint``s of each array's part.

    >>> init, update, get_params = momentum(0.1, 0.9)
    >>> unpack_optimizer_state(init({"w": 1.0}))["w"].subtree
    (1.0, Array(0., dtype=float32, weak_type=True))
    """
    return tree_util.tree_unflatten(opt_state.tree_def, list(map(JoinPoint, _unpacked(opt_state))))


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The inverse of ``unpack_optimizer_state``. TypeError where a leaf is no ``JoinPoint``."""
    leaves, tree = tree_util.tree_flatten(marked_pytree)
    if not all(isinstance(leaf, JoinPoint) for leaf in leaves):
        raise TypeError("every leaf of an unpacked optimizer state is a JoinPoint, as unpack_optimizer_state gives it")
    return _packed([leaf.subtree for leaf in leaves], tree)


# ---- optimizers


@optimizer
def sgd(step_size: Any) -> Any:
    """Gradient descent: ``x - step_size * g``. ``step_size`` is a number or a function of the step, here and below.

    >>> init, update, get_params = sgd(0.5)
    >>> get_params(update(0, 1.0, init(3.0)))
    2.5
    """
    schedule = make_schedule(step_size)
    return (lambda x0: x0), (lambda i, g, x: x - schedule(i) * g), (lambda x: x)


@optimizer
def momentum(step_size: Any, mass: float) -> Any:
    """Gradient descent along a velocity, which keeps ``mass`` of itself at every step."""
    schedule = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - schedule(i) * velocity, velocity

    return (lambda x0: (x0, wnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def nesterov(step_size: Any, mass: float) -> Any:
    """Nesterov's momentum: the gradient counts once more after the velocity has taken it in."""
    schedule = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - schedule(i) * (mass * velocity + g), velocity

    return (lambda x0: (x0, wnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> Any:
    """AdaGrad (Duchi, Hazan and Singer, 2011): steps divided by the root of the sum of squared gradients."""
    schedule = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, mean = state
        squares = squares + wnp.square(g)
        scaled = wnp.where(squares > 0, g / wnp.sqrt(wnp.where(squares > 0, squares, 1)), 0.0)
        mean = (1.0 - momentum) * scaled + momentum * mean
        return x - schedule(i) * mean, squares, mean

    return (lambda x0: (x0, wnp.zeros_like(x0), wnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """RMSProp: steps divided by the root of a running mean of squared gradients."""
    schedule = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares = state
        squares = squares * gamma + wnp.square(g) * (1.0 - gamma)
        return x - schedule(i) * g / wnp.sqrt(squares + eps), squares

    return (lambda x0: (x0, wnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def rmsprop_momentum(step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9) -> Any:
    """RMSProp along a velocity."""
    schedule = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, velocity = state
        squares = squares * gamma + wnp.square(g) * (1.0 - gamma)
        velocity = momentum * velocity + schedule(i) * g / wnp.sqrt(squares + eps)
        return x - velocity, squares, velocity

    return (lambda x0: (x0, wnp.zeros_like(x0), wnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam (Kingma and Ba, 2014): running means of gradients and of their squares, freed of their bias."""
    schedule = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, squares = state
        mean = (1 - b1) * g + b1 * mean
        squares = (1 - b2) * wnp.square(g) + b2 * squares
        count = wnp.asarray(i + 1, mean.dtype)
        unbiased = mean / (1 - b1**count)
        return x - schedule(i) * unbiased / (wnp.sqrt(squares / (1 - b2**count)) + eps), mean, squares

    return (lambda x0: (x0, wnp.zeros_like(x0), wnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam with the largest gradient, slowly forgotten, instead of the root of the mean square."""
    schedule = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, largest = state
        mean = (1 - b1) * g + b1 * mean
        largest = wnp.maximum(b2 * largest, wnp.abs(g))
        count = wnp.asarray(i + 1, mean.dtype)
        return x - (schedule(i) / (1 - b1**count)) * mean / (largest + eps), mean, largest

    return (lambda x0: (x0, wnp.zeros_like(x0), wnp.zeros_like(x0))), update, (lambda state: state[0])


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> Any:
    """SM3 (Anil et al., 2019): AdaGrad that keeps one vector for each dimension instead of a whole array."""
    schedule = make_schedule(step_size)

    def spread(vector: Any, axis: int, rank: int) -> Any:
        return wnp.reshape(vector, (1,) * axis + (-1,) + (1,) * (rank - axis - 1))

    def init(x0: Any) -> Any:
        x0 = wnp.atleast_1d(x0)
        return x0, wnp.zeros_like(x0), [wnp.zeros(n, x0.dtype) for n in x0.shape]

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, vectors = state
        rank = x.ndim
        squares = functools.reduce(wnp.minimum, [spread(v, d, rank) for d, v in enumerate(vectors)]) + wnp.square(g)
        inverse = wnp.where(squares > 0, 1.0 / wnp.sqrt(wnp.where(squares > 0, squares, 1)), 0.0)
        mean = (1.0 - momentum) * (g * inverse) + momentum * mean
        others = [tuple([e for e in range(rank) if e != d]) for d in range(rank)]
        return x - schedule(i) * mean, mean, [wnp.max(squares, axis=axes) for axes in others]

    return init, update, (lambda state: state[0])


# ---- schedules


def constant(step_size: Any) -> Schedule:
    """The same step size always."""
    return lambda i: step_size


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False) -> Schedule:
    """``step_size / (1 + decay_rate * i / decay_steps)``, the quotient rounded down with ``staircase``."""

    def schedule(i: Any) -> Any:
        elapsed = wnp.floor(i / decay_steps) if staircase else i / decay_steps
        return step_size / (1 + decay_rate * elapsed)

    return schedule


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """``step_size * decay_rate ** (i / decay_steps)``."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: Any = 1.0) -> Schedule:
    """From ``step_size`` to ``final_step_size`` in ``decay_steps`` steps, along a power."""

    def schedule(step: Any) -> Any:
        step = wnp.minimum(step, decay_steps)
        return (step_size - final_step_size) * (1 - step / decay_steps) ** power + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """``values[k]`` for steps behind k of the ``boundaries``; ValueError unless there is one value more."""
    boundaries, values = wnp.array(boundaries), wnp.array(values)
    if boundaries.ndim != 1 or values.ndim != 1:
        raise ValueError("boundaries and values must be sequences")
    if boundaries.shape[0] != values.shape[0] - 1:
        raise ValueError("boundaries length must be one shorter than values length")
    return lambda i: values[wnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule as it is, a number as a constant one; TypeError for anything else."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if wnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(type(scalar_or_schedule))


# ---- gradients


def l2_norm(tree: Any) -> Any:
    """The root of the sum of squares of all leaves."""
    return wnp.sqrt(sum([wnp.vdot(x, x) for x in tree_util.tree_leaves(tree)]))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Gradients shortened to ``max_norm`` if their norm is larger."""
    norm = l2_norm(grad_tree)
    return tree_util.tree_map(lambda g: wnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)
