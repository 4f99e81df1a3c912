"""Fork Python processes that need not import large packages again: `preloaded_server.py DIRECTORY PID`.

The server imports packages of other projects and the modules that runs of the suite need, at the first request. It
listens at DIRECTORY/socket and ends with the process PID. A request of `preloaded_client.py` holds the arguments, the
working directory, the environment and the open files of a Python process. The server forks, and the new process
continues as a fresh interpreter would; if it finds another copy of the suite first, it imports that one. The reply is
the process's exit code, negative for the number of a signal, or `refused`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

LENGTH_BYTES = 8
# Packages that runs of the suite import. pytest's own plugins are not among them: pytest changes them on import.
PACKAGES = (
    "torch", "transformers.models.llama.modeling_llama", "transformers.generation", "openai", "jinja2", "pytest",
    "nltk", "rouge_score.rouge_scorer", "msgspec",
)  # fmt: skip
# Modules that import nearly everything of the suite that a run does.
SUITE = (
    "longctx.plugins.controller", "longctx.plugins.gate_tests", "longctx.plugins.invariance", "longctx.plugins.measure",
    "longctx.plugins.collection", "longctx.plugins.plan", "longctx.plugins.progress", "longctx.plugins.reports",
    "longctx.fixtures.engines.hf.engine", "longctx.fixtures.engines.openai.engine",
)  # fmt: skip
# Variables whose names begin so are read when Python starts or a package is imported.
READ_ON_IMPORT = (
    "PYTHON", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "OPENBLAS_", "LD_", "LC_",
    "LANG", "HOME", "XDG_", "TMPDIR", "TZ",
)  # fmt: skip

# The suite and torch set these themselves, in a test's own process, too, which hands them on to its runs.
SET_BY_RUNS = ("PYTHONPATH", "OMP_WAIT_POLICY", "MKL_CBWR", "TORCHINDUCTOR_CACHE_DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A forked process."""

    pid: int
    pidfd: int
    connection: socket.socket
    """The connection to the client, which forwards signals and waits for the exit code."""


class Server:
    """A process that forks for every request."""

    def __init__(self, directory: Path, session: int) -> None:
        self.directory = directory
        try:
            self.session = os.pidfd_open(session)
        except ProcessLookupError:
            # The tests have ended before this process was ready.
            sys.exit()
        self.settings = import_settings(os.environ)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(directory / "socket"))
        self.listener.listen(128)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.session, selectors.EVENT_READ)

    def serve(self) -> Callable[[], object]:
        """Return the function to call in each forked process; in the server itself, raise SystemExit at its end."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj == self.session:
                    shutil.rmtree(self.directory, ignore_errors=True)
                    sys.exit()
                if isinstance(key.data, Child):
                    self._attend(key.data, is_ended=key.fileobj == key.data.pidfd)
                elif program := self._accept():
                    return program

    def _accept(self) -> Callable[[], object] | None:
        """Fork for the next client, or refuse; return a function in the forked process only."""
        connection, _ = self.listener.accept()
        try:
            request, files = receive(connection)
        except (OSError, ValueError):
            # The client was killed before it had sent its request. Other clients need this server.
            connection.close()
            return None
        is_known = is_supported(request["arguments"]) and import_settings(request["environment"]) == self.settings
        pid = self._fork() if is_known else None
        if pid == 0:
            connection.close()
            self._close()
            return continue_as(request, files, self.directory)
        for file in files:
            os.close(file)
        if pid is None:
            # The client may have been killed while it waited.
            with suppress(OSError):
                connection.sendall(b"refused")
            connection.close()
            return None
        child = Child(pid=pid, pidfd=os.pidfd_open(pid), connection=connection)
        self.selector.register(child.pidfd, selectors.EVENT_READ, child)
        self.selector.register(connection, selectors.EVENT_READ, child)
        return None

    def _fork(self) -> int:
        if not gc.get_freeze_count():
            import_packages()
        return os.fork()

    def _attend(self, child: Child, *, is_ended: bool) -> None:
        """Send the exit code of a process that has ended, or else a signal of its client to the process."""
        is_closed = child.connection.fileno() < 0
        if is_ended:
            _, status = os.waitpid(child.pid, 0)
            with suppress(OSError):
                child.connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            self.selector.unregister(child.pidfd)
            os.close(child.pidfd)
        elif is_closed:
            # Client and process have ended at the same time.
            return
        elif number := child.connection.recv(1):
            os.kill(child.pid, number[0])
            return
        else:
            # The client was killed.
            os.kill(child.pid, signal.SIGKILL)
        if not is_closed:
            self.selector.unregister(child.connection)
            child.connection.close()

    def _close(self) -> None:
        """Close all files of the server in a forked process."""
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            else:
                key.fileobj.close()  # type: ignore[attr-defined]  # a socket, which the selector does not know
        self.selector.close()


def import_packages() -> None:
    """Import all packages and the suite, write the paragraphs that short runs search, and freeze all of them."""
    gc.disable()
    for name in PACKAGES:
        with suppress(ImportError):
            importlib.import_module(name)
    for plugin in metadata.entry_points(group="pytest11"):
        # pytest warns of plugins that it cannot change on import, unless their docstring says so.
        if module := sys.modules.get(plugin.module.partition(".")[0]):
            module.__doc__ = "PYTEST_DONT_REWRITE"
    for name in SUITE:
        importlib.import_module(name)
    # transformers builds this at the first load of a model, in every process.
    if mappings := sys.modules.get("transformers.conversion_mapping"):
        mappings.get_checkpoint_conversion_mapping("llama")
    # A run at 512 tokens reads a thousand of them before it knows that none of their questions fits.
    if corpora := sys.modules.get("longctx.fixtures.corpora"):
        list(corpora.Corpora().hotpot.paragraphs)
    gc.freeze()
    gc.enable()


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """Return a request and the files that came with it; raise OSError or ValueError if the connection is broken."""
    length, files, _, _ = socket.recv_fds(connection, LENGTH_BYTES, 3)
    try:
        text = connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
        return json.loads(text), list(files)
    except (OSError, ValueError):
        for file in files:
            os.close(file)
        raise


def import_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that must be the same in the server and in the process."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_ON_IMPORT) and name not in SET_BY_RUNS
    }  # fmt: skip


def is_supported(arguments: Sequence[str]) -> bool:
    """Return True for a module and for code."""
    flags, words = split_flags(arguments)
    return flags <= {"-u", "-P"} and len(words) > 1 and words[0] in ("-m", "-c")


def split_flags(arguments: Sequence[str]) -> tuple[set[str], Sequence[str]]:
    """Return the options of Python itself, and all arguments from `-m`, `-c` or the path of a program on."""
    first = next(
        (place for place, word in enumerate(arguments) if word in ("-m", "-c") or not word.startswith("-")),
        len(arguments),
    )
    return set(arguments[:first]), arguments[first:]


def continue_as(request: Mapping[str, Any], files: Sequence[int], directory: Path) -> Callable[[], object]:
    """Give this process the state of the request, and return a function that runs the request's program."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    importlib.invalidate_caches()
    # Programs that the process starts are forked, too; the run that `longctx run` becomes needs no other fork.
    sys.executable = str(directory / "python")
    os.execv = partial(become, os.execv, [*sys.path])  # type: ignore[assignment]  # it is called with texts alone
    program = program_of(request["arguments"])
    forget_other_copy()
    return program


