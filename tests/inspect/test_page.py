"""The page of ``weft.inspect``: its data and links, and the page itself in a browser where there is one."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.inspect import browser
from weft._base import cli
from weft.compiler.fusion import groups
from weft.inspect import boundaries, command
from weft.inspect.report import Report

ROOT = Path(__file__).resolve().parents[2]
WITH_BROWSER = pytest.mark.skipif(browser.found() is None, reason="no Chromium: apt-get install chromium")


def network(weights: Any, x: Any) -> Any:
    hidden = jnp.tanh(x @ weights[0])
    hidden = (hidden - jnp.mean(hidden, -1, keepdims=True)) / jnp.std(hidden, -1, keepdims=True)
    return jnp.sum(jnp.log(jnp.sum(jnp.exp(hidden @ weights[1]), 0)))


@pytest.fixture(scope="module")
def network_report() -> Report:
    weights = [jnp.ones((64, 64)) * 0.1, jnp.ones((64, 32)) * 0.1]
    return weft.inspect(weft.jit(weft.grad(network)), weights, jnp.ones((128, 64)))


@pytest.fixture(scope="module")
def data(network_report: Report) -> dict[str, Any]:
    return json.loads(json.dumps(network_report.data, default=float))


def test_everything_is_linked(data: dict[str, Any]) -> None:
    first = network.__code__.co_firstlineno
    equations = {e["id"]: e for e in data["equations"]}
    steps = {s["id"]: s for s in data["steps"]}
    assert data["sources"][0]["file"] == __file__
    shown = {first + i for first, lines in data["sources"][0]["blocks"] for i in range(len(lines))}
    assert {first + 1, first + 2, first + 3} <= shown
    for equation in equations.values():
        assert equation["line"][1] in (first + 1, first + 2, first + 3)
        assert all(equation["id"] in steps[s]["equations"] for s in equation["steps"])
    for step in steps.values():
        assert step["equations"]
        assert all(step["id"] in equations[e]["steps"] for e in step["equations"])
        assert sum(share for _, _, share in step["lines"]) == pytest.approx(1)
        assert step["operands"]
        assert step["bytes"] > 0
        assert step["estimate"] > 0
        assert step["measured"]["best"] > 0
        assert step["bandwidth"] > 0
        assert all(number < len(data["texts"]) for number in step["texts"])
    assert any(e["backward"] for e in equations.values())
    assert any(len(e["steps"]) == 1 for e in equations.values())


def test_memory_boundaries_and_residuals_have_reasons(data: dict[str, Any]) -> None:
    steps = {s["id"] for s in data["steps"]}
    assert {m["kind"] for m in data["memory"]} >= {"input", "result", "new"}
    assert all(m["text"] for m in data["memory"])
    assert data["boundaries"]
    for edge in data["boundaries"]:
        assert edge["code"] in boundaries.REFUSALS
        assert edge["maker"] in steps
        assert edge["reader"] is None or edge["reader"] in steps
        assert edge["why"]
        assert edge["cure"]
        assert edge["bytes"] > 0
    assert data["residuals"][0]["text"].startswith("residuals: ")
    makes = {value for e in data["equations"] for value in e["makes"]}
    assert all(r["value"] in makes for r in data["residuals"][1:])


def test_the_texts_of_kernels_are_packed(data: dict[str, Any]) -> None:
    text = data["texts"][0]
    assert text["loops"].startswith("nest ")
    assert "define " in zlib.decompress(base64.b64decode(text["llvm"]), -15).decode()
    assert "ret" in zlib.decompress(base64.b64decode(text["asm"]), -15).decode()
    assert "lambda" in zlib.decompress(base64.b64decode(data["traced"]), -15).decode()


def test_the_timeline_and_the_history(data: dict[str, Any]) -> None:
    timeline, steps = data["timeline"], {s["id"] for s in data["steps"]}
    assert timeline["length"] > 0
    for thread, begin, length, kind, _, step in timeline["spans"]:
        assert begin >= 0
        assert begin + length <= timeline["length"]
        assert thread < len(timeline["threads"])
        assert kind == "call" or step in steps
    assert {s for *_, s in timeline["spans"]} >= steps
    kinds = [h["kind"] for h in data["history"] if h["name"] == "network"]
    assert {"trace", "compile"} <= set(kinds)


def test_each_refusal_of_fusion_is_in_the_closed_list() -> None:
    text = Path(groups.__file__).read_text(encoding="utf-8")
    reasons = re.findall(r'return f?"([^"]+)"', text)
    reasons += [getattr(groups, name) for name in ("FULL", "TOO_LONG", "TOO_FEW", "CHOOSES", "UPDATED")]
    assert len(reasons) > 20
    for reason in reasons:
        assert boundaries.code_of(re.sub(r"\{[^}]*\}", "3", reason)) in boundaries.REFUSALS
    with pytest.raises(KeyError):
        boundaries.code_of("it is Tuesday")


def test_loops_and_branches_show_what_they_run() -> None:
    def f(x: Any) -> Any:
        y = weft.lax.scan(lambda c, v: (jnp.tanh(c @ c) + v, None), x, jnp.ones((20, 64, 64)))[0]
        return weft.lax.cond(jnp.sum(y) > 0, lambda v: v @ v, lambda v: v - 1, y)

    data = weft.inspect(f, jnp.ones((64, 64))).data
    assert len(data["programs"]) >= 3
    outer = [s for s in data["steps"] if s["runs"]]
    assert {s["what"] for s in outer} == {"loop", "branch"}
    body = [s for s in data["steps"] if s["program"] == outer[0]["runs"][0]]
    assert body[0]["measured"]["runs"] == 20 * body[0]["measured"]["calls"] or body[0]["measured"]["runs"] >= 20


def test_what_cannot_be_run_is_estimated() -> None:
    found = weft.inspect(lambda x: jnp.sin(x), weft.ShapeDtypeStruct((8,), jnp.float32))
    assert found.profile is None
    assert found.data["timeline"] is None
    assert found.data["steps"][0]["measured"] is None
    called = []
    weft.inspect(lambda x: weft.pure_callback(lambda v: called.append(1) or np.asarray(v), x, x), jnp.ones(3))
    assert called == []
    empty = weft.inspect(lambda x: x, jnp.ones(3)).data
    assert [s["what"] for s in empty["steps"]] == ["copy"]
    zero = weft.inspect(lambda x: jnp.sum(jnp.sin(x)), jnp.ones((0, 3)))
    assert "<!doctype html>" in zero.html()
    scalar = weft.inspect(weft.jit(lambda x, n: x * n, static_argnums=1), 2.0, 3)
    assert scalar.name == "<lambda>(f32[])"


def test_donated_arguments_survive_a_report() -> None:
    f, x = weft.jit(lambda x: x + 1, donate_argnums=0), jnp.ones(1000)
    found = weft.inspect(f, x)
    assert found.profile is not None
    assert float(x[0]) == 1


def test_a_compiled_function_reports(tmp_path: Path) -> None:
    compiled = weft.jit(lambda x: jnp.cos(x) * 2).lower(jnp.ones(8)).compile()
    assert compiled.report().profile is None
    with_times = compiled.report(jnp.ones(8))
    assert with_times.profile is not None
    file = with_times.save(tmp_path / "page.html")
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "srcdoc" in with_times._repr_html_()


def test_pages_hold_everything_and_any_text() -> None:
    def awkward(x: Any) -> Any:
        return x + 1  # </script><!-- @data@ @js@ & "quotes" é ☃

    page = weft.inspect(awkward, jnp.ones(3)).html()
    assert not re.search(r'(?:src|href)\s*=\s*"?https?:', page)
    assert "@import" not in page
    assert page.count("</script>") == 2
    assert "☃" in page or "\\u2603" in page
    assert "@css@" not in page


def test_types_on_the_command_line() -> None:
    assert command.struct_of("f32[64,10]").shape == (64, 10)
    assert command.struct_of("bf16[]").dtype == jnp.bfloat16
    assert command.struct_of("bool[3]").dtype == bool
    for text in ("f32", "q8[3]", "f32[-1]", "f33[2]"):
        with pytest.raises(LookupError):
            command.struct_of(text)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, weft, weft.numpy as jnp\n"
        "step = weft.jit(lambda x, n: jnp.tanh(x) * n, static_argnums=1)\n"
        "def plain(x):\n    return jnp.sin(x) + 1\n"
        "if __name__ == '__main__':\n    assert sys.argv[1:] == ['7']\n    step(jnp.ones(300), 2)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["inspect", f"{script}:step", "--output", "step.html", "--", "7"]) == 0
    assert '"measured":{' in (tmp_path / "step.html").read_text(encoding="utf-8")
    assert cli.main(["inspect", f"{script}:plain", "--types", "f32[50]"]) == 0
    assert (tmp_path / "weft-plain.html").exists()
    assert "is at" in capsys.readouterr().out
    for arguments, text in (
        ([f"{script}:plain", "--", "7"], "is not jitted"),
        ([f"{script}:absent", "--types", "f32[3]"], "it has plain, step"),
        ([f"{script}:plain", "--types", "float"], "no type such as"),
        (["nothing.py:f"], "SCRIPT.py:FUNCTION"),
    ):
        assert cli.main(["inspect", *arguments]) != 0
        assert text in capsys.readouterr().err


@pytest.fixture(scope="module")
def page(network_report: Report, tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    folder = tmp_path_factory.mktemp("page")
    with browser.Page(network_report.save(folder / "page.html"), folder / "profile") as opened:
        yield opened


def _lit(page: browser.Page, pane: str) -> list[str]:
    return page.value(f"[...document.querySelectorAll('#{pane} .lit')].map((e) => e.dataset.k)")


@WITH_BROWSER
def test_pointing_lights_what_belongs_together(page: browser.Page, data: dict[str, Any]) -> None:
    page.press("Escape")
    step = max(data["steps"], key=lambda s: len(s["equations"]))
    page.point(f"#steps [data-k='S:{step['id']}']")
    assert set(_lit(page, "equations")) == {f"E:{e}" for e in step["equations"]}
    assert set(_lit(page, "source")) == {f"L:{f}:{n}" for f, n, _ in step["lines"]}
    equation = next(e for e in data["equations"] if e["steps"] == [step["id"]])
    page.point(f"#equations [data-k='E:{equation['id']}']")
    assert _lit(page, "steps") == [f"S:{step['id']}"]
    file, number = equation["line"]
    assert _lit(page, "source") == [f"L:{file}:{number}"]
    page.point(f"#source [data-k='L:{file}:{number}']")
    assert f"E:{equation['id']}" in _lit(page, "equations")
    assert len(_lit(page, "steps")) > 1


@WITH_BROWSER
def test_code_and_other_views_follow_the_choice(page: browser.Page, data: dict[str, Any]) -> None:
    step = next(s for s in data["steps"] if s["what"] == "kernel")
    page.point(f"#steps [data-k='S:{step['id']}']", click=True)
    page.press("2")
    page.until("document.querySelector('#asm pre')?.textContent.includes('ret')")
    assert page.value("document.querySelector('#llvm pre').textContent.includes('define')")
    assert page.value("document.querySelector('#loops pre [data-k]').dataset.k")[:2] == "E:"
    page.point("#loops pre [data-k]")
    assert len(_lit(page, "equations")) == 1
    for key, view in zip(
        "1234567", ("step", "code", "memory", "timeline", "history", "findings", "traced"), strict=True
    ):
        page.press(key)
        assert page.value("document.querySelector('.view.on').id") == f"v-{view}"
    page.until("document.querySelector('#traced pre')?.textContent.includes('lambda')")
    assert page.value("document.querySelectorAll('.span').length") >= len(data["steps"])


@WITH_BROWSER
def test_search_keys_and_themes(page: browser.Page) -> None:
    page.press("Escape")
    page.press("/")
    for letter in "tanh":
        page.press(letter)
    page.until("document.getElementById('found').textContent.endsWith('found')")
    assert page.value("document.querySelectorAll('mark').length") > 1
    page.press("Enter", "\r")
    assert page.value("document.getElementById('found').textContent").startswith("1 of")
    page.press("Escape")
    assert page.value("document.querySelectorAll('mark').length") == 0
    page.press("j")
    first = page.value("document.querySelector('#steps .pin').dataset.k")
    page.press("j")
    assert page.value("document.querySelector('#steps .pin').dataset.k") != first
    before = page.value("document.documentElement.dataset.theme")
    dark = page.value("getComputedStyle(document.body).backgroundColor")
    page.press("t")
    assert {before, page.value("document.documentElement.dataset.theme")} == {"light", "dark"}
    assert page.value("getComputedStyle(document.body).backgroundColor") != dark
    page.press("?")
    assert page.value("document.getElementById('help').open")
    page.value("document.getElementById('help').close()")
    assert page.value("document.documentElement.scrollWidth") <= 1280
    assert page.errors == []


@WITH_BROWSER
def test_the_page_of_a_transformer_step_is_small_and_quick(tmp_path: Path) -> None:
    code = (
        "import numpy as np, weft, weft.numpy as jnp, transformer as t\nfrom weft import random, tree\n"
        "p = t.initial_parameters(random.key(0), 70)\n"
        "state = (p, tree.map(jnp.zeros_like, p), tree.map(jnp.zeros_like, p), 0.0)\n"
        f"weft.inspect(t.update, state, np.zeros((16, 65), np.int32)).save({str(tmp_path / 'page.html')!r})\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "examples", timeout=120, check=True)
    file = tmp_path / "page.html"
    assert file.stat().st_size <= 5_000_000
    with browser.Page(file, tmp_path / "profile") as page:
        assert page.seconds_to_load <= 2
        assert page.requests == [file.resolve().as_uri()]
        assert page.value("document.querySelectorAll('#equations .row').length") > 300
        assert page.errors == []
