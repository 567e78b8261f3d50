"""A page in headless Chromium, driven by the DevTools protocol over two pipes (no library, no port)."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_START = "import os, sys; a, b, *c = sys.argv[1:]; os.dup2(int(a), 3); os.dup2(int(b), 4); os.execv(c[0], c)"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def found() -> str | None:
    """The browser of this machine, or None."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Page:
    """One page. Everything waits for at most ``limit`` seconds."""

    def __init__(self, file: Path, folder: Path, width: int = 1280, height: int = 800, limit: float = 30) -> None:
        browser = found()
        assert browser is not None
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # above 3 and 4, which the browser reads and writes
        given = [fcntl.fcntl(number, fcntl.F_DUPFD, 20) for number in (to_browser, from_browser)]
        self._limit, self._number, self._rest = limit, 0, b""
        self.requests: list[str] = []
        self.errors: list[str] = []
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--disable-background-networking", "--disable-component-update", "--no-first-run",
                   f"--user-data-dir={folder}", f"--window-size={width},{height}", "--remote-debugging-pipe",
                   "about:blank"]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _START, *map(str, given), *command],
            pass_fds=given, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for number in (to_browser, from_browser, *given):
            os.close(number)
        self._session: str | None = None
        try:
            self._open(file, width, height)
        except BaseException:
            self.close()
            raise

    def _open(self, file: Path, width: int, height: int) -> None:
        target = self._send("Target.getTargets")["targetInfos"]
        (page,) = [t for t in target if t["type"] == "page"]
        self._session = self._send("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self._send(f"{domain}.enable")
        self._send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        begin = time.perf_counter()
        self._send("Page.navigate", url=file.resolve().as_uri())
        self.until("document.documentElement?.dataset.ready === 'yes'")
        self.seconds_to_load = time.perf_counter() - begin

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)
        os.close(self._write)
        os.close(self._read)

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _send(self, method: str, **params: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(event["params"]["exceptionDetails"])[:500])

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + self._limit
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(end - time.monotonic(), 0))
            data = os.read(self._read, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError(f"the browser does not answer (exit status {self._process.poll()})")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives."""
        answer = self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression holds."""
        end = time.monotonic() + self._limit
        while not self.value(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition} does not hold; errors: {self.errors}")
            time.sleep(0.02)

    def point(self, selector: str, click: bool = False) -> None:
        """Move the mouse over the middle of an element, and click."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{element}.scrollIntoView({{block: 'center'}})")
        x, y = self.value(
            f"(() => {{ const b = {element}.getBoundingClientRect();"
            " return [b.left + Math.min(b.width / 2, 60), b.top + b.height / 2]; })()"
        )
        for kind in ("mouseMoved", *(("mousePressed", "mouseReleased") if click else ())):
            self._send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, text: str | None = None) -> None:
        """Press a key; ``text``: what it types."""
        typed = {"text": text if text is not None else key} if len(key) == 1 or text is not None else {}
        self._send("Input.dispatchKeyEvent", type="keyDown", key=key, **typed)
        self._send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, file: Path) -> None:
        """A picture of what is seen, as PNG."""
        file.write_bytes(base64.b64decode(self._send("Page.captureScreenshot", format="png")["data"]))
