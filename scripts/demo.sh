#!/usr/bin/env bash
# make demo: from this project's own sources to a GPT that has learned from them, on two ranks, in about a minute.
set -eu
program=${1:?usage: scripts/demo.sh PROGRAM}
out=out/demo
mkdir -p "$out"
mpirun=$(command -v mpirun.mpich || command -v mpirun) || { echo "error: no mpirun. Install it: apt-get install mpich" >&2; exit 1; }

say() { printf '\n-- %s\n' "$*"; }

say "tokens: the bytes of this project's own sources and texts"
# One part of the files is kept apart, to see how the model does on text that it has not seen.
"$program" prepare --text '{model,pipeline,kernels,commands}/*.{cpp,h,md}' --output "$out/train.bin"
"$program" prepare --text '{README.md,data/*.cpp,data/*.h}' --output "$out/val.bin"

say "a small GPT on 2 ranks, 1F1B schedule"
"$mpirun" -n 2 "$program" train --train-data "$out/train.bin" --val-data "$out/val.bin" \
  --layers 4 --heads 4 --hidden 128 --seq-len 128 --max-seq-len 128 --micro-batch-size 4 --micro-batches 8 \
  --learning-rate 2e-3 --warmup-steps 30 --steps 350 --val-every 100 --val-batches 2 \
  --output "$out" --overwrite --svg "$out/timeline.svg"

say "what it writes now"
"$program" generate --init "$out/model.bin" --prompt "// The pipeline" --tokens 200 --temperature 0.7

say "what is in $out: log.jsonl (one object per step), model.bin (llm.c's format), timeline.svg (look at it in a browser)"
