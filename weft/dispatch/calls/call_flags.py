"""The options that matter for every call of a jitted function, read once for each configuration."""

from __future__ import annotations

from weft import config
from weft._base.record import NamedTuple
from weft.dispatch.devices import transfers
from weft.effects import key_reuse, number_checks


class Flags(NamedTuple):
    """The options that matter for calls."""

    disabled: bool  # jit is
    replays: bool
    checked: bool  # results are checked for NaN or infinity
    guard: str | None  # what happens to host values among the arguments: ``transfers.level``
    idle: bool  # nothing may be executed
    tracked: bool  # no random key may be used twice
    logged: bool  # every compilation is told
    guarded: bool = False  # programs have guards

    @property
    def plain(self) -> bool:
        """Whether a call with arguments of a new size may be answered without looking at it closely."""
        return (
            not (self.disabled or self.checked or self.idle or self.tracked or self.logged or self.guarded)
            and self.guard is None
        )


_known: dict[int, Flags] = {}


def flags(token: int) -> Flags:
    """The options under a configuration, by its token."""
    found = _known.get(token)
    if found is None:
        disabled = config.read("disable_jit")
        replays = not disabled and config.read("numpy_rank_promotion") != "warn"  # a warning is due at every call
        found = _known[token] = Flags(
            disabled,
            replays,
            number_checks.enabled(),
            transfers.level(),
            config.read("no_execution"),
            key_reuse.enabled(),
            config.read("log_compiles"),
            bool(config.read("checks")),
        )
    return found
