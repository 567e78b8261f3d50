"""Saved programs, read: one file with a compiled program, its kernels and its constants, run without a compiler.

    weft.jit(f).lower(x).compile().save("f.weft")        # saving
    f = weft.load("f.weft")                              # here, in another process

The file begins with a line that says what it is and one that says for what it was made. A program is run only by the
release of weft (and of Python and NumPy) and on the family of processors for which it was saved; whatever else is in
the file is refused with the reason. The checksum finds damage, not intent: a saved program is machine code, and a file
that somebody else could write is not to be loaded.

    weft saved program 1\\n
    weft=0.1.0 python=cpython-311 numpy=2.4.0 ml_dtypes=0.5.4 processor=NAME:... runtime=9f3b...\\n
    checksum of all but itself (32 bytes), then plain values (marshal): types, kernels, program, constants, facts
"""

from __future__ import annotations

import functools
import marshal
import os
import sys
from typing import Any

import ml_dtypes
import numpy as np

from weft import dtypes, runtime
from weft._base import lazy
from weft.compiler.storage.read_program import ProgramReader
from weft.core.caches import plain_values
from weft.dispatch import devices
from weft.dispatch.programs import ahead_of_time, executables, trace_cache

FIRST_LINE = b"weft saved program 1\n"
_BEGINS = b"weft saved program "
_CHECKSUM_BYTES = 32
OTHER_KEYS = (
    "it takes or gives random keys of a generator of your own, which no file can hold: pass "
    "weft.random.key_data(key), and use wrap_key_data inside of the function"
)
_HEAD_BYTES = 4096  # the first bytes of the native module: its sections, and the linker's number of the build


def circumstances() -> str:
    """What a program depends on besides itself, as words ``name=value``."""
    found = {
        "weft": getattr(sys.modules["weft._base.api"], "VERSION", "?"),
        "python": sys.implementation.cache_tag,
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "processor": devices.CPU.target.key.replace(" ", "_"),
        "runtime": _runtime_digest(),
    }
    return " ".join([f"{name}={value}" for name, value in found.items()])


@functools.cache
def _runtime_digest() -> str:
    """A digest of the native module's beginning and size."""
    path = str(sys.modules[f"{runtime.__name__}._native"].__file__)
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    digest = lazy.hashlib.blake2b(head, digest_size=8)
    digest.update(str(os.path.getsize(path)).encode())
    return digest.hexdigest()


def pack(body: bytes) -> bytes:
    """The content of a file."""
    head = FIRST_LINE + circumstances().encode() + b"\n"
    return head + _checksum(head, body) + body


def unpack(content: bytes, name: str) -> bytes:
    """The body of a file's content; ValueError says why it cannot be used. ``name`` is for the error."""
    if not content.startswith(_BEGINS):
        raise ValueError(f"[load] {name} is no program that weft saved")
    first, _, rest = content.partition(b"\n")
    if first + b"\n" != FIRST_LINE:
        raise ValueError(
            f"[load] {name} was saved in another format ({first.decode(errors='replace')!r}) than this version of weft "
            "reads: save it again"
        )
    second, newline, rest = rest.partition(b"\n")
    if not newline or len(rest) <= _CHECKSUM_BYTES:
        raise ValueError(f"[load] {name} is truncated: save it again")
    head, found, body = b"%s\n%s\n" % (first, second), rest[:_CHECKSUM_BYTES], rest[_CHECKSUM_BYTES:]
    _check_circumstances(second.decode(errors="replace"), name)
    if found != _checksum(head, body):
        raise ValueError(f"[load] {name} is damaged, or truncated: its checksum is wrong. Save it again")
    return body


def _check_circumstances(there: str, name: str) -> None:
    here = circumstances()
    if there == here:
        return
    now, then = _words(here), _words(there)
    differ = [f"{key} {then.get(key)} (here {value})" for key, value in now.items() if then.get(key) != value]
    raise ValueError(
        f"[load] {name} was saved for {', '.join(differ) or there}, and cannot be run here: save it with what is here"
    )


def _words(text: str) -> dict[str, str]:
    """``name=value name=value`` by name."""
    found: dict[str, str] = {}
    for word in text.split(" "):
        name, _, value = word.partition("=")
        found[name] = value
    return found


def _checksum(*parts: bytes) -> bytes:
    digest = lazy.hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


