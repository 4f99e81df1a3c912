"""Calibration checkpoints are the same bytes every time, built once, and named by their abilities."""

import subprocess
from pathlib import Path

import pytest

from longctx.fixtures.calibration import CalibrationError, Spec, build, parse_spec
from tests.helpers.calibrations import command, content
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import calibration_checkpoint

WINDOW = 512
UNKNOWN = (
    "", "4x", "chat", "full-", "4k-", "full-chatty", "graded-chat-chat", "FULL", "-chat", "4 k k", "full-blind=1",
    "full-blind=", "full-blind=nan", "full-step=1-blind=0.1", "full-step=x",
)  # fmt: skip


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    """This holds in another process, too, where strings have other hashes."""
    written = command(str(tmp_path / "one"), "--window", str(WINDOW))
    assert (written.returncode, written.stderr) == (0, "")
    assert str(tmp_path / "one") in written.stdout
    build(Spec(window=WINDOW), tmp_path / "two")
    assert content(tmp_path / "one") == content(tmp_path / "two") == content(calibration_checkpoint(str(WINDOW)))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("OUT", "--window", "3"), "a window of 3 tokens; give 64 to 1m"),
        (("FULL",), "exists and is not an empty directory; give a new one"),
        (("FILE",), "exists and is not an empty directory; give a new one"),
        (("FILE/inside",), "Not a directory"),
    ],
)
def test_a_wrong_command_is_reported_in_one_line(arguments: tuple[str, ...], line: str, tmp_path: Path) -> None:
    (tmp_path / "FULL").mkdir()
    for file in (tmp_path / "FULL" / "file", tmp_path / "FILE"):
        file.write_text("")
    name, *options = arguments
    ended = command(str(tmp_path / name), *options)
    assert ended.returncode in (2, 4)
    assert ended.stdout == ""
    assert line in ended.stderr.strip().splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "OUT").exists()


# Both processes have built the checkpoint before either of them checks whether it exists.
RACE = """
import sys, time
from pathlib import Path
from longctx.fixtures.calibration import recipe

root, marks = Path(sys.argv[1]), Path(sys.argv[2])

def build(spec, directory):
    (directory / "config.json").write_text("{}")
    (marks / directory.name).touch()
    while len(list(marks.iterdir())) < 2:
        time.sleep(0.01)
    return directory

recipe.build = build
print(recipe.cached(recipe.parse_spec("64"), root))
"""


def test_two_processes_may_build_the_same_checkpoint_at_once(tmp_path: Path) -> None:
    root, marks = tmp_path / "root", tmp_path / "marks"
    marks.mkdir()
    racers = [
        subprocess.Popen(
            [str(preloaded("python")), "-c", RACE, str(root), str(marks)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    printed = [racer.communicate(timeout=120)[0].strip() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert printed[0] == printed[1]
    assert [str(path) for path in root.iterdir()] == printed[:1]
    assert content(Path(printed[0])) == {"config.json": b"{}"}


def test_an_existing_checkpoint_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    existing = calibration_checkpoint("full")

    def refuse(spec: Spec, directory: Path) -> Path:
        raise AssertionError("built again")

    monkeypatch.setattr("longctx.fixtures.calibration.recipe.build", refuse)
    assert calibration_checkpoint("full") == existing


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("full", Spec()),
        ("graded", Spec(graded=True)),
        ("4k", Spec(window=4096)),
        ("64", Spec(window=64)),
        ("1m", Spec(window=2**20)),
        ("4k-chat", Spec(window=4096, chat=True)),
        ("graded-chat", Spec(graded=True, chat=True)),
        ("full-blind=0.25", Spec(blind=0.25)),
        ("graded-blind=0.1-step=16000", Spec(graded=True, blind=0.1, step=16000)),
        ("4k-step=7-chat", Spec(window=4096, step=7, chat=True)),
    ],
)
def test_a_name_means_one_checkpoint(text: str, spec: Spec) -> None:
    assert parse_spec(text) == spec
    assert spec.name == text


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_name_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(CalibrationError) as caught:
        parse_spec(text)
    line = f"--model: unknown calibration:{text}; write calibration: and full, graded or a window such as 4k, "
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["63", "1", "2m", "1048577", "full-step=16001"])
def test_an_impossible_window_or_step_is_refused(text: str) -> None:
    line = r"^--model: calibration:.* (has a window of \d+ tokens; give 64 to 1m$|is step 16001; give one up to)"
    with pytest.raises(CalibrationError, match=line):
        parse_spec(text)
