"""Long work of NumPy's, which does not look for signals, on a thread of its own: the caller waits and answers them.

After an interrupt the thread goes on to the end of the NumPy function that it is in; nobody waits for it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

_LONG = 1 << 21  # elements from which a function may take a tenth of a second


def patiently(size: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``, which works on ``size`` elements and, for most of the time, without the GIL."""
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
    try:
        thread.join()
    except BaseException:
        if thread.ident is not None:  # its next line of Python is its last
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
            )
        raise
    if errors:
        raise errors[0]
    return answers[0]
