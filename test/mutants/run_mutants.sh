#!/usr/bin/env bash
# Runs the suite of every planted fault with that fault in the program, and demands that the suite fails.
#
#   run_mutants.sh FOLDER [REGEX]     FOLDER/faults lists the faults, FOLDER/bin has the suites; REGEX picks faults by name
#
# Each suite is first run without a fault and must pass. Ends with `N of N noticed` and `N passed, N failed`. A run that takes more
# than MUTANT_TIMEOUT (120) seconds counts as noticed: a lost message may well hang. Faults marked as equivalent are not run.
set -u
folder=$1 only=${2:-.}
export MUTANT_TIMEOUT=${MUTANT_TIMEOUT:-120} MUTANT_BIN=$folder/bin
export MUTANT_MPIRUN=${MPIRUN:-$(command -v mpirun.mpich || command -v mpirun)}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
export MUTANT_WORK=$work

# run_suite FAULT SUITE: the suite's status. test_mpi is one job of 8 ranks, the others are GoogleTest programs.
run_suite() {
  local program=${2%% *} arguments=
  [ "$program" = "$2" ] || arguments=${2#* }
  local command="$MUTANT_BIN/$program --gtest_brief=1 --gtest_fail_fast $arguments"
  [ "$program" = test_mpi ] && command="$MUTANT_MPIRUN -n 8 $MUTANT_BIN/$program $arguments"
  PLANTED_FAULT=$1 timeout "$MUTANT_TIMEOUT" bash -f -c "$command" >"$MUTANT_WORK/log-$1-$$" 2>&1 </dev/null
}

# One line of the table of faults: is it noticed?
judge() {
  local number name file suite
  IFS=$'\t' read -r number name file suite _ <<<"$1"
  if run_suite "$number" "$suite"; then
    echo "UNNOTICED  $name ($file): $suite passes"
  else
    local status=$?
    echo "noticed    $name ($file): $([ $status -eq 124 ] && echo 'did not end' || echo "status $status")"
  fi
}
export -f run_suite judge

grep -E "^[0-9]+	[^	]*($only)" "$folder/faults" >"$work/all"
awk -F '\t' '$5 == ""' "$work/all" >"$work/faults"
awk -F '\t' '$5 != "" {printf "equivalent %s (%s): %s\n", $2, $3, $5}' "$work/all"
[ -s "$work/faults" ] || { echo "run_mutants.sh: error: no fault matches $only" >&2; exit 2; }
cut -f 4 "$work/faults" | sort -u | while read -r suite; do
  run_suite 0 "$suite" || { echo "run_mutants.sh: error: fails without any fault: $suite" >&2; cat "$work"/log-0-* >&2; exit 2; }
done || exit 2
tr '\n' '\0' <"$work/faults" | xargs -0 -P "$(nproc)" -I '{}' bash -c 'judge "$1"' judge '{}' | tee "$work/verdicts"
noticed=$(grep -c '^noticed' "$work/verdicts") all=$(wc -l <"$work/faults")
echo "$noticed of $all noticed"
echo "$noticed passed, $((all - noticed)) failed"
[ "$noticed" -eq "$all" ]
