#!/usr/bin/env bash
# Runs the suite of every planted fault with that fault in the program, and demands that the suite fails.
#
#   run_mutants.sh FOLDER [REGEX]     FOLDER/faults lists the faults, FOLDER/bin has the suites; REGEX picks faults by name, or
#                                     all of the lists whose whole name it matches
#
# Each suite is first run without a fault and must pass. Then come a line per fault, a line per list with the seconds that its
# runs took together, `N of N noticed` and `N passed, N failed`. A run that takes more than MUTANT_TIMEOUT (120) seconds counts
# as noticed, since a lost message may well hang, if the suite then ends in that time without the fault: else the machine is
# too busy to tell. Faults marked as equivalent are not run.
set -u
folder=$1 only=${2:-.}
export MUTANT_TIMEOUT=${MUTANT_TIMEOUT:-120} MUTANT_BIN=$folder/bin
export MUTANT_MPIRUN=${MPIRUN:-$(command -v mpirun.mpich || command -v mpirun)}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
export MUTANT_WORK=$work
SECONDS=0

# run_suite FAULT SUITE: the suite's status. test_mpi is one job of 8 ranks, trainer_sweep one of 4 on emulated GPUs, the others
# are GoogleTest programs.
run_suite() {
  local program=${2%% *} arguments=
  [ "$program" = "$2" ] || arguments=${2#* }
  local command="$MUTANT_BIN/$program --gtest_brief=1 --gtest_fail_fast $arguments"
  case $program in
    test_mpi) command="$MUTANT_MPIRUN -n 8 $MUTANT_BIN/$program $arguments" ;;
    trainer_sweep) command="EMULATOR_DEVICES=4 $MUTANT_MPIRUN -n 4 $MUTANT_BIN/$program $arguments" ;;
  esac
  PLANTED_FAULT=$1 timeout "$MUTANT_TIMEOUT" bash -f -c "$command" >"$MUTANT_WORK/log-$1-$$" 2>&1 </dev/null
}

check_without() {
  run_suite 0 "$1" && return
  { echo "run_mutants.sh: error: fails without any fault: $1"; cat "$MUTANT_WORK/log-0-$$"; } >&2
  return 1
}

# One line of the table of faults: is it noticed?
judge() {
  local number name file suite list begin=$EPOCHREALTIME
  IFS=$'\t' read -r number name file suite list _ <<<"$1"
  run_suite "$number" "$suite"
  local status=$? verdict=noticed reason
  reason="status $status"
  if [ $status -eq 0 ]; then
    verdict=UNNOTICED reason="$suite passes"
  elif [ $status -eq 126 ] || [ $status -eq 127 ]; then
    verdict=UNCLEAR reason="$suite cannot be run"
  elif [ $status -eq 124 ]; then
    reason="did not end"
    run_suite 0 "$suite" || verdict=UNCLEAR reason="$suite ends within $MUTANT_TIMEOUT s neither with it nor without"
  fi
  printf '%-10s %s (%s): %s\n' "$verdict" "$name" "$file" "$reason"
  awk -v list="$list" -v verdict="$verdict" -v begin="$begin" -v end="$EPOCHREALTIME" \
    'BEGIN {printf "%s %s %.1f\n", list, verdict, end - begin}' >>"$MUTANT_WORK/seconds"
}
export -f run_suite check_without judge

awk -F '\t' -v only="$only" '$2 ~ only || $5 ~ "^(" only ")$"' "$folder/faults" >"$work/all"
awk -F '\t' '$6 == ""' "$work/all" >"$work/faults"
awk -F '\t' '$6 != "" {printf "equivalent %s (%s): %s\n", $2, $3, $6}' "$work/all"
[ -s "$work/faults" ] || { echo "run_mutants.sh: error: no fault matches $only" >&2; exit 2; }
cut -f 4 "$work/faults" | sort -u | tr '\n' '\0' | xargs -0 -P "$(nproc)" -I '{}' bash -c 'check_without "$1"' check '{}' || exit 2
echo "$(cut -f 4 "$work/faults" | sort -u | wc -l) suites pass without a fault, $SECONDS s"
tr '\n' '\0' <"$work/faults" | xargs -0 -P "$(nproc)" -I '{}' bash -c 'judge "$1"' judge '{}' | tee "$work/verdicts"
awk '{all[$1]++; s[$1] += $3; if ($2 == "noticed") n[$1]++}
  END {for (l in all) printf "%-12s %3d of %3d noticed, runs of %.0f s\n", l, n[l], all[l], s[l]}' "$work/seconds" | sort
noticed=$(grep -c '^noticed' "$work/verdicts") all=$(wc -l <"$work/faults")
echo "$noticed of $all noticed, $SECONDS s"
echo "$noticed passed, $((all - noticed)) failed"
[ "$noticed" -eq "$all" ]
