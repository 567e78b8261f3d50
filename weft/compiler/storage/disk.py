"""The cache on disk, shared by all processes of a user: one file for the machine code of a nest, or for a program.

A file appears whole or not at all (it is written under another name, then renamed) and starts with a header: magic,
compiler version, key, symbol, length, checksum. A file without a valid header is a miss, is removed, and is never run.
If the folder cannot be used (read-only, full, missing, not a folder), the process works without it; if other users may
write to it, a warning says so. To stay within the bound, the least recently used files are removed.

    <folder>/<key in hexadecimal>.kernel     .<key>.<process>.<time>-<serial>.tmp while being written
    <folder>/<key in hexadecimal>.program    a program (``stored``) or a family, with the keys of its kernels
    <folder>/.weft-written                   a byte for each KiB stored since the files were last counted
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import re
import stat
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

from weft import config
from weft._base import lazy, private_files
from weft._base.record import NamedTuple
from weft._base.target import Target
from weft.compiler.storage.version import compiler_version

MAGIC = b"weftkrn1"
# magic, compiler version, key, length of the symbol, length of the object, checksum of all but itself
HEADER = struct.Struct("<8s16s32sHQ32s")
_COUNTED = HEADER.size - 32  # bytes of the header that the checksum covers
ANY_COMPILER = (
    b"of any compiler."  # 16 bytes instead of its version, for entries whose keys say what they were made from
)
KERNEL, PROGRAM, TEMPORARY, LEDGER = ".kernel", ".program", ".tmp", ".weft-written"
_SUFFIXES = (KERNEL, PROGRAM)
ABANDONED_S = 600  # a temporary file of this age belongs to a process that was killed
TOUCH_S = 60  # the time of use is recorded to the minute
MAX_ENTRY_BYTES = 1 << 30
_OURS = re.compile(r"[0-9a-f]{64}\.(kernel|program)|\.[0-9a-f]{64}\.\d+\.\d+-\d+\.tmp")
_serial = itertools.count()


class DamagedError(Exception):
    """A file is not the entry for its name."""


class Object(NamedTuple):
    """What an entry holds: machine code, or a program as data."""

    symbol: str
    bytes: bytes


class Summary(NamedTuple):
    """What a folder holds."""

    kernels: int
    programs: int
    nbytes: int
    stale: int  # entries of other versions of the compiler


class Verified(NamedTuple):
    """The number of valid entries, and the names of invalid ones, which were removed."""

    whole: int
    removed: list[str]


def pack(version: bytes, key: bytes, symbol: str, data: bytes) -> bytes:
    """The content of an entry's file."""
    name = symbol.encode()
    head = HEADER.pack(MAGIC, version, key, len(name), len(data), bytes(32))[:_COUNTED]
    return b"".join((head, _checksum(head, name, data), name, data))


def unpack(content: bytes, key: bytes, version: bytes | None = None) -> Object:
    """The content of an entry's file; DamagedError says why it is invalid."""
    if len(content) < HEADER.size:
        raise DamagedError("truncated")
    magic, found_version, found_key, n_symbol, n_object, checksum = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise DamagedError("foreign")
    if len(content) != HEADER.size + n_symbol + n_object:
        raise DamagedError("of another length")
    name, data = content[HEADER.size : HEADER.size + n_symbol], content[HEADER.size + n_symbol :]
    if _checksum(content[:_COUNTED], name, data) != checksum:
        raise DamagedError("damaged")
    if found_key != key or (version is not None and found_version != version):
        raise DamagedError("of another key")
    return Object(name.decode(), data)


