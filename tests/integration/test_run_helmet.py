"""Complete runs of HELMET's tasks: skipped cases, one request per judgement, and an API key that never leaks."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.helpers.runs import SCHEMA, CompletedRun, calibration_checkpoint, run_pytest, text_of_files
from tests.helpers.servers import ChatServer, Request, Response, completion, in_json, needles_within

KEY = "sk-planted-4f1e9a77c0ffee5ecret"
# Calibration checkpoints, and the server that replaces one here, answer only questions of RULER.
SENTENCE = "The grass is green. The sky is blue."
NEEDLE = "One of the special magic numbers for mighty-clerk is: 1234567."
PROMPTS = '''
[multi_lexsum]
template = """
{demonstrations}{context}
What is the special magic number for mighty-clerk mentioned in the provided text?"""
demonstration = "{answer}\\n"
answer_prefix = "The special magic number for mighty-clerk mentioned in the provided text is"
'''
CASES = [
    {
        "id": f"case-{number}",
        "sources": [" ".join([SENTENCE] * 5), f"{NEEDLE} {SENTENCE} Case {number}.", f"{NEEDLE} {SENTENCE}\n" * 3000],
        "summary/short": f"The clerk sued the mill and won in case {number}.",
        "summary/long": f"The clerk sued the mill over the weir and won case {number}.",
        "summary/short_keypoints": ["The clerk sued the mill.", "The clerk won."],
    }
    for number in range(4)
]
JUDGEMENTS = {"fluency": 1, "found": 1, "supported": 1, "sentences": 2}


def judgement_response(request: Request) -> Response:
    """Return a judgement that fits every request about a summary and makes half of all claims right."""
    judgement = {name: value for name, value in JUDGEMENTS.items() if f'"{name}"' in request.text}
    return completion(f"It is so.\n{json.dumps(judgement)}")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "multi_lexsum").mkdir()
    text = "".join(json.dumps(record) + "\n" for record in CASES)
    (folder / "multi_lexsum" / "multi_lexsum_val.jsonl").write_text(text)
    return folder


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("LONGCTX_JUDGE_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ChatServer().serving() as serving:
        serving.answer = judgement_response
        yield serving


@pytest.fixture
def base_url() -> Iterator[str]:
    """The option for a server that answers in place of the model."""
    with ChatServer().serving() as serving:
        serving.answer = needles_within(512, calibration_checkpoint("512"))
        yield f"--base-url={serving.url}"


def run(folder: Path, data: Path, *arguments: str, journal: Path | None = None) -> CompletedRun:
    folder.mkdir(exist_ok=True)
    (folder / "prompts.toml").write_text(PROMPTS)
    reports = (
        f"--prompts={folder}/prompts.toml",
        f"--report-json={folder}/report.json",
        f"--junitxml={folder}/junit.xml",
    )
    model = ("--model=calibration:512", "--suite=helmet", "--lengths=1k", "--samples=2", f"--data-dir={data}")
    return run_pytest(folder, *model, *reports, *arguments, journal=journal)


def test_a_case_without_its_judge_is_skipped_and_its_means_are_not_measured(data: Path, tmp_path: Path) -> None:
    """A category that lacks one of its data sets has no score, and so has the average of all."""
    completed = run(tmp_path / "run", data, "-k", "multi_lexsum or test_icl or test_rerank")
    assert completed.counts["not measured"] == 1
    assert completed.junit_outcomes("test_summ[multi_lexsum-1k]") == ["skipped"]
    helmet = completed.report["helmet"]
    reason = helmet["missing"]["summ"]["1024"]["multi_lexsum"]
    assert reason == "multi_lexsum: published text is scored by a judge; give --judge-model (and --judge-url)"
    assert helmet["missing"]["rag"]["1024"]["nq"] == "not selected"
    assert helmet["datasets"]["multi_lexsum"] == {"1024": None}
    assert helmet["datasets"]["trec_coarse"]["1024"] is not None
    scores = {name: category["1024"] for name, category in helmet["categories"].items()}
    assert {name for name, score in scores.items() if score is not None} == {"rerank", "icl"}
    assert helmet["average"] == {"1024": None}
    properties = {name: value for name, value in completed.junit_facts.items() if name.startswith("helmet.")}
    assert {name: float(value) for name, value in properties.items()} == {
        "helmet.rerank.1024": scores["rerank"], "helmet.icl.1024": scores["icl"],
    }  # fmt: skip
    Draft202012Validator(SCHEMA).validate(completed.report)


def test_a_judge_scores_published_text_and_receives_every_request_once(
    data: Path, server: ChatServer, base_url: str, tmp_path: Path
) -> None:
    judge = ("-k", "multi_lexsum", base_url, "--judge-model=judge-1", f"--judge-url={server.url}")
    first = run(tmp_path / "first", data, *judge, journal=tmp_path / "journal")
    request_count = len(server.requests)
    assert request_count > 0
    assert {request.authorization for request in server.requests} == {f"Bearer {KEY}"}
    case = first.cases["multi_lexsum-1k"]
    assert (case["source"], case["samples"], case["score"]) == ("published", 2, pytest.approx(50))
    assert float(first.junit_properties(case["id"])["score"]) == pytest.approx(case["score"])
    again = run(tmp_path / "again", data, *judge, journal=tmp_path / "journal")
    assert len(server.requests) == request_count
    assert again.cases["multi_lexsum-1k"]["score"] == case["score"]
    text = text_of_files(tmp_path)
    assert "It is so." in text
    assert KEY not in text


def test_a_failing_judge_is_an_error_without_a_score(
    data: Path, server: ChatServer, base_url: str, tmp_path: Path
) -> None:
    server.answer = lambda _: in_json({"error": {"message": f"no such model for {KEY}"}}, status=404)
    judge = ("-k", "multi_lexsum", base_url, "--judge-model=judge-1", f"--judge-url={server.url}")
    completed = run(tmp_path / "run", data, *judge)
    assert completed.exit_code == 1
    case = completed.cases["multi_lexsum-1k"]
    assert (case["verdict"], case["score"]) == ("error", None)
    assert "judge judge-1 at http://127.0.0.1:" in case["error"]
    assert "404" in completed.report["helmet"]["missing"]["summ"]["1024"]["multi_lexsum"]
    assert "Traceback" not in completed.output + completed.errors
    assert KEY not in text_of_files(tmp_path)
