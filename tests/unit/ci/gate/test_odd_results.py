"""Damaged and odd results: the right verdict, or one line that names the file, the value and the remedy."""

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from longctx.ci.gate.__main__ import main
from tests.unit.ci.gate.result_files import (
    Row,
    inspect_log,
    lm_eval_lines,
    rows,
    write_csv,
    write_helmet,
    write_inspect,
    write_jsonl,
    write_lm_eval,
    write_nemo,
    write_ruler,
)

Make = Callable[[Path], tuple[object, ...]]
"""Write both results to a folder, and return the arguments of the command."""


def table(change: Callable[[list[Row]], list[Row]] | None = None, tasks: tuple[str, ...] = ("a", "b")) -> Make:
    """Compare a table with itself after a change."""

    def make(folder: Path) -> tuple[object, ...]:
        base = rows(tasks=tasks)
        new = base if change is None else change([dict(row) for row in base])
        return write_jsonl(folder / "base.jsonl", base), write_jsonl(folder / "new.jsonl", new)

    return make


def separated(separator: str) -> Make:
    """Compare a table with itself, whose columns are separated otherwise, below names in capitals."""

    def make(folder: Path) -> tuple[object, ...]:
        base = write_csv(folder / "base.csv", rows())
        header, *lines = base.read_text().replace(",", separator).splitlines()
        (folder / "new.tsv").write_text("\n".join([header.upper(), *lines]))
        return base, folder / "new.tsv"

    return make


def text(data: bytes, name: str = "new.csv") -> Make:
    """Compare a table with a file of these bytes."""

    def make(folder: Path) -> tuple[object, ...]:
        (folder / name).write_bytes(data)
        return write_csv(folder / "base.csv", rows()), folder / name

    return make


def both(lines: list[Row], name: str = "samples_a_2026-11-28T10-00-00.1.jsonl", *options: str) -> Make:
    """Compare a file of lines with itself."""
    return lambda folder: (*[write_jsonl(folder / name, lines)] * 2, *options)


def edited(**values: object) -> Callable[[list[Row]], list[Row]]:
    return lambda lines: [{**lines[0], **values}, *lines[1:]]


def several_runs(folder: Path) -> tuple[object, ...]:
    base = write_lm_eval(folder / "base", rows())
    write_lm_eval(folder / "new", rows(worse=40), "2026-11-27T10-00-00.1")
    return base, write_lm_eval(folder / "new", rows(), "2026-11-28T10-00-00.1")


def archive(folder: Path, *, status: str = "success", has_header: bool = True) -> tuple[object, ...]:
    log = inspect_log(rows(tasks=["a"]), status)
    with zipfile.ZipFile(folder / "new.eval", "w") as file:
        for sample in log.pop("samples"):
            file.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))
        if has_header:
            file.writestr("header.json", json.dumps(log))
    return write_inspect(folder / "base", rows(tasks=["a"])), folder / "new.eval"


def failed(folder: Path) -> tuple[object, ...]:
    log = inspect_log(rows(tasks=["a"]), "error")
    (folder / "new.json").write_text(json.dumps(log | {"samples": []}))
    return write_inspect(folder / "base", rows(tasks=["a"])), folder / "new.json"


def unscored(folder: Path) -> tuple[object, ...]:
    log = inspect_log(rows(tasks=["a"]))
    log["samples"][3]["scores"] = {"match": {"value": float("nan")}}
    (folder / "new.json").write_text(json.dumps(log))
    return write_inspect(folder / "base", rows(tasks=["a"])), folder / "new.json"


def torn(folder: Path) -> tuple[object, ...]:
    path = write_jsonl(folder / "new.jsonl", rows())
    path.write_bytes(path.read_bytes()[:-20])
    return write_jsonl(folder / "base.jsonl", rows()), path


def epochs(folder: Path) -> tuple[object, ...]:
    log = inspect_log(rows(tasks=["a"]))
    log["samples"] += [{**sample, "epoch": 2} for sample in log["samples"]]
    (folder / "new.json").write_text(json.dumps(log))
    return folder / "new.json", folder / "new.json"


