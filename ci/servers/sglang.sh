#!/usr/bin/env bash
# SGLang for `pytest --engine openai`, in an environment of its own (it pins other versions of torch and transformers).
#   one node:    bash ci/servers/sglang.sh
#   many nodes:  on each NODES=2 HEAD=10.0.0.1 RANK=0 bash ci/servers/sglang.sh   (RANK=1, ... on the others)
#   for a run:   pytest --model /ckpt --serve 'bash ci/servers/sglang.sh {model} {port}' ...
set -euo pipefail
MODEL=${1:-/path/to/checkpoint} # EDIT: the directory that --model names too
LENGTH=131072                   # EDIT: the longest of --lengths
GPUS=8                          # EDIT: of one node
PORT=${2:-8000}
NODES=${NODES:-1}

if [ "$NODES" -gt 1 ]; then
    set -- --nnodes "$NODES" --node-rank "$RANK" --dist-init-addr "$HEAD:20000"
else
    set --
fi
# --sampling-defaults openai: no sampling of the checkpoint's own beside what is asked for.
exec python -m sglang.launch_server --model-path "$MODEL" --host 0.0.0.0 --port "$PORT" \
    --context-length "$LENGTH" --tp "$((GPUS * NODES))" --sampling-defaults openai \
    --enable-cache-report --enable-deterministic-inference "$@"
