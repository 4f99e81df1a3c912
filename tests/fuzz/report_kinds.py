"""Malformed reports, journals, histories and data sets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

from longctx.ci.bisect.compare import Bounds
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.seeding import stable_hash
from tests.fuzz.mutations import mutate_bytes, mutate_json
from tests.fuzz.programs import SMALL, Command, Kind, Program, Sound, suite

SQUAD = {
    "data": [
        {"title": "T", "paragraphs": [
            {"context": "Ann saw the sea in 1801.", "qas": [
                {"question": "When?", "id": "1", "is_impossible": False,
                 "answers": [{"text": "1801", "answer_start": 19}]}
            ]}
        ]}
    ]
}  # fmt: skip
HOTPOT = [
    {"_id": "1", "question": "Who?", "answer": "Ann", "type": "bridge", "level": "easy",
     "context": [["A", ["Ann went."]], ["B", ["It rained."]]], "supporting_facts": [["A", 0]]}
]  # fmt: skip
# Each with the case that reads it.
DATA_FILES = (
    ("qa/squad-dev-v2.0.json", SQUAD, "qa_1"),
    ("qa/hotpot_dev_distractor_v1.json", HOTPOT, "qa_2"),
    ("essays/PaulGrahamEssays.json", {"text": "One sentence. Another one! And a third."}, "niah_single_2"),
    ("json_kv/test_k1800_dep6.jsonl", {"ordered_kv_records": [["a", "b"]], "key": "a", "value": "b"}, "json_kv"),
    ("kilt/nq-dev-multikilt_1000_k1000_dep6.jsonl",
     {"id": "1", "question": "Who?", "answers": ["Ann"],
      "ctxs": [{"id": "2", "title": "A", "text": "Ann went.", "has_answer": True}],
      "positive_ctxs": [{"id": "2", "title": "A", "text": "Ann went."}]}, "nq"),
    ("msmarco/test_reranking_data_k1000_dep3.jsonl",
     {"qid": "1", "query": "sea", "ctxs": [{"id": "2", "text": "The sea.", "label": 3}]}, "msmarco"),
    ("icl/banking77/train.csv", "text,category\nWhere is it?,card\n", "banking77"),
)  # fmt: skip


def baseline(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform the report of a baseline."""
    path = folder / "baseline.json"
    path.write_bytes(mutate_json(random, sound.document))
    return suite(f"--model={sound.checkpoint}", *SMALL, f"--journal={sound.journal}", f"--baseline={path}", "--plan")


def history(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform one of two reports that a history draws."""
    document = sound.document
    document["run"]["step"] = 1000
    (folder / "one.json").write_text(json.dumps(document))
    document["run"]["step"] = 2000
    (folder / "two.json").write_bytes(mutate_json(random, document))
    return Command("longctx.ci.history_command", (str(folder), f"--out={folder / 'history.html'}"))


def accepted_reports(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform a report from which thresholds are proposed."""
    path = folder / "report.json"
    path.write_bytes(mutate_json(random, sound.document))
    return Command("longctx.ci.propose_thresholds", (str(path), *[str(sound.report)] * 3))


def journal_files(pattern: str) -> Kind:
    """Return the kind that malforms one file of a journal, which is then listed, pruned or answered from."""

    def kind(random: Random, sound: Sound, folder: Path) -> Program:
        copy = folder / "journal"
        shutil.copytree(sound.journal, copy)
        file = random.choice(sorted(path for path in copy.rglob(pattern) if path.is_file()))
        file.write_bytes(mutate_bytes(random, file.read_bytes()))
        if random.random() < 0.1:
            report = f"--report-json={folder / 'again.json'}"
            return suite(f"--model={sound.checkpoint}", *SMALL, f"--journal={copy}", report)
        prune = random.choice(((), ("--prune", "0d", "--dry-run"), ("--prune", "0d")))
        return Command("longctx.plugins.journal", (str(copy), *prune))

    return kind


def watch_history(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform the history that a watch continues from."""
    (folder / "runs").mkdir()
    line = {
        "event": "measured", "step": 1, "checkpoint": "runs/step-1", "fingerprint": "f", "word": "fail", "code": 1,
        "failed": ["a gate"], "report": "r.json", "gpu_seconds": 1.0,
        "ended": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    gone = {"event": "gone", "step": 1, "checkpoint": "runs/step-1", "fingerprint": "f", "reason": "deleted"}
    lines = [mutate_json(random, random.choice((line, line, gone))) for _ in range(3)]
    (folder / "history.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    command = ("--on-failure", 'test -n "$LONGCTX_STEP"')
    arguments = (str(folder / "runs"), "--once", "--every", "0.01s", "--out", str(folder), "--lengths", "512")
    return Command("longctx.ci.watch", (*arguments, *command))


def bisect_reports(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform the report that a bisect finds in its folder, and continues from."""
    for step in (1, 2):
        shutil.copytree(sound.checkpoint, folder / f"step-{step}")
    (folder / "step-2" / "generation_config.json").write_text("{}")
    # The suite refuses the seed at once, so only what the folder has is compared.
    options = ("--suite=ruler", "--lengths=512", "--seed=none")
    case = "test_ruler[niah_single_1-512]"
    thresholds = Bounds(confidence=0.99).as_toml()
    prints = [read_checkpoint(str(folder / f"step-{step}")).fingerprint for step in (2, 1)]
    selection = [f"tests_longctx/test_ruler.py::{case}", *options, "--samples", "2", "--full"]
    name = f"step-2-{stable_hash(*prints, thresholds, *selection):016x}.json"
    document = sound.document
    document["gates"].append(
        {"name": "regression", "kind": "regression", "verdict": "fail", "measured": -50.0, "interval": [-60.0, -40.0],
         "samples": 2, "of": 2, "blocking": False, "reason": "x", "required": 0, "length": 512, "confidence": 0.99}
    )  # fmt: skip
    (folder / "out").mkdir()
    (folder / "out" / name).write_bytes(mutate_json(random, document))
    ends = ("--good", str(folder / "step-1"), "--bad", str(folder / "step-2"))
    return Command("longctx.ci.bisect", (*ends, "--case", case, "--samples", "2", f"--out={folder / 'out'}", *options))


def data_files(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform a file of published data."""
    name, data, case = random.choice(DATA_FILES)
    path = folder / "data" / name
    path.parent.mkdir(parents=True)
    if isinstance(data, str):
        path.write_bytes(mutate_bytes(random, data.encode()))
        (path.parent / "test.csv").write_text(data)
    else:
        path.write_bytes(mutate_json(random, data))
    options = ("--suite=all", "--lengths=8k" if case in ("nq", "msmarco") else "--lengths=1k", "--samples=1")
    return suite(
        f"--model={sound.checkpoint}", f"--data-dir={folder / 'data'}", *options, "-k", case, "-p", "no:xdist",
        "--preflight",
    )  # fmt: skip
