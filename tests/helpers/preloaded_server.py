"""Fork Python processes that need not import large packages again: `preloaded_server.py DIRECTORY PID`.

The server imports packages of other projects and the modules that runs of the suite need, at the first request. It
listens at DIRECTORY/socket and ends with the process PID. A request of `preloaded_client.py` holds the arguments, the
working directory, the environment and the open files of a Python process. The server forks, and the new process
continues as a fresh interpreter would; if it finds another copy of the suite first, it imports that one. The reply is
the process's exit code, negative for the number of a signal, or `refused`.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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


def serve(directory: Path, session: int) -> Callable[[], object]:
    """Return the program to run in each forked process; in the server itself, raise SystemExit after the session."""
    settings = import_settings(os.environ)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "socket"))
    listener.listen(128)
    listener.settimeout(1.0)
    # Nobody waits for the supervisors.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while os.getppid() == session:
        try:
            connection, _ = listener.accept()
            request, files = receive(connection)
        except (OSError, ValueError):
            # No client came, or one was killed before it had sent its request. Others need this server.
            continue
        if not is_supported(request["arguments"]) or import_settings(request["environment"]) != settings:
            # The client may have been killed while it waited.
            with suppress(OSError):
                connection.sendall(b"refused")
        elif fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            supervise(connection, files)
            return continue_as(request, files, directory)
        connection.close()
        for file in files:
            os.close(file)
    shutil.rmtree(directory, ignore_errors=True)
    sys.exit()


def fork() -> int:
    if not gc.get_freeze_count():
        import_packages()
    return os.fork()


def supervise(connection: socket.socket, files: Sequence[int]) -> None:
    """Return in another fork; this process sends it the signals of its client, and its exit code to the client."""
    pid = os.fork()
    if pid == 0:
        connection.close()
        return
    for file in files:
        os.close(file)

    def forward() -> None:
        # The process may have ended meanwhile.
        with suppress(OSError):
            while number := connection.recv(1):
                os.kill(pid, number[0])
            # The client was killed.
            os.kill(pid, signal.SIGKILL)

    threading.Thread(target=forward, daemon=True).start()
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


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
        list(corpora.Corpora().data_set("hotpot").paragraphs)
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
    exit_code.of(serve(Path(sys.argv[1]), int(sys.argv[2])))
