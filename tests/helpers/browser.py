"""A real browser without a window: chromedriver, spoken to as WebDriver says, with what it logs."""

from __future__ import annotations

import base64
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
    """One tab."""

    def __init__(self, address: str) -> None:
        options = {
            "binary": CHROMIUM,
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            "perfLoggingPrefs": {"enableNetwork": True},
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.address = address
        self.session = ""
        self.session = self._ask("/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def show(self, page: Path, *, width: int = 1280, scheme: str = "light") -> None:
        """Opens the file in a window of this width."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", size)
        self.command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        # The driver may come back from the address that is open already while the old page still stands there.
        for address in ("about:blank", page.resolve().as_uri()):
            self._ask("/url", {"url": address})
            self._wait_for(address)

    def run(self, script: str) -> Any:
        """What the body of a function returns in the page."""
        return self._ask("/execute/sync", {"script": script, "args": []})

    def type(self, keys: str) -> None:
        """Presses keys where the focus is; WebDriver's codes name those without a sign."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def command(self, name: str, parameters: dict[str, Any]) -> Any:
        """A command of the DevTools protocol."""
        return self._ask("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def console(self) -> list[str]:
        """What the console was told since the last time."""
        return [entry["message"] for entry in self._ask("/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last time."""
        logged = [json.loads(entry["message"])["message"] for entry in self._ask("/se/log", {"type": "performance"})]
        asked = [each["params"]["request"]["url"] for each in logged if each["method"] == "Network.requestWillBeSent"]
        return [address for address in asked if not address.startswith("data:")]

    def picture(self, target: Path) -> None:
        """The window as PNG."""
        target.write_bytes(base64.b64decode(self._ask("/screenshot")))

    def quit(self) -> None:
        self._ask("", method="DELETE")

    def _wait_for(self, address: str) -> None:
        """Until the page of this address is there whole; by the protocol, which works without scripts too."""
        asked = {"expression": "document.readyState + ' ' + document.URL", "returnByValue": True}
        for _ in range(3000):
            if self.command("Runtime.evaluate", asked)["result"]["value"] == f"complete {address}":
                return
            time.sleep(0.02)
        raise RuntimeError(f"{address}: not loaded after a minute")

    def _ask(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        prefix = f"/session/{self.session}" if self.session else ""
        request = urllib.request.Request(
            f"{self.address}{prefix}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method or ("GET" if body is None else "POST"),
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.loads(error.read())["value"]["message"]) from error


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser and its driver, both ended at the end."""
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
    """The one that the driver chose, once it says so."""
    for _ in range(300):
        told = log.read_text(errors="replace")
        if "successfully on port " in told:
            return int(told.partition("successfully on port ")[2].split(".")[0].split()[0])
        time.sleep(0.1)
    raise RuntimeError(f"chromedriver: {log.read_text(errors='replace')[:500]}")
