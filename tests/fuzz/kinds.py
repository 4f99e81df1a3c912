"""The kinds of malformed input: each writes one, and returns the program that reads it as a user would."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ci import calibrate
from ci.watch.__main__ import main as watch
from fixtures.calibration import build, parse_spec
from plugins.journal.__main__ import main as journal
from plugins.report.__main__ import main as report
from tests.fuzz.mutations import ODD_TEXTS, ODD_VALUES, mutate_bytes, mutate_json
from tests.helpers.paths import REPOSITORY

Program = Callable[[], int]
SMALL = ("--suite=ruler", "--lengths=512", "--samples=2", "-k", "niah_single_1", "-p", "no:xdist")
TEMPLATES = (
    "{{1//0}}", "{{ undefined.x.y }}", "{% for m in messages %}", "{{ messages[99] }}",
    "{% for i in range(10**10) %}{% endfor %}",
    "{{ 'a' * 10**9 }}", "{{ raise_exception('no') }}", "{% include 'x' %}", "{{ ''.__class__.__mro__ }}",
    "{{", "%}", "",
    "{{ messages }}", "{{ bos_token * 3 }}", "\x1b[31m{{ messages[0].content }}", "{% set x = namespace() %}{{ x.y }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ messages[0]['content'] | tojson | safe }}",
    "{{ 10**10**8 }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{{ messages[0].content[:10] }}",
    "{{ strftime_now('%Y') }}", "{{ messages | map(attribute='content') | join * 1000000 }}",
)  # fmt: skip
OPTIONS = (
    "--lengths", "--samples", "--seed", "--engine", "--base-url", "--api", "--request-timeout", "--thinking-budget",
    "--device", "--dtype", "--attention", "--batch-size", "--prefill-chunk", "--chat", "--length-tokenizer",
    "--data-dir",
    "--prompts", "--thresholds", "--journal", "--budget", "--baseline", "--gpus-per-worker", "--scoring", "--judge-url",
    "--nli-model", "--report-json", "--report-html", "--step", "--suite", "--model", "--serve", "--served-model",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """Inputs that nothing is wrong with, which the kinds start from."""

    checkpoint: Path
    report: Path
    journal: Path

    @property
    def document(self) -> Any:
        """The JSON report of a small run."""
        return json.loads(self.report.read_text(encoding="utf-8"))


def sound_inputs(folder: Path) -> Sound:
    """Build a calibration checkpoint with a chat template, measure it, and return what that wrote."""
    checkpoint = build(parse_spec("512-chat"), folder / "checkpoint")
    sound = Sound(checkpoint=checkpoint, report=folder / "report.json", journal=folder / "journal")
    run_suite(f"--model={checkpoint}", *SMALL, f"--journal={sound.journal}", f"--report-json={sound.report}")
    return sound


def run_suite(*arguments: str) -> int:
    """Run the suite in this process, from the repository's root."""
    return int(pytest.main([f"--rootdir={REPOSITORY}", f"-c={REPOSITORY / 'pyproject.toml'}", *arguments]))


def suite(*arguments: str) -> Program:
    """Return a run of the suite as a program."""
    return functools.partial(run_suite, *arguments)


def checkpoint_file(name: str, *more: str) -> Callable[[Random, Sound, Path], Program]:
    """Return the kind that malforms one JSON file of a checkpoint."""

    def kind(random: Random, sound: Sound, folder: Path) -> Program:
        copy = copied(sound, folder)
        content = (copy / name).read_bytes()
        data = mutate_bytes(random, content) if len(content) > 100_000 else mutate_json(random, json.loads(content))
        (copy / name).write_bytes(data)
        return suite(f"--model={copy}", *SMALL, *more)

    return kind


def copied(sound: Sound, folder: Path) -> Path:
    """Return a copy of the sound checkpoint whose weights are a link."""
    copy = folder / "checkpoint"
    shutil.copytree(sound.checkpoint, copy, copy_function=_link_weights)
    return copy


def _link_weights(source: str, target: str) -> str:
    if source.endswith(".safetensors"):
        Path(target).hardlink_to(source)
    else:
        shutil.copyfile(source, target)
    return target


def template(random: Random, sound: Sound, folder: Path) -> Program:
    """Give a checkpoint a chat template that fails, loops, or says too much."""
    copy = copied(sound, folder)
    text = random.choice(TEMPLATES) if random.random() < 0.7 else "".join(random.choices(TEMPLATES, k=2))
    config = json.loads((copy / "tokenizer_config.json").read_text())
    config["chat_template"] = text
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    return suite(f"--model={copy}", *SMALL, "--preflight")


def weights(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform the header of the weights."""
    copy = copied(sound, folder)
    (file,) = copy.glob("*.safetensors")
    data = file.read_bytes()
    file.unlink()
    head = mutate_bytes(random, data[:2000])
    file.write_bytes(head + data[2000:200_000])
    return suite(f"--model={copy}", *SMALL, "--plan")


def shard_index(random: Random, sound: Sound, folder: Path) -> Program:
    """Give a checkpoint a malformed index of shards."""
    copy = copied(sound, folder)
    (file,) = copy.glob("*.safetensors")
    file.rename(copy / "model-00001-of-00001.safetensors")
    files = {"model.norm.weight": "model-00001-of-00001.safetensors"}
    if random.random() < 0.3:
        files["x"] = random.choice(("../../etc/passwd", "/etc/passwd", "", ".", "\x00", "a" * 5000))
        data = json.dumps({"weight_map": files}).encode()
    else:
        data = mutate_json(random, {"metadata": {"total_size": 100}, "weight_map": files})
    (copy / "model.safetensors.index.json").write_bytes(data)
    return suite(f"--model={copy}", *SMALL, "--plan")


def toml_file(option: str, source: str) -> Callable[[Random, Sound, Path], Program]:
    """Return the kind that malforms a TOML file of the user's."""

    def kind(random: Random, sound: Sound, folder: Path) -> Program:
        lines = (REPOSITORY / source).read_text(encoding="utf-8").splitlines()
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(lines))
            name, equals, _ = lines[at].partition(" = ")
            value = json.dumps(random.choice(ODD_VALUES))
            lines[at] = f"{name} = {value}" if equals else random.choice(("[x", "[[gate]]", "a = ", value, "[verdict]"))
        data = "\n".join(lines).encode("utf-8", "replace")
        path = folder / "file.toml"
        path.write_bytes(mutate_bytes(random, data) if random.random() < 0.2 else data)
        return suite(f"--model={sound.checkpoint}", *SMALL, f"{option}={path}", "--plan")

    return kind


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
    return functools.partial(report, ["history", str(folder)])


