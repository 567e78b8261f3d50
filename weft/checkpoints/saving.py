"""Saves: what processes agree on, what each of them writes, and the rename that makes a checkpoint of it.

save(path, tree)      the form of the tree is compared among processes; the first makes a folder for the arrays
  each process        writes its shards, then the file ``done.<rank>``: a message through the file system, which a
                      save in the background can send while the program uses the network for its own
  the first process   waits for all of these, writes the manifest and renames it to its own name
  the others          wait for that manifest, or for the file ``failed``
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft import config
from weft._base.record import Record
from weft.checkpoints import folders, leaves, manifest, stores
from weft.checkpoints.folders import CheckpointError
from weft.distributed import transport

_POLL_SECONDS = 0.02


class Save:
    """A save that is under way or done, as ``save`` returns it."""

    __module__ = "weft.checkpoints"

    def __init__(self, path: Path, step: int | None) -> None:
        self.path = path
        self.step = step
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._told = False

    def wait(self, timeout: float | None = None) -> None:
        """Return when the checkpoint is whole and on disk; raises what went wrong, TimeoutError after ``timeout`` s."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise TimeoutError(f"[save] the save to {self.path} is not done after {timeout} s; it goes on")
        if self._error is not None:
            self._told = True
            raise self._error

    def done(self) -> bool:
        """Whether ``wait`` returns or raises at once."""
        return self._thread is None or not self._thread.is_alive()

    def __repr__(self) -> str:
        state = "failed" if self._error is not None else "done" if self.done() else "under way"
        step = "" if self.step is None else f", step={self.step}"
        return f"Save({str(self.path)!r}{step}, {state})"

    def _start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name=f"weft save to {self.path}")
        self._thread.start()


_latest: dict[Path, Save] = {}  # the last save to each folder in the background


def save(
    path: Any,
    tree: Any,
    *,
    step: int | None = None,
    keep: int | None = None,
    overwrite: bool = False,
    background: bool = False,
    timeout: float | None = None,
) -> Save:
    """Save a tree of arrays, numbers and texts to the folder ``path``; needs tensorstore (``weft[checkpoint]``).

    Without ``step`` the folder has one checkpoint, which a later save replaces. With ``step`` it has one for each
    number, and those with the highest ``keep`` numbers stay (None: all). A number that is there already is an error
    unless ``overwrite``. A save that ends early for any reason, also by a kill, leaves what was there before whole.

    ``background=True`` returns while the arrays are written: the values are those of now, whatever is done with the
    arrays afterwards (donation too). ``wait()`` of what is returned raises what went wrong; so does the next save to
    this folder, and what nobody has asked about is printed at the end of the program. In a job of several processes
    all of them call ``save`` with the same tree; each writes its own shards, and it is an error if one has not after
    ``timeout`` seconds (None: the option ``collective_timeout``; 0: never).

    TypeError names a leaf that cannot be saved. Arrays are kept as zarr v3, one chunk for each shard.

    >>> import tempfile; path = tempfile.mkdtemp()                              # doctest: +SKIP
    >>> weft.checkpoint.save(path, {"w": jnp.ones(3), "epoch": 7}, step=7)      # doctest: +SKIP
    >>> weft.checkpoint.restore(path)                                           # doctest: +SKIP
    {'epoch': 7, 'w': Array([1., 1., 1.], dtype=float32)}
    """
    folder = folders.checked_path(path, "save")
    _check_numbers(step, keep)
    stores.check_installed()
    earlier = _latest.pop(folder, None)
    if earlier is not None and not (earlier.done() and earlier._told):
        earlier.wait()
    link = transport.current()
    rank, size = (0, 1) if link is None else (link.rank, link.size)
    content, apart = _content(tree, step, size)
    if link is not None:
        _check_same(content, link)
    begun = contextlib.ExitStack()
    try:
        name = _agreed(lambda: _begin(folder, content, step, overwrite, begun), link)
        limit = config.read("collective_timeout") if timeout is None else timeout
        plan = _Checkpoint(folder, {**content, "arrays": name}, step, keep, rank, size, limit or math.inf)
        described = zip(apart.leaves, content["leaves"], strict=True)
        given = [leaves.sources(leaf, found, rank == 0, background) for leaf, found in described]
        made = Save(folder, step)
        work = _Work(plan, [source for each in given for source in each], begun.pop_all())
        if background:
            _latest[folder] = made
            made._start(work.run)
        else:
            work.run()
    finally:
        begun.close()
    return made


