#!/usr/bin/env bash
# Leaves out one call at a time that orders messages and the compute stream (mutate.sh leaves out lines of side_stream.cpp,
# which all of them share), builds the emulated trainer with that, and demands that some run of it fails. Not among them: the
# executor's wait for its sends at the end of a list. Every message of a list has arrived before its ranks report to each other,
# so that wait only makes it true earlier.
#
#   mutate_calls.sh BUILD MPIRUN FILE..
set -u
build=$1 mpirun=$2
shift 2
calls='follow_compute\(\);|(out_|in_|side\(\)|reducing_-)[.>]await\(.*\);|^ *pipeline_\.await\(.*\);|await_slot\(plan\..*\);'
runs=('latest|1f1b p=2 d=1 fp32' 'latest|zb-v p=2 d=1 fp32' 'latest|1f1b p=2 d=2 fp32' 'latest|optimistic, clip 0.0010' 'random|1f1b p=4 d=1')
program=$build/trainer_sweep-mutated
detected=0 survived=0
for file in "$@"; do
  while IFS=: read -r line text; do
    mkdir -p "$build/mutated/$(dirname "$file")"
    sed "${line}s,.*,;," "$file" >"$build/mutated/$file"
    if ! make BUILD="$build" MUTATED="$file" "$program" >"$build/mutated/log" 2>&1; then
      echo "error: $file:$line does not build without this line" >&2
      tail -n 5 "$build/mutated/log" >&2
      exit 2
    fi
    found=
    for run in "${runs[@]}"; do
      EMULATOR_STREAMS=${run%%|*} EMULATOR_DEVICES=4 EMULATOR_NCCL_WATCHDOG=2 timeout 120 "$mpirun" -n 4 "$program" \
        --only "${run#*|}" >"$build/mutated/log" 2>&1 </dev/null || { found=$run; break; }
    done
    if [ -n "$found" ]; then
      detected=$((detected + 1))
      echo "detected  $file:$line ${text#"${text%%[! ]*}"} ($found)"
    else
      survived=$((survived + 1))
      echo "SURVIVED  $file:$line ${text#"${text%%[! ]*}"}"
    fi
  done < <(grep -nE "$calls" "$file")
  rm -f "$build/mutated/$file" "$build/emulator/race/$build/mutated/${file%.cpp}.o"
done
echo "left out: $((detected + survived)), detected $detected, survived $survived"
[ $survived -eq 0 ] && [ $detected -gt 0 ]
