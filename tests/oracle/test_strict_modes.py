"""Under the options that forbid implicit promotion only the user's own operands raise, never a function about itself.

Programs are traced, not run: promotion is decided there. Where JAX raises about the operands of a call, weft may; where
it does not, weft must not. Derivatives and batches of a call raise no more than the call does.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.operations import samples
from tests.oracle import (
    differential,
    jaxpr_cases,
    jaxpr_cases_indexing,
    jaxpr_cases_options,
    jaxpr_cases_structure,
    strict_cases,
)

pytestmark = pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")

OPTIONS = {"dtype": ("numpy_dtype_promotion", "strict"), "rank": ("numpy_rank_promotion", "raise")}
MODULES = (
    "experimental.checkify", "experimental.ode", "example_libraries.optimizers", "example_libraries.stax", "image",
    "scipy.cluster.vq", "scipy.fft", "scipy.integrate", "scipy.interpolate", "scipy.linalg", "scipy.ndimage",
    "scipy.optimize", "scipy.signal", "scipy.sparse.linalg", "scipy.spatial.transform", "scipy.stats",
)  # fmt: skip


NEEDS_VALUES = [
    "ConcretizationTypeError", "NonConcreteBooleanIndexError", "TracerArrayConversionError",
    "TracerBoolConversionError", "TracerIntegerConversionError",
]  # fmt: skip


def module(name: str) -> Any:
    for submodule in MODULES:
        importlib.import_module(f"{name}.{submodule}")
    return differential.namespace(name)


JAX = module("jax")
module("weft")


def names(J: Any) -> dict[str, Any]:
    return {
        "jnp": J.numpy, "lax": J.lax, "nn": J.nn, "random": J.random, "special": J.scipy.special, "ops": J.ops,
        "np": np, "J": J, "Rotation": J.scipy.spatial.transform.Rotation, "Slerp": J.scipy.spatial.transform.Slerp,
    }  # fmt: skip


def parsed(J: Any, row: str) -> tuple[Callable[..., Any], list[Any]]:
    """The function of a row, and its arguments."""
    expression, _, types = row.rpartition(" |")
    arguments = [J.random.key(0) if text == "key" else differential.argument(text) for text in types.split()]
    arguments = [J.numpy.asarray(x) if isinstance(x, np.ndarray) else x for x in arguments]
    return eval(f"lambda {', '.join('xyz'[: len(arguments)])}: {expression}", names(J)), arguments


def traced(J: Any, function: Callable[..., Any], arguments: list[Any]) -> None:
    """Trace a function; where it needs values, run it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            J.make_jaxpr(function)(*arguments)
        except Exception as error:
            if type(error).__name__ not in NEEDS_VALUES:
                raise
            function(*arguments)


def is_inexact(J: Any, x: Any) -> bool:
    return hasattr(x, "dtype") and J.numpy.issubdtype(x.dtype, np.inexact)