def two_kinds(folder: Path) -> tuple[object, ...]:
    write_csv(folder / "mixed.csv", rows())
    write_lm_eval(folder, rows())
    return folder, folder


def policy(folder: Path, gate: str) -> Path:
    (folder / "gates.toml").write_text(f'[[gate]]\nname = "x"\n{gate}\n')
    return folder / "gates.toml"


def missing_policy_task(folder: Path) -> tuple[object, ...]:
    return *table()(folder), "--policy", policy(folder, 'kind = "regression"\ntasks = ["c"]\ndrop = 2')


def helmet_metrics(folder: Path) -> tuple[object, ...]:
    path = write_helmet(folder / "base", rows(tasks=["a"])) / "a_eval_in8192_size100.json"
    results = json.loads(path.read_text())
    results["metrics"]["em"] = results["metrics"]["f1"][:-1]
    path.write_text(json.dumps(results))
    return path, path


def ruler_chunks(folder: Path) -> tuple[object, ...]:
    base = write_ruler(folder / "base", rows())
    for path in (write_ruler(folder / "new", rows()) / "4096" / "pred").iterdir():
        lines = path.read_text().splitlines(keepends=True)
        for chunk in (0, 1):
            path.with_name(f"{path.stem}-{chunk}.jsonl").write_text("".join(lines[chunk::2]))
        path.unlink()
    return base, folder / "new"


def nemo_shards(folder: Path) -> tuple[object, ...]:
    base = write_nemo(folder / "base", rows())
    for shard in (0, 1):
        part = write_nemo(folder / "new" / f"shard_{shard}", rows()[shard::2])
        for bundle in part.glob("*/eval-*.json"):
            bundle.write_text(bundle.read_text().replace('"1"', f'"{shard}"'))
    return base, folder / "new"


def helmet(folder: Path, change: Callable[[Row], None], task: str = "json_kv") -> tuple[Path, Path]:
    """Compare results of HELMET with themselves after a change."""
    base, new = (write_helmet(folder / name, rows(tasks=[task])) for name in ("base", "new"))
    path = new / f"{task}_eval_in8192_size100.json"
    results = json.loads(path.read_text())
    change(results)
    path.write_text(json.dumps(results))
    return base, new


def helmet_unanswered(folder: Path) -> tuple[object, ...]:
    def leave_out(results: Row) -> None:
        for values in (results["data"], *results["metrics"].values()):
            del values[5]

    return helmet(folder, leave_out)


def helmet_main_metric(folder: Path) -> tuple[object, ...]:
    def add(results: Row) -> None:
        metrics = results["metrics"]
        metrics |= {"substring_exact_match": metrics["f1"], "f1": [0.0] * 60}

    return helmet(folder, add)


def helmet_judge(folder: Path) -> tuple[object, ...]:
    def judge(results: Row) -> None:
        for number, entry in enumerate(results["data"]):
            entry["gpt-4-scores"] = {"fluency": 1, "correctness": number % 4} if number else None

    _, new = helmet(folder, judge, "narrativeqa")
    path = new / "narrativeqa_eval_in8192_size100.json"
    path.with_name(f"{path.stem}-gpt4eval_o.json").write_text(path.read_text())
    return new, new


def equal_documents(folder: Path) -> tuple[object, ...]:
    lines = lm_eval_lines(rows(tasks=["a"]))
    lines[1]["doc_hash"] = lines[0]["doc_hash"]
    return both(lines)(folder)


