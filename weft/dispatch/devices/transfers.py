"""The option ``transfer_guard``: what happens where a value of the host becomes an array.

A value of the host is what is no Array: a NumPy array, a number, a list. ``device_put`` makes an array of it
explicitly; ``weft.numpy.array`` and calls of jitted functions and operators do so implicitly. "log" and "log_explicit"
write a line to the logger ``weft``, "disallow" forbids what is implicit, "disallow_explicit" all. Arrays are read in
place: transfers to the host and between devices do not exist here, and their guards never find one.
"""

from __future__ import annotations

from typing import Any

from weft import config, core, errors, runtime
from weft._base import lazy

_LOGS = {False: ("log", "log_explicit"), True: ("log_explicit",)}
_FORBIDS = {False: ("disallow", "disallow_explicit"), True: ("disallow_explicit",)}


def level() -> str | None:
    """The level of the guard of this thread; None where it lets everything pass."""
    own = config.read("transfer_guard_host_to_device")
    found = config.read("transfer_guard") if own is None else own
    return None if found == "allow" else found


def check(guard: str | None, value: Any, explicit: bool = False) -> None:
    """Log or forbid that ``value`` becomes an array; JaxRuntimeError says which."""
    if guard is None or isinstance(value, runtime.Array | core.Tracer):
        return
    text = "a list" if isinstance(value, list | tuple) else core.get_aval(value).str_short()
    if guard in _LOGS[explicit]:
        lazy.logging.getLogger("weft").warning("host-to-device transfer: aval=%s", text)
    elif guard in _FORBIDS[explicit]:
        cure = "" if explicit else " Put it on the device first, with weft.device_put."
        raise errors.JaxRuntimeError(
            f"INVALID_ARGUMENT: Disallowed host-to-device transfer: aval={text}, transfer_guard={guard!r}.{cure}"
        )
