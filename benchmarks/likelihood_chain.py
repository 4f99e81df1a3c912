"""Train a small model from scratch and gate its first and last checkpoint by likelihood, while all its answers are 0.

    python -m benchmarks.likelihood_chain --work out/chain

The model is a Llama of two layers with the tokenizer of the calibration checkpoints. It is trained on prompts of
`niah_single_2` that no sample of the suite contains, on the digits of the gold answers alone. It soon learns which
digits its context has, and needs far more steps to give them in order. The real command then measures the checkpoints
of the FIRST and of the last step, `--signal both`, with a gate on gain. Limit: exit code 1 unless all answers are
wrong, the first checkpoint fails the gate and the last one passes it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from longctx.fixtures.calibration import cached, parse_spec
from longctx.fixtures.corpora.published.ruler import vocabulary
from longctx.fixtures.corpora.synthetic.prose import SENTENCES, sentence
from longctx.fixtures.installation import SUITE as REPOSITORY
from longctx.fixtures.tasks.ruler.suite import PROMPTS

TASK, LENGTH = "niah_single_2", "256"
FIRST = 10
BATCH, LEARNING_RATE, DIGITS = 8, 3e-3, 7
GATES = """
[[gate]]
name = "context helps"
kind = "likelihood"
measure = "gain"
above = 0.2
tasks = ["niah_single_2"]
"""


def example(random: Random) -> tuple[str, str]:
    """Return a prompt with its gold answer."""
    texts, key = PROMPTS[TASK], random.choice(vocabulary())
    value = "".join(random.choices("0123456789", k=DIGITS))
    context = [sentence(random.randrange(SENTENCES)) for _ in range(random.randrange(2, 6))]
    context.insert(random.randrange(len(context) + 1), texts["needle"].format(key=key, value=value))
    prompt = texts["template"].format(context=" ".join(context), query=key)
    return f"{prompt} {texts['answer_prefix'].format(query=key)}", f" {value}"


def loss_of(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, random: Random) -> torch.Tensor:
    """Return the mean loss of the gold answers' tokens over one batch."""
    pairs = [(tokenizer(prompt).input_ids, answer) for prompt, answer in (example(random) for _ in range(BATCH))]
    golds = [tokenizer(answer, add_special_tokens=False).input_ids for _, answer in pairs]
    rows = [[*ids, *gold] for (ids, _), gold in zip(pairs, golds, strict=True)]
    longest = max(map(len, rows))
    # Padding on the right changes nothing before it.
    inputs = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    labels = torch.full_like(inputs, -100)
    for number, (row, gold) in enumerate(zip(rows, golds, strict=True)):
        labels[number, len(row) - len(gold) : len(row)] = torch.tensor(gold)
    hidden = model.model(inputs).last_hidden_state[:, :-1]
    wanted = labels[:, 1:] != -100
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[wanted]), labels[:, 1:][wanted])


def train(work: Path, *, steps: int) -> None:
    """Write the checkpoints of step FIRST and of the last step, unless they are there."""
    if (work / f"step-{steps}" / "config.json").is_file():
        return
    source = cached(parse_spec("full"), work / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(source)
    torch.manual_seed(0)
    random = Random(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=1024, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    for step in range(1, steps + 1):
        loss = loss_of(model, tokenizer, random)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
        if step in (FIRST, steps):
            model.save_pretrained(work / f"step-{step}")
            tokenizer.save_pretrained(work / f"step-{step}")


def measure(work: Path, step: int, *, samples: int) -> dict[str, Any]:
    """Measure a checkpoint by the real command and return its report."""
    (work / "gates.toml").write_text(GATES)
    report = work / f"step-{step}.json"
    command = [
        sys.executable, "-m", "pytest", "--model", str(work / f"step-{step}"), "--suite", "ruler", "-k", TASK,
        "--lengths", LENGTH, "--samples", str(samples), "--signal", "both", "--full", "--chat", "off",
        "--batch-size", "32", "--thresholds", str(work / "gates.toml"), "--journal", str(work / "journal"),
        "--report-json", str(report),
    ]  # fmt: skip
    with (work / f"step-{step}.log").open("w") as log:
        subprocess.run(command, cwd=REPOSITORY, stdout=log, stderr=log, check=False)
    written: dict[str, Any] = json.loads(report.read_bytes())
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, measure and print a line for every checkpoint; return 1 if the limit is exceeded, else 0."""
    args = _parse(arguments)
    args.work.mkdir(parents=True, exist_ok=True)
    train(args.work, steps=args.steps)
    verdicts, scores = [], []
    for step in (FIRST, args.steps):
        report = measure(args.work, step, samples=args.samples)
        (gate,) = (gate for gate in report["gates"] if gate["kind"] == "likelihood")
        (panel,) = report["likelihood"]["panels"]
        verdicts.append(gate["verdict"])
        scores.append(report["cases"][0]["score"])
        low, high = panel["gain"]["interval"]
        print(
            f"step {step}: score {scores[-1]:.1f}, nll {panel['nll']['mean']:.2f}, gain {panel['gain']['mean']:.2f} "
            f"({low:.2f} to {high:.2f}), {panel['samples']} samples: {gate['verdict']}: {gate['reason']}"
        )
    return int(verdicts != ["fail", "pass"] or any(scores))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints, journal, reports and logs")
    parser.add_argument("--steps", type=int, default=1000, help="steps of training (default: 1000)")
    parser.add_argument("--samples", type=int, default=60, help="samples of the task (default: 60)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
