"""The instrument is tested before the model: sound samples pass, a broken frame is a failure and no score."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from runs import calibrated, sparse_weights, start

from fixtures.cases import plan
from fixtures.checkpoint import inspect
from fixtures.corpora import Corpora
from fixtures.engines import EngineFacts
from fixtures.prompts import Framing, load_tokenizer
from fixtures.records import Generation, Options, Prompt
from fixtures.tasks import TASKS
from plugins.evidence import Bench
from plugins.options import Run

CUTS = "{{ bos_token }}{% for message in messages %}<|user|>{{ message.content[:400] }}<|end|>{% endfor %}"
LENGTHS = ("--lengths", "1k", "--samples", "3")


def chat_checkpoint(folder: Path, template: str | None = None) -> Path:
    """A chat checkpoint outside the clone, with another template if one is given."""
    copy = Path(shutil.copytree(calibrated("512-chat"), folder / "step_9"))
    if template is not None:
        path = copy / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    return copy


def test_a_sound_run_is_green_and_loads_no_model(tmp_path: Path) -> None:
    model = chat_checkpoint(tmp_path)
    sparse_weights(model / "model.safetensors", 1)
    run = start(tmp_path, "--preflight", "--model", str(model), *LENGTHS, "--report-json", f"{tmp_path}/r.json")
    assert run.code == 0, run.output
    assert run.counts == {"passed": len(TASKS)}
    assert f"{len(TASKS)} cases, {3 * len(TASKS)} samples: no cases with problems" in run.output
    assert not (tmp_path / "r.json").exists()


def test_a_template_that_cuts_the_text_fails_every_case_in_one_line(tmp_path: Path) -> None:
    model = chat_checkpoint(tmp_path, CUTS)
    selection = ("-k", "niah_single_1 or fwe", "--junitxml", f"{tmp_path}/junit.xml")
    run = start(tmp_path, "--preflight", "--model", str(model), *LENGTHS, *selection)
    assert run.code == 1
    assert run.counts == {"failed": 2, "deselected": len(TASKS) - 2}
    assert "Traceback" not in run.output + run.errors
    for task in ("niah_single_1", "fwe"):
        failure = run.junit[f"test_ruler[{task}-1k]"].find("failure")
        assert failure is not None
        assert re.fullmatch(r"preflight: sample 0: .* \(\d+ in all\)", failure.text or "")
    assert "the chat template changed or cut the text; try --chat off" in run.output


class Answerer:
    """Answers everything with the same text, and counts."""

    facts = EngineFacts(
        engine="fake",
        device="cpu",
        dtype="none",
        attention="none",
        batch_size=1,
        prefill="whole",
        reuse="none",
        hardware="none",
    )

    def __init__(self) -> None:
        self.asked = 0

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        self.asked += len(prompts)
        for prompt in prompts:
            tokens = len(prompt.token_ids)
            yield Generation(
                text="",
                prompt_tokens=tokens,
                generated_tokens=0,
                computed_tokens=tokens,
                reused_tokens=0,
                finish="stop",
                seconds=0.0,
            )


def bench(model: Path) -> Bench:
    """Where the cases of all tasks at 1k are worked off."""
    options = Options(
        model=str(model), model_path=str(model), suite="all", lengths=(1024,), samples=3, seed=0, engine="auto",
        device="cpu", dtype="auto", attention="auto", batch_size=0, prefill_chunk="auto", chat="auto",
    length_tokenizer=None, data_dir=None,
        prompts=None, thresholds="t.toml", trust_remote_code=False, preflight=False,
    )  # fmt: skip
    framing = Framing(load_tokenizer(str(model)))
    cases = plan(options, TASKS, Corpora())
    checkpoint = inspect(str(model))
    run = Run(
        options=options, checkpoint=checkpoint, cases=cases, misfits={}, chat=framing.chat, corpora="c", prompts="p"
    )
    return Bench(run, TASKS, framing, Corpora())


def test_a_run_begins_with_preflight_and_never_asks_the_model_where_that_fails(tmp_path: Path) -> None:
    broken, engine = bench(chat_checkpoint(tmp_path, CUTS)), Answerer()
    result = broken.measure(broken.run.cases[0], engine)
    assert (result.score, engine.asked) == (None, 0)
    assert result.error is not None
    assert re.fullmatch(r"preflight: test_ruler\[niah_single_1-1k\] sample 0: .*", result.error)


def test_a_sound_case_asks_for_every_sample(tmp_path: Path) -> None:
    sound, engine = bench(chat_checkpoint(tmp_path)), Answerer()
    result = sound.measure(sound.run.cases[0], engine)
    assert (result.score, result.error, engine.asked) == (0.0, None, 3)
    assert {outcome.score.failure for outcome in result.outcomes} == {"empty"}
