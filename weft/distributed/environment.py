"""What started this process: the variables by which mpirun, mpiexec and srun tell a process its rank."""

from __future__ import annotations

import os
from collections.abc import Mapping

from weft._base.record import Record


class Launch(Record):
    """How this process was started: in words, as which rank of how many."""

    launcher: str
    rank: int
    size: int


class _Variables(Record):
    method: str  # JAX's word for it, for ``cluster_detection_method``
    launcher: str
    rank: str
    size: str


# srun sets the number of tasks of a step only for what it starts, not for the script of a batch job.
_KNOWN = (
    _Variables("ompi", "mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    _Variables("mpi4py", "mpiexec of MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    _Variables("mpi4py", "mpiexec of MPICH", "PMI_RANK", "PMI_SIZE"),
    _Variables("slurm", "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
METHODS = ("ompi", "slurm", "mpi4py", "deactivate")


def find(method: str | None = None, variables: Mapping[str, str] = os.environ) -> Launch | None:
    """What started this process, None if nothing that says so did; ``method``: one of METHODS, or None for any."""
    if method is not None and method not in METHODS:
        raise ValueError(f"[distributed] cluster_detection_method is None or one of {list(METHODS)}, got {method!r}")
    if method == "deactivate":
        return None
    for known in _KNOWN:
        fits = method in (None, "mpi4py") or method == known.method
        rank, size = variables.get(known.rank, ""), variables.get(known.size, "")
        if fits and rank.isdecimal() and size.isdecimal() and int(rank) < int(size):
            return Launch(known.launcher, int(rank), int(size))
    return None
