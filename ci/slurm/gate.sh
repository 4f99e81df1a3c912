#!/usr/bin/env bash
#SBATCH --job-name=longctx-gate
#SBATCH --nodes=1
#SBATCH --gpus-per-node=1
#SBATCH --time=00:30:00
# The verdict on what the array left in the journal. No sample is begun (--budget), and what is missing is inconclusive.
# It runs on a node of the same kind: the device is part of the name under which results stand. See settings.sh.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$PWD}"
# shellcheck source=ci/slurm/settings.sh
source "${LONGCTX_SETTINGS:-ci/slurm/settings.sh}"
exec "${LONGCTX_PYTEST:-.venv/bin/pytest}" "--model=$MODEL" "--journal=$JOURNAL" --budget 0.0001 "${OPTIONS[@]}" \
    "--report-json=${LONGCTX_REPORT:-longctx-$(basename "$MODEL").json}"
