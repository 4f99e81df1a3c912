#!/usr/bin/env bash
# vLLM for `pytest --engine openai`, in an environment of its own (it pins other versions of torch and transformers).
#   for a run:   pytest --model /ckpt --serve 'bash ci/servers/vllm.sh {model} {port}' ...
#   one node:    bash ci/servers/vllm.sh /ckpt 8000    (set SERVER_HOST=0.0.0.0 if other machines must reach it)
#   many nodes:  NODES=2 HEAD=10.0.0.1 RANK=0 bash ci/servers/vllm.sh /ckpt   (RANK=1, ... on the others; starts Ray)
#   on a Ray:    ray job submit -- pytest --model /ckpt --serve 'env NODES=2 bash ci/servers/vllm.sh {model} {port}' ...
set -euo pipefail
SERVER_ENV=${SERVER_ENV:-/path/to/server-env} # EDIT: the environment that vLLM is installed in
LENGTH=131072                                 # EDIT: the longest of --lengths
GPUS=8                                        # EDIT: GPUs of one node
MODEL=${1:?no checkpoint; give the directory that --model names too}
PORT=${2:-8000}
NODES=${NODES:-1}

if [ ! -x "$SERVER_ENV/bin/vllm" ]; then
    echo "$0: SERVER_ENV: no bin/vllm in '$SERVER_ENV'; install vLLM into an environment, set SERVER_ENV to it" >&2
    exit 1
fi
PATH=$SERVER_ENV/bin:$PATH

# Answers do not depend on concurrent requests: slower, but needed for a comparison with a baseline.
export VLLM_BATCH_INVARIANT=${VLLM_BATCH_INVARIANT:-1}
if [ "$NODES" -gt 1 ]; then
    # A job of Ray has the address of its cluster.
    if [ -z "${RAY_ADDRESS:-}" ]; then
        if [ "$RANK" -gt 0 ]; then
            exec ray start --address="$HEAD:6379" --block
        fi
        ray start --head --port=6379
    fi
    SERVER_HOST=${SERVER_HOST:-0.0.0.0}
    set -- --distributed-executor-backend ray
else
    set --
fi
# --generation-config vllm: ignore the penalties and sampling parameters of the checkpoint's own config.
exec vllm serve "$MODEL" --host "${SERVER_HOST:-127.0.0.1}" --port "$PORT" --max-model-len "$LENGTH" \
    --tensor-parallel-size "$GPUS" --pipeline-parallel-size "$NODES" \
    --enable-prefix-caching --enable-prompt-tokens-details --generation-config vllm "$@"
