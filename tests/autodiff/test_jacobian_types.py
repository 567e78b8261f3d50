"""Types of Jacobians and Hessians: dtypes and weak types beside JAX's, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import weft

X = np.arange(1, 4, dtype=np.float32)
TREE = {"w": X, "b": 2.0}
CASES: dict[str, Any] = {
    "jacfwd of a tree": lambda m: m.jacfwd(lambda p: {"a": p["w"] * p["b"], "c": p["b"]})(TREE),
    "jacrev of a tree": lambda m: m.jacrev(lambda p: {"a": p["w"] * p["b"], "c": p["b"]})(TREE),
    "two numbers": lambda m: m.jacfwd(lambda x, y: x * y, argnums=(0, 1))(2.0, 3.0),
    "holomorphic forward": lambda m: m.jacfwd(lambda z: z**2, holomorphic=True)(1.0 + 2j),
    "holomorphic backward": lambda m: m.jacrev(lambda z: z**2, holomorphic=True)(1.0 + 2j),
    "integers as results": lambda m: m.jacfwd(lambda x: (x.astype(int), x * 2))(m.numpy.asarray(X)),
    "hessian of numbers": lambda m: m.hessian(lambda x, y: x * x * y, argnums=(0, 1))(2.0, 3.0),
    "hessian of a tree": lambda m: m.hessian(lambda p: (p["w"] ** 2).sum() * p["b"])(TREE),
}


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_values_and_types_are_jax_s(case: Any, jitted: bool) -> None:
    def outcome(module: Any) -> Any:
        tree = module.jit(lambda: case(module))() if jitted else case(module)
        return module.tree.map(lambda a: (np.asarray(a).tolist(), a.shape, str(a.dtype), a.weak_type), tree)

    assert outcome(weft) == outcome(jax)


@pytest.mark.oracle
@pytest.mark.parametrize("x", [1.0 + 2j, np.complex64([1, 2])], ids=["number", "array"])
def test_jacfwd_refuses_complex_arguments_of_functions_not_said_to_be_holomorphic(x: Any) -> None:
    for module in (weft, jax):
        for wrap in (lambda f: f, module.jit):
            with pytest.raises(
                TypeError, match=r"jacfwd requires real-valued inputs .* complex64.*pass holomorphic=True"
            ):
                wrap(module.jacfwd(lambda z: z**2))(x)


@pytest.mark.oracle
@pytest.mark.parametrize("transform", ["jacfwd", "jacrev", "hessian"])
def test_integers_are_refused_by_the_name_of_the_argument(transform: str) -> None:
    def f(y: Any, tree: Any) -> Any:
        return y * tree["count"] * 2.0

    word = "jacrev" if transform == "jacrev" else "jacfwd"
    for module in (weft, jax):
        with pytest.raises(TypeError, match=f"^{word} requires real.* int32") as raised:
            getattr(module, transform)(f, (0, 1))(1.0, {"count": np.int32(3)})
        assert module is jax or str(raised.value).endswith("The argument is tree['count'].")
        assert "allow_int" not in str(raised.value) or word == "jacrev"