def become(execute: Callable[..., object], path: list[str], program: str, words: list[str]) -> None:
    """Run the suite in this process, with the search path of a fresh one, or execute any other program."""
    if program != sys.executable or words[1:4] != ["-P", "-m", "longctx.suite"]:
        execute(program, words)
    sys.path[:] = path
    program_of(words[1:])()
    sys.exit()


def forget_other_copy() -> None:
    """Forget the suite's modules if this process, as a fresh one, would import them from another place."""
    found, loaded = PathFinder.find_spec("longctx"), sys.modules.get("longctx")
    if loaded is not None and (found is None or found.origin != loaded.__file__):
        for name in [name for name in sys.modules if name.partition(".")[0] == "longctx"]:
            del sys.modules[name]


def program_of(arguments: Sequence[str]) -> Callable[[], object]:
    """Set the search path and the arguments as Python does, and return a function that runs the program."""
    flags, (kind, *rest) = split_flags(arguments)
    if "-u" in flags:
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]  # not replaced
    if "-P" not in flags:
        sys.path.insert(0, os.getcwd() if kind == "-m" else "")
    if kind == "-m":
        sys.argv = ["-m", *rest[1:]]
        return lambda: runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    sys.argv = ["-c", *rest[1:]]
    main = sys.modules["__main__"] = ModuleType("__main__")
    return lambda: exec(rest[0], vars(main))


class ExitCode:
    """The exit code of this process, which ends without the destruction of all modules, because that takes long."""

    def __init__(self) -> None:
        self.value = 1
        # Runs after all functions that packages and the program register.
        atexit.register(self._end)

    def of(self, program: Callable[[], object]) -> None:
        """Run the program; raises what it raises."""
        try:
            program()
            self.value = 0
        except SystemExit as end:
            self.value = end.code if isinstance(end.code, int) else int(end.code is not None)
            raise

    def _end(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(self.value)


if __name__ == "__main__":
    # The directory of this file is no place of other packages.
    del sys.path[0]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_code = ExitCode()
    exit_code.of(Server(Path(sys.argv[1]), int(sys.argv[2])).serve())
