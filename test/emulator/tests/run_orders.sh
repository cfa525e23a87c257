#!/usr/bin/env bash
# Runs each program in every order and demands status 0: run_orders.sh --seeds N PROGRAM..; stops at the first that fails.
set -u
[ "$1" = --seeds ] || { echo "run_orders.sh: error: --seeds N PROGRAM.." >&2; exit 2; }
seeds=$2
shift 2
orders=("forward issue 1" "reverse latest 1")
for seed in $(seq "$seeds"); do orders+=("random random $seed"); done
passed=0
log=$(mktemp) && trap 'rm -f "$log"' EXIT
for program in "$@"; do
  for order in "${orders[@]}"; do
    read -r threads streams seed <<<"$order"
    if ! EMULATOR_ORDER=$threads EMULATOR_STREAMS=$streams EMULATOR_SEED=$seed timeout 120 "$program" >"$log" 2>&1; then
      echo "FAILED  EMULATOR_ORDER=$threads EMULATOR_STREAMS=$streams EMULATOR_SEED=$seed $program"
      cat "$log"
      echo "$passed passed, 1 failed"
      exit 1
    fi
    passed=$((passed + 1))
  done
done
echo "emulator: $# programs clean in ${#orders[@]} orders"
echo "$passed passed, 0 failed"
