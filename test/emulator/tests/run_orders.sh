#!/usr/bin/env bash
# Runs each program in every order and demands status 0: run_orders.sh --seeds N PROGRAM..
set -u
[ "$1" = --seeds ] || { echo "run_orders.sh: error: --seeds N PROGRAM.." >&2; exit 2; }
seeds=$2
shift 2
orders=("forward issue 1" "reverse latest 1")
for seed in $(seq "$seeds"); do orders+=("random random $seed"); done
log=$(mktemp) && trap 'rm -f "$log"' EXIT
for program in "$@"; do
  for order in "${orders[@]}"; do
    read -r threads streams seed <<<"$order"
    if ! EMULATOR_ORDER=$threads EMULATOR_STREAMS=$streams EMULATOR_SEED=$seed timeout 120 "$program" >"$log" 2>&1; then
      echo "FAILED  EMULATOR_ORDER=$threads EMULATOR_STREAMS=$streams EMULATOR_SEED=$seed $program"
      cat "$log"
      exit 1
    fi
  done
done
echo "emulator: $# programs clean in ${#orders[@]} orders"
