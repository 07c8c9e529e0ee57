"""A real Chromium without a window, driven through the pipe that it offers for that (DevTools protocol)."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING: Final = "there is no chromium here (Debian's package is called so)"
_PATIENCE_S: Final = 60
_OPTIONS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--force-color-profile=srgb", "--remote-debugging-pipe", "--lang=en-GB",
)  # fmt: skip
_LAUNCH: Final = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""It reads commands from descriptor 3 and answers on 4."""
_KEYS: Final = {
    "Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36,
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip


class Browser:
    """The running browser; `tab` opens a page in it."""

    def __init__(self, profile: Path) -> None:
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        assert PROGRAM is not None
        line = [
            sys.executable,
            "-c",
            _LAUNCH,
            str(commands),
            str(answers),
            PROGRAM,
            *_OPTIONS,
            f"--user-data-dir={profile}",
        ]
        self._process = subprocess.Popen(
            line, pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(profile)},
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._read = b""
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        """End it."""
        os.close(self._to)
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                result = found["result"]
                assert isinstance(result, dict)
                return result
            self.events.append(found)

    def wait_for(self, event: str, session: str) -> dict[str, Any]:
        """Wait for an event of a tab."""
        while True:
            for place, found in enumerate(self.events):
                if found.get("method") == event and found.get("sessionId") == session:
                    return self.events.pop(place)
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._from], [], [], _PATIENCE_S)
            assert ready, "the browser says nothing"
            part = os.read(self._from, 1 << 20)
            assert part, "the browser has gone"
            self._read += part
        message, _, self._read = self._read.partition(b"\0")
        found = json.loads(message)
        assert isinstance(found, dict)
        return found

    @contextmanager
    def tab(self, *, width: int = 1200, height: int = 900, phone: bool = False, scripts: bool = True) -> Iterator[Tab]:
        """A new page, with separate cookies."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            tab.ask(f"{domain}.enable")
        tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        tab.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        try:
            yield tab
        finally:
            self.ask("Target.disposeBrowserContext", browserContextId=context)


class Tab:
    """A page of the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command to this page."""
        return self._browser.ask(method, self._session, **parameters)

    def open(self, url: str) -> None:
        """Go to an address and wait until it is there."""
        self._forget_loads()
        reported = self.ask("Page.navigate", url=url)
        assert "errorText" not in reported, reported
        self._browser.wait_for("Page.loadEventFired", self._session)

    def value(self, expression: str) -> Any:
        """What an expression gives in the page. Works also where the page may not run scripts."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """What an element says."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def is_seen(self, selector: str) -> bool:
        """Whether an element is shown."""
        one = f"document.querySelector({json.dumps(selector)})"
        return bool(self.value(f"{one}.getClientRects().length && {one}.checkVisibility()"))

    def key(self, key: str, *, text: str = "") -> None:
        """Press a key."""
        known = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS.get(key, 0)}
        self.ask("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **known)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **known)

    def type(self, text: str) -> None:
        """Write text where the cursor is."""
        self.ask("Input.insertText", text=text)

    def enter(self, *, loads: bool = True) -> None:
        """Press Enter; wait for the page that comes where it `loads` one, as a form does."""
        self._forget_loads()
        self.key("Enter", text="\r")
        if loads:
            self._browser.wait_for("Page.loadEventFired", self._session)

    def click(self, selector: str, *, loads: bool = False) -> None:
        """Click on the middle of an element; wait for the page that comes where it `loads` one."""
        self._forget_loads()
        found = self.value(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            f"one.scrollIntoView({{block: 'center'}});"
            "const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        place = {"x": found[0], "y": found[1], "button": "left", "clickCount": 1}
        self.ask("Input.dispatchMouseEvent", type="mousePressed", **place)
        self.ask("Input.dispatchMouseEvent", type="mouseReleased", **place)
        if loads:
            self._browser.wait_for("Page.loadEventFired", self._session)

    def point(self, selector: str, share: float) -> None:
        """Move the pointer over an element, so far from its left."""
        box = self.value(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")
        x, y = box["x"] + box["width"] * share, box["y"] + box["height"] / 2
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, file: Path | None = None, *, whole: bool = True) -> bytes:
        """The page as a PNG."""
        taken = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole=whole))
        image = base64.b64decode(taken["data"])
        if file is not None:
            file.write_bytes(image)
        return image

    def _clip(self, *, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def roles(self) -> list[tuple[str, str]]:
        """What a screen reader gets: roles and names, in order."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [
            (str(node["role"]["value"]), str(node.get("name", {}).get("value", "")))
            for node in nodes
            if not node.get("ignored")
        ]

    def complaints(self) -> list[str]:
        """What the browser had to complain about since the last time: errors, and what the security policy forbade."""
        self.value("0")
        mine = [event for event in self._browser.events if event.get("sessionId") == self._session]
        found = [
            str(event["params"]["entry"]["text"])
            for event in mine
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in {"error", "warning"}
        ]
        found += [str(event["params"]) for event in mine if event["method"] == "Runtime.exceptionThrown"]
        return found

    def requests(self) -> list[str]:
        """The addresses that were requested."""
        return [
            str(event["params"]["request"]["url"])
            for event in self._browser.events
            if event.get("sessionId") == self._session and event["method"] == "Network.requestWillBeSent"
        ]

    def _forget_loads(self) -> None:
        self._browser.events = [
            event
            for event in self._browser.events
            if not (event.get("sessionId") == self._session and event.get("method") == "Page.loadEventFired")
        ]
