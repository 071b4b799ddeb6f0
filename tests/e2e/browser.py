"""A headless Chromium, driven over a pipe by the DevTools protocol: no port, no driver, no library.

Enough of a browser for tests of a page: open it at a width, listen to its console and its
requests, ask it things in JavaScript, take pictures and print it.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium():
    """Path of an installed Chromium or Chrome, or None."""
    given = os.environ.get("NOISEWISE_CHROMIUM")
    return given or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One browser process with one page; use it in a `with` block."""

    def __init__(self, path, patience=60):
        self._patience = patience
        self._folder = tempfile.mkdtemp(prefix="noisewise-browser-")
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        # The browser reads commands from file 3 and writes answers to file 4. bash puts them there,
        # because Python would have to do so between fork and exec.
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$@" 3<&{to_read} 4>&{to_write}',
                "browser",
                path,
                "--headless",
                "--no-sandbox",  # containers run as root, and the pages are our own
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--no-first-run",
                f"--user-data-dir={self._folder}",
                "--remote-debugging-pipe",
            ],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        answer = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = answer["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- the protocol: JSON texts, each ended by a zero byte -------------------------------------

    def call(self, method, **params):
        """Send a command and wait for its answer; events on the way are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self._patience
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _receive(self, deadline):
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._in], [], [], max(left, 0))
            if not ready:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._in, 1 << 16)
            if not chunk:
                raise RuntimeError("the browser has gone away")
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    # --- what tests ask ---------------------------------------------------------------------------

    def open(self, url, width=1280, height=900, mobile=False):
        """Load a page at this size; wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )
        self.events.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + self._patience
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._receive(deadline))

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self):
        """Everything the console, the log or an exception said since `open`."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self.events if event.get("method") in kinds]

    def requests(self):
        """Addresses asked for since `open`."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def screenshot(self, path):
        """The whole page as a PNG file."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self, path):
        """What a printer would get, on A4."""
        answer = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)
        path.write_bytes(base64.b64decode(answer["data"]))
