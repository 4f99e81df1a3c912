"""Start-up: which packages a command imports, and how they are imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from longctx.cli import COMMANDS
from tests.helpers.paths import REPOSITORY
from tests.helpers.runs import calibration_checkpoint, run_pytest

# Packages whose import takes from a tenth of a second to several seconds.
HEAVY = ("torch", "transformers", "scipy", "datasets", "openai", "nltk", "pyarrow", "huggingface_hub")
# Runs commands, each in a process that has imported nothing but the list of commands, and prints what they import.
IMPORTS = f"""
import contextlib, io, os, sys
from longctx.cli import main
for words in sys.stdin.read().splitlines():
    if not os.fork():
        before = len(sys.modules)
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            main(words.split())
        print(words, len(sys.modules) - before, *(name for name in {HEAVY} if name in sys.modules), flush=True)
        os._exit(0)
    os.wait()
"""
MOST_MODULES = 900
# Writes the heavy packages of each process of a run.
RECORD_IMPORTS = f"""
import os, sys
from pathlib import Path

def pytest_unconfigure():
    text = " ".join(name for name in {HEAVY} if name in sys.modules)
    Path(__file__).with_name(f"imports-{{os.environ.get('PYTEST_XDIST_WORKER', 'controller')}}").write_text(text)
"""


@pytest.mark.slow
def test_no_help_text_imports_a_large_package(tmp_path: Path) -> None:
    commands = [f"{name} --help" for name in COMMANDS]
    commands += ["--help", "--version", "completion bash", "docs", f"recipes {tmp_path}/recipes"]
    code = [sys.executable, "-c", IMPORTS]
    ended = subprocess.run(code, input="\n".join(commands), cwd=REPOSITORY, capture_output=True, text=True, check=True)
    lines = [line.removeprefix(words).split() for words, line in zip(commands, ended.stdout.splitlines(), strict=True)]
    assert {words: heavy for words, (_, *heavy) in zip(commands, lines, strict=True) if heavy} == {}
    assert max(int(count) for count, *_ in lines) < MOST_MODULES, ended.stdout


@pytest.mark.whole_loop
def test_a_worker_that_finds_everything_in_the_journal_imports_nothing_large(tmp_path: Path) -> None:
    (tmp_path / "record_imports.py").write_text(RECORD_IMPORTS)
    words = ["-p", "record_imports", "--model", str(calibration_checkpoint("512")), "--lengths=512", "--samples=2"]
    words.append("-k=niah_single_1")
    assert run_pytest(tmp_path, *words).counts["measured"] == 1
    assert run_pytest(tmp_path, *words, "-n1", fresh=True).counts["measured"] == 1
    imported = {path.name: path.read_text().split() for path in tmp_path.glob("imports-*")}
    # The controller reads the tokenizer, to know the prompts, and computes intervals; the worker has nothing to build.
    assert imported == {"imports-controller": ["torch", "transformers", "scipy", "huggingface_hub"], "imports-gw0": []}


def test_objects_exempt_from_garbage_collection_end_with_the_process() -> None:
    """Extension modules that count their objects would print a line for each that is left."""
    code = (
        "from longctx.fixtures import heavy_imports\n"
        "with heavy_imports.exempt_from_garbage_collection():\n"
        "    import colorsys\n"
        "    class Counted:\n"
        "        def __del__(self): print('ended')\n"
        "    cycle = [Counted()]\n"
        "    cycle.append(cycle)\n"
        "    del cycle\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert ended.stdout == "ended\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGTERM"])
def test_a_signal_before_the_first_sample_is_one_line(name: str) -> None:
    """An import that it reaches ends first, because an extension module may crash if it does not."""
    code = (
        "import signal\n"
        # As in a shell, also where these tests run behind nohup or in the background, which ignore the signal.
        f"signal.signal(signal.{name}, signal.default_int_handler if '{name}' == 'SIGINT' else signal.SIG_DFL)\n"
        "from longctx import suite\n"
        "from longctx.fixtures import heavy_imports\n"
        "def run_pytest(*words, **options):\n"
        "    with heavy_imports.exempt_from_garbage_collection():\n"
        f"        signal.raise_signal(signal.{name})\n"
        "        print('imported')\n"
        "    print('not reached')\n"
        "suite.runpy.run_module = run_pytest\n"
        "suite.main()\n"
    )
    command = [sys.executable, "-u", "-c", code]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "imported\n"), ended.stderr
    assert ended.stderr == "interrupted; the same command continues\n"


def ended_after(folder: Path, *lines: str) -> "subprocess.CompletedProcess[str]":
    """Run a module as the suite is run; only then does Python end itself by the signal again."""
    imports = ("import signal, sys", "from longctx import suite", "from longctx.fixtures import interrupts")
    first = (*imports, "signal.signal(signal.SIGINT, signal.default_int_handler)")
    (folder / "ends.py").write_text("\n".join((*first, *lines)))
    paths = os.pathsep.join(map(str, (folder, REPOSITORY)))
    command = [sys.executable, "-m", "ends"]
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)


def test_a_signal_in_a_text_that_is_executed_leaves_the_exit_code(tmp_path: Path) -> None:
    """Imports execute the methods of dataclasses."""
    ended = ended_after(
        tmp_path,
        "def run_pytest(*words, **options):",
        "    try: exec('signal.raise_signal(signal.SIGTERM)')",
        "    except KeyboardInterrupt: sys.exit(2)",
        "suite.runpy.run_module = run_pytest",
        "suite.main()",
    )
    assert (ended.returncode, ended.stderr) == (2, "")


def test_a_first_ctrl_c_does_not_end_the_reports(tmp_path: Path) -> None:
    ended = ended_after(
        tmp_path,
        "interrupts.end_as_ctrl_c()",
        "interrupts.ignore_stops()",
        "for number in (signal.SIGTERM, signal.SIGINT): signal.raise_signal(number)",
        "print('written')",
        "try: signal.raise_signal(signal.SIGINT)",
        "except KeyboardInterrupt: print('ended')",
    )
    assert (ended.returncode, ended.stdout) == (0, "written\nended\n"), ended.stderr


# Ends a run while pytest-xdist starts its workers.
ENDED_AT_START = """
import os, signal
from pathlib import Path

def pytest_xdist_setupnodes():
    os.kill(os.getpid(), signal.SIGTERM)

def pytest_xdist_newgateway():
    Path(__file__).with_name("started").touch()
"""


def test_a_signal_waits_until_all_workers_have_started(tmp_path: Path) -> None:
    """A worker that has read half of its program prints a traceback."""
    (tmp_path / "ended_at_start.py").write_text(ENDED_AT_START)
    ended = run_pytest(
        tmp_path, "-p", "ended_at_start", f"--model={calibration_checkpoint('512')}", "--lengths=512", "-n1"
    )
    assert (ended.exit_code, (tmp_path / "started").exists()) == (2, True), ended.output
