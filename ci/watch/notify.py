"""Telling of a failure: a command with the facts in its environment, or a webhook with them as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass

from ci.watch.history import Measured

TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """Who hears of a checkpoint that failed. The command is run by a shell; neither may take a minute."""

    command: str | None = None
    webhook: str | None = None

    def tell(self, measured: Measured) -> str | None:
        """None when all have heard, else in one line why not; then it is tried again."""
        return self._run(measured) or self._post(measured)

    def _run(self, measured: Measured) -> str | None:
        if self.command is None:
            return None
        facts = {
            "LONGCTX_STEP": str(measured.step),
            "LONGCTX_CHECKPOINT": measured.checkpoint,
            "LONGCTX_VERDICT": measured.word,
            "LONGCTX_FAILED": "\n".join(measured.failed),
            "LONGCTX_REPORT": measured.report,
        }
        try:
            ended = subprocess.run(
                self.command, shell=True, env=os.environ | facts, stdin=subprocess.DEVNULL, check=False,
                timeout=TIMEOUT_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"--on-failure: {self.command!r} took more than {TIMEOUT_SECONDS} s"
        return f"--on-failure: {self.command!r} ended with code {ended.returncode}" if ended.returncode else None

    def _post(self, measured: Measured) -> str | None:
        if self.webhook is None:
            return None
        text = f"step {measured.step}: {measured.word}: {'; '.join(measured.failed)}"
        data = json.dumps({"text": text} | asdict(measured)).encode("ascii")
        request = urllib.request.Request(self.webhook, data, {"Content-Type": "application/json"}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
                return None
        except (OSError, ValueError) as error:
            # The address may hold a token, so it is not said.
            return f"--webhook: {type(error).__name__}: {getattr(error, 'reason', error)}"