def accepted_reports(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform a report from which thresholds are proposed."""
    path = folder / "report.json"
    path.write_bytes(mutate_json(random, sound.document))
    return functools.partial(calibrate.main, [str(path), str(sound.report)])


def journal_lines(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform a line or a file of a journal, list it, and answer from it."""
    copy = folder / "journal"
    shutil.copytree(sound.journal, copy)
    file = random.choice([path for path in copy.rglob("*") if path.is_file()])
    file.write_bytes(mutate_bytes(random, file.read_bytes()))
    if random.random() < 0.9:
        return functools.partial(journal, [str(copy)])
    return suite(f"--model={sound.checkpoint}", *SMALL, f"--journal={copy}", f"--report-json={folder / 'again.json'}")


def watch_history(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform the history that a watch continues from."""
    (folder / "runs").mkdir()
    line = {
        "checkpoint": "runs/step-1", "step": 1, "fingerprint": "f", "verdict": "pass", "report": "r.json",
    "seconds": 1.0,
        "started": "2026-01-01T00:00:00+00:00", "gpus": 0,
    }  # fmt: skip
    (folder / "history.jsonl").write_bytes(mutate_json(random, line) + b"\n" + mutate_json(random, line))
    arguments = [str(folder / "runs"), "--once", "--every", "0.01s", "--out", str(folder), "--lengths", "512"]
    return functools.partial(watch, arguments)


def data_files(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform a file of published data."""
    squad = {
        "data": [
            {"title": "T", "paragraphs": [
                {"context": "Ann saw the sea in 1801.", "qas": [
                    {"question": "When?", "id": "1", "is_impossible": False,
                     "answers": [{"text": "1801", "answer_start": 19}]}
                ]}
            ]}
        ]
    }  # fmt: skip
    hotpot = [
        {"_id": "1", "question": "Who?", "answer": "Ann", "type": "bridge", "level": "easy",
         "context": [["A", ["Ann went."]], ["B", ["It rained."]]], "supporting_facts": [["A", 0]]}
    ]  # fmt: skip
    name, data, case = random.choice(
        (
            ("qa/squad-dev-v2.0.json", squad, "qa_1"),
            ("qa/hotpot_dev_distractor_v1.json", hotpot, "qa_2"),
            ("essays/PaulGrahamEssays.json", {"text": "One sentence. Another one! And a third."}, "niah_single_2"),
            (
                "json_kv/test_k1800_dep6.jsonl",
                {"ordered_kv_records": [["a", "b"]], "key": "a", "value": "b"},
                "json_kv",
            ),
        )
    )
    path = folder / "data" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(mutate_json(random, data))
    options = ("--suite=all", "--lengths=1k", "--samples=1", "-k", case, "-p", "no:xdist", "--preflight")
    return suite(f"--model={sound.checkpoint}", f"--data-dir={folder / 'data'}", *options)


def option_values(random: Random, sound: Sound, folder: Path) -> Program:
    """Give options values that they do not take."""
    values = [str(value) for value in ODD_VALUES if isinstance(value, (str, int, float)) and "\x00" not in str(value)]
    values = [value.encode("utf-8", "replace").decode() for value in values]
    chosen = random.sample(OPTIONS, random.randint(1, 2))
    return suite(
        f"--model={sound.checkpoint}", *SMALL, "--plan", *(f"{name}={random.choice(values)}" for name in chosen)
    )


def replies(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform stored replies of a judge."""
    file = folder / "journal" / "judge" / "judge-x.jsonl"
    file.parent.mkdir(parents=True)
    line = {"key": "0" * 32, "reply": '{"fluency": 1, "correctness": 3}'}
    file.write_bytes(mutate_json(random, line) + b"\n" + random.choice(ODD_TEXTS) + b"\n")
    return functools.partial(_read_replies, folder / "journal")


def _read_replies(directory: Path) -> int:
    from plugins.journal import JudgeReplies

    JudgeReplies(directory, None).get("1" * 32)
    return 0


KINDS: Mapping[str, Callable[[Random, Sound, Path], Program]] = {
    "config.json": checkpoint_file("config.json", "--plan"),
    "tokenizer.json": checkpoint_file("tokenizer.json", "--preflight"),
    "tokenizer_config.json": checkpoint_file("tokenizer_config.json", "--preflight"),
    "chat template": template,
    "safetensors header": weights,
    "shard index": shard_index,
    "thresholds.toml": toml_file("--thresholds", "thresholds.toml"),
    "prompts.toml": toml_file("--prompts", "fixtures/tasks/ruler/prompts.toml"),
    "baseline report": baseline,
    "history reports": history,
    "accepted reports": accepted_reports,
    "journal": journal_lines,
    "watch history": watch_history,
    "published data": data_files,
    "option values": option_values,
    "judge replies": replies,
}
