"""weft.experimental.sparse: sparse arrays (BCOO, BCSR, COO, CSR, CSC), and functions of dense arrays that run on them.

A sparse array is a pytree of its values and indices: it goes through ``jit``, ``grad`` and ``vmap``. No product
makes an array dense. A facade, it holds no code.
"""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy, unbuilt as _unbuilt

# Modules are loaded when one of their names is first used. docs/stubs.py tells type checkers so (__init__.pyi).
_NAMES = _lazy.Names(
    "weft.experimental.sparse",
    {
        "experimental.sparse.batched": "BCOO",
        "experimental.sparse.bcoo_layout": """
            bcoo_extract bcoo_fromdense bcoo_sort_indices bcoo_sum_duplicates bcoo_todense
            bcoo_update_layout""",
        "experimental.sparse.bcoo_products": """
            bcoo_dot_general bcoo_dot_general_sampled bcoo_multiply_dense bcoo_multiply_sparse""",
        "experimental.sparse.bcoo_shapes": """
            bcoo_broadcast_in_dim bcoo_concatenate bcoo_dynamic_slice bcoo_gather bcoo_reduce_sum
            bcoo_reshape bcoo_rev bcoo_slice bcoo_squeeze bcoo_transpose""",
        "experimental.sparse.bcsr": """
            BCSR bcsr_broadcast_in_dim bcsr_concatenate bcsr_dot_general bcsr_extract bcsr_fromdense
            bcsr_sum_duplicates bcsr_todense""",
        "experimental.sparse.coo": "COO coo_fromdense coo_matmat coo_matvec coo_todense",
        "experimental.sparse.csr": "CSC CSR csr_fromdense csr_matmat csr_matvec csr_todense",
        "experimental.sparse.construct": "empty eye random_bcoo",
        "experimental.sparse.gradients": "grad jacfwd jacobian jacrev value_and_grad",
        "experimental.sparse.matrix": """
            CuSparseEfficiencyWarning JAXSparse SparseEfficiencyError SparseEfficiencyWarning todense""",
        "experimental.sparse.sparsified": "sparsify",
    },
    submodules="bcoo bcsr coo csr linalg",
)  # fmt: skip


def __getattr__(name: str) -> _typing.Any:
    if name not in _NAMES:
        return _unbuilt.missing("weft.experimental.sparse", name)
    _lazy.submodule("weft.experimental.sparse.operators")  # gives the classes their methods
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})
