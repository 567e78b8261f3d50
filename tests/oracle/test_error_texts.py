"""What errors of lax and weft.numpy say: the class and the telling phrase of JAX's, for the same mistake.

One case a line: an expression, a bar, and a phrase that both texts hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.oracle import differential

CASES = """
jnp.bitwise_and(x,1) | and does not accept dtype float32 at position 0. Accepted dtypes at position 0 are subtypes of
jnp.invert(1.0) | not does not accept dtype float32. Accepted dtypes are subtypes of integer, bool.
jnp.floor(1j) | floor does not accept dtype complex64. Accepted dtypes are subtypes of floating.
lax.rem(1j,1j) | rem does not accept dtype complex64 at position 0.
lax.sqrt(4) | sqrt does not accept dtype int32. Accepted dtypes are subtypes of floating, complexfloating.
jnp.dot(x,y) | dot_general requires contracting dimensions to have the same shape, got (3,) and (2,).
lax.dot_general(m,m,(((0,0),(0,0)),((),()))) | dot_general requires lhs contracting dimensions to be distinct
lax.dot_general(m,m,(((5,),(0,)),((),()))) | dot_general requires lhs dimension numbers to be nonnegative and less than
lax.dot_general(m,m,(((0,),(0,)),((0,),(0,)))) | lhs batch dimensions to be disjoint from contracting dimensions
jnp.concatenate([m,m.T]) | concatenating along dimension 0 for shapes (2, 3), (3, 2).
jnp.transpose(m,(0,0)) | isn't a permutation of operand dimensions, got permutation (0, 0) for operand shape (2, 3).
jnp.power(jnp.array([2]),-1) | Integers cannot be raised to negative powers, got integer_pow(int32[1], -1)
lax.broadcast_in_dim(x,(2,2),(0,)) | operand dimension sizes must either be 1, or be equal to their corresponding
lax.broadcast_in_dim(x,(3,3),(2,)) | broadcast_dimensions must be a subset of output dimensions
lax.broadcast_in_dim(m,(2,2),(0,)) | broadcast_dimensions must have length equal to operand ndim
lax.dynamic_slice(x,(0,),(5,)) | slice slice_sizes must be less than or equal to operand shape
lax.dynamic_slice(x,(0,0),(2,)) | Length of slice indices must match number of operand dimensions (2 vs
lax.dynamic_slice(x,(0,),(-1,)) | slice slice_sizes must be greater than or equal to zero
lax.dynamic_update_slice(x,jnp.ones(5),(0,)) | update shape must be smaller than operand shape, got update shape (5,)
lax.dynamic_update_slice(x,m,(0,)) | update must have the same rank as operand, got update shape (2, 3)
lax.dynamic_update_slice(x,jnp.ones(2,int),(0,)) | requires arguments to have the same dtypes, got float32, int32.
lax.pad(x,0.,[(0,0,-1)]) | interior padding in padding_config must be nonnegative
lax.pad(x,0.,[(-2,-2,0)]) | Dimension size after padding is not at least 0, got result shape (-1,)
lax.pad(x,0.,[(0,0,0),(0,0,0)]) | length of padding_config must equal the number of axes of operand
lax.clamp(y,x,x) | clamp requires min.shape == operand.shape or min.shape == (), got min.shape=(2,)
lax.select_n(True,1,2,3) | select with boolean `which` cannot have > 2 cases
lax.conv(jnp.ones((1,2,3,3)),jnp.ones((1,3,3,3)),(1,1),'SAME') | rhs input feature dimension size, but 2 // 1 != 3
lax.conv(jnp.ones((1,2,3)),jnp.ones((1,2,3,3)),(1,),'SAME') | requires lhs and rhs ndim to be equal, got 3 and 4
lax.reduce(x,x,lax.add,(0,)) | reduce found non-scalar initial value
lax.argmax(jnp.ones(0),0,'int32') | argmin and argmax require non-empty reduced dimension
lax.top_k(x*1j,1) | top_k is not compatible with complex inputs.
lax.cond('a',lambda: 1,lambda: 2) | Pred must be a scalar, got a of type <class 'str'>
lax.cond((1,2),lambda: 1,lambda: 2) | Pred must be a scalar, got (1, 2) of type <class 'tuple'>
lax.iota(bool,3) | iota does not accept dtype bool. Accepted dtypes are subtypes of integer, floating, complexfloating.
lax.cumsum(x,axis=-1) | XLA operations do not allow negative axes
lax.add(m,y) | add: arrays must have the same number of dimensions
jnp.gcd(1.0,2) | Arguments to jax.numpy.gcd must be integers
jnp.ldexp(1j,2) | ldexp not supported for input types
jnp.i0(1j) | Unsupported input type to jax.numpy.i0: complex64
jnp.hypot(1j,1) | jnp.hypot is not well defined for complex-valued inputs
jnp.isin(x,x,method='foo') | method='foo' is not implemented; options are 'compare_all',
jnp.searchsorted(x,1,side='foo') | invalid argument side='foo', expected 'left' or 'right'
jnp.searchsorted(x,1,method='foo') | invalid argument method='foo', expected one of ['compare_all', 'scan',
jnp.pad(jnp.ones(0),1,mode='edge') | Cannot apply 'edge' padding to empty axis
jnp.put(x,0,1,mode='raise',inplace=False) | The 'raise' mode to jnp.put is not supported
jnp.delete(x,jnp.array([1.0])) | got obj.dtype=float32; must be integer or bool.
jnp.ones(()).view('int8') | view() of a 0d array is only supported if the itemsize is unchanged.
jnp.gradient(x,y) | Spacing arrays must have the same length as the dimension along which the gradient is calculated.
jnp.histogram(x,range=(1,)) | `range` must be either None or a sequence of scalars
jnp.vecdot(x,y) | axes must match; got shapes (3,) and (2,) with axis=-1
jnp.roots(m) | Input must be a rank-1 array.
jnp.var(x*1j,dtype=float) | does not yet support real dtype parameters when computing the var
jnp.compress(jnp.ones(3,bool),x,size=5) | size must be positive and not greater than the size of the array axis
"""


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_errors_have_the_class_and_phrase_of_jax(case: str) -> None:
    expression, _, phrase = case.partition(" | ")
    caught = []
    for name in ("weft", "jax"):
        J = differential.namespace(name)
        names: dict[str, Any] = {
            "jnp": J.numpy, "lax": J.lax, "x": J.numpy.ones(3), "y": J.numpy.ones(2), "m": J.numpy.ones((2, 3)),
            "np": np,
        }  # fmt: skip
        with pytest.raises(Exception) as error:
            eval(expression, names)
        caught.append(error.value)
    assert [phrase in str(error) for error in caught] == [True, True], [str(error) for error in caught]
    assert type(caught[1]).__name__ in [kind.__name__ for kind in type(caught[0]).__mro__]
