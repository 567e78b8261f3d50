"""Names of JAX's lax that are not built yet: each exists, with its signature, and raises NotImplementedError.

One table, name and signature; the functions are made from it. Building one means deleting its line here.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

ABSENT = """
# control flow and transformation
scan(f, init, xs=None, length=None, reverse=False, unroll=1, _split_transpose=False)
cond(pred, true_fun, false_fun, *operands, operand=...)
while_loop(cond_fun, body_fun, init_val)
fori_loop(lower, upper, body_fun, init_val, *, unroll=None)
switch(index, branches, *operands, operand=...)
map(f, xs, *, batch_size=None)
associative_scan(fn, elems, reverse=False, axis=0)
custom_root(f, initial_guess, solve, tangent_solve, has_aux=False)
custom_linear_solve(matvec, b, solve, transpose_solve=None, symmetric=False, has_aux=False)
composite(decomposition, name, version=0)
platform_dependent(*args, default=None, **per_platform)
# collectives and sharding
pmean(x, axis_name, *, axis_index_groups=None)
psum(x, axis_name, *, axis_index_groups=None)
pmax(x, axis_name, *, axis_index_groups=None)
pmin(x, axis_name, *, axis_index_groups=None)
psum_scatter(x, axis_name, *, scatter_dimension=0, axis_index_groups=None, tiled=False)
all_gather(x, axis_name, *, axis_index_groups=None, axis=0, tiled=False, to='varying')
all_to_all(x, axis_name, split_axis, concat_axis, *, axis_index_groups=None, tiled=False)
ppermute(x, axis_name, perm)
pcast(x, axis_name, *, to)
pbroadcast(x, axis_name, source)
pshuffle(x, axis_name, perm)
pswapaxes(x, axis_name, axis, *, axis_index_groups=None)
psend(x, axis_name, perm)
precv(token, out_shape, axis_name, perm)
axis_index(axis_name)
axis_size(axis_name)
ragged_all_to_all(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, *, axis_name, \
axis_index_groups=None)
with_sharding_constraint(x, shardings)
# gather, scatter, sort
gather(operand, start_indices, dimension_numbers, slice_sizes, *, unique_indices=False, indices_are_sorted=False, \
mode=None, fill_value=None)
index_take(src, idxs, axes)
scatter(operand, scatter_indices, updates, dimension_numbers, *, indices_are_sorted=False, unique_indices=False, \
mode=None)
scatter_add(operand, scatter_indices, updates, dimension_numbers, *, indices_are_sorted=False, \
unique_indices=False, mode=None)
scatter_apply(operand, scatter_indices, func, dimension_numbers, *, update_shape=(), indices_are_sorted=False, \
unique_indices=False, mode=None)
scatter_max(operand, scatter_indices, updates, dimension_numbers, *, indices_are_sorted=False, \
unique_indices=False, mode=None)
scatter_min(operand, scatter_indices, updates, dimension_numbers, *, indices_are_sorted=False, \
unique_indices=False, mode=None)
scatter_mul(operand, scatter_indices, updates, dimension_numbers, *, indices_are_sorted=False, \
unique_indices=False, mode=None)
scatter_sub(operand, scatter_indices, updates, dimension_numbers, *, indices_are_sorted=False, \
unique_indices=False, mode=None)
sort(operand, dimension=-1, is_stable=True, num_keys=1)
sort_key_val(keys, values, dimension=-1, is_stable=True)
top_k(operand, k, *, axis=-1)
approx_max_k(operand, k, reduction_dimension=-1, recall_target=0.95, reduction_input_size_override=-1, \
aggregate_to_topk=True)
approx_min_k(operand, k, reduction_dimension=-1, recall_target=0.95, reduction_input_size_override=-1, \
aggregate_to_topk=True)
# windows and convolutions
reduce_window(operand, init_value, computation, window_dimensions, window_strides=None, padding='VALID', \
base_dilation=None, window_dilation=None)
reduce_window_shape_tuple(operand_shape, window_dimensions, window_strides, padding, base_dilation=None, \
window_dilation=None)
conv(lhs, rhs, window_strides, padding, precision=None, preferred_element_type=None)
conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation=None, rhs_dilation=None, \
dimension_numbers=None, feature_group_count=1, batch_group_count=1, precision=None, preferred_element_type=None, \
out_sharding=None)
conv_general_dilated_local(lhs, rhs, window_strides, padding, filter_shape, lhs_dilation=None, rhs_dilation=None, \
dimension_numbers=None, precision=None)
conv_general_dilated_patches(lhs, filter_shape, window_strides, padding, lhs_dilation=None, rhs_dilation=None, \
dimension_numbers=None, precision=None, preferred_element_type=None)
conv_general_permutations(dimension_numbers)
conv_general_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers)
conv_shape_tuple(lhs_shape, rhs_shape, strides, pads, batch_group_count=1)
conv_transpose(lhs, rhs, strides, padding, rhs_dilation=None, dimension_numbers=None, transpose_kernel=False, \
precision=None, preferred_element_type=None, use_consistent_padding=False)
conv_transpose_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers)
conv_with_general_padding(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=None, \
preferred_element_type=None)
# special functions
igamma(a, x)
igammac(a, x)
igamma_grad_a(a, x)
random_gamma_grad(*args)
betainc(a, b, x)
bessel_i0e(x)
bessel_i1e(x)
polygamma(m, x)
zeta(x, q)
# the rest
fft(x, fft_type, fft_lengths)
ragged_dot(lhs, rhs, group_sizes, precision=None, preferred_element_type=None, group_offset=None, out_sharding=None)
ragged_dot_general(lhs, rhs, group_sizes, ragged_dot_dimension_numbers, precision=None, \
preferred_element_type=None, group_offset=None, out_sharding=None)
scaled_dot(lhs, rhs, *, lhs_scale=None, rhs_scale=None, dimension_numbers=None, preferred_element_type=None)
rng_bit_generator(key, shape, dtype=..., algorithm=..., *, out_sharding=None)
rng_uniform(a, b, shape)
after_all(*operands)
create_token(_=None)
dce_sink(val, *, prevent_mlir_dce=False)
stage(x, /)
"""

ABSENT_LINALG = """
cholesky(x, *, symmetrize_input=True)
cholesky_update(r_matrix, w_vector)
eig(x, *, compute_left_eigenvectors=True, compute_right_eigenvectors=True, enable_eigvec_derivs=False, \
implementation=None, use_magma=None)
eigh(x, *, lower=True, symmetrize_input=True, sort_eigenvalues=True, subset_by_index=None, implementation=None)
hessenberg(a)
householder_product(a, taus)
lu(x)
lu_pivots_to_permutation(pivots, permutation_size)
ormqr(a, taus, c, *, left=True, transpose=False)
qdwh(x, *, is_hermitian=False, max_iterations=None, eps=None, dynamic_shape=None)
qr(x, *, pivoting=False, full_matrices=True, use_magma=None)
schur(x, *, compute_schur_vectors=True, sort_eig_vals=False, select_callable=None)
svd(x, *, full_matrices=True, compute_uv=True, subset_by_index=None, algorithm=None)
symmetric_product(a_matrix, c_matrix, *, alpha=1.0, beta=0.0, symmetrize_output=False)
triangular_solve(a, b, *, left_side=False, lower=False, transpose_a=False, conjugate_a=False, unit_diagonal=False)
tridiagonal(a, *, lower=True)
tridiagonal_solve(dl, d, du, b, *, perturb_singular=False)
"""


def signature_of(line: str) -> inspect.Signature:
    """The signature written in a line of the table; ``...`` stands for a default that is not shown."""
    function = ast.parse(f"def {line}: pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    spec, kind = function.args, inspect.Parameter
    positional = [*spec.posonlyargs, *spec.args]
    defaults: list[Any] = [kind.empty] * (len(positional) - len(spec.defaults))
    defaults += [ast.literal_eval(node) for node in spec.defaults]
    parameters = []
    for i, (arg, default) in enumerate(zip(positional, defaults, strict=True)):
        place = kind.POSITIONAL_ONLY if i < len(spec.posonlyargs) else kind.POSITIONAL_OR_KEYWORD
        parameters.append(kind(arg.arg, place, default=default))
    if spec.vararg:
        parameters.append(kind(spec.vararg.arg, kind.VAR_POSITIONAL))
    for arg, node in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        default = kind.empty if node is None else ast.literal_eval(node)
        parameters.append(kind(arg.arg, kind.KEYWORD_ONLY, default=default))
    if spec.kwarg:
        parameters.append(kind(spec.kwarg.arg, kind.VAR_KEYWORD))
    return inspect.Signature(parameters)


def absent(line: str, module: str) -> Callable[..., Any]:
    """A function of the line's name that raises NotImplementedError naming itself."""
    name = line.split("(", 1)[0]

    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"[{name}] {module}.{name} is not built yet")

    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    function.__signature__ = signature_of(line)  # type: ignore[attr-defined]
    function.__doc__ = f"{line}: not built yet; raises NotImplementedError."
    return function


def absent_functions(table: str, module: str) -> dict[str, Callable[..., Any]]:
    """The functions of a table, by name."""
    lines = [line for line in table.splitlines() if line and not line.startswith("#")]
    return {line.split("(", 1)[0]: absent(line, module) for line in lines}


LAX = absent_functions(ABSENT, "weft.lax")
LINALG = absent_functions(ABSENT_LINALG, "weft.lax.linalg")
