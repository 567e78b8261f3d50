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
lax.gather(m,i,gn((2,1),(),(0,)),(1,3)) | offset_dims
lax.gather(m,i,gn((1,5),(),(0,)),(1,3)) | [0, 3)
lax.gather(m,i,gn((1,),(0,),(0,1)),(1,3)) | index_vector_dim=1 of indices
lax.gather(m,i,gn((1,),(0,),(5,)),(1,3)) | Invalid start_index_map; domain is [0, 2), got: 0->5
lax.gather(m,i,gn((1,),(1,0),(0,)),(1,1)) | collapsed_slice_dims
lax.gather(m,i,gn((1,),(1,),(0,)),(1,3)) | slice dims with bound 1, but bound is 3 for index 1 at position 0
lax.gather(m,i,gn((1,),(0,),(0,)),(1,4)) | is out of range, must be within [0, 3 + 1), got 4
lax.gather(m,i,gn((1,),(0,),(0,)),(1,)) | got: len(slice_sizes)=1, input_shape.rank=2
lax.gather(m,i,gn((1,),(),(0,)),(1,3)) | got len(slice_sizes)=2, output_slice_sizes=(1,)
lax.gather(m,i[:2],gn((1,),(),(1,),(0,),()),(1,1)) | start_indices_batching_dims
lax.gather(m,i[:2],gn((1,),(),(1,),(0,),(1,)),(1,1)) | cannot have the index vector dimension
lax.gather(m,i[:2],gn((1,),(),(1,),(0,),(0,)),(2,1)) | with bound 0/1, but bound is 2 for
lax.gather(m,i,gn((1,),(),(1,),(0,),(0,)),(1,1)) | dimensions to have the same shape, got (2,) and (4,)
lax.scatter(m,i,jnp.ones(4),sn((1,),(0,),(0,))) | Updates tensor must be of rank 2; got 1
lax.scatter(m,i,jnp.ones((5,3)),sn((1,),(0,),(0,))) | For scatter dimension 0, updates bound is 5, indices bound is 4
lax.scatter_add(m,i,jnp.ones((4,3)),sn((1,),(0,),(5,))) | domain is [0, 2), got: 0->5
lax.scatter_mul(m,i,jnp.ones((4,3)),sn((1,),(),(0,))) | match operand of rank 2
lax.scatter_min(m,i,jnp.ones((4,3)),sn((1,),(0,),(0,1))) | elements in scatter_dims_to_operand_dims
lax.scatter(m,i[:2],jnp.ones((2,1)),sn((1,),(),(1,),(0,),(1,))) | cannot have the index vector dimension
lax.gather(m,i,gn((1,1),(),(0,)),(1,3)) | offset_dims in gather op must not repeat
lax.gather(m,i,gn((1,5),(),(0,)),(1,3)) | Offset dimension 1 in gather op is out of bounds
lax.gather(m,i,gn((1,),(1,0),(0,)),(1,1)) | collapsed_slice_dims in gather op must be sorted
lax.gather(m,i,gn((1,),(7,),(0,)),(1,1)) | Invalid collapsed_slice_dims set in gather op; valid range is [0, 2
lax.gather(m,i,gn((1,),(),(0,)),(1,3)) | gather op must either be a offset dimension or explicitly collapsed/batching
lax.gather(m,i,gn((1,),(1,),(0,)),(1,3)) | Gather op can only collapse slice dims with bound 1, but bound is 3 for
lax.gather(m,i,gn((1,),(0,),(0,)),(1,)) | Gather op must have one slice size for every input dimension
lax.gather(m,i,gn((1,),(1,),(0,),(1,),()),(1,1)) | and operand_batching_dims in gather op must be disjoint
lax.gather(m,i,gn((1,),(),(1,),(1,),()),(1,1)) | start_index_map and operand_batching_dims in gather op must be disjoint
lax.gather(m,i,gn((1,),(),(1,),(0,),()),(1,1)) | Gather op requires equal numbers of operand_batching_dims and
lax.gather(m,i[:2],gn((1,),(),(1,),(0,),(0,)),(2,1)) | Gather op can only have operand batching dims with bound 0/1
lax.scatter(m,i,jnp.ones((4,5)),sn((1,),(0,),(0,))) | Bounds of the window dimensions of updates must not exceed
lax.scatter(m,i,jnp.ones((5,3)),sn((1,),(0,),(0,))) | Bounds of the scatter dimensions of updates must be
lax.scatter(m,i,jnp.ones((4,3)),sn((1,),(1,1),(0,))) | inserted_window_dims in scatter op must not repeat
lax.scatter(m,i,jnp.ones((4,3)),sn((1,),(0,),(5,))) | Invalid scatter_dims_to_operand_dims mapping
lax.scatter(m,i,jnp.ones((4,3)),sn((1,),(),(0,))) | Scatter op has window of size 1; doesn't match operand of rank 2
lax.dot(x,y) | jax.lax.dot: dimension_numbers must be specified
lax.dot(x,x,precision='bad') | Precision argument must be one of
lax.batch_matmul(jnp.ones((2,2,3)),jnp.ones((3,2))) | Arguments to batch_matmul must have same ndim, got 3, 2
lax.broadcast_in_dim(m,(2,),(0,1)) | target broadcast shape must have equal or higher rank to the operand shape
lax.reduce({'x':x},{'y':0.},lambda a,b: a,(0,)) | Operands must have the same tree structure as init_values
lax.reduce_window(m,0.,lambda a,b: [a],(2,2),(1,1),'VALID') | output must have the same tree structure as the
lax.reduce_window(m,0.,lax.add,(0,2),(1,1),'VALID') | window_dimensions must have every element be strictly positive
lax.conv(m4,m4,(1,),'SAME') | conv_general_dilated window and window_strides must have the same number of dimensions
conv(jnp.ones((1,4,4)),jnp.ones((3,2,2)),(1,),'SAME',feature_group_count=2) | be a multiple of feature_group_count
lax.padtype_to_pads((8,),(3,),(2,),'bad') | Unrecognized padding type: expected 'VALID', 'SAME'
lax.select_n(x,x,x) | `which` must be boolean or integer type, got
jax.eval_shape(lambda x: lax.top_k(x,2),jax.ShapeDtypeStruct((2**31+1,),'int8')) | will overflow
jnp.array(300,dtype='uint8') | Python integer 300 out of bounds for uint8
jnp.zeros(2,3) | when you meant `jax.numpy.zeros((2, 3))`
jnp.pad(jnp.ones(0),1,mode='reflect') | Cannot apply 'reflect' padding to empty axis
jnp.size(m,(0,0)) | repeated axis
jnp.cov(x,dtype=int) | cov: dtype must be a subclass of float or complex
jnp.put(x,[0],[1]) | jax.numpy.put cannot modify arrays in-place
jnp.place(x,x>0,x) | jax.numpy.place cannot modify arrays in-place
lax.ragged_dot(x,w,g) | requires lhs dimension numbers to be nonnegative and less than
lax.ragged_dot(jnp.ones((2,4)),w,g) | contracting dimensions to have the same shape, got (4,) and (3,).
lax.ragged_dot(m,w,jnp.ones(3,int)) | expected rhs group dimension size to be 3, got 2
ragged(m,w,g,rn((((1,),(1,)),((),())),(5,),(0,))) | ragged dimension numbers to be nonnegative and less than the
ragged(m,w,g,rn((((1,),(1,)),((),())),(0,),(5,))) | rhs group dimension numbers to be nonnegative and less than
ragged(m,w,g,rn((((1,),(1,)),((),())),(0,),(1,))) | to be distinct from contracting and batch dimensions
ragged(m,w,g,rn((((1,),(1,)),((),())),(0,),())) | exactly one rhs group dimension when lhs ragged dimension is
ragged(m,w,g,rn((((1,),(1,)),((),())),(1,),(0,))) | requires zero group dimensions in the rhs when lhs ragged
ragged(m,w,g,rn((((1,),(1,)),((),())),(0,1),(0,))) | expects exactly one lhs ragged dimension
lax.ragged_dot(m,w,jnp.ones(2)) | requires that group_sizes.dtype is subtype of np.integer
lax.ragged_dot(m,w,g,group_offset=0) | Unimplemented group_offset support
jax.pmap(lambda x: x,in_axes=None)(m[:1]) | pmap requires at least one argument with a mapped axis.
jax.pmap(lambda x: x,axis_size=3)(m[:1]) | Specified axis_size 3 doesn't match received axis_size 1.
jax.pmap(lambda x: x,devices=[])(m[:1]) | 'devices' argument to pmap must be non-empty, or None.
jax.pmap(lambda x: x,out_axes=3)(m[:1]) | axis 3 is out of bounds for array of dimension 2
jax.pmap(lambda x: x,in_axes='a')(m[:1]) | must be an int, None, or (nested) container with those types as leaves
lax.reduce_window(m,0.,lax.add,(2,2),(1,1),'VALID',(1,)) | base_dilation (1,) and window_dimensions (2, 2)
lax.reduce_window(m,x,lax.add,(2,2),(1,1),'VALID') | to be scalars but init_values have shapes [(3,)]
lax.reduce_window((m,m),(0.,),lambda a,b: a,(2,2),(1,1),'VALID') | must have the same tree structure as
conv(m4,m4,(1,1),'SAME',dimension_numbers=('NCHW','OIHW')) | convolution dimension_numbers list/tuple must be length 3
conv(m4,m4,(1,1),'SAME',dimension_numbers=('NCHW','OIHH','NCHW')) | [1] cannot have duplicate characters, got OIHH
conv(m4,m4,(1,1),'SAME',dimension_numbers=('NCHW','OIXY','NCHW')) | must each have the same set of spatial characters
conv(m4,m4,(1,1),[(0,0)]) | Wrong number of explicit pads for convolution: expected 2, got 1
lax.dynamic_slice(x,(i,),(1,)) | start_indices arguments to dynamic_slice must be scalars
lax.dynamic_slice(x,jnp.zeros((1,1),int),(1,)) | Slice indices must be a 1D sequence, got (1, 1)
lax.dynamic_update_slice(x,y,(i,)) | start_indices arguments to dynamic_update_slice must be scalars
jit(lambda x: lax.slice(x,(-1,),(1,)))(x) | slice start_indices must have every element be nonnegative, got
jit(lambda x: lax.slice(x,(2,),(1,)))(x) | slice limit_indices must be greater than or equal to start_indices
lax.slice(x,(0,),(1,),(1,1)) | slice strides must have length equal to the number of dimensions of the operand, got
lax.select_n(x>0,x,y) | select cases must have the same shapes, got [(3,), (2,)]
lax.select_n(y>0,x,x) | or have the same shape as cases, got `which` shape (2,) but case shape (3,)
lax.select_n(x>0) | select_n() must have at least one case
lax.concatenate([m,m],2) | concatenate dimension out of bounds: dimension 2 for shapes (2, 3), (2, 3).
lax.concatenate([m,x],0) | with different numbers of dimensions: got (2, 3), (3,).
lax.split(x,(4,-1)) | Sizes passed to split must be nonnegative, got [4, -1]
lax.argmax(m,2,'int32') | Invalid axis 2 for operand shape (2, 3)
lax.cumsum(m,2) | axis 2 is out of bounds for array of shape (2, 3)
lax.collapse(m,2,1) | Invalid dimension range passed to collapse: (2, 3)[2:1]
lax.tile(m,(1,)) | reps length must be equal to the ndim of x, got len(reps)=1 and x.ndim=2
lax.full((2,),x) | must be called with scalar fill_value, got fill_value.shape (3,)
lax.bitcast_convert_type(x,'bool') | does not support bool or complex values unless the operand and destination types
lax.batch_matmul(x,x) | Arguments to batch_matmul must be at least 2D
x+jnp.ones(4) | add got incompatible shapes for broadcasting: (3,), (4,).
lax.atan2(m,jnp.ones((2,4))) | atan2 got incompatible shapes for broadcasting: (2, 3), (2, 4).
jnp.uint8(-1) | Python integer -1 out of bounds for uint8
jax.config.update('jax_numpy_rank_promotion','no') | new enum value must be in ['allow', 'warn', 'raise'], got
lax.cond(None,lambda: 1,lambda: 2) | cond predicate is None
jax.pmap(lambda a,b: a,static_broadcasted_argnums=(1,))(m[:1],b=1) | but was called with only 1 positional argument. All
jax.vmap(lambda t: 'a')(x) | Output from batched function 'a' with type <class 'str'> is not a valid JAX type
jax.vmap(lambda t: {1},out_axes=None)(x) | Output from batched function {1} with type <class 'set'> is not a valid JAX
jit(lambda t: t.committed)(x) | The 'committed' attribute is not available on traced array
jit(lambda t: t.sharding)(x) | The 'sharding' attribute is not available on traced array
jit(lambda t: t.addressable_shards)(x) | The 'addressable_shards' attribute is not available on traced
jax.sharding.SingleDeviceSharding(jax.devices()[0],memory_kind='no') | addressable by device cpu. Device cpu can address
jit(lambda t: jnp.mgrid[0:5,0:t])(2) | slice stop of jnp.mgrid
jit(lambda t: jnp.ogrid[t:5])(2) | slice start of jnp.ogrid
jit(lambda t: jnp.r_[0:3:t])(2) | slice step of jnp.r_
jit(lambda t: jnp.c_[0:t])(2) | slice stop of jnp.c_
"""


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_errors_have_the_class_and_phrase_of_jax(case: str) -> None:
    expression, _, phrase = case.partition(" | ")
    caught = []
    for name in ("weft", "jax"):
        J = differential.namespace(name)
        names: dict[str, Any] = {
            "jnp": J.numpy, "lax": J.lax, "x": J.numpy.ones(3), "y": J.numpy.ones(2), "m": J.numpy.ones((2, 3)),
            "np": np, "jax": J, "jit": J.jit, "i": np.zeros((4, 1), np.int32), "m4": J.numpy.ones((1, 4, 5, 5)),
            "w": J.numpy.ones((2, 3, 5)), "g": np.int32([1, 1]), "gn": J.lax.GatherDimensionNumbers,
            "sn": J.lax.ScatterDimensionNumbers, "rn": J.lax.RaggedDotDimensionNumbers,
            "conv": J.lax.conv_general_dilated, "ragged": J.lax.ragged_dot_general,
        }  # fmt: skip
        with pytest.raises(Exception) as error:
            eval(expression, names)
        caught.append(error.value)
    assert [phrase in str(error) for error in caught] == [True, True], [str(error) for error in caught]
    assert type(caught[1]).__name__ in [kind.__name__ for kind in type(caught[0]).__mro__]
