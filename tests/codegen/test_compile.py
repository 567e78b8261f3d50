"""From text to objects: failures are errors, the crash file, the child process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import weft
from tests.codegen.running import HOST, elementwise, map_nest, run_map
from weft import errors
from weft.codegen import compile as compiling
from weft.codegen import isolate, llvm, module_text

ADD = elementwise(lambda emit, x: emit.add(x, x))
F32 = np.dtype(np.float32)


@pytest.mark.parametrize("mode", ["inline", "isolated"])
def test_bad_text_is_an_internal_error_with_a_dump(mode):
    weft.config.update("compile", mode)
    try:
        for text in ("define void @k( {", "define void @k() {\nentry:\n%a = add i32 %b, 1\nret void\n}\n"):
            with pytest.raises(errors.InternalError, match="not valid LLVM") as caught:
                compiling.compile_text(text, HOST, "broken")
            with open(caught.value.dump, encoding="utf-8") as file:
                assert file.read() == text
            os.unlink(caught.value.dump)
    finally:
        weft.config.update("compile", "inline")


def test_isolated_gives_the_same_object():
    text = compiling.text_of(map_nest(ADD, [F32], F32), HOST)
    assert isolate.emit_object(text, HOST, "k") == llvm.emit_object(text, HOST, "k")


@pytest.mark.skipif(not HOST.model.held, reason="texts are compiled as written where registers hold constants")
@pytest.mark.parametrize("size", [1, 16, 37, 100])
def test_code_as_written_has_the_bits_of_optimised_code(size, monkeypatch):
    kind = elementwise(lambda emit, x: emit.exp(emit.mul(x, x)))
    assert compiling.text_of(map_nest(kind, [F32], F32), HOST).count(module_text.AS_WRITTEN) == 1
    x = np.random.default_rng(0).standard_normal(size, np.float32)
    x[0] = np.nan
    plain = run_map(kind, [x], F32)
    monkeypatch.setattr(module_text, "AS_WRITTEN", "")
    assert plain.tobytes() == run_map(kind, [x], F32).tobytes()


def test_code_with_constants_in_loops_is_optimised():
    text = compiling.text_of(map_nest(elementwise(lambda emit, x: emit.sin(x)), [F32], F32), HOST)
    assert module_text.AS_WRITTEN not in text


def test_a_child_at_its_memory_limit_says_so_and_lives_on():
    text = compiling.text_of(map_nest(ADD, [F32], F32), HOST)
    found = isolate.emit_object(text, HOST, "k")  # LLVM is there
    child = isolate._running().pid
    limits = resource.prlimit(child, resource.RLIMIT_AS)
    resource.prlimit(child, resource.RLIMIT_AS, (1 << 20, limits[1]))
    try:
        with pytest.raises(errors.OutOfMemoryError, match=r"\[k\] compiling this kernel may take"):
            isolate.emit_object(text, HOST, "k")
    finally:
        resource.prlimit(child, resource.RLIMIT_AS, limits)
    assert isolate.emit_object(text, HOST, "k") == found
    assert isolate._running().pid == child


def test_death_of_the_child_is_an_error_and_it_comes_back():
    text = compiling.text_of(map_nest(ADD, [F32], F32), HOST)
    isolate.emit_object(text, HOST, "k")
    assert isolate._child is not None
    isolate._child[1].kill()
    isolate._child[1].wait()
    assert isolate.emit_object(text, HOST, "k")


@pytest.mark.parametrize("way", ["symlink", "link", "mkfifo", "folder"])
def test_what_others_planted_is_not_written_to(way, tmp_path):
    """Crash files have names that others can guess: a link put there must not lead to the user's own files."""
    program = """
        import os, sys
        from weft.codegen import llvm
        from weft._base.target import host
        path = llvm.crash_path(os.getpid())
        if sys.argv[1] == "folder":
            os.chmod(os.path.dirname(path), 0o777)
        else:
            getattr(os, sys.argv[1])(*[os.environ["VICTIM"]][:sys.argv[1] != "mkfifo"], path)
        for _ in range(2):
            llvm.emit_object("define void @k() {\\nentry:\\nret void\\n}\\n", host(), "k")
        assert sys.argv[1] != "folder" or not os.path.exists(path)
    """
    victim = tmp_path / "victim"
    victim.write_text("precious")
    environment = {**os.environ, "WEFT_CRASH_DIR": str(tmp_path), "VICTIM": str(victim)}
    command = [sys.executable, "-c", textwrap.dedent(program), way]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "precious"
    assert done.stderr.count("crash files are not kept in") == (way == "folder"), done.stderr


