"""Small result files in the formats of other programs."""

import json
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Change = Callable[[list[Row]], Iterable[Row]]


def rows(count: int = 60, *, worse: int = 0, tasks: Iterable[str] = ("a", "b")) -> list[Row]:
    """Return rows of tasks with scores of 0 and 1, of which the first `worse` right ones of each are wrong."""
    table = []
    for task in tasks:
        left, chance = worse, random.Random(task)
        for number in range(count):
            score = int(chance.random() < 0.8)
            if score and left:
                score, left = 0, left - 1
            table.append({"id": number, "task": task, "score": score, "answer": f"{task}{number}{score}"})
    return table


def write_jsonl(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def write_csv(path: Path, lines: list[Row]) -> Path:
    text = [",".join(lines[0]), *(",".join(map(str, line.values())) for line in lines)]
    path.write_text("\n".join(text) + "\n")
    return path


def lm_eval_lines(table: Iterable[Row], metric: str = "exact_match", **others: Any) -> list[Row]:
    """Return the lines of --log_samples of lm-evaluation-harness 0.4.13 for the rows of one task."""
    return [
        {
            "doc_id": row["id"], "doc": {"question": f"{row['task']} {row['id']}"}, "target": "yes", "arguments": {},
            "resps": [[row["answer"]]], "filtered_resps": [row["answer"]], "filter": "none", "metrics": [metric],
            "doc_hash": f"d{row['task']}{row['id']}", "prompt_hash": "p", "target_hash": "t", metric: row["score"],
            **others,
        }
        for row in table
    ]  # fmt: skip


def write_lm_eval(folder: Path, table: list[Row], stamp: str = "2026-11-28T10-00-00.123456") -> Path:
    for task in dict.fromkeys(row["task"] for row in table):
        own = [row for row in table if row["task"] == task]
        write_jsonl(folder / "model" / f"samples_{task}_{stamp}.jsonl", lm_eval_lines(own))
    (folder / "model" / f"results_{stamp}.json").write_text('{"results": {}}')
    return folder


def inspect_log(table: list[Row], status: str = "success") -> Row:
    """Return a log of inspect_ai for the rows of one task."""
    return {
        "version": 2,
        "status": status,
        "eval": {"task": table[0]["task"], "created": "2026-11-28T10:00:00+00:00", "model": "m"},
        "samples": [
            {
                "id": row["id"], "epoch": 1, "input": [{"id": "x", "role": "user", "content": f"q{row['id']}"}],
                "target": "yes", "scores": {"match": {"value": "C" if row["score"] else "I"}},
                "output": {"choices": [{"message": {"content": row["answer"]}}], "completion": row["answer"]},
            }
            for row in table
        ],
    }  # fmt: skip


def write_inspect(folder: Path, table: list[Row]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for task in dict.fromkeys(row["task"] for row in table):
        own = [row for row in table if row["task"] == task]
        (folder / f"{task}.json").write_text(json.dumps(inspect_log(own), indent=1))
    return folder


def write_nemo(folder: Path, table: list[Row]) -> Path:
    for task in dict.fromkeys(row["task"] for row in table):
        lines = [
            {"problem_idx": row["id"], "repeat": 0, "reward": row["score"], "prompt": "p", "expected_answer": "yes",
             "model_response": row["answer"]}
            for row in table if row["task"] == task
        ]  # fmt: skip
        write_jsonl(folder / task / "results.jsonl", lines)
        (folder / task / f"eval-{task}.json").write_text(json.dumps({"benchmark": {"name": task}, "timestamp": "1"}))
    return folder


def write_ruler(folder: Path, table: list[Row]) -> Path:
    for task in dict.fromkeys(row["task"] for row in table):
        lines = [
            {"index": row["id"], "input": f"{task} {row['id']}", "outputs": ["yes"], "others": {},
             "pred": "yes" if row["score"] else "no"}
            for row in table if row["task"] == task
        ]  # fmt: skip
        write_jsonl(folder / "4096" / "pred" / f"{task}.jsonl", lines)
    return folder


def write_helmet(folder: Path, table: list[Row]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for task in dict.fromkeys(row["task"] for row in table):
        own = [row for row in table if row["task"] == task]
        results = {
            "args": {"datasets": task, "input_max_length": 8192},
            "data": [{"question": f"q{row['id']}", "answer": "yes", "output": row["answer"]} for row in own],
            "metrics": {"f1": [row["score"] for row in own], "input_len": [1] * len(own)},
            "averaged_metrics": {},
        }
        (folder / f"{task}_eval_in8192_size100.json").write_text(json.dumps(results, indent=4))
    return folder
