"""The servers of a model and its baseline in turn, for a machine that holds one of them.

The controller starts and ends the servers. The workers share the one that runs: each holds a lock on it while it sends
requests. A worker that needs the other server waits until nobody holds the lock, and names the model in a file.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.engines import EngineError, TimeUp
from longctx.fixtures.engines.openai.endpoint import Endpoint
from longctx.plugins.verdicts.panels import ModelRole

POLL_SECONDS = 0.1
WANTED, STATE = "wanted", "state"


class _State(msgspec.Struct, frozen=True, kw_only=True):
    role: ModelRole
    endpoint: Endpoint | None = None
    error: str = ""
    is_time_up: bool = False


def keep_turns(folder: Path, first: Endpoint, start: Callable[[ModelRole], Endpoint], ended: threading.Event) -> None:
    """Start the server of the model that workers name in `folder` until `ended` is set; `start` ends the other one."""
    role: ModelRole = "model"

    def write(state: _State) -> None:
        write_file(folder / STATE, msgspec.json.encode(state))

    def serve() -> None:
        nonlocal role
        while not ended.wait(POLL_SECONDS):
            wanted = _wanted(folder)
            if wanted == role:
                continue
            role = wanted
            try:
                write(_State(role=role, endpoint=start(role)))
            except Exception as error:  # a worker waits for the reason, whatever it is
                write(_State(role=role, error=str(error) or type(error).__name__, is_time_up=isinstance(error, TimeUp)))

    (folder / WANTED).write_text(role)
    write(_State(role=role, endpoint=first))
    threading.Thread(target=serve, name="longctx-servers", daemon=True).start()


def _wanted(folder: Path) -> ModelRole:
    return "baseline" if (folder / WANTED).read_text() == "baseline" else "model"


class ServerTurn:
    """The part of one worker in the turns of the servers."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._users = (folder / "users").open("a")
        # Held by the one worker that waits for a change.
        self._change = (folder / "change").open("a")
        self._held: _State | None = None
        self._parent = os.getppid()

    def is_served(self, role: ModelRole) -> bool:
        """Return True if the server of a model is the one that runs."""
        return (self._held or self._state()).role == role

    def hold(self, role: ModelRole) -> Endpoint:
        """Return the endpoint of a model as soon as its server runs, which it does until `rest`; raises EngineError."""
        if self._held is None or self._held.role != role:
            self.rest()
            fcntl.flock(self._change, fcntl.LOCK_EX)
            if self._state().role != role:
                fcntl.flock(self._users, fcntl.LOCK_EX)
                write_file(self._folder / WANTED, role.encode())
                self._wait(role)
            fcntl.flock(self._users, fcntl.LOCK_SH)
            self._held = self._state()
            fcntl.flock(self._change, fcntl.LOCK_UN)
        if self._held.endpoint is None:
            error = TimeUp if self._held.is_time_up else EngineError
            raise error(self._held.error)
        return self._held.endpoint

    def rest(self) -> None:
        """Let other workers change the server; may be called twice."""
        self._held = None
        fcntl.flock(self._users, fcntl.LOCK_UN)

    def _wait(self, role: ModelRole) -> None:
        while self._state().role != role:
            if os.getppid() != self._parent:
                raise EngineError("--serve: the run that this worker belongs to has ended")
            time.sleep(POLL_SECONDS)

    def _state(self) -> _State:
        return msgspec.json.decode((self._folder / STATE).read_bytes(), type=_State)
