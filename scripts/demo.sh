#!/usr/bin/env bash
# make demo: from this project's own sources to a GPT that has learned from them, on two ranks. As many steps as fit two
# minutes on this machine, so that all of it takes three at most.
set -eu
program=${1:?usage: scripts/demo.sh PROGRAM}
out=out/demo
mkdir -p "$out"
mpirun=$(command -v mpirun.mpich || command -v mpirun) || { echo "error: no mpirun. Install it: make deps" >&2; exit 1; }

say() { printf '\n-- %s\n' "$*"; }
train() { "$mpirun" -n 2 "$program" train --train-data "$out/train.bin" --layers 4 --heads 4 --hidden 128 --seq-len 128 \
  --max-seq-len 128 --micro-batch-size 4 --micro-batches 8 --learning-rate 2e-3 --overwrite "$@"; }
field() { grep "\"event\":\"$1\"" "$2" | tail -n 1 | sed "s/.*\"$3\":\([^,}]*\).*/\1/"; }

say "tokens: the bytes of this project's own sources and texts"
# One part of the files is kept apart, to see how the model does on text that it has not seen.
"$program" prepare --text '{model,pipeline/*,kernels,commands/*}/*.{cpp,h,md}' --output "$out/train.bin"
"$program" prepare --text '{README.md,data/*.cpp,data/*.h}' --output "$out/val.bin"

# A few steps tell how fast this machine is.
train --steps 6 --quiet --output "$out/trial" >/dev/null
ms=$(grep '"event":"step"' "$out/trial/log.jsonl" | sed 's/.*"ms":\([0-9.]*\).*/\1/' | sort -n | sed -n 3p)
rm -rf "$out/trial"
steps=$(awk -v ms="$ms" 'BEGIN { n = int(120000 / ms); print (n < 40 ? 40 : (n > 350 ? 350 : n)) }')
seconds=$(awk -v ms="$ms" -v n="$steps" 'BEGIN { print int(n * ms / 1000) + 1 }')

say "a small GPT on 2 ranks, 1F1B schedule: $steps steps, about $seconds seconds"
echo "   watch it in a browser: $out/report.html is drawn anew every few seconds"
train --steps "$steps" --warmup-steps 30 --val-data "$out/val.bin" --val-every 100 --val-batches 2 --log-every 50 \
  --final-timeline false --output "$out"

say "what it writes now"
"$program" generate --init "$out" --prompt "// The pipeline" --tokens 200 --temperature 0.7

loss=$(field validation "$out/log.jsonl" loss)
say "$(awk -v loss="$loss" 'BEGIN { printf "text that it has not seen costs it %.2f bits per byte (%.2f nats); untrained it would be 8", loss / log(2), loss }')"
cat <<END
   $out/report.html    the run on one page: losses, speed, where the time of a step went, memory
   $out/log.jsonl      the same as data (docs/log.md);  $out/model.bin  the model, in llm.c's format

   What to try next:
   ./train_gpt simulate --stages 4 --micro-batches 8 --schedule 1f1b,zb-h1,zb-v --ascii     schedules in the terminal
   ./train_gpt prepare --text 'your/*.txt' --output yours.bin                               your own text, then:
   mpirun -n 4 ./train_gpt --train-data yours.bin --layers 4 --heads 4 --hidden 128 --schedule zb-h1 --steps 2000
END
