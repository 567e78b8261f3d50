"""Long work of NumPy's, which does not look for signals, on a thread of its own: the caller waits and answers them.

After an interrupt nobody waits for the thread any longer: it goes on to its end, and its result is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_LONG = 1 << 21  # elements from which a function may take a tenth of a second


def interruptible(size: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``, which works on ``size`` elements and, for most of the time, without the GIL.

    An interrupt is raised at once. The function only reads, so that it does no harm when it ends later.
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