def _checksum(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for part in parts:
        digest.update(part)
    return digest.digest()


class DiskCache:
    """One folder of entries."""

    def __init__(self, folder: str, bound: int, version: bytes, parent: str | None = None) -> None:
        self.folder = folder
        self.bound = bound
        self.version = version
        self.parent = parent  # must exist before the folder is created
        self.writable = True

    def path(self, key: bytes, suffix: str = KERNEL) -> str:
        return os.path.join(self.folder, key.hex() + suffix)

    # one entry

    def load(self, key: bytes, suffix: str = KERNEL) -> Object | None:
        """The entry of a key, if it exists and is valid."""
        path = self.path(key, suffix)
        try:
            content = _read(path)
            return unpack(content, key, self.version)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            self.remove(key, f"it is {error}", suffix)
        except (OSError, ValueError) as error:
            lazy.debug("kernel cache: %s cannot be read: %s", path, error)
            with contextlib.suppress(OSError, ValueError):
                if stat.S_ISLNK(os.lstat(path).st_mode):
                    os.unlink(path)
        return None

    def remove(self, key: bytes, why: str, suffix: str = KERNEL) -> None:
        """Remove an entry, if the folder allows it."""
        path = self.path(key, suffix)
        lazy.debug("kernel cache: %s is not used: %s", path, why)
        with contextlib.suppress(OSError):
            os.unlink(path)

    def store(self, key: bytes, symbol: str, data: bytes, suffix: str = KERNEL) -> bool:
        """Store an entry; False if that fails, which ends storing in this process."""
        if not self.writable:
            return False
        content = pack(self.version, key, symbol, data)
        try:
            self._check()
            self._write(key, content, suffix)
            self._count(len(content))
        except (OSError, ValueError) as error:
            self.writable = False
            lazy.debug("kernel cache: nothing more is kept in %s: %s", self.folder, error)
            return False
        return True

    def _check(self) -> None:
        why = private_files.danger(self.folder)
        if why is not None:
            raise PermissionError(why)

    def _write(self, key: bytes, content: bytes, suffix: str) -> None:
        name = f".{key.hex()}.{os.getpid()}.{time.time_ns()}-{next(_serial)}{TEMPORARY}"
        temporary = os.path.join(self.folder, name)
        try:
            handle = _create(temporary)
        except FileNotFoundError:
            if self.parent is not None and not os.path.isdir(self.parent):
                raise
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            self._check()
            handle = _create(temporary)
        try:
            with open(handle, "wb", buffering=0) as file:
                left = memoryview(content)
                while left:
                    left = left[file.write(left) :]
            os.replace(temporary, self.path(key, suffix))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    # all entries

    def _count(self, nbytes: int) -> None:
        """Record what was stored; at every sixteenth of the bound, count the files and enforce the bound."""
        ledger, units = os.path.join(self.folder, LEDGER), (nbytes + 1023) >> 10
        handle = private_files.open_own_anew(ledger, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, bytes(units))
            noted = os.fstat(handle).st_size
        finally:
            os.close(handle)
        if noted <= units or noted << 10 > self.bound >> 4:  # a new ledger does not include older files
            self.evict()

    def evict(self) -> None:
        """Remove the least recently used files, until a sixteenth of the bound is free."""
        with contextlib.suppress(OSError):
            handle = private_files.open_own_anew(os.path.join(self.folder, LEDGER), os.O_WRONLY)
            try:
                os.write(handle, b"\0")
                os.ftruncate(handle, 1)
            finally:
                os.close(handle)
        now, files = time.time(), []
        for name, status in self._files():
            if name.endswith(TEMPORARY):
                if now - status.st_mtime > ABANDONED_S:
                    self._unlink(name)
                continue
            files.append((status.st_mtime_ns, name, status.st_size))
        total = sum(size for _, _, size in files)
        files.sort()
        for _, name, size in files:
            if total <= self.bound - (self.bound >> 4):
                break
            self._unlink(name)
            total -= size

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Our files in the folder; those that vanish meanwhile are skipped."""
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if _is_ours(entry.name):
                    with contextlib.suppress(OSError):
                        yield entry.name, entry.stat(follow_symlinks=False)

    def _unlink(self, name: str) -> bool:
        try:
            os.unlink(os.path.join(self.folder, name))
        except OSError:  # the folder is read-only, or the name is a folder's
            return False
        return True

    def summary(self) -> Summary:
        """How many entries and bytes there are."""
        counts, nbytes, stale = dict.fromkeys(_SUFFIXES, 0), 0, 0
        for name, status in self._files():
            nbytes += status.st_size
            suffix = os.path.splitext(name)[1]
            if suffix in counts:
                counts[suffix] += 1
                with contextlib.suppress(OSError, DamagedError):
                    begin = _read(os.path.join(self.folder, name), 24)
                    stale += begin not in (MAGIC + self.version, MAGIC + ANY_COMPILER)
        return Summary(counts[KERNEL], counts[PROGRAM], nbytes, stale)

    def clear(self) -> int:
        """Remove every file of ours; returns the number of removed entries."""
        count = 0
        for name, _ in list(self._files()):
            count += self._unlink(name) and name.endswith(_SUFFIXES)
        self._unlink(LEDGER)
        return count

    def verify(self) -> Verified:
        """Read every entry; those that are damaged are removed."""
        whole, removed = 0, []
        for name in sorted(name for name, _ in self._files() if name.endswith(_SUFFIXES)):
            try:
                unpack(_read(os.path.join(self.folder, name)), bytes.fromhex(os.path.splitext(name)[0]))
                whole += 1
            except FileNotFoundError:
                continue  # evicted meanwhile
            except (DamagedError, OSError) as error:
                removed.append(f"{name}: {error}" + ("" if self._unlink(name) else "; it cannot be removed"))
        return Verified(whole, removed)


class Request(NamedTuple):
    """A program as it is looked for and stored on disk."""

    store: DiskCache
    key: bytes
    target: Target
    family: Request | None = None  # where those are that are like it


def _is_ours(name: str) -> bool:
    return _OURS.fullmatch(name) is not None


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _read(path: str, count: int = -1) -> bytes:
    """A file's content, or its first ``count`` bytes. A file that other users may write to is refused.

    Reading all of it records its use.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with open(handle, "rb", buffering=0) as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_ENTRY_BYTES:
            raise DamagedError("foreign")
        if hasattr(os, "geteuid") and (status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022):
            raise DamagedError("open to other users")
        content = file.read(count)
        if count < 0 and time.time() - status.st_mtime > TOUCH_S:
            with contextlib.suppress(OSError):
                os.utime(handle)
    return content or b""


# which cache


def default_folder() -> tuple[str, str] | None:
    """The platform's cache folder for weft, and the folder that must exist before it is created."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        parent = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
        return os.path.join(parent, "weft", "Cache"), parent
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Caches", "weft"), home
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return os.path.join(given, "weft"), os.path.dirname(given)
    return (os.path.join(home, ".cache", "weft"), home) if os.path.isabs(home) else None


@functools.lru_cache(maxsize=8)
def _opened(folder: str, bound: int, version: bytes | None) -> DiskCache | None:
    version = version or compiler_version()
    found: Any = (os.path.abspath(folder), None) if folder else default_folder()
    if found is None or version is None:
        lazy.debug(
            "weft.compiler",
            "kernel cache: off, %s",
            "no folder for it" if found is None else "the compiler's sources changed",
        )
        return None
    return DiskCache(found[0], bound, version, found[1])


def current(version: bytes | None = None) -> DiskCache | None:
    """The cache selected by the options of this thread; None if it is off, or its folder is open to other users.

    Its entries are those of this compiler, or of another ``version``.
    """
    if not config.read("cache") or not config.read("enable_compilation_cache"):
        return None
    bound = config.read("compilation_cache_max_size")
    bound = config.read("cache_disk_bytes") if bound < 0 else bound
    if bound <= 0:
        return None
    found = _opened(config.read("cache_dir") or os.fspath(config.read("compilation_cache_dir") or ""), bound, version)
    why = None if found is None else private_files.danger(found.folder)
    if found is not None and why is not None:
        private_files.warn_of(found.folder, why, "compiled programs", "the option cache_dir, WEFT_CACHE_DIR")
        return None
    return found
