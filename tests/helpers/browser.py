"""A headless browser that tests control through chromedriver by the WebDriver protocol."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


class Browser:
    """One tab of a browser."""

    def __init__(self, address: str) -> None:
        """Start a browser through the driver that listens at the address."""
        options = {
            "binary": CHROMIUM,
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            "perfLoggingPrefs": {"enableNetwork": True},
        }
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.address = address
        self.session = ""
        self.session = self._send("/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]

    def show(self, page: Path, *, width: int = 1280, scheme: str = "light") -> None:
        """Open a file in a window of this width with a light or dark colour scheme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", size)
        self.command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        # Reloading an open address may return while the old page is still there, so go through an empty page.
        for address in ("about:blank", page.resolve().as_uri()):
            self._send("/url", {"url": address})
            self._wait_for(address)

    def run(self, script: str) -> Any:
        """Run a script as the body of a function in the page and return its result."""
        return self._send("/execute/sync", {"script": script, "args": []})

    def type(self, keys: str) -> None:
        """Press keys where the focus is; keys without a character have WebDriver's code points."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._send("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def command(self, name: str, parameters: dict[str, Any]) -> Any:
        """Send a command of the DevTools protocol and return its result."""
        return self._send("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def console(self) -> list[str]:
        """Return the console's messages since the last call."""
        return [entry["message"] for entry in self._send("/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Return the addresses that were requested since the last call."""
        logged = [json.loads(entry["message"])["message"] for entry in self._send("/se/log", {"type": "performance"})]
        sent = [event["params"]["request"]["url"] for event in logged if event["method"] == "Network.requestWillBeSent"]
        return [address for address in sent if not address.startswith("data:")]

    def quit(self) -> None:
        """End the browser."""
        self._send("", method="DELETE")

    def _wait_for(self, address: str) -> None:
        """Wait until the page of the address is loaded; this works with scripts disabled, too."""
        state = {"expression": "document.readyState + ' ' + document.URL", "returnByValue": True}
        for _ in range(3000):
            if self.command("Runtime.evaluate", state)["result"]["value"] == f"complete {address}":
                return
            time.sleep(0.02)
        raise RuntimeError(f"{address}: not loaded after a minute")

    def _send(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        """Send a WebDriver command; raises RuntimeError with the driver's message."""
        prefix = f"/session/{self.session}" if self.session else ""
        request = urllib.request.Request(
            f"{self.address}{prefix}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method or ("GET" if body is None else "POST"),
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read())["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.loads(error.read())["value"]["message"]) from error


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a driver and a browser, and end both on leaving; the driver logs into the folder."""
    log = folder / "chromedriver.log"
    with log.open("wb") as file:
        driver = subprocess.Popen([str(DRIVER), "--port=0"], stdout=file, stderr=subprocess.STDOUT)
    try:
        opened = Browser(f"http://127.0.0.1:{_port(log)}")
        try:
            yield opened
        finally:
            opened.quit()
    finally:
        driver.terminate()
        driver.wait(timeout=30)


def _port(log: Path) -> int:
    """Wait until the driver has logged the port that it chose, and return it."""
    for _ in range(300):
        text = log.read_text(errors="replace")
        if "successfully on port " in text:
            return int(text.partition("successfully on port ")[2].split(".")[0].split()[0])
        time.sleep(0.1)
    raise RuntimeError(f"chromedriver: {log.read_text(errors='replace')[:500]}")
