"""Small files at the paths that commands of the pages name: checkpoints, reports and data of a reader.

Each function puts one thing into the workspace in which a command runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.records.report import report_data
from longctx.fixtures.tasks.questions.read_tasks import read_tasks, tasks_path
from longctx.plugins.report.document import document
from longctx.plugins.report.sample_files import sample_lines
from tests.helpers.helmet_clone import make_helmet_clone
from tests.helpers.page_commands import DOCS
from tests.helpers.question_files import write_rows
from tests.helpers.reports import run_summary
from tests.helpers.suite_files import write_suite
from tests.helpers.tiny_models import CONFIGS, save_distributed, save_model
from tests.helpers.tiny_nli import save_writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The copy of the repository in which one command runs."""

    folder: Path
    programs: Path
    """A directory in front of all others in PATH."""
    variables: dict[str, str]
    """Variables of the command; a value that replaces one of the reader's may name them."""
    stack: ExitStack
    """Ends servers after the command."""


StandIn = Callable[[Workspace], object]


def checkpoint(*names: str, spec: str = "4k") -> StandIn:
    """Return a function that writes a calibration checkpoint to each of these paths."""
    return lambda workspace: [build(parse_spec(spec), workspace.folder / name) for name in names]


def random_checkpoint(workspace: Workspace) -> None:
    """Write a model of random weights to `ckpt`, whose answers are not empty."""
    save_model(CONFIGS["llama"], workspace.folder / "ckpt")


def training_run(workspace: Workspace) -> None:
    """Write three checkpoints; the last two find a tenth of all keys."""
    for spec, step in (("full", 2000), ("full-blind=0.9", 9000), ("full-blind=0.9", 16000)):
        build(parse_spec(f"{spec}-step={step}"), workspace.folder / f"runs/a/step-{step}")


def adapter(workspace: Workspace) -> None:
    """Write a base model, and a LoRA adapter of one of its matrices."""
    base, folder = workspace.folder / "path/to/base", workspace.folder / "runs/a/checkpoint-300"
    build(parse_spec("512"), base)
    outputs, inputs = AutoModelForCausalLM.from_pretrained(base).model.layers[0].self_attn.q_proj.weight.shape
    folder.mkdir(parents=True)
    settings = {
        "peft_type": "LORA", "r": 2, "lora_alpha": 2, "use_rslora": False, "base_model_name_or_path": "a/b",
        "target_modules": ["q_proj"], "layers_to_transform": [0],
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    matrices = {"A": torch.ones(2, inputs), "B": torch.zeros(outputs, 2)}
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {f"{name}.lora_{letter}.weight": matrix for letter, matrix in matrices.items()}
    save_file(tensors, folder / "adapter_model.safetensors")


def distributed_checkpoint(workspace: Workspace) -> None:
    """Write a base model, and what training with FSDP leaves of it."""
    base = workspace.folder / "path/to/base"
    build(parse_spec("512"), base)
    save_distributed(base, workspace.folder / "runs/a/step-1000")


def reports(*names: str) -> StandIn:
    """Return a function that writes these reports of RULER and HELMET, of steps 4000, 5000 and so on."""

    def write(workspace: Workspace) -> None:
        for number, name in enumerate(names, start=4):
            run = run_summary(lengths=(4096, 8192), samples=6, model_path=f"/models/run/step_{number}000")
            report = report_data(document(run))
            report["model"]["fingerprint"] = f"{number:032}"
            (workspace.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace.folder / name).write_text(json.dumps(report))

    return write


def samples_file(workspace: Workspace) -> None:
    """Write all samples of a run, of which some are refusals."""
    (workspace.folder / "out").mkdir(exist_ok=True)
    run = run_summary(suite="ruler", lengths=(4096, 8192), samples=30)
    (workspace.folder / "out/samples.jsonl").write_text("".join(sample_lines(run)), encoding="utf-8")


def two_results(workspace: Workspace) -> None:
    """Write the equal results of two models."""
    for side in ("main", "new"):
        (workspace.folder / "results" / side).mkdir(parents=True)
        lines = "".join(f"{number},{number % 2}\n" for number in range(60))
        (workspace.folder / "results" / side / "scores.csv").write_text(f"id,score\n{lines}")


def contracts(workspace: Workspace) -> None:
    """Write the tasks file of the page, and questions for it."""
    page = (DOCS / "own-questions.md").read_text(encoding="utf-8")
    (tasks,) = re.findall(r'^    \[\[dataset\]\]\n    name = "contracts"\n(?:    .*\n)+', page, re.MULTILINE)
    (workspace.folder / "contracts.toml").write_text(re.sub(r"^    ", "", tasks, flags=re.MULTILINE))
    row = {"contract": "The lease of the mill ends on 31 May 2031.", "question": "When does the lease end?"}
    write_rows(workspace.folder / "contracts.jsonl", [row | {"answer": ["31 May 2031"]}])


def published_data(workspace: Workspace) -> None:
    """Write published files of a needle task, of citations and of law cases, and an entailment model."""
    data = workspace.folder / "DIR"
    needle = {"id": "1", "query": "q", "input": "The key of q is 7. The key of q is", "outputs": ["7"]}
    write_rows(data / "ruler/niah_multivalue/validation_4096.jsonl", [needle])
    documents = [{"title": f"T{number}", "text": f"Text {number} on a mill."} for number in range(400)]
    pairs = [{"short_answers": ["Ida"]}, {"short_answers": ["Tom"]}]
    cited = [{"sample_id": name, "question": f"Who, {name}?", "docs": documents, "qa_pairs": pairs} for name in "abcd"]
    write_rows(data / "alce/asqa_eval_gtr_top2000.json", cited)
    law = {
        "sources": ["The clerk sued the mill.\n" * 10_000],
        "summary/short": "He won.",
        "summary/long": "He won the case.",
    }
    cases = [{"id": str(number), "summary/short_keypoints": ["The clerk won."], **law} for number in range(4)]
    write_rows(data / "multi_lexsum/multi_lexsum_val.jsonl", cases)
    save_writer(workspace.folder / "path/to/t5_xxl_true_nli_mixture")


def longbench(workspace: Workspace) -> None:
    """Write the files of LongBench with invented content."""
    write_suite(read_tasks(tasks_path("longbench", workspace.folder)), workspace.folder / "DIR")


def helmet_clone(workspace: Workspace) -> None:
    """Write a directory of the form of a clone of HELMET."""
    make_helmet_clone(workspace.folder / "HELMET")
