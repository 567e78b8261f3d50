"""The ``weft`` command: ``weft run``, ``launch``, ``tour``, ``inspect``, ``cache``, ``devices``, ``env``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import weft
from weft._base import lazy


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weft", description="Trace, compile and cache NumPy-style Python functions.")
    parser.add_argument("--version", action="version", version=f"weft {weft.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser("run", help="run an unmodified JAX program on weft: weft run script.py args, -m module")
    commands.add_parser("launch", help="run a script on several processes: weft launch -n 4 script.py args, -m module")
    tour = commands.add_parser("tour", help="see weft at work on this machine (under a minute), and write tour.html")
    tour.add_argument("--platform", help="where it runs: a platform that `weft devices` lists (default: the CPU)")
    tour.add_argument("--output", type=Path, default=Path("tour.html"), help="where the report goes")
    inspect = commands.add_parser(
        "inspect", help="write the page of a function: source, kernels, code, times, findings"
    )
    inspect.add_argument(
        "target", help="script.py:function; the script is run, with the arguments after --, unless --types are given"
    )
    inspect.add_argument("--types", nargs="+", metavar="TYPE", help="types of the arguments: f32[64,10] i32[64]")
    inspect.add_argument("--output", type=Path, help="where the page goes (default: weft-FUNCTION.html)")
    cache = commands.add_parser("cache", help="the cache on disk: what is there, remove it, check it")
    cache.add_argument("action", choices=("info", "clear", "verify"))
    commands.add_parser("devices", help="list the devices, and the plugins for others: path, version, why refused")
    commands.add_parser("env", help="versions, machine and threads, for reports of problems")
    return parser


def _devices() -> int:
    for device in weft.devices("cpu"):
        print(f"{device}  kind={device.device_kind}  platform={device.platform}  process={device.process_index}")
    for line in (*lazy.cuda_devices.report(), *lazy.plugins.report()):
        print(line)
    return 0


def _environment() -> int:
    weft.print_environment_info()
    return 0


def _cache(action: str) -> int:
    disk = lazy.submodule("weft.compiler.storage.disk")
    cache = disk.current()
    if cache is None:
        print("the kernel cache on disk is off")
        return 0
    if action == "clear":
        print(f"{cache.clear()} kernels and programs removed from {cache.folder}")
        return 0
    if action == "verify":
        whole, removed = cache.verify()
        print(f"{whole} kernels and programs are whole, {len(removed)} were not and are removed, in {cache.folder}")
        for line in removed:
            print(f"  {line}")
        return 1 if removed else 0
    summary = cache.summary()
    print(f"folder   {cache.folder}")
    print(f"kernels  {summary.kernels}")
    print(f"programs {summary.programs}")
    print(f"bytes    {summary.nbytes} of at most {cache.bound}; {summary.stale} entries made by another version")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["run"]:
        lazy.submodule("weft.run").run(words[1:])  # what follows is Python's command line, and not parsed here
    if words[:1] == ["launch"]:
        return lazy.submodule("weft.distributed.launcher").run(words[1:])
    parser = _parser()
    given: list[str] = []
    if words[:1] == ["inspect"] and "--" in words:
        given = words[words.index("--") + 1 :]
        words = words[: words.index("--")]
    options = parser.parse_args(words)
    if options.command == "tour":
        return lazy.submodule("weft.tour.run").run(options.output, options.platform)
    if options.command == "inspect":
        command = lazy.submodule("weft.inspect.command")
        return command.run(options.target, options.types, given, options.output)
    if options.command == "cache":
        return _cache(options.action)
    if options.command == "devices":
        return _devices()
    if options.command == "env":
        return _environment()
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
