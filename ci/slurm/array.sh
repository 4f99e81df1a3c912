#!/usr/bin/env bash
#SBATCH --job-name=longctx
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=12:00:00
#SBATCH --requeue
# One pytest on each node, a worker for each GPU. All draw from the same queues through the journal, so nodes may start
# late, stop early or be taken away: what one had begun is taken over by the others. See settings.sh.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$PWD}"
# shellcheck source=ci/slurm/settings.sh
source "${LONGCTX_SETTINGS:-ci/slurm/settings.sh}"
code=0
"${LONGCTX_PYTEST:-.venv/bin/pytest}" "--model=$MODEL" "--journal=$JOURNAL" -n "${LONGCTX_WORKERS:-8}" "${OPTIONS[@]}" \
    || code=$?
# A gate that fails (1) is for the last run to tell.
[ "$code" -le 1 ] || exit "$code"
