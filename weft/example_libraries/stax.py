"""weft.example_libraries.stax: neural networks as pairs of functions, ``(init, apply)``, and layers to make them of.

``init(rng, input_shape)`` gives the shape of the output and the parameters, ``apply(params, inputs, rng=None)`` the
output::

    init, apply = serial(Dense(32), Relu, Dense(10))
    output_shape, params = init(weft.random.key(0), (-1, 784))
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import lax, nn, random
from weft import numpy as jnp
from weft._base import api, unbuilt
from weft.dispatch.calls.struct import ShapeDtypeStruct
from weft.nn import initializers

__getattr__ = unbuilt.fallback(__name__)

Layer = tuple[Callable[..., Any], Callable[..., Any]]
Shape = tuple[int, ...]

# The functions that a program finds here beside the layers made of them.
elu, gelu, leaky_relu, log_softmax, relu, selu = nn.elu, nn.gelu, nn.leaky_relu, nn.log_softmax, nn.relu, nn.selu
sigmoid, softmax, softplus, standardize = nn.sigmoid, nn.softmax, nn.softplus, nn.standardize
glorot_normal, normal = initializers.glorot_normal, initializers.normal
ones, zeros = initializers.ones, initializers.zeros

glorot = initializers.glorot_normal
randn = initializers.normal
logsoftmax = nn.log_softmax


def _output_shape(function: Callable[..., Any], *shapes: Sequence[int]) -> Shape:
    """The shape of a result of float32 operands of these shapes. A batch of unknown size (-1) stays so."""
    known = [tuple(1 if extent == -1 else extent for extent in shape) for shape in shapes]
    out = api.eval_shape(function, *[ShapeDtypeStruct(shape, "float32") for shape in known]).shape
    return (-1, *out[1:]) if shapes[0][0] == -1 else tuple(out)


# -- layers with parameters -------------------------------------------------------------------------------------------


def Dense(out_dim: int, W_init: Any = glorot(), b_init: Any = randn()) -> Layer:  # noqa: B008 - JAX's signature
    """A matrix product and a bias: f[..., n] -> f[..., out_dim].

    >>> from weft.example_libraries import stax
    >>> init, apply = stax.Dense(3)
    >>> shape, (W, b) = init(weft.random.key(0), (-1, 5))
    >>> shape, W.shape, apply((W, b), jnp.ones((2, 5))).shape
    ((-1, 3), (5, 3), (2, 3))
    """

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        weight_key, bias_key = random.split(rng)
        weights = W_init(weight_key, (input_shape[-1], out_dim))
        return (*input_shape[:-1], out_dim), (weights, b_init(bias_key, (out_dim,)))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        weights, bias = params
        product = jnp.dot(inputs, weights)
        return product + lax.expand_dims(bias, tuple(range(jnp.ndim(product) - 1)))

    return init_fun, apply_fun


def _convolution(
    convolve: Callable[..., Any],
    dimension_numbers: Sequence[str],
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None,
    W_init: Any,
    b_init: Any,
) -> Layer:
    """A convolution by ``convolve(inputs, W, strides)`` and a bias for each channel of the result."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    steps = tuple(strides or (1,) * len(filter_shape))
    weights_of = W_init or glorot(rhs_spec.index("I"), rhs_spec.index("O"))

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        extents = iter(filter_shape)
        channels = {"O": out_chan, "I": input_shape[lhs_spec.index("C")]}
        kernel_shape = tuple(channels[c] if c in channels else next(extents) for c in rhs_spec)
        output_shape = _output_shape(lambda x, w: convolve(x, w, steps), input_shape, kernel_shape)
        bias_shape = tuple(out_chan if c == "C" else 1 for c in out_spec)
        weight_key, bias_key = random.split(rng)
        return output_shape, (weights_of(weight_key, kernel_shape), b_init(bias_key, bias_shape))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        weights, bias = params
        return convolve(inputs, weights, steps) + bias

    return init_fun, apply_fun


