#!/usr/bin/env bash
# Slurm: gate the checkpoints of a training job, in a job of its own that starts when training ends.
#
#     train=$(sbatch --parsable train.sh)
#     sbatch --dependency="afterany:$train" ci/recipes/slurm-epilogue.sh /checkpoints/run-a
#
# Submit it in the clone. It measures all complete checkpoints of the directory that were not measured before,
# oldest first, and compares them with the last one that passed. A requeued job continues. Arguments after the
# directory are passed to pytest, such as --suite ruler.
#SBATCH --job-name=longctx-gates
#SBATCH --nodes=1
#SBATCH --gres=gpu:8
#SBATCH --time=06:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --output=longctx-gates-%j.log
# Edit above: gres (GPUs of a node) and time, and add --partition and --account as your cluster needs them.
set -euo pipefail

RUN=${1:?give the directory of the training run}
shift
CONFIG=${CONFIG:-ci/recipes/longctx.toml} # EDIT: the file with lengths, GPUs and gates; edit that too
JOURNAL=${JOURNAL:-$RUN/.longctx/journal} # EDIT: a directory that all nodes can write
OUT=${OUT:-$RUN/.longctx/watch}           # EDIT: history and reports
ON_FAILURE=${ON_FAILURE:-}                # EDIT: a command, such as 'mail -s "step $LONGCTX_STEP" me@example.org'

cd "${SLURM_SUBMIT_DIR:-.}"
make .venv/.ready
# exec, so that Slurm's TERM reaches the watch, which then stops cleanly.
exec .venv/bin/longctx watch "$RUN" --config "$CONFIG" --once --every 5s --out "$OUT" \
    ${ON_FAILURE:+--on-failure "$ON_FAILURE"} --journal "$JOURNAL" "$@"
