#!/usr/bin/env bash
# Smoke test before a merge: ten minutes with a model show whether something is badly broken. In the clone:
#
#     ci/recipes/smoke.sh MODEL
#
# Gates that ten minutes leave undecided pass (ci/recipes/smoke.toml); only a shown failure fails.
set -euo pipefail

MODEL=${1:?give a checkpoint directory}
LENGTHS=${LENGTHS:-4k,16k}               # EDIT: lengths in tokens; a short one and one beyond what training saw
SAMPLES=${SAMPLES:-40}                   # EDIT: most samples of a task at one length
BUDGET=${BUDGET:-10}                     # EDIT: minutes
WORKERS=${WORKERS:-1}                    # EDIT: GPUs of the machine
THRESHOLDS=${THRESHOLDS:-ci/recipes/smoke.toml} # EDIT: your gates
BASELINE=${BASELINE:-}                   # EDIT: JSON report of the main branch's model, if there is one
OUT=${OUT:-out}                          # EDIT: folder for the reports

make .venv/.ready
mkdir -p "$OUT"
exec .venv/bin/pytest --model "$MODEL" --suite ruler --lengths "$LENGTHS" --samples "$SAMPLES" -n "$WORKERS" \
    --thresholds "$THRESHOLDS" ${BASELINE:+--baseline "$BASELINE"} --budget "$BUDGET" \
    --report-json "$OUT/smoke.json" --junitxml "$OUT/smoke.xml"
