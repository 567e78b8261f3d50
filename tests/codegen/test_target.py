"""The description of the host, its override, and what nests cost."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.codegen.running import HOST, elementwise, map_nest
from weft import runtime
from weft._base import target, target_model
from weft.codegen.cpu.families import NATIVE
from weft.loops import ir
from weft.loops.schedules import costs, parallel


def test_names_and_keys():
    assert {t.name for t in target.TARGETS.values()} == set(target.TARGETS)
    assert len({t.key for t in target.TARGETS.values()}) == len(target.TARGETS)
    assert target.host() is target.host()
    assert NATIVE.keys() == target.TARGETS.keys()
    with pytest.raises(target.UnsupportedTargetError, match=r"unknown target 'pdp11'; known: x86-64-v4"):
        target.named("pdp11")


def test_override():
    """WEFT_TARGET names the target; reading the host needs no compiler."""
    program = "import sys; from weft._base import target; print(target.host().name, 'llvmlite' in sys.modules)"
    environment = {**os.environ, "WEFT_TARGET": "x86-64-v3"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "x86-64-v3 False\n"


def test_the_processors_maker_is_part_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that differs with it is kept apart."""
    found = {}
    monkeypatch.setattr(runtime, "cpu_target", lambda: "x86-64-v4")
    for maker in ("GenuineIntel", "AuthenticAMD"):
        monkeypatch.setattr(runtime, "cpu_maker", lambda maker=maker: maker)
        found[maker] = target._host()
    assert [host.name for host in found.values()] == ["x86-64-v4"] * 2
    assert found["GenuineIntel"].row_by_row and not found["AuthenticAMD"].row_by_row
    assert found["GenuineIntel"].key != found["AuthenticAMD"].key


def test_a_processor_that_runs_no_target_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "cpu_target", lambda: "")
    with pytest.raises(target.UnsupportedTargetError, match=r"x86-64-v3 .* or aarch64 is needed"):
        target._host()


@pytest.mark.skipif(not os.path.exists("/proc/cpuinfo"), reason="the system does not list what the processor has")
def test_the_runtime_finds_what_the_system_lists() -> None:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        listed = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    wide = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    expected = (
        "x86-64-v4" if listed >= wide else "x86-64-v3" if listed >= {"avx2", "fma", "bmi2", "f16c", "movbe"} else ""
    )
    assert not listed or runtime.cpu_target() == expected


def test_cost_and_scratch():
    f32 = np.dtype(np.float32)
    light = map_nest(elementwise(lambda e, x: x, cost=1.0), [f32], f32)
    heavy = map_nest(elementwise(lambda e, x: x, cost=50.0), [f32], f32)
    assert 0 < costs.nanoseconds(light) < costs.nanoseconds(heavy) < 5
    assert parallel.outline(light).scratch_bytes((100,)) == 0
    body = (ir.Load(0, 0), ir.RowStore(0, 0))
    nest = ir.Nest(
        (ir.Dim("parallel"), ir.Dim("reduced")),
        (ir.Operand(f32, "in", (ir.RUNTIME, 1)),),
        (),
        (f32,),
        1,
        HOST.lanes,
        False,
        (),
        (ir.Phase(body=body),),
    )
    assert parallel.outline(nest).scratch_bytes((7, 1000)) == 67 * 64  # 1000 values and a vector, in whole lines


def test_sizes_of_caches_are_read_and_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller caches make other code; what the system does not say, and more than was measured, counts as large."""
    small = {"level": ["1", "1", "2", "3"], "type": ["Data", "Instruction", "Unified", "Unified"]}
    small["size"] = ["32K", "32K", "256K", "6144K"]

    def fact(index: int, name: str) -> str:
        if index >= 4:
            raise OSError
        return small[name][index]

    monkeypatch.setattr(target, "_cache_fact", fact)
    v3 = target.named("x86-64-v3")
    found = target._with_caches(v3)
    assert (found.model.second_cache, found.model.third_cache) == (256 << 10, 6144 << 10)
    assert found.key != v3.key
    model = found.model
    assert (model.fetched_bytes, model.streamed_bytes, model.streamed_lines) == (64 << 10, 12 << 20, 6 << 20)
    small["size"] = ["48K", "32K", "2048K", "266240K"]
    assert target._with_caches(v3) == v3
    monkeypatch.setattr(target, "_cache_fact", lambda *_: "")
    assert target._with_caches(v3) == v3


def test_the_native_runtime_takes_all_figures_or_none() -> None:
    """What is missing, unknown or no number is named, and changes nothing."""
    figures = target_model.runtime_figures(runtime.cpu_maker())
    assert figures.keys() == target_model.RUNTIME.keys()
    runtime.set_figures(figures)
    for name in figures:
        with pytest.raises(TypeError, match=f"there is no figure {name}"):
            runtime.set_figures({key: value for key, value in figures.items() if key != name})
    with pytest.raises(TypeError, match=f"there are {len(figures)} figures, got {len(figures) + 1}"):
        runtime.set_figures({**figures, "lanes": 3})
    for wrong, error in ((-1.0, ValueError), (float("nan"), ValueError), ("much", TypeError)):
        with pytest.raises(error):
            runtime.set_figures({**figures, "wake_ns": wrong})  # type: ignore[dict-item] - what it refuses
    with pytest.raises(TypeError, match="expected a dict"):
        runtime.set_figures([*figures])  # type: ignore[arg-type] - what it refuses


def test_a_maker_has_figures_of_its_own() -> None:
    """Those of a Zen 4 differ where it was measured to; of an unknown maker, and of Intel, are those of the table."""
    amd, intel = map(target_model.runtime_figures, ("AuthenticAMD", "GenuineIntel"))
    assert target_model.runtime_figures("") == intel == target_model.RUNTIME
    assert {key for key in amd if amd[key] != intel[key]} == {"most_held", "in_parts", "in_strips", "fast_pairs"}


def test_the_host_is_found_without_an_import() -> None:
    # an import holds a lock, which a fork by another thread leaves held in the child for ever
    program = (
        "import sys, weft\nfrom weft._base import target\nbefore = set(sys.modules)\ntarget.host()\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
