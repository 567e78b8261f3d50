"""The prompt of ``debug.breakpoint``: the user's frames, whose variables can be looked at.

The frame is remembered when the breakpoint is traced. Before the prompt opens, variables that are traced values are
replaced by their values at run time.
"""

from __future__ import annotations

import cmd
import linecache
import os
import pprint
import sys
import threading
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import IO, Any

from weft._base import forks
from weft._base.record import Record
from weft.core.tracing import source_info

_one_prompt = threading.Lock()  # programs may run on several threads


def _renew() -> None:
    """In a child of a fork: the thread that shows the prompt is not there."""
    global _one_prompt
    _one_prompt = threading.Lock()


forks.in_child(_renew)


class Frame(Record):
    """One function on the way to the breakpoint."""

    file_name: str
    line: int
    function_name: str
    variables: dict[str, Any]
    module_globals: dict[str, Any]


def frames_from(frame: FrameType | None, filter_frames: bool, num_frames: int | None) -> list[Frame]:
    """The frames outside of the calling one, innermost first."""
    found: list[Frame] = []
    frame = frame.f_back if frame is not None else None
    while frame is not None and (num_frames is None or len(found) < num_frames):
        code = frame.f_code
        if not (filter_frames and source_info.is_internal(code.co_filename)):
            variables = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)
            found.append(Frame(code.co_filename, frame.f_lineno, code.co_name, variables, frame.f_globals))
        frame = frame.f_back
    return found


def run(
    frames: Sequence[Frame], stdin: IO[str] | None = None, stdout: IO[str] | None = None, completekey: str = "tab"
) -> None:
    """Open the prompt and return when the user leaves it; RuntimeError where there is nobody to ask."""
    if stdin is None and not _is_terminal(sys.stdin):
        location = f" ({frames[0].file_name}:{frames[0].line})" if frames else ""
        raise RuntimeError(
            f"[debug.breakpoint] the program stopped at a breakpoint, but there is no terminal to ask{location}; "
            "run it in one, or pass stdin= and stdout="
        )
    with _one_prompt:
        Prompt(frames, stdin, stdout, completekey).loop()


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and os.isatty(stream.fileno())
    except (AttributeError, OSError, ValueError):
        return False


class Prompt(cmd.Cmd):
    """Reads commands; everything else is an expression over the current frame's variables."""

    prompt = "(wdb) "

    def __init__(
        self, frames: Sequence[Frame], stdin: IO[str] | None = None, stdout: IO[str] | None = None,
        completekey: str = "tab",
    ) -> None:  # fmt: skip
        super().__init__(completekey, stdin, stdout)
        self.use_rawinput = stdin is None and stdout is None
        self.frames = list(frames) or [Frame("<unknown>", 0, "<unknown>", {}, {})]
        self.index = 0

    def loop(self) -> None:
        """Until the user goes on; Ctrl-C gives a new prompt."""
        self._say("Stopped at a breakpoint; 'help' lists the commands, 'c' goes on.")
        self._show_source(2)
        while True:
            try:
                self.cmdloop(intro="")
                return
            except KeyboardInterrupt:
                self._say("--KeyboardInterrupt--")

    @property
    def frame(self) -> Frame:
        return self.frames[self.index]

    def _say(self, text: str) -> None:
        self.stdout.write(f"{text}\n")
        self.stdout.flush()

    def _evaluated(self, expression: str) -> Any:
        """(whether it has a value, the value) of an expression; errors are told."""
        try:
            # one mapping for both, so that comprehensions and lambdas see the variables
            return True, eval(expression, {**self.frame.module_globals, **self.frame.variables})
        except Exception as error:
            self._say(f"*** {traceback.format_exception_only(error)[-1].strip()}")
            return False, None

    def default(self, line: str) -> None:
        self.do_p(line)

    def emptyline(self) -> bool:
        return False

    def _show_source(self, context: int) -> None:
        frame = self.frame
        self._say(f"> {frame.file_name}({frame.line}){frame.function_name}()")
        for number in range(max(frame.line - context, 1), frame.line + context + 1):
            text = linecache.getline(frame.file_name, number, frame.module_globals).rstrip()
            if text:
                self._say(f"{'->' if number == frame.line else '  '} {number:4d}  {text}")

    def do_p(self, arg: str) -> None:
        """p expression: print its value."""
        found, value = self._evaluated(arg)
        if found:
            self._say(repr(value))

    def do_pp(self, arg: str) -> None:
        """pp expression: print its value, laid out."""
        found, value = self._evaluated(arg)
        if found:
            self._say(pprint.pformat(value))

    def do_args(self, arg: str) -> None:
        """a(rgs): print all variables of the frame."""
        for name, value in self.frame.variables.items():
            self._say(f"{name} = {value!r}")

    def do_up(self, arg: str) -> None:
        """u(p): to the function that called this one."""
        if self.index + 1 == len(self.frames):
            self._say("At topmost frame.")
        else:
            self.index += 1
        self._show_source(2)

    def do_down(self, arg: str) -> None:
        """d(own): to the function that this one called."""
        if self.index == 0:
            self._say("At bottommost frame.")
        else:
            self.index -= 1
        self._show_source(2)

    def do_list(self, arg: str) -> None:
        """l(ist): the source around the current line."""
        self._show_source(5)

    def do_where(self, arg: str) -> None:
        """w(here), bt: all frames, the innermost last."""
        for index, frame in reversed(list(enumerate(self.frames))):
            mark = ">" if index == self.index else " "
            self._say(f'{mark} File "{frame.file_name}", line {frame.line}, in {frame.function_name}')
            self._say(f"      {linecache.getline(frame.file_name, frame.line, frame.module_globals).strip()}")

    def do_continue(self, arg: str) -> bool:
        """c(ont(inue)): go on with the program."""
        return True

    def do_quit(self, arg: str) -> bool:
        """q(uit), exit: end the program, which raises SystemExit."""
        raise SystemExit(0)

    do_a, do_u, do_d, do_l, do_w, do_bt = do_args, do_up, do_down, do_list, do_where, do_where
    do_c = do_cont = do_continue
    do_q = do_exit = do_EOF = do_quit
