"""`longctx checkpoint`: show what the suite reads from a checkpoint, without loading a model."""

from collections.abc import Sequence

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.checkpoints.steps import step_of
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.lengths import format_length


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the facts and return 0, or 4 after one line for a directory that no run could measure."""
    parser = CommandParser(
        prog="longctx checkpoint",
        description="Check that a checkpoint can be measured, and show what reports say of it; no model is loaded.",
    )
    parser.add_argument("checkpoint", metavar="CKPT", help="checkpoint directory")
    parser.add_argument("--trust-remote-code", action="store_true", help="accept a checkpoint with Python code")
    options = parser.parse_args(arguments)
    try:
        checkpoint = read_checkpoint(options.checkpoint, option="CKPT", trust_remote_code=options.trust_remote_code)
    except CheckpointError as error:
        return report_wrong_use(str(error))
    claimed, step = checkpoint.claimed_length, step_of(checkpoint.path)
    facts = {
        "checkpoint": checkpoint.path,
        "architecture": checkpoint.architecture,
        "weights": f"{checkpoint.parameters:,} in {checkpoint.dtype}, {checkpoint.weight_bytes / 1e9:.2f} GB",
        "claims": "no length" if claimed is None else f"{format_length(claimed)} ({claimed:,} tokens)",
        "step": "none in the path" if step is None else str(step),
        "fingerprint": checkpoint.fingerprint,
    }
    for name, value in (facts | ({"warning": checkpoint.warning} if checkpoint.warning else {})).items():
        print_line(f"{name:<13}{value}")
    return 0
