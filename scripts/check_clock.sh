#!/usr/bin/env bash
# Sets the clock of a run back by two days while it lives, and forward again: nothing may go by the time of day.
# usage: scripts/check_clock.sh PROGRAM       prints `N passed, N failed`; skipped without libfaketime
set -u
program=$(realpath "${1:?usage: scripts/check_clock.sh PROGRAM}")
mpirun=$(command -v mpirun.mpich || command -v mpirun)
library=$(ls /usr/lib/*/faketime/libfaketimeMT.so.1 2>/dev/null | head -n 1)
[ -n "$library" ] || { echo "skipped: no libfaketime (apt-get install faketime)"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
seq 1 4000 >text
"$program" prepare --text text --output tokens.bin >/dev/null || exit 1
passed=0 failed=0
expect() { # WHAT COMMAND..
  if "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "wrong: $1"; fi
}
train() { # FOLDER STEPS MORE..: constant rate, so that a run of fewer steps is the beginning of one of more
  exec env ${preload:-} "$mpirun" -n 2 "$program" train --train-data tokens.bin --layers 1 --heads 2 --hidden 16 --seq-len 8 --max-seq-len 8 \
    --micro-batch-size 1 --micro-batches 2 --threads 1 --partition uniform --lr-schedule constant --checkpoint-every 5 --keep 2 \
    --output "$1" --steps "$2" "${@:3}"
}
steps_in() { cat "$1/log.jsonl" 2>/dev/null | grep -c '"event":"step"'; }
newest() { ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-\([0-9]*\)$/\1/p' | sort -n | tail -n 1; }
newest_is_near() { [ "$(newest faked)" -ge $(($(steps_in faked) - 15)) ]; }

echo "+0" >clock
export FAKETIME_TIMESTAMP_FILE=$work/clock FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
(preload=LD_PRELOAD=$library && train faked 1000000 --inject-delay action=4) >printed 2>&1 &
run=$! # mpirun, which takes the place of the shell
for shift in -2d +0 -2d; do
  target=$(($(steps_in faked) + 40))
  for _ in $(seq 1200); do
    [ "$(steps_in faked)" -ge $target ] && break
    sleep 0.05
  done
  expect "the newest checkpoint stays, clock $(cat clock)" newest_is_near
  expect "--keep keeps two, and one on its way out or in" [ "$(ls faked/checkpoints | grep -c '^step-[0-9]*$')" -le 3 ]
  echo "$shift" >clock
done
sleep 1
kill -TERM $run
wait $run
unset FAKETIME_TIMESTAMP_FILE FAKETIME_NO_CACHE FAKETIME_DONT_FAKE_MONOTONIC
steps=$(steps_in faked)
expect "it stops with a checkpoint of its last step" [ "$(newest faked)" = "$steps" ]
(train faked $((steps + 5)) --resume latest) >resumed 2>&1
expect "it goes on at its last step" grep -q "resumed at step $steps " resumed
(train whole $((steps + 5))) >whole_printed 2>&1
same_hash() { [ -n "$(hash whole)" ] && [ "$(hash faked)" = "$(hash whole)" ]; }
hash() { sed -n 's/.*"parameter_hash":"\([0-9a-f]*\)".*/\1/p' "$1/log.jsonl"; }
expect "the hash is that of a run whose clock went on" same_hash
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] || { tail -n 3 printed resumed; exit 1; }
