"""Random programs of nested, shared and closed-over calls, printed as JAX prints them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.oracle.differential import Case, assert_same_jaxpr

UNARY = ("neg", "sin", "cos", "exp")
BINARY = ("add", "mul", "sub", "max")
CONSTANTS = [np.arange(3, dtype=np.float32), np.ones(3, np.float32), np.full((3,), 2.0, np.float32)]


class Program:
    """A random function of f32[3] values, the same one for both libraries."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, J: Any, *args: Any) -> Any:
        self.J, self.random = J, random.Random(self.seed)
        self.functions: list[Any] = []
        return self.body(list(args), 3, self.random.randint(1, 8))

    def body(self, values: list[Any], depth: int, n_steps: int) -> Any:
        choose = self.random
        for _ in range(n_steps):
            kind = choose.random()
            if kind < 0.3:
                values.append(getattr(self.J.lax, choose.choice(UNARY))(choose.choice(values)))
            elif kind < 0.6:
                left, right = choose.choice(values), self.operand(values)
                values.append(getattr(self.J.lax, choose.choice(BINARY))(left, right))
            elif kind < 0.75 and self.functions:
                values.extend(self.results(choose.choice(self.functions), values))
            elif depth:
                values.extend(self.results(self.define(values, depth - 1), values))
        n_results = choose.randint(1, 3)
        results = [choose.choice(values) for _ in range(n_results)]
        return choose.choice([results, tuple(results), {"b": results[0], "a": results[-1]}])

    def operand(self, values: list[Any]) -> Any:
        kind = self.random.random()
        if kind < 0.2:
            return np.float32(self.random.randint(-2, 2) / 3)
        if kind < 0.35:
            return self.random.choice(CONSTANTS)
        return self.random.choice(values)

    def define(self, outside: list[Any], depth: int) -> Any:
        """A jitted function; half of them read values of the function around them."""
        n_steps, closes_over = self.random.randint(0, 5), self.random.random() < 0.5
        known, captured = list(self.functions), (outside[-2:] if closes_over else [])
        seed, name = self.random.random(), self.random.choice(["f", "g", "h"])

        def function(x: Any, y: Any) -> Any:
            saved = self.random, self.functions
            self.random, self.functions = random.Random(seed), list(known)
            try:
                return self.body([x, y, *captured], depth, n_steps)
            finally:
                self.random, self.functions = saved

        function.__name__ = name
        jitted = self.J.jit(function)
        if not closes_over:
            self.functions.append(jitted)
        return jitted

    def results(self, function: Any, values: list[Any]) -> list[Any]:
        first, second = self.random.choice(values), self.operand(values)
        out = function(first, second if getattr(second, "shape", None) == (3,) else first)
        return list(out.values()) if isinstance(out, dict) else list(out)


@pytest.mark.parametrize("seed", range(120))
def test_same_program(seed: int) -> None:
    assert_same_jaxpr(Case(Program(seed), ("f32[3]", "f32[3]")))
