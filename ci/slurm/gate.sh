#!/usr/bin/env bash
#SBATCH --job-name=longctx-gate
#SBATCH --nodes=1
#SBATCH --gpus-per-node=1
#SBATCH --time=00:30:00
# Evaluate the gates on the samples that the array left in the journal. The run starts no sample itself (--budget);
# gates without enough samples are undecided. It needs a node of the same kind, because results are stored by device.
# See settings.sh.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$PWD}"
# shellcheck source=ci/slurm/settings.sh
source "${LONGCTX_SETTINGS:-ci/slurm/settings.sh}"
exec "${LONGCTX_PYTEST:-.venv/bin/pytest}" "--model=$MODEL" "--journal=$JOURNAL" --budget 0.0001 "${OPTIONS[@]}" \
    "--report-json=${LONGCTX_REPORT:-longctx-$(basename "$MODEL").json}"
