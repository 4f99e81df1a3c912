"""How every command of the pages is run: which stand-ins it needs, what makes it small, and what it must show.

A command belongs to the entry with the longest beginning that it has. It runs as the page shows it, in a copy of the
repository that has the stand-ins at the paths of the page, except for the values of PLACEHOLDERS, and with the options
of `small` behind it.
"""

from dataclasses import dataclass

from tests.helpers.stand_ins import StandIn, checkpoint, needle_server, ray, reports, slurm, training_run, vllm

# Values of a reader that no stand-in can have, and what takes their workspace.
PLACEHOLDERS = {
    "http://node7:8000/v1": "$SERVER",
    "http://node8:8000/v1": "$SERVER",
    "--model /ckpt": "--model $SERVED",
    "--model /shared/ckpt": "--model $SERVED",
    "/shared/": "$PWD/shared/",
    "-n 8": "-n 2",
    "-n 4": "-n 2",
    "--workers 8": "--workers 2",
    "--gpus-per-worker 1": "--gpus-per-worker 0",
}
NEEDLE = "--suite ruler --lengths 512 --samples 2 -k niah_single_2"
SOLVED = "niah_single_2 +.* 100.0"
SEARCH = "--suite ruler --lengths 512 --samples 16 -k niah_single_2 -n 0"


@dataclass(frozen=True, slots=True)
class CommandRun:
    """How the commands with one beginning are run; so few samples may miss a limit or a gate, which is exit code 1."""

    small: str
    """Options behind the command that make it take seconds, or the arguments of a command that is only named."""
    shows: str
    """A regular expression that the output must match."""
    needs: tuple[StandIn, ...]
    before: str
    """A command that the page has its reader run before."""
    writes: str
    """A file that must exist afterwards, as a pattern."""


def run(small: str, shows: str, *needs: StandIn, before: str = "", writes: str = "") -> CommandRun:
    """Return a record of the table."""
    return CommandRun(small, shows, needs, before, writes)


