#!/usr/bin/env bash
# Starts every schedule many times with 2, 4 and 8 ranks and a model that takes no time: no start may hang.
# usage: scripts/check_starts.sh PROGRAM [STARTS]       prints `N passed, N failed`
set -u
program=${1:?usage: scripts/check_starts.sh PROGRAM [STARTS]}
starts=${2:-50}
mpirun=$(command -v mpirun.mpich || command -v mpirun)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
seq 1 4000 >"$work/text"
"$program" prepare --text "$work/text" --output "$work/tokens.bin" >/dev/null || exit 1
schedules=$("$program" simulate --stages 8 --micro-batches 16 --schedule all --json | grep -o '"schedule": *"[^"]*"' | cut -d'"' -f4)
[ -n "$schedules" ] || exit 1
passed=0 failed=0
for ranks in 2 4 8; do
  for schedule in $schedules; do
    for ((i = 0; i < starts; ++i)); do
      if timeout 60 "$mpirun" -n "$ranks" "$program" train --train-data "$work/tokens.bin" --layers 7 --heads 2 --hidden 16 \
        --seq-len 8 --micro-batch-size 1 --micro-batches 16 --schedule "$schedule" --steps 2 --partition uniform --threads 1 \
        --output "$work/out" --overwrite >"$work/log" 2>&1; then
        passed=$((passed + 1))
      else
        failed=$((failed + 1))
        echo "$schedule with $ranks ranks, start $i:"
        tail -n 5 "$work/log"
      fi
    done
  done
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