def _check_numbers(step: Any, keep: Any) -> None:
    for name, value, least in (("step", step, 0), ("keep", keep, 1)):
        if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value < least):
            raise ValueError(f"[save] {name} is an integer of at least {least}, or None, got {value!r}")
    if keep is not None and step is None:
        raise ValueError("[save] keep says how many steps stay; give step= as well")


def _content(tree: Any, step: int | None, size: int) -> tuple[dict[str, Any], manifest.Tree]:
    """What the manifest will say, and the tree taken apart."""
    apart = manifest.taken_apart(tree)
    found = []
    for number, (path, leaf) in enumerate(zip(apart.paths, apart.leaves, strict=True)):
        found.append({"path": manifest.at(path), **leaves.described(leaf, manifest.at(path), number)})
    number = None if step is None else int(step)
    return {"step": number, "processes": size, "tree": apart.form, "leaves": found}, apart


def _check_same(content: dict[str, Any], link: transport.Transport) -> None:
    """CheckpointError unless all processes save the same tree."""
    texts = [json.dumps(content["tree"]), *map(json.dumps, content["leaves"])]
    digests = [hashlib.sha256(text.encode()).digest()[:8] for text in texts]
    gathered = link.allgather(b"".join(digests))
    for rank, other in enumerate(gathered):
        if other == gathered[0]:
            continue
        at = next((i for i in range(0, len(other), 8) if other[i : i + 8] != gathered[0][i : i + 8]), len(other))
        index = at // 8
        where = f"leaf {content['leaves'][index - 1]['path']}" if 0 < index < len(texts) else "the form of the tree"
        mine = texts[index] if index < len(texts) else "nothing"
        raise CheckpointError(
            f"[save] processes save different trees: {where} differs between rank 0 and rank {rank}. This is rank "
            f"{link.rank}, which has {mine[:300]}"
        )


def _agreed(decide: Callable[[], str], link: transport.Transport | None) -> str:
    """Give every process what the first one decides, or its error."""
    if link is None:
        return decide()
    answer = {"value": "", "error": ""}
    if link.rank == 0:
        try:
            answer["value"] = decide()
        except Exception as error:
            link.bcast(json.dumps({**answer, "error": f"{type(error).__name__}: {error}"}).encode())
            raise
    answer = json.loads(link.bcast(json.dumps(answer).encode()))
    if answer["error"]:
        raise CheckpointError(f"[save] failed on rank 0: {answer['error']}")
    return answer["value"]


def _begin(
    folder: Path, content: dict[str, Any], step: int | None, overwrite: bool, begun: contextlib.ExitStack
) -> str:
    """Lock the folder and make one for the arrays, which are described but not written; its name."""
    folder.mkdir(parents=True, exist_ok=True)
    begun.enter_context(folders.locked(folder))
    there = folders.steps_in(folder)
    if step is None and there:
        raise ValueError(f"[save] {folder} has numbered steps, the last {there[-1]}: give step=, or another folder")
    if step is not None and (folder / folders.UNNUMBERED).exists():
        raise ValueError(f"[save] {folder} has a checkpoint without steps: leave step out, or give another folder")
    if step in there and not overwrite:
        raise FileExistsError(f"[save] {folder} has step {step} already; overwrite=True replaces it")
    name = folders.new_arrays_name()
    (folder / name).mkdir()
    described = [leaves.Store.of_json(leaf["store"]) for leaf in content["leaves"] if "store" in leaf]
    if described:
        stores.create(folder / name, described, stores.new_context())
    return name


class _Checkpoint(Record):
    """One save: where it goes, what it says, and which of how many processes this is."""

    folder: Path
    content: dict[str, Any]
    step: int | None
    keep: int | None
    rank: int
    size: int
    timeout: float

    @property
    def arrays(self) -> Path:
        return self.folder / self.content["arrays"]

    @property
    def manifest(self) -> Path:
        return self.folder / folders.manifest_name(self.step)

    def names_arrays(self) -> bool:
        """Whether the manifest is that of this save."""
        try:
            return self.content["arrays"] in self.manifest.read_text(encoding="utf-8")
        except FileNotFoundError:
            return False