FILTERS = [
    line for name in ("strict", "loose") for line in lm_eval_lines(rows(tasks=["a"]), filter=name)
]  # fmt: skip
PERCENT = [{**row, "score": 100 * row["score"]} for row in rows()]
ERRORS = [{**line, "wer": 1 - line["wer"]} for line in lm_eval_lines(rows(tasks=["a"]), "wer")]
LENGTHS = [
    {**line, "metrics": ["4096", "8192"], "4096": line["acc"] if n % 2 else -1, "8192": -1 if n % 2 else line["acc"]}
    for n, line in enumerate(lm_eval_lines(rows(tasks=["a"]), "acc"))
]
ODD: dict[str, tuple[Make, int, str]] = {
    "unchanged": (table(), 0, r"verdict +pass"),
    "other prompt under one id": (
        lambda folder: (
            write_jsonl(folder / "base.jsonl", [{**row, "prompt": "one"} for row in rows()]),
            write_jsonl(folder / "new.jsonl", [{**row, "prompt": "two"} for row in rows()]),
        ), 4, r"error: a: sample 0 has another prompt in .*new.jsonl than in .*base.jsonl; compare runs of the same",
    ),
    "other document under one id": (
        lambda folder: (
            write_jsonl(folder / "a" / "samples_a.jsonl", lm_eval_lines(rows(tasks=["a"]))),
            write_jsonl(folder / "b" / "samples_a.jsonl", edited(doc_hash="x")(lm_eval_lines(rows(tasks=["a"])))),
        ), 4, r"error: a: sample 0 has another prompt in b/samples_a.jsonl than in a/samples_a.jsonl",
    ),
    "other template": (
        lambda folder: (
            write_jsonl(folder / "a" / "samples_a.jsonl", lm_eval_lines(rows(tasks=["a"]))),
            write_jsonl(folder / "b" / "samples_a.jsonl", lm_eval_lines(rows(tasks=["a"]), prompt_hash="q")),
        ), 4, r"error: a: sample 0 has another prompt",
    ),
    "duplicate": (table(lambda new: [*new, new[7]]), 4, r"error: .*new.jsonl: sample 7 of a occurs twice; remove one"),
    "equal documents": (equal_documents, 0, r"verdict +pass"),
    "missing task": (
        table(lambda new: [row for row in new if row["task"] == "a"]), 1,
        r"error: b: .*new.jsonl has no sample of it; measure it, or leave it out",
    ),
    "added task": (
        lambda folder: (write_csv(folder / "b.csv", rows(tasks=["a"])), write_csv(folder / "n.csv", rows())), 0,
        r"tasks of .*n.csv alone: b ",
    ),
    "missing task of a policy": (missing_policy_task, 4, r"--policy: .*base.jsonl has no sample of c; known are a, b"),
    "missing samples": (
        table(lambda new: new[:-3]), 1,
        r"undecided: the candidate has too few samples.*measure all samples of the base",
    ),
    "added samples": (
        table(lambda new: [*new, {**new[-1], "id": 99}]), 0, r"b: 1 sample of .*new.jsonl alone \(99\)",
    ),
    "no sample in common": (
        table(lambda new: [{**row, "id": f"x{row['id']}"} for row in new]), 4,
        r"error: a: the two have no id in common \(0 in .*base.jsonl, 'x0' in .*new",
    ),
    "other order": (table(lambda new: new[::-1]), 0, r"verdict +pass"),
    "NaN": (table(edited(score=float("nan"))), 4, r"error: .*: score of sample 0 of a is nan; write a number"),
    "no score": (table(edited(score=None)), 4, r"score of sample 0 of a is None; write a number"),
    "an empty score": (table(edited(score="")), 4, r"score of sample 0 of a is empty; write a number"),
    "an empty cell": (text(b"id,score\n0,\n1,1\n"), 4, r"score of sample 0 of all is empty; write a number"),
    "a word for a score": (table(edited(score="good")), 4, r"score of sample 0 of a is good; write a number"),
    "true and false": (table(lambda new: [{**row, "score": bool(row["score"])} for row in new]), 0, r"verdict +pass"),
    "negative score": (table(edited(score=-0.5)), 4, r"is -0.5, not from 0 to 1; give --scale"),
    "percent": (both(PERCENT, "p.jsonl"), 4, r"is 100, not from 0 to 1; give --scale with the best score"),
    "percent with a scale": (both(PERCENT, "p.jsonl", "--scale", "100"), 0, r"verdict +pass"),
    "scale of zero": (both(PERCENT, "p.jsonl", "--scale", "0"), 4, r"error: --scale: 0.0 is no best score"),
    "lower is better": (both(ERRORS), 0, r"less is better of wer"),
    "lower is better, said": (
        lambda folder: (*table(edited(score=1))(folder), "--lower-is-better"), 0, r"less is better of score",
    ),
    "two filters": (both(FILTERS), 4, r"has exact_match,strict, exact_match,loose; choose one with --metric"),
    "one of two filters": (
        both(FILTERS, "samples_a.jsonl", "--metric", "exact_match,strict"), 0, r"verdict +pass",
    ),
    "unknown metric": (both(FILTERS, "samples_a.jsonl", "--metric", "acc"), 4, r"--metric: .* has no 'acc' of a"),
    "metrics that are lengths": (both(LENGTHS), 0, r"regression of tasks at 8k: 30 pairs"),
    "folder of several runs": (several_runs, 0, r"older runs are left out: .*samples_a_2026-11-27"),
    "folder of two programs": (two_kinds, 4, r"holds results of lm-evaluation-harness and table; name the files"),
    "interrupted log": (archive, 0, r"verdict +pass"),
    "log without an end": (
        lambda folder: archive(folder, has_header=False), 4, r"new.eval: has no header.json, as an interrupted log",
    ),
    "cancelled log": (lambda folder: archive(folder, status="cancelled"), 0, r"its status is cancelled"),
    "failed log": (failed, 4, r"new.json: has no scored sample; give a file"),
    "sample without a score": (unscored, 1, r"1 sample has no score.*a: 1 sample of .*base alone \(3\)"),
    "epochs": (epochs, 0, r"regression of tasks: 60 pairs"),
    "torn last line": (torn, 4, r"new.jsonl, line 120: cannot be read"),
    "damaged line": (text(b'{"id": 1, "score": 1}\n{"id": 2, sco\n{"id": 3, "score": 1}\n', "new.jsonl"), 4,
                     r"new.jsonl, line 2: cannot be read"),
    "a log without metrics": (
        both([{**line, "metrics": []} for line in lm_eval_lines(rows(tasks=["a"]))]), 4, r"has no scored sample",
    ),
    "a row that is no object": (
        text(b'{"id": 1, "score": 1}\n[1]\n', "new.jsonl"), 4, r"new.jsonl, line 2: is no object with the keys",
    ),
    "a missing column": (text(b"id,task\n1,a\n"), 4, r"of a known format \(found: id, task\); known are"),
    "tabs and capitals": (separated("\t"), 0, r"120 pairs.*verdict +pass"),
    "semicolons": (separated(";"), 0, r"120 pairs.*verdict +pass"),
    "a short row": (text(b"id,score,task\n1,1\n"), 4, r"new.csv, line 2: not one value for each of 3 columns; write"),
    "a quote that goes on": (
        text(b'id,score\n1,1\n2,"1"x\n'), 4, r"""new.csv, line 3: no CSV \(',' expected after '"'\); write it again""",
    ),
    "a prompt of 32k tokens": (
        text(b"id,score,task,prompt\n" + b"".join(b"%d,1,a,%s\n" % (number, b"word " * 30_000) for number in range(2))),
        1, r"2 pairs",
    ),
    "empty": (text(b""), 4, r"new.csv: is empty; give a file, a folder or a glob"),
    "only a header": (text(b"id,score\n"), 4, r"new.csv: has no results of a known format; known are"),
    "no file": (lambda folder: (folder / "a", folder / "b"), 4, r"error: BASE: .*a has no result file; give a file"),
    "a long name": (lambda folder: ("a" * 300, folder), 4, r"error: BASE: a{300} has no result file; give a file"),
    "empty folder": (lambda folder: (folder, folder), 4, r"error: BASE: .* has no result file; give a file"),
    "a compressed table": (text(b"\x1f\x8b\x08\x00", "new.csv.gz"), 4, r"new.csv.gz: is compressed; unpack it first"),
    "a broken archive": (text(b"PK\x03\x04 no archive", "new.eval"), 4, r"new.eval: cannot be read \(BadZipFile"),
    "nested deeply": (text(b"[" * 100_000, "new.json"), 4, r"new.json: cannot be read \(RecursionError"),
    "no UTF-8": (text(b"id,score\n\xff\xfe,1\n"), 4, r"new.csv: cannot be read"),
    "policy with such a name": (
        lambda folder: (
            *table(tasks=("a/b",))(folder),
            "--policy", policy(folder, 'kind = "regression"\ntasks = ["a/b"]\ndrop = 2'),
        ), 0, r"gate +x: pass.*blocking gates: 2 pass",
    ),
    "no word": (lambda folder: ("", folder), 4, r"error: BASE: is empty; give a file"),
    "negative length": (table(edited(length=-5)), 4, r"new.jsonl, line 1: length is -5 \(Expected `int` >= 0 - at"),
    "two columns of one name": (text(b"id,score,score\n1,0,1\n"), 4, r"new.csv: has several columns 'score'; keep one"),
    "a huge score": (table(edited(score=10**400)), 4, r"is 1000000000.*; write a number"),
    "report in place of the results": (
        lambda folder: (*table()(folder), "--report-json", folder / "new.jsonl"), 4,
        r"--report-json: .*new.jsonl is the file of CANDIDATE; give another one to write",
    ),
    "two reports at one place": (
        lambda folder: (*table()(folder), "--report-json", folder / "r.x", "--report-md", folder / "r.x"), 4,
        r"--report-md: .*r.x is the place of --report-json; give each a place of its own",
    ),
    "report in place of the policy": (
        lambda folder: (*table()(folder), "--policy", folder / "p.x", "--report-md", folder / "p.x"), 4,
        r"--report-md: .*p.x is the file of --policy; give another one to write",
    ),
    "a directory in place of a report": (
        lambda folder: (*table()(folder), "--report-md", folder), 4, r"--report-md: .* is a directory; name a file",
    ),
    "one file twice": (
        lambda folder: (table()(folder)[0], table()(folder)[0]), 0, r"BASE and CANDIDATE are the same, which is most",
    ),
    "markup in a name": (
        table(lambda new: [{**row, "task": row["task"]} for row in new], tasks=("<b>x</b>",)), 0,
        r"-b-x--b-",
    ),
    "parts of a run of RULER": (ruler_chunks, 0, r"at 4k: 120 pairs.*verdict +pass"),
    "parts of a run of NeMo": (nemo_shards, 0, r"tasks: 120 pairs.*verdict +pass"),
    "HELMET's sample without an answer": (helmet_unanswered, 1, r"json_kv-8k: 1 sample of base alone \(5\)"),
    "HELMET's own metric": (helmet_main_metric, 0, r"json_kv +78.*verdict +pass"),
    "HELMET's judge": (helmet_judge, 0, r"59 pairs.*narrativeqa +50\.8.*older runs are left out: new/narr"),
    "lists of metrics": (helmet_metrics, 4, r"em has 59 values, not 60; run it again"),
    "other attempts": (
        lambda folder: (write_nemo(folder / "base", rows()), write_nemo(folder / "new", rows(worse=30))), 1,
        r"verdict +fail",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "code", "line"), ODD.values(), ids=list(ODD))
def test_odd_results(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    make: Make,
    code: int,
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.relative_to(tmp_path) if isinstance(word, Path) else word for word in make(tmp_path)]
    assert main([str(word) for word in words]) == code
    shown = capsys.readouterr()
    text = " ".join((shown.out + shown.err).split())
    assert re.search(line, text), text
    if code == 4:
        assert shown.out == ""
        assert shown.err.count("\n") == 1
