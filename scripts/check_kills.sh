#!/usr/bin/env bash
# Kills runs at random moments - a rank, mpirun or its helper, with SIGKILL - and goes on with them in other shapes: every
# sequence must end with the hash and the log of a run that nobody touched.
# usage: scripts/check_kills.sh PROGRAM [KILLS [SEED]]       prints `N passed, N failed`, N kills
set -u
program=$(realpath "${1:?usage: scripts/check_kills.sh PROGRAM [KILLS [SEED]]}")
kills=${2:-20}
RANDOM=${3:-$$}
echo "seed ${3:-$$}"
mpirun=$(command -v mpirun.mpich || command -v mpirun)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
exec 2>/dev/null # the shell tells of every process that was killed
seq 1 4000 >text
"$program" prepare --text text --output tokens.bin >/dev/null || exit 1
steps=24
# The head of 5000 columns has three shards, which three and four ranks share.

# start RANKS OPTIONS FOLDER DELAY: in the background, in a process group of its own; $run is mpirun
start() {
  setsid "$mpirun" -n "$1" "$program" train --train-data tokens.bin --vocab 5000 --layers 3 --heads 2 --hidden 16 --seq-len 8 \
    --max-seq-len 8 --micro-batch-size 1 $2 --accumulation-groups 4 --steps $steps --partition uniform --threads 1 \
    --checkpoint-every 2 --keep 2 --val-data tokens.bin --val-every 5 --val-batches 1 --resume auto --output "$3" $4 \
    </dev/null >printed 2>&1 &
  run=$!
}
# A pipeline of 1 to 4 ranks, or replicas that share their state out, of which each step has the same four rows.
schedules=(gpipe 1f1b zb-h1)
replicas=(
  "2 --data-parallel 2 --micro-batches 2 --zero 1"
  "2 --data-parallel 2 --micro-batches 2 --zero 3 --schedule breadth-first --chunks 10"
  "4 --data-parallel 2 --micro-batches 2 --zero 2 --schedule zb-h1"
  "4 --data-parallel 2 --micro-batches 2 --zero 3 --schedule breadth-first --chunks 5"
  "4 --data-parallel 4 --micro-batches 1 --zero 2 --schedule breadth-first --chunks 10"
)
draw() { # $ranks and $shape
  ranks=$((1 + RANDOM % 4)) shape="--micro-batches 4 --schedule ${schedules[RANDOM % 3]}"
  [ $((RANDOM % 2)) = 0 ] || read -r ranks shape <<<"${replicas[RANDOM % ${#replicas[@]}]}"
}
# The part of a log that must be equal: steps and validations, in order, and the last hash. Times differ.
results() {
  sed -n -E 's/.*"event":"(step|validation)","step":([0-9]+),"loss":([^,}]*).*/\1 \2 \3/p; s/.*"parameter_hash":("[^"]*").*/\1/p' \
    "$1/log.jsonl"
}
descendants() { # of $run: the helper, then the ranks
  local level=$run found=""
  while [ -n "$level" ]; do
    level=$(for parent in $level; do cat /proc/"$parent"/task/*/children 2>/dev/null; done)
    found="$found $level"
  done
  echo $found
}
# Until no process of the run is left; those of a dead launcher end by themselves.
await_end() {
  local left
  for _ in $(seq 600); do
    left=no
    for process in "$@"; do
      [ -d "/proc/$process" ] && ! grep -q '^State:.*Z' "/proc/$process/status" 2>/dev/null && left=yes
    done
    [ $left = no ] && return 0
    sleep 0.05
  done
  return 1
}

start 1 "--micro-batches 4" whole ""
wait $run || { cat printed; exit 1; }
results whole >expected
passed=0 failed=0 sequence=0
while [ $((passed + failed)) -lt "$kills" ]; do
  sequence=$((sequence + 1))
  folder=run-$sequence
  count=$((1 + RANDOM % 3)) # kills in this sequence
  trouble=""
  for ((i = 0; i < count; ++i)); do
    draw
    start "$ranks" "$shape" "$folder" "--inject-delay action=2"
    sleep "$((RANDOM % 2)).$((100 + RANDOM % 900))"
    processes=($run $(descendants))
    kill -9 "${processes[RANDOM % ${#processes[@]}]}" 2>/dev/null
    await_end "${processes[@]}" || trouble="processes stay alive"
    wait $run 2>/dev/null
  done
  draw
  start "$ranks" "$shape" "$folder" ""
  wait $run || trouble="cannot go on: $(grep -a error printed)"
  [ -n "$trouble" ] || { results "$folder" | cmp -s expected - || trouble="another result: $(results "$folder" | diff expected - | head -n 6)"; }
  [ -z "$(find "$folder" -name '*.partial' -o -name '*.removed' -o -name '*.replaced')" ] || trouble="$trouble left-overs: $(ls "$folder/checkpoints")"
  if [ -z "$trouble" ]; then
    passed=$((passed + count))
  else
    failed=$((failed + count))
    echo "sequence $sequence of $count kills: $trouble"
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
