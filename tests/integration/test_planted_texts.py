"""Escapes, markup, formulas and control characters in names, answers and errors reach no output unescaped."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tokenizers import Tokenizer

from longctx.fixtures.calibration import build, parse_spec
from tests.helpers.checkpoints import write_step
from tests.helpers.pages import parse
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import CompletedRun, run_pytest, usage_error
from tests.helpers.servers import ChatServer, Request, Response, forget_keys, in_json, text_completion

# What a file name may hold: everything but a slash and NUL.
NAME = "=cmd|x\x1b[31m\x1b]0;t\x07\n::error::x\n\u202e\x9b1m<script>alert(1)<b>[x](javascript:1)"
TEXT = f"{NAME}</script><!--\x00\u2028\ud800\ufeff|`*_@all https://evil.example\n| gate | PASS |\r\n##[error]x\n"
# A gate's name must be printable.
GATE = '=HYPERLINK("x") <script>alert(1)</script> [x](javascript:1) @all | `y`'
GATES = f"[[gate]]\nname = {json.dumps(GATE)}\nkind = 'level'\nabove = 80\ntasks = ['niah_single_2']\n"
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
# GitHub and GitLab read these at the start of a line of a log.
COMMAND = re.compile(r"^(::|##\[|section_start)", re.MULTILINE)


def is_clean(text: str) -> bool:
    return not HIDDEN.search(text) and not COMMAND.search(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Path:
    """Return a calibration checkpoint whose directory's name is planted."""
    return build(parse_spec("512"), folder / "runs" / f"step-1 {NAME}")


@pytest.fixture(scope="module")
def server(checkpoint: Path) -> Iterator[ChatServer]:
    """Serve planted answers, and planted errors for the prompts of niah_single_3."""
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))

    def answer(request: Request) -> Response:
        ids = tokenizer.encode(request.prompt).ids if isinstance(request.prompt, str) else request.prompt
        if "magic uuid" in tokenizer.decode(ids):
            return in_json({"error": {"message": TEXT}}, status=400)
        # A lone surrogate is no text, and a reply with one is no answer.
        return text_completion(TEXT.replace("\ud800", ""), read=len(ids))

    with pytest.MonkeyPatch.context() as patch, ChatServer().serving() as serving:
        forget_keys(patch)
        serving.answer = answer
        yield serving


@pytest.fixture(scope="module")
def run(folder: Path, checkpoint: Path, server: ChatServer) -> CompletedRun:
    (folder / f"gates {NAME}").write_text(GATES)
    names = {"--report-json": "report.json", "--report-html": "report.html", "--report-md": "report.md"}
    return run_pytest(
        folder, f"--model={checkpoint}", f"--base-url={server.url}", "--lengths=512", "--samples=2", "-vv", "-rA",
        "-k", "niah_single_2 or niah_single_3", f"--thresholds={folder}/gates {NAME}", f"--junitxml={folder}/junit.xml",
        *(f"{option}={folder}/{name}" for option, name in names.items()), f"--tensorboard={folder}/events {NAME}",
    )  # fmt: skip


def test_the_terminal_gets_no_escape_and_no_line_of_its_own(run: CompletedRun) -> None:
    assert run.exit_code == 1
    assert is_clean(run.output + run.errors)
    assert "=cmd|x␛[31m␛]0;t␇␊::error::x␊⟨U+202E⟩" in run.output
    assert "test_ruler[niah_single_3-512]: error: " in run.output


def test_the_page_has_no_markup_of_a_text(run: CompletedRun) -> None:
    text = (run.folder / "report.html").read_text(encoding="utf-8")
    parsed = parse(text)
    assert [kind for kind, _ in parsed.raw] == ["style", "application/json", "script"]
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in parsed.tags)
    assert not HIDDEN.search(text)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_markdown_has_no_link_no_markup_and_no_row_of_a_text(run: CompletedRun) -> None:
    text = (run.folder / "report.md").read_text(encoding="utf-8")
    assert not HIDDEN.search(text)
    page = MarkdownIt("gfm-like", {"linkify": False}).render(text)
    assert "<a " not in page
    assert "<script" not in page
    assert "alert(1)" in page
    assert len(re.findall(r"<td>PASS</td>", page)) == 0


