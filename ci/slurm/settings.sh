# Settings of both Slurm scripts, in three places to edit. Submit the jobs from the clone:
#   array=$(sbatch --parsable --array=0-7 ci/slurm/array.sh)
#   sbatch --dependency=afterany:$array ci/slurm/gate.sh
# shellcheck shell=bash disable=SC2034,SC2054
MODEL=/shared/checkpoints/step_1000                              # EDIT: a directory that all nodes can read
JOURNAL=/shared/longctx/journal                                  # EDIT: a directory that all nodes can write
OPTIONS=(--suite ruler --lengths 4k,8k,16k,32k,64k,128k)         # EDIT: the same for both jobs
