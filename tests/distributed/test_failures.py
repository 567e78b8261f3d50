"""No job hangs: whatever goes wrong on one rank, all end, with the reason.

``WEFT_STRESS=1`` runs more of them (20 minutes): 100 programs that differ, 20 killed ranks, 20 stuck ones, 20 errors.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.distributed import jobs

pytestmark = jobs.needs_mpi
STRESS = os.environ.get("WEFT_STRESS") == "1"
only_under_stress = pytest.mark.skipif(not STRESS, reason="a second on two cores for each job: WEFT_STRESS=1 runs it")
PROGRAM = "failing_program.py"
ENDS = "ends the job, since its error above was not caught"


def failing(how: str, *words: object, **options: str) -> jobs.Done:
    done = jobs.run(PROGRAM, how, *words, **options)
    assert "started" in done.out, str(done)  # MPICH loses what the other rank printed last
    assert done.status != 0 and "ended" not in done.out, str(done)
    return done


def test_ranks_that_launch_different_programs_raise() -> None:
    done = failing("differ")
    assert "DistributedError" in done.err and ENDS in done.err, str(done)
    for words in (
        "run different programs",
        "jit(step0) of f32[8], at train.py:30",
        "jit(step1) of f32[8], at train.py:31",
    ):
        assert words in done.err, str(done)


@only_under_stress
def test_names_of_barriers_and_lines_of_the_user_are_compared() -> None:
    done = failing("lines")
    assert "sync_global_devices('first'), at" in done.err and "sync_global_devices('second'), at" in done.err, str(done)
    assert f"{PROGRAM}:" in done.err, str(done)


def test_after_an_error_before_an_exchange_nothing_is_exchanged() -> None:
    """Else the next sum of this rank would be added to the sum that the others still wait for."""
    done = failing("guarded")
    assert "sum" not in done.out and "caught nan: log made nan" in done.out, str(done)
    assert "raised an error on this rank, and did not send what the others wait for" in done.err, str(done)


def test_uncaught_exception() -> None:
    done = failing("raise")
    assert "ValueError: the reason" in done.err and f"rank 1 of 2 {ENDS}" in done.err, str(done)


@pytest.mark.parametrize("status", [0, 3] if STRESS else [3])
def test_a_rank_that_leaves_early(status: int) -> None:
    """SystemExit is no error: the rank that waits for the one that left raises."""
    done = failing("exit", status)
    assert "rank 1 has ended (its program ended), and rank 0 waits for it" in done.err, str(done)
    assert "rank 0: the last barrier, at" in done.err, str(done)


@only_under_stress
def test_os_exit() -> None:
    failing("_exit", 5)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV] if STRESS else [signal.SIGKILL])
def test_killed_rank(number: int) -> None:
    done = failing("kill", int(number))
    assert "signal" in (done.out + done.err).lower(), str(done)  # as mpirun says


def test_killed_rank_raises_where_mpi_can_tell() -> None:
    """Open MPI with ULFM lets the others live, and reports the lost rank."""
    if not jobs.is_open_mpi():
        pytest.skip("only Open MPI has the option --with-ft")
    done = failing("kill", int(signal.SIGKILL), mpi="--with-ft ulfm")
    assert "DistributedError: rank 1 has ended or failed" in done.err and f"rank 0 of 2 {ENDS}" in done.err, str(done)


def test_stuck_rank() -> None:
    done = failing("stuck")
    assert "[weft] rank 0 has waited 0.3 s for rank 1 in the start of the last barrier" in done.err, str(done)
    assert "DistributedError: rank 0 has waited 1 s for rank 1" in done.err, str(done)
    assert "collective_timeout" in done.err, str(done)


@only_under_stress
def test_missing_in_the_middle_of_a_collective() -> None:
    done = failing("silent")
    assert "has waited 1 s for rank 1 in a sum" in done.err, str(done)


def test_never_initialized() -> None:
    """MPI_Init waits for all ranks."""
    done = jobs.run(PROGRAM, "absent")
    assert done.status != 0 and "within 1 s (initialization_timeout)" in done.err, str(done)


def test_error_of_a_thread_that_took_part() -> None:
    done = failing("thread")
    assert "RuntimeError: a thread failed" in done.err and f"rank 1 of 2 {ENDS}" in done.err, str(done)


def test_what_does_not_end_the_job() -> None:
    """A thread that has no part in it, and children by fork, which may not exchange anything."""
    done = jobs.run(PROGRAM, "harmless")
    assert done.status == 0 and done.out.count("ended") == 2, str(done)
    assert done.out.count("child: this process was forked from rank") == 2, str(done)
    assert "ZeroDivisionError" in done.err, str(done)


@only_under_stress
def test_interrupt() -> None:
    """Ctrl-C in a terminal: the launcher and mpirun, which it has become, get the signal."""
    failing("interrupted")


def test_an_interrupted_wait() -> None:
    """A rank that gets the signal itself raises KeyboardInterrupt in its wait."""
    done = failing("interrupted_rank")
    assert "KeyboardInterrupt" in done.err and ENDS in done.err, str(done)


@only_under_stress
def test_an_error_that_was_caught_ends_the_job_in_the_end() -> None:
    done = jobs.run(PROGRAM, "caught")
    assert done.status != 0 and "caught: ranks" in done.out, str(done)


@pytest.mark.parametrize("seed", range(160 if STRESS else 2))
def test_any_of_them_at_a_random_step(seed: int) -> None:
    """One of two ranks goes wrong at some point of a sequence of exchanges; the other one never waits for it long."""
    kinds = ("differ",) * 5 + ("killed", "stuck", "raised")
    kind = kinds[seed % len(kinds)]
    done = jobs.run("random_failure_program.py", kind, seed, seconds=240 if STRESS else 90)
    assert done.status != 0 and "all done" not in done.out, str(done)
    reasons = {
        "differ": "differ|different|has ended",
        "killed": "signal|killed",
        "stuck": "has waited",
        "raised": "the reason",
    }
    assert any(reason in done.err.lower() for reason in reasons[kind].split("|")), str(done)