# Commands that install what .ci/run and the test of the wheel install, or need what no CI has, and end only by Ctrl-C;
# then those that other tests run on files of this kind.
NOT_RUN = (
    "git clone", "cd longctx-gates", "python3 -m venv .venv", "pip install", "pip wheel", "uv tool install",
    "make .venv/.ready", "make check", "make examples", "make site", "make wheel", "git bisect run",
    "python -m benchmarks.ruler_referee", "python -m benchmarks.peers",
    "longctx run --model runs/a/iter_0001000 --convert '/opt/megatron", "longctx run --model /checkpoints/latest",
    "longctx run --model /ckpt --engine", "longctx gate out/hf.jsonl out/vllm.jsonl", "longctx gate results/main",
    "longctx run --model ckpt --data-dir DIR", "LONGCTX_JUDGE_KEY=... longctx run", "longctx fetch", "jq ",
    "longctx run --model PATH --suite helmet --data-dir DIR --prompts", "longctx run --model CKPT --tasks-file DIR",
    "longctx run --model ckpt --tasks-file longbench", "longctx run --model calibration:4k --tasks-file contracts.toml",
    "longctx run --model runs/a/checkpoint-300 --base-model", "longctx run --model runs/a/step-1000 --convert 'longctx",
    "longctx convert", "longctx run --model PADDED --baseline", "python -m longctx.ci.ray --workers 8 -- ...",
    "ray job submit --working-dir . -- longctx run",
)  # fmt: skip
COMMAND_RUNS = {
    "longctx --version": run("", "longctx "),
    "pytest tests/unit/thresholds": run("-k test_thresholds", "passed"),
    "python -m tests.fuzz --count": run("--count 40", "inputs"),
    "python -m tests.golden.record": run("", "", writes="tests/golden/recorded/samples.json"),
    # Commands of longctx that pages name without arguments.
    "longctx plan": run("--model calibration:4k --lengths 4k", "tokens"),
    "longctx tasks": run("", "niah_single_1"),
    "longctx checkpoint": run("CKPT", "MistralForCausalLM", checkpoint("CKPT")),
    "longctx completion bash": run("", "complete"),
    "longctx docs": run("", "as text .*gates"),
    "longctx recipes DIR": run("", "", writes="DIR/smoke.sh"),
    "longctx calibration OUT": run("", "", writes="OUT/model.safetensors"),
    "longctx run --help": run("", "--tasks-file FILE"),
    # Runs of the suite that need more than a model; all others are measured as they are.
    "longctx run --model path/to/ckpt --yardstick": run(
        NEEDLE, r"niah_single_2 +\*? +100.0", checkpoint("path/to/ckpt"),
        before="pytest --model calibration:4k --suite ruler --lengths 4k --samples 1 --report-json out/reference.json;"
        " longctx thresholds --yardstick out/reference.json > own.toml",
    ),
    "longctx run --model step_2000 --baseline step_1000": run(
        NEEDLE, "baseline +.*step_1000", checkpoint("step_1000", "step_2000"),
        before=f"pytest --model step_1000 {NEEDLE} --report-json step_1000.json || true",
    ),
    "longctx run --model converted --baseline": run(
        NEEDLE, "baseline +.*smollm2-135m", checkpoint("converted", "smollm2-135m")
    ),
    "longctx run --model smollm2-135m": run(NEEDLE, SOLVED, checkpoint("smollm2-135m")),
    "longctx run --model /ckpt --serve": run(NEEDLE, SOLVED, vllm),
    "longctx run --model /ckpt --base-url": run(NEEDLE, SOLVED, needle_server),
    "longctx compare --model /ckpt": run(NEEDLE, "verdict +equal", needle_server),
    "ray job submit --working-dir . -- python -m longctx.ci.ray": run(
        f"{NEEDLE} --engine hf", SOLVED, ray, vllm, writes="shared/report.json"
    ),
    # Watch, bisect, thresholds.
    "longctx watch runs/a --every 30s": run(f"--once --every 1s {SEARCH}", "step 9000: fail", training_run),
    "longctx watch runs/a --launch": run(f"--once --every 1s {SEARCH}", "step 9000: fail", training_run, slurm),
    "longctx watch runs/a --every-nth": run(
        f"--once --every 1s --every-nth 2 {SEARCH}", "alert, open: niah_single_2-512 lost", training_run
    ),
    "longctx bisect --good runs/a/step-2000": run(
        SEARCH, r"first bad step 9000 \(last good 2000\)", training_run, slurm
    ),
    "longctx diagnose runs/a/step-2000": run("", "tensors .* differ", training_run),
    "longctx diagnose runs/a/step-2000 runs/a/step-9000 --case": run(
        "--case 'test_ruler[niah_single_2-512]' --device cpu", "cause: ", training_run
    ),
    "longctx diagnose runs/a/step-2000 runs/a/step-9000 --report": run(
        "--device cpu", "cause: ", training_run,
        before="longctx run --model runs/a/step-9000 --baseline runs/a/step-2000 --lengths 512 --samples 20 "
        "-k niah_single_2 --report-json out/report.json || true",
    ),
    # Reports.
    "longctx thresholds --yardstick": run("", "", reports("out/reference.json"), writes="own.toml"),
    "longctx history DIR": run(
        "", "2 steps, 4000 to 5000", reports("DIR/a.json", "DIR/b.json"), writes="DIR/history.html"
    ),
    "longctx history --models": run("", r"smollm2-135m \| 90\.0 .* \| 1 \|"),
    # Scripts that measure what the pages claim.
    "python -m benchmarks.faults inject smollm2-135m": run(
        "", "", checkpoint("smollm2-135m"), writes="converted/fault.json"
    ),
    "python -m benchmarks.faults list": run("", "rope_theta"),
    "python -m benchmarks.bisect_chains": run("--chains 2 --checkpoints 8", "not shown"),
    "python -m benchmarks.catch_matrix": run(
        "--samples 4 --caught-samples 4 -k niah_single_2 --rows rope_theta:1,=sharded", "sharded", checkpoint("CKPT")
    ),
    "python -m benchmarks.false_failures": run("--runs 4 --designs '1 x 48'", "not shown"),
    "python -m benchmarks.false_verdicts": run("--orders 4", "4 orders"),
    "python -m benchmarks.same_answers": run(
        "--batch-sizes 1 --samples 1,1,2 -k niah_single_2", "differ", checkpoint("CKPT")
    ),
    "python -m benchmarks.gpu_session": run("--tiny", "gpu_session.md", writes="DIR/gpu_session.md"),
    "python -m benchmarks.kill_ci": run(
        "--kills 1 --seconds 3 --checkpoints 2 --samples 16 --only watch", "watch: 1 kills so far, result the same"
    ),
    "python -m benchmarks.kill_runs": run("--kills 1", "signals"),
    "python -m benchmarks.tokens_to_verdict": run("--samples 2 --lengths 512", "calibration:512"),
    "python -m benchmarks.watch_histories": run("--histories 1 --samples 10", "(ok|EXCEEDED)"),
}  # fmt: skip


def beginning_of(command: str) -> str | None:
    """Return the longest beginning in the table that a command has, None if it has none."""
    return max((beginning for beginning in COMMAND_RUNS if command.startswith(beginning)), key=len, default=None)
