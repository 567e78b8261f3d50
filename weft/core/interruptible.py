"""Long NumPy calls, which ignore signals, run on another thread, while the caller waits and handles signals.

After an interrupt the caller no longer waits: the thread finishes, and its result is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_LONG = 1 << 21  # elements from which a function may take 0.1 s


def interruptible(size: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``, which works on ``size`` elements and releases the GIL most of the time.

    An interrupt is raised at once. The function must only read its arguments, since it may still run after that.
    """
    if size < _LONG or threading.current_thread() is not threading.main_thread():
        return function(*args, **kwargs)
    answers: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(function(*args, **kwargs))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]
