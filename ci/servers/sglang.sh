#!/usr/bin/env bash
# SGLang for `pytest --engine openai`, in an environment of its own (it pins other versions of torch and transformers).
#   for a run:   pytest --model /ckpt --serve 'bash ci/servers/sglang.sh {model} {port}' ...
#   one node:    bash ci/servers/sglang.sh /ckpt 8000    (set SERVER_HOST=0.0.0.0 if other machines must reach it)
#   many nodes:  NODES=2 HEAD=10.0.0.1 RANK=0 bash ci/servers/sglang.sh /ckpt   (RANK=1, ... on the others)
set -euo pipefail
SERVER_ENV=${SERVER_ENV:-/path/to/server-env} # EDIT: the environment that SGLang is installed in
LENGTH=131072                                 # EDIT: the longest of --lengths
GPUS=8                                        # EDIT: GPUs of one node
MODEL=${1:?no checkpoint; give the directory that --model names too}
PORT=${2:-8000}
NODES=${NODES:-1}

if [ ! -x "$SERVER_ENV/bin/python" ]; then
    echo "$0: SERVER_ENV: no bin/python in '$SERVER_ENV'; install SGLang into an environment, set SERVER_ENV to it" >&2
    exit 1
fi
PATH=$SERVER_ENV/bin:$PATH

if [ "$NODES" -gt 1 ]; then
    SERVER_HOST=${SERVER_HOST:-0.0.0.0}
    set -- --nnodes "$NODES" --node-rank "$RANK" --dist-init-addr "$HEAD:20000"
else
    set --
fi
# --sampling-defaults openai: ignore the sampling parameters of the checkpoint's own config.
exec python -m sglang.launch_server --model-path "$MODEL" --host "${SERVER_HOST:-127.0.0.1}" --port "$PORT" \
    --context-length "$LENGTH" --tp "$((GPUS * NODES))" --sampling-defaults openai \
    --enable-cache-report --enable-deterministic-inference "$@"