def GeneralConv(
    dimension_numbers: Sequence[str],
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = randn(1e-6),  # noqa: B008 - JAX's signature
) -> Layer:
    """A convolution with a bias. ``dimension_numbers`` are the layouts of inputs, filters and outputs."""

    def convolve(x: Any, w: Any, steps: Shape) -> Any:
        return lax.conv_general_dilated(x, w, steps, padding, dimension_numbers=tuple(dimension_numbers))

    return _convolution(convolve, dimension_numbers, out_chan, filter_shape, strides, W_init, b_init)


def GeneralConvTranspose(
    dimension_numbers: Sequence[str],
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = randn(1e-6),  # noqa: B008 - JAX's signature
) -> Layer:
    """A transposed convolution with a bias; see ``GeneralConv``."""

    def convolve(x: Any, w: Any, steps: Shape) -> Any:
        return lax.conv_transpose(x, w, steps, padding, dimension_numbers=tuple(dimension_numbers))

    return _convolution(convolve, dimension_numbers, out_chan, filter_shape, strides, W_init, b_init)


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(
    axis: int | Sequence[int] = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Any = initializers.zeros,
    gamma_init: Any = initializers.ones,
) -> Layer:
    """The inputs with mean 0 and variance 1 over ``axis``, then scaled and shifted by parameters."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        shape = tuple(extent for number, extent in enumerate(input_shape) if number not in axes)
        beta_key, gamma_key = random.split(rng)
        beta = beta_init(beta_key, shape) if center else ()
        return input_shape, (beta, gamma_init(gamma_key, shape) if scale else ())

    def apply_fun(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        out = nn.standardize(x, axes, epsilon=epsilon)
        out = out * jnp.expand_dims(jnp.asarray(gamma, x.dtype), axes) if scale else out
        return out + jnp.expand_dims(jnp.asarray(beta, x.dtype), axes) if center else out

    return init_fun, apply_fun


# -- layers without parameters ----------------------------------------------------------------------------------------


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """A layer that applies ``fun(x, **fun_kwargs)``, which keeps shapes."""

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        return input_shape, ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return fun(inputs, **fun_kwargs)

    return init_fun, apply_fun


Tanh = elementwise(jnp.tanh)
Relu = elementwise(nn.relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(nn.log_softmax, axis=-1)
Softmax = elementwise(nn.softmax, axis=-1)
Softplus = elementwise(nn.softplus)
Sigmoid = elementwise(nn.sigmoid)
Elu = elementwise(nn.elu)
LeakyRelu = elementwise(nn.leaky_relu)
Selu = elementwise(nn.selu)
Gelu = elementwise(nn.gelu)
Identity = elementwise(lambda x: x)


def _pooling(reducer: Callable[..., Any], initial: float, mean: bool = False) -> Callable[..., Layer]:
    def make(
        window_shape: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: str = "VALID",
        spec: str | None = None,
    ) -> Layer:
        """Windows of the spatial dimensions, which step by 1 unless ``strides`` says otherwise.

        ``spec`` is the layout, as "NHWC"; by default the batch is the first and the channels are the last dimension.
        """
        layout = spec or "N" + "S" * len(window_shape) + "C"
        steps_in = tuple(strides or (1,) * len(window_shape))
        extents, steps = iter(window_shape), iter(steps_in)
        window = tuple(1 if c in "NC" else next(extents) for c in layout)
        stride = tuple(1 if c in "NC" else next(steps) for c in layout)

        def pool(x: Any) -> Any:
            out = lax.reduce_window(x, jnp.asarray(initial, x.dtype), reducer, window, stride, padding)
            if not mean:
                return out
            plane = jnp.ones([1 if c in "NC" else e for c, e in zip(layout, x.shape, strict=True)], x.dtype)
            count = lax.reduce_window(plane, jnp.asarray(0, x.dtype), lax.add, window, stride, padding)
            return out / count

        def init_fun(rng: Any, input_shape: Shape) -> Any:
            return _output_shape(pool, input_shape), ()

        def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
            return pool(inputs)

        return init_fun, apply_fun

    return make


MaxPool = _pooling(lax.max, -math.inf)
SumPool = _pooling(lax.add, 0.0)
AvgPool = _pooling(lax.add, 0.0, mean=True)


def _flatten() -> Layer:
    def init_fun(rng: Any, input_shape: Shape) -> Any:
        return (input_shape[0], math.prod(input_shape[1:])), ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return jnp.reshape(inputs, (inputs.shape[0], -1))

    return init_fun, apply_fun


Flatten = _flatten()


def FanOut(num: int) -> Layer:
    """The input, ``num`` times, as a list for ``parallel``."""

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        return [input_shape] * num, ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return [inputs] * num

    return init_fun, apply_fun


def _fan_in_sum() -> Layer:
    def init_fun(rng: Any, input_shape: Sequence[Shape]) -> Any:
        return input_shape[0], ()

    def apply_fun(params: Any, inputs: Sequence[Any], **kwargs: Any) -> Any:
        return functools.reduce(jnp.add, inputs)

    return init_fun, apply_fun


FanInSum = _fan_in_sum()


def FanInConcat(axis: int = -1) -> Layer:
    """The inputs of a list joined along ``axis``."""

    def init_fun(rng: Any, input_shape: Sequence[Shape]) -> Any:
        joined = axis % len(input_shape[0])
        total = sum(shape[joined] for shape in input_shape)
        return (*input_shape[0][:joined], total, *input_shape[0][joined + 1 :]), ()

    def apply_fun(params: Any, inputs: Sequence[Any], **kwargs: Any) -> Any:
        return jnp.concatenate(inputs, axis)

    return init_fun, apply_fun


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Each input is kept with probability ``rate`` and divided by it, or 0; in other modes than "train" all are kept.

    ``apply`` needs ``rng`` then: ValueError without.
    """

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        return input_shape, ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        if mode != "train":
            return inputs
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError(
                "Dropout layer requires apply_fun to be called with a random key: apply_fun(params, inputs, rng=key), "
                "where rng is a key of weft.random.key"
            )
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return init_fun, apply_fun


