"""A headless Chromium driven through its DevTools protocol: as much of it as these tests need.

``websocket-client`` comes with jupyter_server, so a browser test adds no dependency but the
browser, which is Debian's package ``chromium``. The browser resolves no host but 127.0.0.1: a page
that needs the network fails here.
"""

import base64
import itertools
import json
import shutil
import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import websocket

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    "--window-size=1400,1600",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
# Of the notebook that JupyterLab shows, in JavaScript.
KERNEL = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status"


def executable() -> str | None:
    """The browser on this machine, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One tab. ``problems`` collects console errors and uncaught exceptions, ``outside`` requests to other hosts."""

    def __init__(self, profile: Path) -> None:
        self.browser = subprocess.Popen(
            [executable(), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port_file = profile / "DevToolsActivePort"
        wait_for(lambda: port_file.exists() and port_file.read_text().count("\n") >= 1, 30, "the browser to start")
        port = port_file.read_text().splitlines()[0]
        tabs = json.load(urlopen(f"http://127.0.0.1:{port}/json"))
        address = next(t["webSocketDebuggerUrl"] for t in tabs if t["type"] == "page")
        self.socket = websocket.create_connection(address, timeout=120, max_size=None)
        self.numbers = itertools.count(1)
        self.problems: list[str] = []
        self.outside: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        # Without a focused tab JupyterLab never makes a widget the current one.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **parameters):
        """Send one command and return its result; events that arrive meanwhile are noted."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _note(self, message: dict) -> None:
        details = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(details["exceptionDetails"].get("exception", {}).get("description")))
        elif message.get("method") == "Runtime.consoleAPICalled" and details["type"] == "error":
            self.problems.append(" ".join(str(a.get("value") or a.get("description")) for a in details["args"]))
        elif message.get("method") == "Network.requestWillBeSent":
            address = details["request"]["url"]
            if not address.startswith(("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:", "about:", "file:")):
                self.outside.append(address)

    def run(self, script: str):
        """The value of a JavaScript expression; a promise is awaited."""
        out = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in out:
            raise RuntimeError(out["exceptionDetails"].get("exception", {}).get("description") or script)
        return out["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release a key where the focus is."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, file: Path) -> None:
        """What the tab shows now, as a PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        self.socket.close()
        self.browser.terminate()
        self.browser.wait(timeout=20)


def wait_for(condition, seconds: float, what: str):
    """Ask until the answer is true; AssertionError, naming ``what``, when it does not come in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds:g} s for {what}")
