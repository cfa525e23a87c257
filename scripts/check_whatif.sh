#!/usr/bin/env bash
# The estimates of `whatif` beside measurements.
#
# 1. The experiment of the straggler study (ByteDance, OSDI 2025) on the timed device: one of four ranks is slowed down by
#    injected delays until the job takes about 1.16, 1.40 and 2.03 times as long, and `whatif` has to find out from the
#    records what the job would take without.
# 2. Every row of one of its tables, replayed on the timed device (--verify).
# 3. One of two real cpu ranks slowed down likewise, and rows with another schedule or cut tried with the commands that the
#    table gives: three times, each between two runs without the change. A machine is not as fast as it was a minute ago, so
#    that what is compared is how many times as long the step takes.
#
# It needs two cores with nothing else on them, and some ten minutes. Comparisons on the cpu are skipped, and
# said to be, where the speed of the machine itself changes by more than their tolerance. What it does at one moment is no error of the
# estimate: what the job takes without delays is the mean of a run before and one after each estimate's.
#
# Usage: scripts/check_whatif.sh [BINARY] [PER CENT, timed device] [PER CENT, cpu device]
set -euo pipefail
binary=${1:-./train_gpt}
tolerance=${2:-2}
cpu_tolerance=${3:-5}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mpirun=${MPIRUN:-$(command -v mpirun.mpich || echo mpirun)}
turns=3
failed=0 passed=0

# job RANKS ARGUMENT...: trains in $folder/run, then asks what if
job() {
  local ranks=$1
  shift
  timeout 300 "$mpirun" -n "$ranks" "$binary" train "$@" --quiet --output "$folder/run" --overwrite >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    echo "check_whatif: this run failed, or took more than 300 s: train $*" >&2
    exit 1
  }
  timeout 300 "$binary" whatif "$folder/run"
}

timed() { # DELAY: ms that each action of rank 2 takes longer
  job 4 --device timed --cost-forward 20 --cost-input 20 --cost-weight 20 --schedule 1f1b --micro-batches 8 \
    --micro-batch-size 1 --seq-len 16 --layers 4 --heads 2 --hidden 32 --vocab 300 --steps 18 --inject-delay "rank=2,step=$1"
}

on_cpu() { # DELAY ARGUMENT...: ms that each action of rank 1 takes longer
  job 2 --device cpu --threads 1 --data "$folder/data" --schedule 1f1b --micro-batches 8 --micro-batch-size 4 --seq-len 128 \
    --layers 6 --heads 4 --hidden 256 --steps 16 --inject-delay "rank=1,step=$1"
}

measured() { sed -n 's/^.*: \([0-9.]*\) ms from first to last action.*/\1/p' <<<"$1"; }
mean() { awk -v a="$1" -v b="$2" 'BEGIN { print (a + b) / 2 }'; }

quotient() { awk -v a="$1" -v b="$2" 'BEGIN { if (a != "" && b > 0) printf "%.4f", a / b }'; }
median() { printf '%s\n' "$@" | sort -g | awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'; }

# try COMMAND: what if asked of the run that a row of the table proposes
try() {
  bash -c "timeout 300 ${1/mpirun/$mpirun} --output $folder/tried --overwrite" >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    exit 1
  }
  timeout 300 "$binary" whatif "$folder/tried"
}

# within PER CENT WHAT FOUND RIGHT [UNIT]
within() {
  if awk -v most="$1" -v what="$2" -v found="$3" -v right="$4" -v unit="${5- ms}" 'BEGIN {
    off = found == "" || right == "" ? 1e9 : 100 * (found / right - 1)
    printf "%s: %s%s, %s%s measured, off by %.1f%%\n", what, found, unit, right, unit, off
    exit off > most || off < -most
  }'; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# steady PER CENT WHAT MS...: whether runs of one command took the same time; if not, nothing follows from a comparison
steady() {
  local most=$1 what=$2 spread
  shift 2
  spread=$(printf '%s\n' "$@" | sort -g | awk 'NR == 1 { least = $1 } END { printf "%.1f", 100 * ($1 / least - 1) }')
  awk -v a="$spread" -v b="$most" 'BEGIN { exit a > b }' && return
  echo "skipped: $what: the same run took up to $spread% longer from one time to the next; this machine is not quiet"
  return 1
}

# estimates RUNNER RANK PER CENT DELAY...: with a run without delays before, between and after
estimates() {
  local runner=$1 rank=$2 most=$3 before behind report delay usual estimate now
  shift 3
  before=$(measured "$($runner 0)")
  for delay in "$@"; do
    report=$($runner "$delay")
    behind=$(measured "$($runner 0)")
    if ! steady "$most" "$runner, rank $rank $delay ms slower" "$before" "$behind"; then
      before=$behind
      continue
    fi
    usual=$(mean "$before" "$behind")
    now=$(measured "$report")
    estimate=$(sed -n "s/^rank $rank as fast as the mean of the others *\([0-9.]*\).*/\1/p" <<<"$report")
    within "$most" "$runner, rank $rank $delay ms slower, which takes $(awk -v a="$now" -v b="$usual" \
      'BEGIN { printf "%.2f", a / b }') times as long: without" "$estimate" "$usual"
    before=$behind
  done
}

estimates timed 2 "$tolerance" 8 19 47

timed 8 >"$folder/table"
"$binary" whatif "$folder/run" --verify >"$folder/table"
while read -r what predicted replayed; do
  within "$tolerance" "replayed: $what" "$predicted" "$replayed"
done < <(awk -F '  +' '/^Each row/ { exit } NF == 6 && $6 ~ /%$/ { gsub(/ /, "_", $1); print $1, $4, $5 }' "$folder/table")
[ "$passed" -gt 8 ] || { cat "$folder/table" >&2; echo "check_whatif: --verify showed too few rows" >&2; exit 1; }

"$binary" prepare --text 'pipeline/*/*.cpp' --vocab 1024 --output "$folder/data" >/dev/null
estimates on_cpu 1 "$cpu_tolerance" 25
on_cpu 0 >"$folder/table"
usual=$(measured "$(cat "$folder/table")")
for row in 'schedule zb-h1' 'schedule gpipe' cut; do
  predicted=$(sed -n "s/^$row[ 0-9,]* \([0-9.][0-9.]*\)  *[+-][0-9.]*%.*/\1/p" "$folder/table" | head -1)
  command=$(grep -A1 "^  $row.*:$" "$folder/table" | sed -n 2p)
  [ -n "$command" ] || { echo "no row $row"; continue; }
  ratios=()
  before=$(measured "$(on_cpu 0)")
  bases=("$before")
  for ((turn = 0; turn < turns; ++turn)); do
    tried=$(measured "$(try "$command")")
    after=$(measured "$(on_cpu 0)")
    ratios+=("$(quotient "$tried" "$(mean "$before" "$after")")")
    before=$after
    bases+=("$after")
  done
  steady "$cpu_tolerance" "on_cpu, $row" "$usual" "${bases[@]}" || continue
  echo "$row: ratios in turn ${ratios[*]}"
  within "$cpu_tolerance" "on_cpu, $row: times the step that the table is about" "$(quotient "$predicted" "$usual")" \
    "$(median "${ratios[@]}")" ''
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