def test_junit_is_xml_without_hidden_characters(run: CompletedRun) -> None:
    text = (run.folder / "junit.xml").read_text(encoding="utf-8")
    assert not HIDDEN.search(text)
    tree = ElementTree.fromstring(text)
    assert any(GATE in case.attrib["name"] for case in tree.iter("testcase"))
    assert not list(tree.iter("script"))
    assert not HIDDEN.search("".join(value for element in tree.iter() for value in element.attrib.values()))


def test_json_is_ascii_and_keeps_the_texts(run: CompletedRun) -> None:
    text = (run.folder / "report.json").read_text(encoding="ascii")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert run.report["model"]["path"].endswith(NAME)


def test_tensorboard_gets_names_without_markup(run: CompletedRun) -> None:
    events = EventAccumulator(f"{run.folder}/events {NAME}", size_guidance={"scalars": 0})
    events.Reload()
    tags = [tag for kind in events.Tags().values() if isinstance(kind, list) for tag in kind]
    assert any(tag.startswith("gate/=HYPERLINK") for tag in tags)
    assert all(is_clean(tag) and not re.search(r"[<>&]", tag) and tag[0].isalpha() for tag in tags)


def test_the_commands_show_no_text_unescaped(run: CompletedRun, checkpoint: Path) -> None:
    reports = run.folder / f"reports {NAME}"
    reports.mkdir()
    shutil.copy(run.folder / "report.json", reports / f"{NAME} step-1.json")
    shutil.copy(run.folder / "report.json", reports / f"{NAME} step-2.json")
    page = run.folder / f"history {NAME}.html"
    broken = write_step(run.folder, 2)
    (broken / "config.json").write_text(json.dumps({"architectures": NAME}))
    for code, *command in (
        (0, "journal", str(run.folder / "journal")),
        (0, "history", str(reports), f"--out={page}"),
        (4, "history", NAME),
        (4, "journal", NAME),
        (4, "thresholds", f"{NAME}.json"),
        (4, "bisect", "--good", str(checkpoint), "--bad", str(broken), "--out", f"{run.folder}/bisect"),
        (4, "watch", NAME),
    ):
        words = [str(preloaded("python")), "-m", "longctx", *command]
        ended = subprocess.run(words, cwd=REPOSITORY, capture_output=True, check=False, timeout=300)
        output = (ended.stdout + ended.stderr).decode()
        assert (ended.returncode, is_clean(output)) == (code, True), (command, output)
    text = page.read_text(encoding="utf-8")
    assert not HIDDEN.search(text)
    assert "<script>alert" not in text


def test_a_watch_and_its_command_get_clean_lines(run: CompletedRun, checkpoint: Path, server: ChatServer) -> None:
    command = [
        str(preloaded("python")), "-m", "longctx", "watch", str(checkpoint.parent), "--once", "--every", "0.1s",
        "--out", f"{run.folder}/watch", f"--base-url={server.url}", "--suite=ruler", "--lengths=512", "--samples=1",
        "-k", "niah_single_2 or niah_single_3", f"--thresholds={run.folder}/gates {NAME}",
        f"--journal={run.folder}/journal",
        "--on-failure", 'printf "%s\\n" "$LONGCTX_FAILED"; test -d "$LONGCTX_CHECKPOINT" && echo "it is there"',
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False, timeout=600)
    output = (ended.stdout + ended.stderr).decode()
    assert ended.returncode == 1
    assert is_clean(output), output
    assert "niah_single_3-512]: " in output
    assert "it is there" in output


def test_errors_before_a_run_are_one_clean_line(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "escape.toml").write_text(GATES.replace("=HYPERLINK", "\\u001b[31m"))
    for options, said in (
        ((f"--model={NAME}",), "--model: "),
        ((f"--model={checkpoint}", f"--lengths={NAME}"), "--lengths: "),
        ((f"--model={checkpoint}", f"--thresholds=/{NAME}"), "--thresholds: cannot read"),
        ((f"--model={checkpoint}", f"--data-dir=/{NAME}"), "--data-dir: "),
        ((f"--model={checkpoint}", f"--thresholds={tmp_path}/escape.toml"), "invisible characters"),
    ):
        error = usage_error("--lengths=512", "-k", "niah_single_2", *options)
        assert said in error
        assert is_clean(error)
        assert "\n" not in error