class _Work:
    """What is left to do once the values are held: maybe on a thread of its own."""

    def __init__(self, plan: _Checkpoint, sources: list[leaves.Source], held: contextlib.ExitStack) -> None:
        self.plan, self.sources, self.held = plan, sources, held

    def run(self) -> None:
        with self.held:
            if self.plan.size == 1:
                self._alone()
            elif self.plan.rank == 0:
                self._first()
            else:
                self._other()

    def _write(self) -> None:
        if self.sources:
            stores.write(self.plan.arrays, self.sources, stores.new_context())
        self.sources = []  # the values may go

    def _alone(self) -> None:
        try:
            self._write()
            _commit(self.plan)
        except BaseException:
            if not self.plan.names_arrays():
                shutil.rmtree(self.plan.arrays, ignore_errors=True)
            raise

    def _first(self) -> None:
        plan = self.plan
        try:
            self._write()
            _wait_for_others(plan)
            _commit(plan)
        except BaseException as error:
            with contextlib.suppress(OSError):
                folders.write_whole(plan.arrays / "failed", f"{type(error).__name__}: {error}")
            raise

    def _other(self) -> None:
        plan, error = self.plan, None
        try:
            self._write()
        except Exception as raised:
            error = raised
        message = "" if error is None else f"{type(error).__name__}: {error}"
        folders.write_whole(plan.arrays / f"done.{plan.rank}", message)
        if error is not None:
            raise error
        _wait_for_first(plan)


def _wait_for_others(plan: _Checkpoint) -> None:
    lacking = set(range(1, plan.size))
    deadline = time.monotonic() + plan.timeout
    while lacking:
        for rank in sorted(lacking):
            file = plan.arrays / f"done.{rank}"
            if file.exists():
                message = file.read_text(encoding="utf-8")
                if message:
                    raise CheckpointError(f"[save] rank {rank} could not write its part: {message}")
                lacking.discard(rank)
        if lacking and time.monotonic() > deadline:
            raise CheckpointError(
                f"[save] ranks {sorted(lacking)} have not written their part of {plan.folder} after {plan.timeout} s. "
                "All processes have to call save, and to see the same folder"
            )
        if lacking:
            time.sleep(_POLL_SECONDS)


def _wait_for_first(plan: _Checkpoint) -> None:
    """Until the manifest names the arrays of this save."""
    deadline = time.monotonic() + plan.timeout
    failed = plan.arrays / "failed"
    while True:
        if failed.exists():
            raise CheckpointError(f"[save] failed on rank 0: {failed.read_text(encoding='utf-8')}")
        if plan.names_arrays():
            return
        if time.monotonic() > deadline:
            raise CheckpointError(f"[save] rank 0 has not finished the save to {plan.folder} after {plan.timeout} s")
        time.sleep(_POLL_SECONDS)


def _commit(plan: _Checkpoint) -> None:
    """The rename that makes the checkpoint: before it there is nothing to restore, after it all. Old ones go then."""
    folders.sync_folder(plan.arrays)
    folders.sync_folder(plan.folder)
    folders.write_whole(plan.manifest, manifest.written(plan.content))
    folders.remove_old_steps(plan.folder, plan.keep, plan.step)
    named = _named(plan.folder)
    if named is not None:
        folders.remove_unnamed(plan.folder, named)


def _named(folder: Path) -> set[str] | None:
    """The folders of arrays that manifests name; None if one cannot be read, and nothing may be removed."""
    found = set()
    for name in [folders.UNNUMBERED, *map(folders.manifest_name, folders.steps_in(folder))]:
        file = folder / name
        if not file.exists():
            continue
        try:
            found.add(manifest.read(file.read_text(encoding="utf-8"), file)["arrays"])
        except (CheckpointError, UnicodeDecodeError):
            return None
    return found


@atexit.register
def _report_at_exit() -> None:
    """Print errors of saves in the background that nobody waited for."""
    for made in list(_latest.values()):
        with contextlib.suppress(Exception):
            made._thread.join() if made._thread is not None else None
        if made._error is not None and not made._told:
            kind = type(made._error).__name__
            print(f"[save] the save to {made.path} in the background failed: {kind}: {made._error}", file=sys.stderr)
