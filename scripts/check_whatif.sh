#!/usr/bin/env bash
# The experiment of the straggler study (ByteDance, OSDI 2025) on the timed device: one of four ranks is slowed down by
# injected delays until the job takes about 1.16, 1.40 and 2.03 times as long, and `whatif` has to find out from the
# records what the job would take without. It needs a quiet machine.
#
# Usage: scripts/check_whatif.sh [BINARY] [TOLERANCE IN PER CENT]
set -euo pipefail
binary=${1:-./train_gpt}
tolerance=${2:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mpirun=${MPIRUN:-$(command -v mpirun.mpich || echo mpirun)}

run() { # DELAY: ms that each action of rank 2 takes longer
  "$mpirun" -n 4 "$binary" train --device timed --cost-forward 20 --cost-input 20 --cost-weight 20 --schedule 1f1b \
    --micro-batches 8 --micro-batch-size 1 --seq-len 16 --layers 4 --heads 2 --hidden 32 --vocab 300 --steps 12 --quiet \
    --output "$folder/run" --overwrite --inject-delay "rank=2,step=$1" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
  "$binary" whatif "$folder/run"
}

measured() { sed -n 's/^.*: \([0-9.]*\) ms from first to last action.*/\1/p' <<<"$1"; }
usual=$(measured "$(run 0)")
echo "without delays: $usual ms from first to last action"
for delay in 6 16 42; do
  report=$(run "$delay")
  now=$(measured "$report")
  estimate=$(sed -n 's/^rank 2 as fast as the mean of the others *\([0-9.]*\).*/\1/p' <<<"$report")
  awk -v delay="$delay" -v usual="$usual" -v now="$now" -v estimate="$estimate" -v tolerance="$tolerance" 'BEGIN {
    off = 100 * ((now / estimate) / (now / usual) - 1)
    printf "delay %d ms: the job takes %.2f times as long, estimated %.2f, off by %.1f%%\n", delay, now / usual, now / estimate, off
    exit estimate == "" || off > tolerance || off < -tolerance
  }' || { echo "check_whatif: more than $tolerance% off" >&2; echo "$report" >&2; exit 1; }
done
