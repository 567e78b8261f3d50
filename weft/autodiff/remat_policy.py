"""Names of values and policies that decide what a checkpoint stores.

A policy is called for every equation that computes a value: ``policy(primitive, *avals, **params)`` is True if its
results may be stored, False if they are to be recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft._base.record import NamedTuple
from weft.core import kinds
from weft.core.primitive import Primitive
from weft.core.programs.jaxpr import JaxprEqn
from weft.operations.contract import dot_general_p

Policy = Callable[..., Any]

# -- names ------------------------------------------------------------------------------------------------------------

name_p = Primitive("name", kinds.Identity())
name_p.def_abstract_eval(lambda x, *, name: runtime.ShapedArray(x.shape, x.dtype, x.weak_type))
name_p.jvp = lambda primals, tangents, *, name: (name_p.bind(*primals, name=name), tangents[0])
name_p.transpose = None


def checkpoint_name(x: Any, name: str) -> Any:
    """Give the arrays of a tree a name that policies of ``checkpoint`` can refer to; the values do not change.

    >>> from weft.ad_checkpoint import checkpoint_name
    >>> print(checkpoint_name(jnp.arange(3), "positions"))
    [0 1 2]
    """
    leaves, treedef = runtime.tree_flatten(x)
    return runtime.tree_unflatten(treedef, [name_p.bind(leaf, name=name) for leaf in leaves])


# -- what a policy answers --------------------------------------------------------------------------------------------


class _Answer:
    """An answer of a policy other than True and False; each exists once."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


Saveable, Recompute = _Answer("Saveable"), _Answer("Recompute")


class Offloadable(NamedTuple):
    """The answer that a value is stored in another memory. The host has one memory, which is used instead."""

    src: Any
    dst: Any


def may_keep(policy: Policy, eqn: JaxprEqn) -> bool:
    """Whether the results of an equation may be kept; TypeError for an answer that is not allowed."""
    answer = policy(eqn.primitive, *[atom.aval for atom in eqn.invars], **eqn.params)
    if isinstance(answer, bool):
        return answer
    if answer is Saveable or answer is Recompute:
        return answer is Saveable
    if isinstance(answer, Offloadable):
        return True
    raise TypeError(
        "Value returned by a remat policy should be a bool or `ad_checkpoint.Recompute`, `ad_checkpoint.Saveable` or "
        f"`ad_checkpoint.Offloadable(...)`. Got {answer} of type {type(answer)}. The policy is {policy!r}, and was "
        f"asked about {eqn.primitive}."
    )


# -- policies ---------------------------------------------------------------------------------------------------------


def everything_saveable(*_: Any, **__: Any) -> bool:
    """The policy that stores all values, as without a checkpoint."""
    return True


def nothing_saveable(*_: Any, **__: Any) -> bool:
    """The policy that stores only the arguments; the default of ``checkpoint``."""
    return False


class _Dots:
    """The policy that keeps products of matrices, or only those without batch dimensions."""

    def __init__(self, only_if_no_batch_dims: bool) -> None:
        self.only_if_no_batch_dims = only_if_no_batch_dims

    def __call__(self, primitive: Any, *_: Any, **params: Any) -> bool:
        if primitive is dot_general_p:
            return not self.only_if_no_batch_dims or params["dimension_numbers"][1] == ((), ())
        return primitive.name == "conv_general_dilated" and not self.only_if_no_batch_dims

    def __repr__(self) -> str:
        return f"DotsSaveable(only_if_no_batch_dims={self.only_if_no_batch_dims})"


dots_saveable = checkpoint_dots = _Dots(False)
dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = _Dots(True)


class _Names:
    """A policy that looks at the names given by ``checkpoint_name``."""

    def __init__(self, word: str, names: Sequence[str], listed: bool) -> None:
        self.word, self.names, self.listed = word, frozenset(names), listed

    def __call__(self, primitive: Any, *_: Any, **params: Any) -> bool:
        return primitive is name_p and (params["name"] in self.names) is self.listed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Names) and (self.names, self.listed) == (other.names, other.listed)

    def __hash__(self) -> int:
        return hash((self.names, self.listed))

    def __repr__(self) -> str:
        return f"{self.word}={self.names!r})"


def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
    """A policy that keeps values of these names only.

    >>> weft.checkpoint_policies.save_only_these_names("p")
    SaveOnlyTheseNames(saveable_names=frozenset({'p'}))
    """
    return _Names("SaveOnlyTheseNames(saveable_names", names_which_can_be_saved, True)


def save_any_names_but_these(*names_not_to_save: str) -> Policy:
    """A policy that stores values that have a name other than these."""
    return _Names("SaveAnyNamesButThese(names", names_not_to_save, False)


def save_anything_except_these_names(*names_not_to_save: str) -> Policy:
    """A policy that stores every value, named or not, except values of these names.

    A value with such a name may still be stored as its unnamed operand. JAX keeps this policy for old programs; use
    ``save_any_names_but_these``.
    """
    return everything_saveable


def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """A policy that stores what either of two stores; ValueError if one answers anything but True or False."""

    def policy(primitive: Any, *args: Any, **params: Any) -> bool:
        first, second = policy_1(primitive, *args, **params), policy_2(primitive, *args, **params)
        if not (isinstance(first, bool) and isinstance(second, bool)):
            raise ValueError(
                "save_from_both_policies joins policies that answer True or False, but these answered "
                f"{first} and {second} about {primitive}: write one function that asks both."
            )
        return first or second

    return policy


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str,
    offload_dst: str,
) -> Policy:
    """A policy that stores values of some names, and of others in another memory; ValueError for a name in both."""
    both = {*names_which_can_be_saved} & {*names_which_can_be_offloaded}
    if both:
        raise ValueError(
            "The names should be exclusive and should not intersect in `names_which_can_be_saved` and "
            f"`names_which_can_be_offloaded`, but {sorted(both)} are in both."
        )
    saved, offloaded = frozenset(names_which_can_be_saved), frozenset(names_which_can_be_offloaded)

    def policy(primitive: Any, *_: Any, **params: Any) -> Any:
        if primitive is name_p and params["name"] in saved:
            return Saveable
        return (
            Offloadable(offload_src, offload_dst) if primitive is name_p and params["name"] in offloaded else Recompute
        )

    return policy


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """A policy that keeps products of matrices without batch dimensions in another memory."""

    def policy(primitive: Any, *_: Any, **params: Any) -> Any:
        keep = dots_with_no_batch_dims_saveable(primitive, **params)
        return Offloadable(offload_src, offload_dst) if keep else Recompute

    return policy
