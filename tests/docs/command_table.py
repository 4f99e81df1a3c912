"""How every command of the pages is run: which stand-ins it needs, what makes it small, and what it must show.

A command belongs to the entry with the longest beginning that it has. It runs as the page shows it, in a copy of the
repository that has the stand-ins at the paths of the page, except for the values of PLACEHOLDERS, and with the options
of `small` behind it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.helpers.stand_in_programs import (
    judge,
    mirror,
    needle_server,
    ray,
    slurm,
    vllm,
)  # fmt: skip
from tests.helpers.stand_ins import (
    StandIn,
    adapter,
    checkpoint,
    contracts,
    distributed_checkpoint,
    helmet_clone,
    longbench,
    published_data,
    random_checkpoint,
    reports,
    samples_file,
    training_run,
    two_results,
)  # fmt: skip

# Values of a reader that no stand-in can have, and what takes their workspace.
PLACEHOLDERS = {
    "http://node7:8000/v1": "$SERVER",
    "http://node8:8000/v1": "$SERVER",
    "https://host/v1": "$JUDGE",
    "--model /ckpt": "--model $SERVED",
    "--model /shared/ckpt": "--model $SERVED",
    "/shared/": "$PWD/shared/",
    "-- ...": "-- --model $SERVED --journal $PWD/journal",
    "-n 8": "-n 2",
    "-n 4": "-n 2",
    "--workers 8": "--workers 2",
    "--gpus-per-worker 1": "--gpus-per-worker 0",
}
NEEDLE = "--suite ruler --lengths 512 --samples 2 -k niah_single_2"
SEARCH = "--suite ruler --lengths 512 --samples 16 -k niah_single_2 -n 0"


def installed(*programs: str) -> Callable[[], str | None]:
    """Return a function that names the first program that is not installed."""
    return lambda: next((f"{name} is not installed" for name in programs if shutil.which(name) is None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRun:
    """How the commands with one beginning are run."""

    small: str = ""
    """Options behind the command that make it take seconds, or the arguments of a command that is only named."""
    needs: tuple[StandIn, ...] = ()
    before: str = ""
    """A command that the page has its reader run before."""
    shows: str = ""
    """A regular expression that the output must match."""
    writes: str = ""
    """A file that must exist afterwards, as a pattern."""
    codes: tuple[int, ...] = (0,)
    """The exit codes of a run that came to its end; 1 is a limit or a gate that so few samples miss."""
    missing: Callable[[], str | None] = field(default=lambda: None)
    """Return why the command cannot run on this machine."""


def benchmark(small: str, shows: str, *needs: StandIn, writes: str = "") -> CommandRun:
    """Return how a script is run that measures what a page claims; so few samples may miss its limits."""
    return CommandRun(small=small, shows=shows, needs=needs, writes=writes, codes=(0, 1))


# Commands that install what .ci/run and the test of the wheel install, or need what no CI has, and end only by Ctrl-C.
NOT_RUN = (
    "git clone", "cd longctx-gates", "python3 -m venv .venv", "pip install", "pip wheel", "uv tool install",
    "make .venv/.ready", "make check", "make examples", "make site", "make wheel", "git bisect run",
    "python -m benchmarks.ruler_referee", "python -m benchmarks.peers",
    "longctx run --model runs/a/iter_0001000 --convert '/opt/megatron", "longctx run --model /checkpoints/latest",
    "longctx run --model /ckpt --engine", "longctx gate out/hf.jsonl out/vllm.jsonl",
)  # fmt: skip
COMMAND_RUNS = {
    "longctx --version": CommandRun(shows="longctx "),
    "pytest tests/unit/thresholds": CommandRun(small="-k test_thresholds", shows="passed"),
    "python -m tests.fuzz --count": CommandRun(small="--count 40", shows="inputs"),
    "python -m tests.golden.record": CommandRun(writes="tests/golden/recorded/samples.json"),
    # Commands of longctx that pages name without arguments.
    "longctx plan": CommandRun(small="--model calibration:4k --lengths 4k", shows="tokens"),
    "longctx tasks": CommandRun(shows="niah_single_1"),
    "longctx checkpoint": CommandRun(small="CKPT", needs=(checkpoint("CKPT"),), shows="MistralForCausalLM"),
    "longctx convert": CommandRun(
        small="runs/a/step-1000 out/ckpt --like path/to/base", needs=(distributed_checkpoint,), writes="out/ckpt/*.json"
    ),
    "python -m benchmarks.faults inject smollm2-135m": CommandRun(
        needs=(checkpoint("smollm2-135m"),), writes="converted/fault.json"
    ),
    "python -m benchmarks.faults list": CommandRun(shows="rope_theta"),
    "longctx completion bash": CommandRun(shows="complete"),
    "longctx docs": CommandRun(shows="as text .*gates"),
    "longctx recipes": CommandRun(shows="smoke.sh"),
    "longctx recipes DIR": CommandRun(writes="DIR/smoke.sh"),
    "longctx calibration OUT": CommandRun(writes="OUT/model.safetensors"),
    "longctx run --help": CommandRun(shows="--tasks-file FILE"),
    # Runs of the suite that need more than a model; all others are measured as they are.
    "longctx run --model ckpt --data-dir DIR": CommandRun(
        small="--suite helmet --lengths 4k --samples 1 -k ruler_niah_multivalue", codes=(0, 1),
        needs=(checkpoint("ckpt"), published_data), shows="ruler_niah_multivalue",
    ),
    "LONGCTX_JUDGE_KEY=... longctx run": CommandRun(
        small="--lengths 4k --samples 1 -k multi_lexsum", needs=(random_checkpoint, published_data, judge),
        shows="multi_lexsum +[1-9]",
    ),
    "longctx run --model PATH --suite helmet --data-dir DIR --prompts helmet.toml": CommandRun(
        small="--lengths 4k --samples 1 -k json_kv", needs=(checkpoint("PATH"), published_data, helmet_clone),
        before="longctx fetch helmet-prompts --from HELMET --to helmet.toml", shows="json_kv",
    ),
    "longctx run --model ckpt --tasks-file longbench": CommandRun(
        small="--lengths 4k --samples 1 -k longbench_trec", needs=(checkpoint("ckpt"), longbench), codes=(0, 1),
        shows="longbench_trec",
    ),
    "longctx run --model calibration:4k --tasks-file contracts.toml": CommandRun(
        needs=(contracts,), shows=r"all +1 +\d+ ",
    ),
    "longctx run --model path/to/ckpt --yardstick": CommandRun(
        small=NEEDLE, needs=(checkpoint("path/to/ckpt"),), shows=r"niah_single_2 +\*? +100.0", codes=(0, 1),
        before="pytest --model calibration:4k --suite ruler --lengths 4k --samples 1 --report-json out/reference.json;"
        " longctx thresholds --yardstick out/reference.json > own.toml",
    ),
    "longctx run --model step_2000 --baseline step_1000": CommandRun(
        small=NEEDLE, needs=(checkpoint("step_1000", "step_2000"),), codes=(0, 1), shows="baseline +.*step_1000",
        before=f"pytest --model step_1000 {NEEDLE} --report-json step_1000.json || true",
    ),
    "longctx run --model PADDED --baseline": CommandRun(
        small=NEEDLE, needs=(checkpoint("PADDED", "CKPT"),), codes=(0, 1), shows="baseline +.*CKPT"
    ),
    "longctx run --model CKPT --tasks-file DIR": CommandRun(
        small="--samples 1", needs=(checkpoint("CKPT"), published_data), shows="niah_multivalue", codes=(0, 1),
    ),
    "longctx run --model converted --baseline": CommandRun(
        small=NEEDLE, needs=(checkpoint("converted", "smollm2-135m"),), codes=(0, 1), shows="baseline +.*smollm2-135m"
    ),
    "longctx run --model smollm2-135m": CommandRun(
        small=NEEDLE, needs=(checkpoint("smollm2-135m"),), codes=(0, 1), shows="niah_single_2 +.* 100.0"
    ),
    "longctx run --model runs/a/checkpoint-300 --base-model": CommandRun(
        small=NEEDLE, needs=(adapter,), shows="niah_single_2 +.* 100.0", codes=(0, 1)
    ),
    "longctx run --model runs/a/step-1000 --convert 'longctx convert": CommandRun(
        small=NEEDLE, needs=(distributed_checkpoint,), shows="niah_single_2 +.* 100.0", codes=(0, 1)
    ),
    "longctx run --model /ckpt --serve": CommandRun(
        small=NEEDLE, needs=(vllm,), shows="niah_single_2 +.* 100.0", codes=(0, 1)
    ),
    "longctx gate results/main results/new": CommandRun(needs=(two_results,), shows="verdict +pass"),
    "longctx compare --model /ckpt": CommandRun(small=NEEDLE, needs=(needle_server,), shows="verdict +equal"),
    "longctx run --model /ckpt --base-url": CommandRun(
        small=NEEDLE, needs=(needle_server,), shows="niah_single_2 +.* 100.0", codes=(0, 1)
    ),
    "ray job submit --working-dir . -- python -m longctx.ci.ray": CommandRun(
        small=f"{NEEDLE} --engine hf", needs=(ray, vllm), shows="niah_single_2 +.* 100.0", codes=(0, 1),
        writes="shared/report.json",
    ),
    "ray job submit --working-dir . -- longctx run": CommandRun(
        small=NEEDLE, needs=(ray, vllm), shows="niah_single_2 +.* 100.0", codes=(0, 1)
    ),
    "python -m longctx.ci.ray --workers 8 -- ...": CommandRun(
        small=NEEDLE, needs=(ray, vllm), shows="niah_single_2 +.* 100.0", codes=(0, 1)
    ),
    # Watch, bisect, thresholds.
    "longctx watch runs/a --every 30s": CommandRun(
        small=f"--once --every 1s {SEARCH}", needs=(training_run,), shows="step 9000: fail", codes=(1,)
    ),
    "longctx watch runs/a --launch": CommandRun(
        small=f"--once --every 1s {SEARCH}", needs=(training_run, slurm), shows="step 9000: fail", codes=(1,)
    ),
    "longctx watch runs/a --every-nth": CommandRun(
        small=f"--once --every 1s --every-nth 2 {SEARCH}",
        needs=(training_run,),
        shows="alert, open: niah_single_2-512 lost",
        codes=(1,),
    ),
    "longctx bisect --good runs/a/step-2000": CommandRun(
        small=SEARCH, needs=(training_run, slurm), shows=r"first bad step 9000 \(last good 2000\)"
    ),
    "longctx diagnose runs/a/step-2000": CommandRun(needs=(training_run,), shows="tensors .* differ"),
    "longctx diagnose runs/a/step-2000 runs/a/step-9000 --case": CommandRun(
        small="--case 'test_ruler[niah_single_2-512]' --device cpu",
        needs=(training_run,),
        shows="cause: ",
        codes=(0, 1),
    ),
    "longctx diagnose runs/a/step-2000 runs/a/step-9000 --report": CommandRun(
        before="longctx run --model runs/a/step-9000 --baseline runs/a/step-2000 --lengths 512 --samples 20 "
        "-k niah_single_2 --report-json out/report.json || true",
        small="--device cpu",
        needs=(training_run,),
        shows="cause: ",
        codes=(0, 1),
    ),
    # Reports and data.
    "longctx thresholds --yardstick": CommandRun(needs=(reports("out/reference.json"),), writes="own.toml"),
    "longctx history DIR": CommandRun(
        needs=(reports("DIR/a.json", "DIR/b.json"),), shows="2 steps, 4000 to 5000", writes="DIR/history.html"
    ),
    "longctx history --models": CommandRun(shows=r"smollm2-135m \| 90\.0 .* \| 1 \|"),
    "longctx fetch helmet-prompts": CommandRun(needs=(helmet_clone,), writes="helmet.toml"),
    "longctx fetch ": CommandRun(small="--from $MIRROR", needs=(mirror,), shows="complete", writes="DIR/*"),
    "jq ": CommandRun(needs=(samples_file,), shows=r"[1-9] test_ruler\[", missing=installed("jq")),
    # Scripts that measure what the pages claim.
    "python -m benchmarks.bisect_chains": benchmark("--chains 2 --checkpoints 8", "not shown"),
    "python -m benchmarks.catch_matrix": benchmark(
        "--samples 4 --caught-samples 4 -k niah_single_2 --rows rope_theta:1,=sharded", "sharded", checkpoint("CKPT")
    ),
    "python -m benchmarks.false_failures": benchmark("--runs 4 --designs '1 x 48'", "not shown"),
    "python -m benchmarks.false_verdicts": benchmark("--orders 4", "4 orders"),
    "python -m benchmarks.same_answers": benchmark(
        "--batch-sizes 1 --samples 1,1,2 -k niah_single_2", "differ", checkpoint("CKPT")
    ),
    "python -m benchmarks.gpu_session": benchmark("--tiny", "gpu_session.md", writes="DIR/gpu_session.md"),
    "python -m benchmarks.kill_ci": benchmark(
        "--kills 1 --seconds 3 --checkpoints 2 --samples 16 --only watch", "watch: 1 kills so far, result the same"
    ),
    "python -m benchmarks.kill_runs": benchmark("--kills 1", "signals"),
    "python -m benchmarks.tokens_to_verdict": benchmark("--samples 2 --lengths 512", "calibration:512"),
    "python -m benchmarks.watch_histories": benchmark("--histories 1 --samples 10", "(ok|EXCEEDED)"),
}  # fmt: skip


def beginning_of(command: str) -> str | None:
    """Return the longest beginning in the table that a command has, None if it has none."""
    return max((beginning for beginning in COMMAND_RUNS if command.startswith(beginning)), key=len, default=None)
