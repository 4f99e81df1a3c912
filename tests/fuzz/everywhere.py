"""Damaged checkpoints through every program that reads one: a check, a plan, a run, and a watch beside a sound step."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from longctx.ci.suite_process import SuiteRun, read_report
from longctx.ci.watch import __main__ as watch
from longctx.ci.watch import measure
from longctx.fixtures.seeding import stable_hash
from tests.fuzz.checkpoint_kinds import copied
from tests.fuzz.kinds import KINDS
from tests.fuzz.programs import SMALL, Command, Sound, suite
from tests.fuzz.sandbox import Outcome, run_forked

CHECKPOINT_KINDS = (
    "config.json", "config values", "safetensors header", "shard index", "tokenizer.json", "tokenizer structure",
    "tokenizer_config.json", "special tokens", "generation config", "chat template", "hostile checkpoint",
)  # fmt: skip
SOUND_STEP = 2


def everywhere(kind: str, seed: int, sound: Sound) -> Iterator[tuple[str, Outcome, str | None]]:
    """Yield how each program ends on one damaged checkpoint, with what is wrong with that."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        KINDS[kind](Random(stable_hash("fuzz", kind, seed)), sound, folder)
        run = folder / "run"
        run.mkdir()
        damaged = (folder / "checkpoint").rename(run / "step-1")
        copied(sound, folder).rename(run / f"step-{SOUND_STEP}")
        model = f"--model={damaged}"
        programs: dict[str, Command] = {
            "checkpoint": Command("longctx.checkpoint", (str(damaged),)),
            "plan": suite(model, *SMALL, "--plan"),
            "run": suite(model, *SMALL, f"--journal={folder / 'journal'}"),
        }
        code = 0
        for program, command in programs.items():
            outcome = run_forked(command)
            code = outcome.code
            yield program, outcome, outcome.problem
        outcome = run_forked(lambda: _watched(run, folder / "out", sound, code))
        yield "watch", outcome, outcome.problem or _unmeasured(folder / "out")


def _watched(run: Path, out: Path, sound: Sound, code: int) -> int:
    """Watch a run; its own runs of the suite end as the damaged checkpoint's run did, or as the sound one's."""

    def measured(arguments: Sequence[str], **_: object) -> SuiteRun:
        is_sound = str(run / f"step-{SOUND_STEP}") in arguments
        report = read_report(sound.report) if is_sound else None
        return SuiteRun(exit_code=0 if is_sound else code, report=report, reason="" if is_sound else "refused")

    measure.run_suite = measured  # type: ignore[attr-defined]  # a name that it imported
    watch.check_suite_options = lambda *_: None  # type: ignore[attr-defined]  # a name that it imported
    return watch.main([str(run), "--once", "--every", "0.01s", "--out", str(out), "--lengths", "512"])


def _unmeasured(out: Path) -> str | None:
    history = out / "history.jsonl"
    lines = [json.loads(line) for line in history.read_text().splitlines()] if history.is_file() else []
    return None if any(line.get("step") == SOUND_STEP for line in lines) else "the sound step was not measured"
