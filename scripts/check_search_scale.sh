#!/usr/bin/env bash
# Searches of large problems: their limits in seconds of processor time (other work may go on), and the answers they must find.
#
# Usage: scripts/check_search_scale.sh [BINARY]
set -euo pipefail
binary=${1:-./train_gpt}

# SECONDS are what a quiet core of 2026 is to take. Processor time on a busy one is longer (half as long again has been seen), so
# that only twice as much is an error.

# check SECONDS PATTERN ARGUMENT...: the command must print a line like PATTERN within that processor time.
check() {
  local seconds=$1 pattern=$2 report
  shift 2
  TIMEFORMAT="%U s of processor time, asked: $seconds: $*"
  time report=$(ulimit -t $((2 * seconds)) && timeout 600 "$binary" "$@" 2>/dev/null) || {
    echo "check_search_scale: $* failed, or took more than twice $seconds s" >&2
    exit 1
  }
  grep -Eq "$pattern" <<<"$report" || {
    echo "check_search_scale: $*: no line like $pattern in" >&2
    echo "$report" >&2
    exit 1
  }
}

# Closed forms: m(F+I+W) + (p-1)(F + max(0, I-W))/v, and 1F1B's (m+p-1)(F+I+W).
check 10 '^auto +4 +12351\.75 ' simulate --stages 256 --micro-batches 4096 --schedule auto
check 10 '1f1b +1 +3000021 ' simulate --stages 8 --micro-batches 1000000 --schedule all
check 10 'gpipe +1 +3000189 ' simulate --stages 64 --micro-batches 1000000 --schedule all
for m in 8 64; do
  check 5 '^predicted [0-9.]+ ms per step' plan --stages 16 --model d12 --vocab 50257 --train-data none --micro-batches $m \
    --schedule auto
done

# finds SECONDS MS ARGUMENT...: what --schedule auto must find within that processor time.
finds() {
  local seconds=$1 most=$2 report
  shift 2
  TIMEFORMAT="%U s of processor time, asked: $seconds: $*"
  time report=$(ulimit -t $((2 * seconds)) && timeout 600 "$binary" simulate --schedule auto "$@" 2>/dev/null) || {
    echo "check_search_scale: $* failed, or took more than twice $seconds s" >&2
    exit 1
  }
  awk -v most="$most" '$1 == "auto" && $2 ~ /^[0-9]+$/ { found = $3 } END { exit found == "" || found > most }' <<<"$report" || {
    echo "check_search_scale: $*: more than $most ms in" >&2
    echo "$report" >&2
    exit 1
  }
}

# Scarce memory. Eight lists of 512 micro-batches one after the other would take 8 times what those take.
scarce='--stages 16 --activation-limit 5 --micro-batches'
finds 60 268.5 $scarce 64
finds 60 1932.5 $scarce 512
finds 180 15460 $scarce 4096
unequal='--stages 8 --micro-batches 24 --cost-forward 1.1 --cost-input 1.3 --cost-weight 0.7 --cost-comm 0.05 --activation-limit'
for limit in 4 4.5; do finds 60 101.1 $unequal $limit; done