# -- layers of layers -------------------------------------------------------------------------------------------------


def serial(*layers: Layer) -> Layer:
    """Layers one after the other."""
    inits, applies = zip(*layers, strict=True)

    def init_fun(rng: Any, input_shape: Any) -> Any:
        params = []
        for init in inits:
            rng, layer_rng = random.split(rng)
            input_shape, param = init(layer_rng, input_shape)
            params.append(param)
        return input_shape, params

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        for apply, param, rng in zip(applies, params, _keys(kwargs.pop("rng", None), len(layers)), strict=True):
            inputs = apply(param, inputs, rng=rng, **kwargs)
        return inputs

    return init_fun, apply_fun


def _keys(rng: Any, count: int) -> Any:
    """A key for each of several layers, or None for each."""
    return random.split(rng, count) if rng is not None else (None,) * count


def parallel(*layers: Layer) -> Layer:
    """Layers side by side: a list of inputs in, a list of outputs out; see ``FanOut`` and ``FanInSum``."""
    inits, applies = zip(*layers, strict=True)

    def init_fun(rng: Any, input_shape: Sequence[Any]) -> Any:
        keys = random.split(rng, len(layers))
        made = [init(key, shape) for init, key, shape in zip(inits, keys, input_shape, strict=True)]
        return tuple([list(part) for part in zip(*made, strict=True)])

    def apply_fun(params: Any, inputs: Sequence[Any], **kwargs: Any) -> Any:
        keys = _keys(kwargs.pop("rng", None), len(layers))
        return [
            apply(param, x, rng=key, **kwargs)
            for apply, param, x, key in zip(applies, params, inputs, keys, strict=True)
        ]

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """The layer ``make_layer(input_shape)``, made when the shape is known."""

    def init_fun(rng: Any, input_shape: Shape) -> Any:
        return make_layer(input_shape)[0](rng, input_shape)

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return init_fun, apply_fun
