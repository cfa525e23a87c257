#!/usr/bin/env bash
# The simulator's promise: 50 million actions (p = 1024, m = 8192, v = 2, F I W) within 60 s and 8 GB, with every detail
# it knows (times, channels, critical path). One thread computes, so processor time counts: other work may go on.
#
# Usage: scripts/check_simulator_scale.sh [BINARY]
set -euo pipefail
binary=${1:-./train_gpt}
command=("$binary" simulate --stages 1024 --micro-batches 8192 --schedule interleaved-zb)

ulimit -v 7812500 # KiB: 8 * 10^9 bytes of address space, whatever is touched of it
ulimit -t 60      # seconds of processor time
TIMEFORMAT='simulated 50,331,648 actions: %U s of processor time, %S s of the system, %R s by the clock'
time report=$(timeout 600 "${command[@]}") || {
  echo "check_simulator_scale: ${command[*]} failed, or took more than 60 s or 8 GB" >&2
  exit 1
}
# Closed form: m(F+I+W) + (p-1)(F + max(0, I-W))/v = 24576 + 511.5.
grep -Eq '^interleaved-zb +2 +25087\.5 ' <<<"$report" || {
  echo "check_simulator_scale: unexpected result:" >&2
  echo "$report" >&2
  exit 1
}