class _NoFunction:
    """Stands for the function of a saved program, which is called through its types."""

    function: Any = None

    def __init__(self, bound: executables.Compiled) -> None:
        self._bound = bound

    def compiled(self, *_: Any) -> executables.Compiled:
        return self._bound


def load(path: Any) -> ahead_of_time.Compiled:
    """The program that ``compiled.save(path)`` saved, ready to be called with arguments of the same types.

    Nothing is traced or compiled. ValueError, with the reason, for a file that is damaged or no saved program, or that
    another version of weft, Python or NumPy saved, or for another family of processors. A file holds machine code: load
    no file that somebody you do not trust could have written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     weft.jit(lambda x: x + 1).lower(np.float32(0)).compile().save(f"{folder}/add.weft")
    ...     print(weft.load(f"{folder}/add.weft")(2.0))
    3.0
    """
    with open(os.fspath(path), "rb") as file:
        content = file.read()
    return from_bytes(content, os.fspath(path))


def from_bytes(content: bytes, name: str, in_tree: Any = None, out_tree: Any = None) -> ahead_of_time.Compiled:
    """The program in a file's content; the structures of arguments and result may be given, if it has none."""
    body = unpack(content, name)
    try:
        avals, kernels, program, consts, facts = marshal.loads(body)
        reader = ProgramReader([_aval(*described) for described in avals], [runtime.load_kernel(*k) for k in kernels])
        made = executables.Runnable(_executable(reader, program), reader.consts(consts), len(content))
        return _compiled(made, reader.avals, facts, in_tree, out_tree)
    except (EOFError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"[load] {name} cannot be run: {error}") from error


def _aval(shape: tuple[int, ...], dtype: str, weak_type: bool) -> Any:
    found = key_dtype(dtype) if dtype.startswith("key<") else dtypes.as_dtype(dtype)
    if found is None:
        raise ValueError(f"{OTHER_KEYS} ({dtype})")
    return runtime.ShapedArray(shape, found, weak_type)


def key_dtype(name: str) -> Any:
    """The dtype of keys of one of weft's generators; None for a generator of the user's own."""
    impls = lazy.submodule("weft.random.prng").IMPLS.values()
    return next((impl.key_dtype for impl in impls if impl.key_dtype.name == name), None)


def _executable(reader: ProgramReader, program: Any) -> Any:
    """The executable: of instructions, or what a plugin made of its own bytes."""
    if program[0] != "plugin":
        return reader.program(*program)
    _, platform, device_id, version, content, name, in_avals, out_avals = program
    device = _device(platform, device_id)
    backend: Any = device.client
    here = backend.native.platform_version
    if here != version:
        raise ValueError(f"the plugin {platform} that compiled it was {version!r}, here it is {here!r}")
    options = lazy.device_programs.compile_options(device)
    native = backend.native.deserialize(content, options, device.number)
    inputs, outputs = [tuple([reader.avals[number] for number in numbers]) for numbers in (in_avals, out_avals)]
    return runtime.device_executable(native, inputs, outputs, name)


def _device(platform: str, device_id: int) -> Any:
    """The device it was compiled for; the platform's first, if there are fewer here."""
    found = devices.devices(platform)
    return next((device for device in found if device.id == device_id), found[0])


def _compiled(
    made: executables.Runnable, avals: Any, facts: Any, in_tree: Any, out_tree: Any
) -> ahead_of_time.Compiled:
    name, trees, in_avals, out_avals, kept, donated, kept_donated, paths, platform, device_id, committed = facts
    if in_tree is None:
        if trees is None:
            raise ValueError("its arguments or results are containers of your own: use deserialize_and_load")
        in_tree, out_tree = map(plain_values.read_tree, trees)
    place = _device(platform, device_id).number << 1 | committed
    consts = tuple([devices.backend_at(place).place(const) for const in made.consts])
    types = tuple([avals[number] for number in in_avals])
    results = tuple([avals[number] for number in out_avals])
    if in_tree.num_leaves != len(types) or out_tree.num_leaves != len(results):
        raise ValueError("the structures that were given have other numbers of leaves")
    trace = trace_cache.Trace(None, out_tree, results, name, made.nbytes)
    compiled = executables.bound(made, tuple(kept), consts, out_tree, results, tuple(kept_donated), place)
    state: Any = _NoFunction(compiled)
    arguments = ahead_of_time.Arguments(state, trace, in_tree, types, tuple(donated), lambda: list(paths), place)
    return ahead_of_time.Compiled(arguments, compiled)
