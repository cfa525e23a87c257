#!/usr/bin/env bash
# How the model FLOPs utilisation holds as the vocabulary grows (Vocabulary Parallelism, arXiv 2411.05288): its shapes, sequence
# 2048, m = 128, nothing recomputed, costs by operation counts; of each schedule the share of the time that ranks are busy, and
# the spread over vocabularies. The spread of `auto` must not exceed 1% on 8 ranks, 1.5% on 16, 3% on 32. Beside it stands
# what no cut into whole units gets above under any schedule: all ranks have their even share of the work, and rank r waits
# until a micro-batch has been through r stages of one unit each.
#
# Usage: scripts/check_vocabulary_spread.sh [BINARY] [SCHEDULE...]      prints `N passed, N failed`; ten minutes of one core
set -euo pipefail
binary=${1:-./train_gpt}
shift || true
schedules=("$@")
[ ${#schedules[@]} -gt 0 ] || schedules=(auto)
passed=0 failed=0

busy() { # RANKS LAYERS HIDDEN HEADS VOCABULARY SCHEDULE
  timeout 600 "$binary" plan --stages "$1" --layers "$2" --hidden "$3" --heads "$4" --vocab "$5" --seq-len 2048 \
    --max-seq-len 2048 --micro-batch-size 1 --micro-batches 128 --train-data none --schedule "$6" 2>/dev/null |
    sed -n 's/^schedule .*: bubble \([0-9.]*\)%.*/\1/p' | awk '{ printf "%.2f", 100 - $1 }'
}

most_busy() { # RANKS LAYERS HIDDEN VOCABULARY
  awk -v p="$1" -v layers="$2" -v hidden="$3" -v vocabulary="$4" 'BEGIN {
    unit[0] = hidden
    for (i = 1; i <= 2 * layers; ++i) unit[i] = i % 2 ? 8 * hidden ^ 2 + 2 * 2048 * hidden : 16 * hidden ^ 2
    for (i = 0; i <= 2 * layers; ++i) all += unit[i]
    all += 2 * hidden * vocabulary
    for (r = 0; r < p; ++r) { waits += wait; wait += unit[r] / (all / p) }
    printf "%.1f", 100 / (1 + waits / p / (3 * 128))
  }'
}

while read -r ranks layers hidden heads most; do
  for schedule in "${schedules[@]}"; do
    row=() bounds=()
    for vocabulary in 32768 65536 131072 262144; do
      row+=("$(busy "$ranks" "$layers" "$hidden" "$heads" "$vocabulary" "$schedule")")
      bounds+=("$(most_busy "$ranks" "$layers" "$hidden" "$vocabulary")")
    done
    line=$(awk -v row="${row[*]}" -v most="$most" 'BEGIN {
      n = split(row, share, " "); least = 100; largest = 0
      for (i = 1; i <= n; ++i) { if (share[i] < least) least = share[i]; if (share[i] > largest) largest = share[i] }
      spread = 100 * (largest - least) / largest
      printf "%s: spread %.1f%%, at most %s%%\n", row, spread, most
      exit n != 4 || spread > most
    }') && ok=1 || ok=0
    echo "$ranks ranks, $layers layers, hidden $hidden, $schedule: $line; no cut is above ${bounds[*]}"
    if [ "$schedule" = auto ]; then
      if [ $ok = 1 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    fi
  done
done <<'SHAPES'
8 32 3072 24 1
16 48 4096 32 1.5
32 64 5120 40 3
SHAPES
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