@pytest.mark.parametrize("folder", ["/proc/nothing", "/dev/null/nothing", "full"])
def test_without_a_folder_for_the_crash_file_kernels_are_compiled(folder, tmp_path):
    """A read-only file system, or a full disk."""
    program = """
        import resource, sys
        from weft.codegen import llvm
        from weft._base.target import host
        if sys.argv[1] == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
        for _ in range(2):
            assert llvm.emit_object("define void @k() {\\nentry:\\nret void\\n}\\n", host(), "k")[:4] == b"\\x7fELF"
    """
    environment = {**os.environ, "WEFT_CRASH_DIR": str(tmp_path) if folder == "full" else folder}
    command = [sys.executable, "-c", textwrap.dedent(program), folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_an_abort_leaves_the_text():
    """A process that dies inside LLVM leaves the kernel in its crash file; one that ends well leaves nothing."""
    program = """
        import os, sys
        from weft.codegen import llvm, llvm_calls
        from weft._base.target import host
        text = "define void @k() {\\nentry:\\nret void\\n}\\n"
        llvm.emit_object(text, host(), "k")
        print(llvm.crash_path(os.getpid()), flush=True)
        if sys.argv[1] == "die":
            llvm_calls.object_of = lambda *a: os.abort()
            llvm.emit_object(text, host(), "k")
    """
    for how in ("live", "die"):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), how], capture_output=True, text=True, check=False
        )
        path = done.stdout.strip()
        assert path, done.stderr
        assert os.path.exists(path) == (how == "die")
    with open(path, encoding="utf-8") as file:
        assert "define void @k" in file.read()
    os.unlink(path)


def test_files_of_dead_processes_are_swept(tmp_path):
    """Empty ones: what LLVM was working on when it died is kept."""
    for number, text in ((4194305, ""), (4194306, "define"), (os.getpid(), "")):
        (tmp_path / f"crash-{number}.ll").write_text(text)
    llvm._sweep(str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([f"crash-{os.getpid()}.ll", "crash-4194306.ll"])


def test_text_is_deterministic():
    nest = map_nest(ADD, [F32], F32)
    assert compiling.text_of(nest, HOST) == compiling.text_of(nest, HOST)


def test_a_forked_child_compiles_while_a_thread_does():
    program = """
        import os, threading, numpy as np
        from tests.codegen.running import HOST, elementwise, map_nest
        from weft.codegen import compile as compiling
        nest = map_nest(elementwise(lambda e, x: e.add(x, x)), [np.dtype(np.float32)], np.dtype(np.float32))
        text = compiling.text_of(nest, HOST)
        stop = []
        thread = threading.Thread(target=lambda: [compiling.compile_text(text, HOST) for _ in range(300) if not stop])
        thread.start()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                compiling.compile_text(text, HOST)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.append(1)
        thread.join()
        print("fine")
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "fine\n", done.stderr


def test_every_switch_is_one_that_llvm_knows():
    """It says nothing of one that it does not know, and takes milliseconds to look for one of a similar name."""
    listing = "import llvmlite.binding as b; b.initialize_native_target(); b.set_option('weft', '--help-hidden')"
    done = subprocess.run([sys.executable, "-c", listing], check=True, capture_output=True, text=True)
    known = {line.split()[0].partition("=")[0].lstrip("-") for line in done.stdout.splitlines() if " --" in line}
    assert not set(llvm.SWITCHES) - known