def of_floats(J: Any, function: Callable[..., Any], arguments: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """The function as one of its floating arrays alone, that gives its floating results."""
    indices = [i for i, x in enumerate(arguments) if is_inexact(J, x)]

    def reduced(*given: Any) -> list[Any]:
        operands = [*arguments]
        for index, x in zip(indices, given, strict=True):
            operands[index] = x
        return [x for x in J.tree.leaves(function(*operands)) if is_inexact(J, x)]

    return reduced, [arguments[index] for index in indices]


def pulled(J: Any, function: Callable[..., Any], arguments: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    function, primals = of_floats(J, function, arguments)

    def pull(*primals: Any) -> Any:
        outs, back = J.vjp(function, *primals)
        return back([J.numpy.ones_like(x) for x in outs])

    return pull, primals


def pushed(J: Any, function: Callable[..., Any], arguments: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    function, primals = of_floats(J, function, arguments)
    return (lambda *xs: J.jvp(function, xs, xs) if xs else []), primals


def mapped(J: Any, function: Callable[..., Any], arguments: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    axes = [0 if hasattr(x, "shape") else None for x in arguments]
    if 0 not in axes:
        return function, arguments
    stacked = [x if axis is None else J.numpy.stack([x, x]) for x, axis in zip(arguments, axes, strict=True)]
    return J.vmap(function, tuple(axes)), stacked


TRANSFORMED = {"vmap": mapped, "jvp": pushed, "vjp": pulled}


def failure(J: Any, option: str | None, row: str, how: str = "") -> Exception | None:
    """What a row raises under an option."""
    function, arguments = parsed(J, row)
    try:
        if option is None:
            traced(J, function, arguments)
            return None
        if how:
            function, arguments = TRANSFORMED[how](J, function, arguments)
        name, value = OPTIONS[option]
        with getattr(J, name)(value):
            traced(J, function, arguments)
    except Exception as error:
        return error
    return None


CATALOGUES = (jaxpr_cases, jaxpr_cases_structure, jaxpr_cases_indexing, jaxpr_cases_options)
PRINTED = {
    f"{catalogue.__name__.rpartition('.')[2]}-{group}": [
        row.strip().removeprefix("differs: ")
        for row in text.strip().splitlines()
        if " of " not in row.partition("|")[0]
    ]
    for catalogue in CATALOGUES
    for group, text in catalogue.ALL.items()
}


def of_distributions() -> Iterator[str]:
    for name, count in strict_cases.PARAMETERS_OF_DISTRIBUTIONS.items():
        distribution = getattr(weft.scipy.stats, name)
        for method in strict_cases.METHODS:
            if hasattr(distribution, method):
                operands = ["x/8" if method in ("ppf", "isf") else "x"] if method != "entropy" else []
                operands += ["y/8", "y+1", "y+1"][-count:] if count else []
                yield f"J.scipy.stats.{name}.{method}({','.join(operands)}) | f32[2,3] f32[2,3]"


OWN = {group: text.strip().splitlines() for group, text in strict_cases.ALL.items()}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("group", PRINTED)
def test_functions_of_the_catalogue_raise_only_where_jax_does(group: str, option: str) -> None:
    found = {}
    for row in PRINTED[group]:
        error = failure(weft, option, row)
        if error and failure(weft, None, row) is None and failure(JAX, option, row) is None:
            found[row] = error
    assert not found


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("group", [*OWN, "distributions"])
def test_library_functions_do_not_raise_about_themselves(group: str, option: str) -> None:
    rows = OWN[group] if group in OWN else list(of_distributions())
    errors = {row: failure(weft, option, row) for row in rows}
    assert not {row: error for row, error in errors.items() if error}


@pytest.mark.parametrize("how", ["vmap", "vjp"])  # which pushes tangents first
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("group", [*OWN, "distributions"])
def test_their_derivatives_and_batches_do_not_either(group: str, option: str, how: str) -> None:
    found = {}
    for row in OWN[group] if group in OWN else list(of_distributions()):
        error = failure(weft, option, row, how)
        if error and ("promotion" in str(error) or "broadcast" in str(error)):
            found[row] = error
    assert not found


@pytest.mark.parametrize("how", ["", *TRANSFORMED])
@pytest.mark.parametrize("option", OPTIONS)
def test_samples_of_operations_and_their_rules(option: str, how: str) -> None:
    found = {}
    for name, calls in samples.PROGRAMS.items():
        for number, (program, operands) in enumerate(calls):
            function, arguments = (lambda *xs, program=program: program(weft.lax, *xs)), list(operands)
            try:
                if how:
                    function, arguments = TRANSFORMED[how](weft, function, arguments)
                traced(weft, function, arguments)
            except Exception:
                continue  # without the option too
            with getattr(weft, OPTIONS[option][0])(OPTIONS[option][1]):
                try:
                    traced(weft, function, arguments)
                except Exception as error:
                    found[f"{name}-{number}"] = error
    assert not found


@pytest.mark.parametrize("row", strict_cases.REFUSED.strip().splitlines())
def test_operands_and_functions_of_the_user_are_refused_as_by_jax(row: str) -> None:
    option, _, call = row.partition(" ")
    ours, theirs = failure(weft, option, call), failure(JAX, option, call)
    assert failure(weft, None, call) is None
    assert theirs is not None
    assert type(ours).__name__ == type(theirs).__name__


@functools.cache
def on_jax(row: str) -> list[Any]:
    """The results of a call on JAX, without an option: computed once for all options."""
    function, arguments = parsed(JAX, row)
    with warnings.catch_warnings(action="ignore"):  # of what JAX is about to drop
        return weft.tree.leaves(function(*arguments))


@pytest.mark.parametrize("option", OPTIONS)
def test_compiled_results_are_those_without_the_option(option: str) -> None:
    rows = [
        "jnp.polyfit(x,y,2,cov=True) | f32[7] f32[7]", "J.scipy.fft.dctn(x) | f32[3,4]",
        "J.scipy.fft.idctn(x,norm='ortho') | f32[3,4]", "J.scipy.signal.stft(x,nperseg=16) | f32[2,64]",
        "J.scipy.signal.istft(x,nperseg=16)[1] | c64[2,9,9]", "J.scipy.signal.csd(x,y,nperseg=16) | f32[64] f32[64]",
        "J.scipy.linalg.polar(x,method='svd') | f32[4,3]", "jnp.linalg.pinv(x) | f32[2,4,3]",
        "J.scipy.stats.mode(x) | f32[4,3]", "special.lpmn(2,2,x/8) | f32[3]", "special.wofz(x) | f32[3]",
        "J.experimental.ode.odeint(lambda y,t:-y,x,y) | f32[2] f32[3]",
        "Rotation.from_quat(x).inv().as_quat() | f32[3,4]",
    ]  # fmt: skip
    for row in rows:
        function, arguments = parsed(weft, row)
        with getattr(weft, OPTIONS[option][0])(OPTIONS[option][1]):
            found = weft.jit(function)(*arguments)
        for ours, theirs in zip(weft.tree.leaves(found), on_jax(row), strict=True):
            np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-3, atol=2e-3, err_msg=row)
            assert ours.dtype == theirs.dtype, row


@pytest.mark.parametrize("option", OPTIONS)
def test_optimizers_and_layers(option: str) -> None:
    optimizers, stax = weft.example_libraries.optimizers, weft.example_libraries.stax
    with getattr(weft, OPTIONS[option][0])(OPTIONS[option][1]):
        parameters = {"a": weft.numpy.ones((3, 2)), "b": weft.numpy.ones(3)}
        made = [
            optimizers.sgd(0.1), optimizers.momentum(0.1, 0.9), optimizers.nesterov(0.1, 0.9), optimizers.adagrad(0.1),
            optimizers.rmsprop(0.1), optimizers.rmsprop_momentum(0.1), optimizers.adam(0.1), optimizers.adamax(0.1),
            optimizers.sm3(0.1), optimizers.sgd(optimizers.exponential_decay(0.1, 10, 0.9)),
            optimizers.adam(optimizers.inverse_time_decay(0.1, 10, 0.9, staircase=True)),
            optimizers.adam(optimizers.polynomial_decay(0.1, 10, 0.9, 2.0)),
            optimizers.sgd(optimizers.piecewise_constant([2, 4], [0.1, 0.2, 0.3])),
        ]  # fmt: skip
        for init, update, get_params in made:
            traced(weft, lambda i, p, u=update, g=get_params, s=init: g(u(i, p, s(p))), [3, parameters])
        traced(weft, lambda p: optimizers.clip_grads(p, 1.0), [parameters])
        init_layers, apply = stax.serial(
            stax.Conv(4, (3, 3)), stax.BatchNorm(), stax.Relu, stax.MaxPool((2, 2)), stax.AvgPool((2, 2)), stax.Flatten,
            stax.Dense(5), stax.Gelu, stax.Selu, stax.Dropout(0.5), stax.Dense(2), stax.LogSoftmax,
        )  # fmt: skip

        def run(key: Any, x: Any) -> Any:
            return apply(init_layers(key, (-1, 9, 9, 1))[1], x, rng=key)

        traced(weft, run, [weft.random.key(0), weft.numpy.ones((2, 9, 9, 1))])
