#!/usr/bin/env bash
# Before a merge: ten minutes with a model, to see that nothing is badly broken. In the clone:
#
#     ci/recipes/smoke.sh MODEL
#
# What ten minutes leave open counts as passed (ci/recipes/smoke.toml): only what was shown fails.
set -euo pipefail

MODEL=${1:?give a checkpoint directory}
LENGTHS=${LENGTHS:-4k,16k}               # EDIT: lengths in tokens; a short one and one beyond what training saw
SAMPLES=${SAMPLES:-40}                   # EDIT: per task and length, at most
BUDGET=${BUDGET:-10}                     # EDIT: minutes
WORKERS=${WORKERS:-1}                    # EDIT: GPUs of the machine
THRESHOLDS=${THRESHOLDS:-ci/recipes/smoke.toml} # EDIT: your gates
BASELINE=${BASELINE:-}                   # EDIT: JSON report of the main branch's model, if there is one
OUT=${OUT:-out}                          # EDIT: where the reports go

make .venv/.ready
mkdir -p "$OUT"
exec .venv/bin/pytest --model "$MODEL" --suite ruler --lengths "$LENGTHS" --samples "$SAMPLES" -n "$WORKERS" \
    --thresholds "$THRESHOLDS" ${BASELINE:+--baseline "$BASELINE"} --budget "$BUDGET" \
    --report-json "$OUT/smoke.json" --junitxml "$OUT/smoke.xml"
