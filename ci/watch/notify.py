"""Notify the user of a failed checkpoint: run a command with the facts in its environment, or post them as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass

from ci.watch.history import Measurement

TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """The command and the webhook that receive failures; both have a minute to accept one."""

    command: str | None = None
    """A shell command; the facts are in variables named LONGCTX_..."""
    webhook: str | None = None
    """An http or https address."""

    def notify(self, measurement: Measurement) -> str | None:
        """Deliver a failure; return None if all recipients accepted it, else one line with the problem."""
        return self._run(measurement) or self._post(measurement)

    def _run(self, measurement: Measurement) -> str | None:
        if self.command is None:
            return None
        facts = {
            "LONGCTX_STEP": str(measurement.step),
            "LONGCTX_CHECKPOINT": measurement.checkpoint,
            "LONGCTX_VERDICT": measurement.verdict,
            "LONGCTX_FAILED": "\n".join(measurement.failed),
            "LONGCTX_REPORT": measurement.report,
        }
        try:
            ended = subprocess.run(
                self.command, shell=True, env=os.environ | facts, stdin=subprocess.DEVNULL, check=False,
                timeout=TIMEOUT_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"--on-failure: {self.command!r} took more than {TIMEOUT_SECONDS} s"
        return f"--on-failure: {self.command!r} ended with code {ended.returncode}" if ended.returncode else None

    def _post(self, measurement: Measurement) -> str | None:
        if self.webhook is None:
            return None
        text = f"step {measurement.step}: {measurement.verdict}: {'; '.join(measurement.failed)}"
        data = json.dumps({"text": text} | measurement.as_json()).encode("ascii")
        request = urllib.request.Request(self.webhook, data, {"Content-Type": "application/json"}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
                return None
        except (OSError, ValueError) as error:
            # The address may hold a token, so the line does not repeat it.
            return f"--webhook: {type(error).__name__}: {getattr(error, 'reason', error)}"
