#!/bin/sh
# Tokens/s of the head spread over ranks beside the best cut that leaves it whole, on this machine's CPU: the same model and
# batch, runs in turn, medians of the steps after the first three. Prints one line per run, then the ratio.
#
#   scripts/compare_head_cuts.sh [PROGRAM] [ROUNDS]
set -eu
program=${1:-./train_gpt}
rounds=${2:-3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
model="--layers 4 --hidden 256 --heads 4 --vocab 50257 --seq-len 256 --micro-batch-size 1 --micro-batches 8"
python3 - "$folder/tokens.bin" <<'PYTHON'
import random, struct, sys
random.seed(1)
count = 100000
with open(sys.argv[1], "wb") as file:  # llm.c's token file
    file.write(struct.pack("<256i", 20240520, 1, count, *([0] * 253)))
    file.write(struct.pack("<%dH" % count, *(random.randrange(50257) for _ in range(count))))
PYTHON

# tokens_per_s and the largest rank's planned bytes of one run; its loss must be the same whatever the cut
run() {
  rm -rf "$folder/out"
  mpirun -n 2 "$program" --train-data "$folder/tokens.bin" $model --threads 1 --steps 12 --output "$folder/out" "$@" > "$folder/text"
  python3 - "$folder/out/log.jsonl" "$*" <<'PYTHON'
import json, statistics, sys
events = [json.loads(line) for line in open(sys.argv[1])]
plan = next(e for e in events if e["event"] == "plan")
steps = [e["tokens_per_s"] for e in events if e["event"] == "step"][3:]
end = next(e for e in events if e["event"] == "end")
peak = max(rank["bytes"] for rank in plan["ranks"]) / 2**20
print("%8.1f tokens/s  %6.0f MiB  head %-20s partition %-14s hash %s  %s" % (statistics.median(steps), peak, plan["head"],
      ",".join(map(str, plan["partition"])), end["parameter_hash"], sys.argv[2]))
PYTHON
}

: > "$folder/whole" && : > "$folder/spread"
for round in $(seq "$rounds"); do
  for cut in 9,25 8,26; do run --schedule 1f1b --partition "$cut" | tee -a "$folder/whole"; done
  run --schedule 1f1b | tee -a "$folder/spread"
  run --schedule zb-h1 | tee -a "$folder/spread"
done
python3 - "$folder/whole" "$folder/spread" <<'PYTHON'
import statistics, sys
def best(path):
    runs = {}
    for line in open(path):
        words = line.split()
        runs.setdefault(" ".join(words[words.index("hash") + 2:]), []).append(float(words[0]))
    return max((statistics.median(values), name) for name, values in runs.items())
whole, spread = best(sys.argv[1]), best(sys.argv[2])
print("whole %.1f (%s), spread %.1f (%s): ratio %.2f" % (*whole, *spread, spread[0] / whole[0]))
PYTHON
