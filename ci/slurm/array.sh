#!/usr/bin/env bash
#SBATCH --job-name=longctx
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=12:00:00
#SBATCH --requeue
# Run one pytest on every node, with one worker for a GPU. All workers share their queues through the journal, so nodes
# may start late, stop early or fail: the others repeat the samples that a lost node had begun. See settings.sh.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$PWD}"
# shellcheck source=ci/slurm/settings.sh
source "${LONGCTX_SETTINGS:-ci/slurm/settings.sh}"
code=0
"${LONGCTX_PYTEST:-.venv/bin/pytest}" "--model=$MODEL" "--journal=$JOURNAL" -n "${LONGCTX_WORKERS:-8}" "${OPTIONS[@]}" \
    || code=$?
# The job of gate.sh reports failed gates (exit code 1).
[ "$code" -le 1 ] || exit "$code"
