#!/usr/bin/env bash
# vLLM for `pytest --engine openai`, in an environment of its own (it pins other versions of torch and transformers).
#   one node:    bash ci/servers/vllm.sh
#   many nodes:  on each NODES=2 HEAD=10.0.0.1 RANK=0 bash ci/servers/vllm.sh   (RANK=1, ... on the others; needs Ray)
#   for a run:   pytest --model /ckpt --serve 'bash ci/servers/vllm.sh {model} {port}' ...
set -euo pipefail
MODEL=${1:-/path/to/checkpoint} # EDIT: the directory that --model names too
LENGTH=131072                   # EDIT: the longest of --lengths
GPUS=8                          # EDIT: of one node
PORT=${2:-8000}
NODES=${NODES:-1}

# The same answer whatever else is asked at the same time: slower, and worth it for a comparison with a baseline.
export VLLM_BATCH_INVARIANT=${VLLM_BATCH_INVARIANT:-1}
if [ "$NODES" -gt 1 ]; then
    if [ "$RANK" -gt 0 ]; then
        exec ray start --address="$HEAD:6379" --block
    fi
    ray start --head --port=6379
    set -- --distributed-executor-backend ray
else
    set --
fi
# --generation-config vllm: no penalty or sampling of the checkpoint's own beside what is asked for.
exec vllm serve "$MODEL" --host 0.0.0.0 --port "$PORT" --max-model-len "$LENGTH" \
    --tensor-parallel-size "$GPUS" --pipeline-parallel-size "$NODES" \
    --enable-prefix-caching --enable-prompt-tokens-details --generation-config vllm "$@"
