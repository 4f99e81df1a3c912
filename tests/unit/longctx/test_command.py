"""The command `longctx`: help, completion, and wrong use in one line."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
import shtab

from longctx.cli import COMMANDS, main
from longctx.completion import whole_parser
from tests.helpers.checkpoints import write_step


def test_every_command_is_in_the_help_and_an_unknown_one_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name} " not in shown] == []
    assert (shown.count("calibrate"), "(alias: calibrate)" in shown) == (1, True)
    with pytest.raises(SystemExit, match=r"^4$"):
        main(["calibrate"])
    assert "--yardstick REPORT" in capsys.readouterr().err
    assert main(["measure"]) == 4
    assert capsys.readouterr().err.startswith("error: unknown command 'measure'; known are run, plan, ")
    assert main(["--model", "x"]) == 4
    assert "an option needs a command before it; write longctx run --model ..." in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_of_the_package_is_printed(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option]) == 0
    assert capsys.readouterr().out == f"longctx {version('longctx-gates')}\n"


@pytest.mark.parametrize("words", [["docs"], ["tasks"]])
def test_a_reader_that_ends_early_is_no_error(tmp_path: Path, words: Sequence[str]) -> None:
    """Close the pipe before anything is written, as `longctx tasks | head -0` does."""
    (tmp_path / "history.jsonl").touch()
    reader, writer = os.pipe()
    os.close(reader)
    script = f"import sys; from longctx.cli import main; sys.exit(main({words!r}))"
    ended = subprocess.run([sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(writer)
    assert ended.stderr == b""


@pytest.mark.parametrize(
    "words",
    [
        "bisect --good step-1 --bad step-2 --checkpoints step-* --case test_ruler[vt-512] --out file",
        "watch . --out file", "recipes file", "compare --against x --model m --out file",
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_written_is_one_line(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for step in (1, 2):
        write_step(tmp_path, step)
    Path("file").touch()
    assert main(words.split()) == 4
    *_, line = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"error: \w+: cannot use .*file.* \(.*\); make room, or name one that can be used", line)


def test_the_pages_are_where_docs_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "gates"]) == 0
    assert Path(capsys.readouterr().out.strip()).read_text().startswith("# Gate a checkpoint")
    assert main(["docs", "gate"]) == 4
    assert "unknown 'gate'; did you mean 'gates'?" in capsys.readouterr().err


def test_recipes_work_without_a_clone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", str(tmp_path / "ours")]) == 0
    written = {Path(line) for line in capsys.readouterr().out.splitlines()}
    assert {path.name for path in written} >= {
        "smoke.sh",
        "longctx.toml",
        "thresholds.toml",
        "gitlab-ci.yml",
        "vllm.sh",
    }
    assert [
        path for path in written if any(word in path.read_text() for word in (".venv", "ci/", "../", " clone"))
    ] == []
    scripts = [str(path) for path in written if path.suffix == ".sh"]
    subprocess.run(["bash", "-n", *scripts], check=True)
    assert f"THRESHOLDS:-{tmp_path}/ours/smoke.toml" in (tmp_path / "ours" / "smoke.sh").read_text()
    assert main(["recipes", str(tmp_path / "ours")]) == 4
    assert "exists; give another directory" in capsys.readouterr().err


def test_bash_completes_commands_options_and_values() -> None:
    written = shtab.complete(whole_parser(), "bash")

    def completed(*words: str) -> set[str]:
        state = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}"
        line = state + "; _shtab_longctx; printf '%s\\n' \"${COMPREPLY[@]}\""
        ended = subprocess.run(
            ["bash", "-c", f"{written}\n{line}"], capture_output=True, text=True, check=True, timeout=120
        )
        return set(ended.stdout.split())

    assert completed("longctx", "wat") == {"watch"}
    assert completed("longctx", "run", "--len") == {"--lengths", "--length-tokenizer"}
    assert completed("longctx", "run", "--chat", "") == {"auto", "on", "off", "server"}
    assert completed("longctx", "run", "--suite", "r") == {"ruler"}
    assert completed("longctx", "plan", "-k", "niah_single") == {f"niah_single_{number}" for number in (1, 2, 3)}
    assert completed("longctx", "watch", "--attenti") == {"--attention"}
    assert completed("longctx", "bisect", "--go") == {"--good"}


def test_a_checkpoint_is_described_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = write_step(tmp_path, 3000)
    assert main(["checkpoint", str(checkpoint)]) == 0
    shown = capsys.readouterr().out
    assert "step         3000" in shown
    assert "fingerprint  " in shown
    assert main(["checkpoint", str(tmp_path / "none")]) == 4
    assert "CKPT: no such directory" in capsys.readouterr().err
