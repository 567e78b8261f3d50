"""Who asked for a name of JAX that weft lacks: library, file and line, kept for the list ``weft run --missing`` prints.

A request is written to the list at once, so that nothing is lost in a process that ends abruptly; child processes
write to the list of the process that was started with ``--missing``.
"""

from __future__ import annotations

import atexit
import dis
import os
import sys
from types import FrameType

from weft._base.record import NamedTuple
from weft.core.tracing import source_info

ENVIRONMENT = "WEFT_MISSING"  # "process:file": who prints the list, where it is collected
_IMPORTERS = ("<frozen importlib", os.path.dirname(os.__file__) + os.sep + "importlib" + os.sep)


class Request(NamedTuple):
    """One name that was asked for in vain: what for ("import", "attribute", "call"), and where."""

    name: str
    kind: str
    library: str
    file: str
    line: int

    def location(self) -> str:
        return f"{self.library}, {self.file}:{self.line}"


_requests: dict[Request, None] = {}


def _is_importer(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_IMPORTERS)


def asking_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame that is neither weft's nor the import system's, from ``frame`` outwards."""
    frame = source_info.user_frame(frame)
    while frame is not None and _is_importer(frame):
        frame = source_info.user_frame(frame.f_back)
    return frame


def is_from_import(frame: FrameType) -> bool:
    """Whether the frame is at ``from module import name``, as far as ``dis`` names the instruction.

    Where it does not, the name counts as an attribute; Python itself makes an ImportError of the AttributeError.
    """
    at = frame.f_lasti
    return any(step.opname == "IMPORT_FROM" for step in dis.get_instructions(frame.f_code) if step.offset == at)


def is_query(frame: FrameType | None) -> bool:
    """Whether ``importlib.util.find_spec`` asks, which wants to know and does not import."""
    while frame is not None and _is_importer(frame):
        if frame.f_code.co_name == "find_spec" and "util" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def record(name: str, kind: str, frame: FrameType | None) -> Request:
    """Keep a request for ``name`` made from ``frame``, which ``asking_frame`` found."""
    if frame is None:
        request = Request(name, kind, "unknown", "unknown", 0)
    else:
        library = str(frame.f_globals.get("__name__") or "unknown").partition(".")[0]
        request = Request(name, kind, library, frame.f_code.co_filename, frame.f_lineno)
    if request not in _requests:
        _requests[request] = None
        _write(request)
    return request


def recorded() -> list[Request]:
    """The requests of this process, in the order in which they came."""
    return list(_requests)


def listing(requests: list[Request]) -> str:
    """A list for people: names in alphabetical order, each with where it was asked for."""
    if not requests:
        return "[weft run] every name of JAX that was asked for exists"
    lines = [f"[weft run] {len({request.name for request in requests})} names of JAX that weft lacks were asked for:"]
    lines += [f"  {request.name}  ({request.kind}: {request.location()})" for request in sorted(requests)]
    return "\n".join(lines)


def _collector() -> tuple[int, str] | None:
    process, mark, file = os.environ.get(ENVIRONMENT, "").partition(":")
    return (int(process), file) if mark and process.isdigit() and file else None


def _write(request: Request) -> None:
    collector = _collector()
    if collector is not None:
        with open(collector[1], "a", encoding="utf-8") as file:
            file.write("\t".join(map(str, request)) + "\n")


def _read(file_name: str) -> list[Request]:
    found: dict[Request, None] = {}
    with open(file_name, encoding="utf-8") as file:
        for line in file:
            name, kind, library, source, number = line.rstrip("\n").split("\t")
            found[Request(name, kind, library, source, int(number))] = None
    return list(found)


def _print_collected() -> None:
    collector = _collector()
    if collector is None or collector[0] != os.getpid() or not os.path.exists(collector[1]):
        return
    print(listing(_read(collector[1])), file=sys.stderr)
    os.remove(collector[1])


def print_at_exit() -> None:
    """Print the list when the process ends, if it is the one that was started with ``--missing``."""
    collector = _collector()
    if collector is not None and collector[0] == os.getpid():
        atexit.register(_print_collected)
