#!/usr/bin/env bash
# Every command of docs/tutorial_prune_a_model.md: tutorial.sh INPUTS WORK [LATENCY [STEPS [TEXTS]]]
# INPUTS is what prepare.py wrote; WORK is a new folder.
set -euo pipefail
inputs=$1 work=$2 latency=${3:-83%} steps=${4:-400} texts=${5:-96}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work"
step() { python "$here/tutorial.py" "$@"; }

step calibrate --inputs "$inputs" --out "$work/squares.safetensors" --texts "$texts"
python -P -m prunecast prune "$inputs/model" -o "$work/pruned" --latency "$latency" --runtime torch \
    --workload prefill:64x128 --engine model --ignore 're:^embeddings' --calibrate "$work/squares.safetensors"
step distil --inputs "$inputs" --pruned "$work/pruned" --out "$work/tuned" --steps "$steps" --texts "$texts"
step judge --inputs "$inputs" --models "$inputs/model" "$work/tuned"
step time --inputs "$inputs" --pruned "$work/pruned" --tuned "$work/tuned"
