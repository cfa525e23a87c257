#!/usr/bin/env bash
# Two and three commands at once on one folder, in every combination: one of those that write has it, the others are told so,
# those that read harm nobody, and what is there afterwards is one whole run.
# usage: scripts/check_together.sh PROGRAM       prints `N passed, N failed`
set -u
program=$(realpath "${1:?usage: scripts/check_together.sh PROGRAM}")
mpirun=$(command -v mpirun.mpich || command -v mpirun)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
seq 1 4000 >text
"$program" prepare --text text --output tokens.bin >/dev/null || exit 1
sizes="--seq-len 8 --micro-batch-size 1 --micro-batches 2 --threads 1"
train="train --train-data tokens.bin --val-data tokens.bin --layers 1 --heads 2 --hidden 16 --max-seq-len 8 $sizes --steps 12
  --checkpoint-every 3 --keep 2 --val-every 4 --val-batches 1 --partition uniform"
declare -A command=(
  [new]="$train --output out" [auto]="$train --output out --resume auto" [overwrite]="$train --output out --overwrite"
  [evaluated]="evaluate --init whole --val-data tokens.bin --val-batches 1 $sizes --output out"
  [evaluate]="evaluate --init out --val-data tokens.bin --val-batches 1 $sizes" [generate]="generate --init out --tokens 3"
  [status]="status out" [report]="report out" [checkpoint]="checkpoint out")
writers=(new auto overwrite evaluated) readers=(evaluate generate status report checkpoint)
passed=0 failed=0
"$mpirun" -n 2 "$program" $train --output whole >/dev/null 2>&1 || exit 1
# Steps and the last hash.
results() {
  sed -n -E 's/.*"event":"step","step":([0-9]+),"loss":([^,}]*).*/\1 \2/p; s/.*"parameter_hash":("[^"]*").*/\1/p' "$1/log.jsonl"
}
results whole >expected

judge() { # NAMES..: what is wrong, if anything
  local i name status won=no trained=no
  for ((i = 1; i <= $#; ++i)); do
    name=${!i} status=$(cat "status-$i")
    if [ "$status" = 0 ]; then
      case $name in
        new | auto | overwrite) won=yes trained=yes ;;
        evaluated) won=yes ;;
      esac
    elif [ "$status" != 2 ] || [ "$(grep -c 'train_gpt: error:' "printed-$i")" != 1 ]; then
      echo "$name ends with $status: $(tail -n 2 "printed-$i")"
    elif [[ " ${writers[*]} " == *" $name "* ]] && ! grep -q -e 'a run is alive in this folder' -e 'a run is in this folder' "printed-$i"; then
      echo "$name is refused for another reason: $(grep error "printed-$i")"
    fi
  done
  [ $won = yes ] || echo "nobody has the folder"
  [ -z "$(find out -name '*.partial' -o -name '*.removed' -o -name '*.replaced' -o -name overwritten)" ] || echo "left-overs: $(ls out out/checkpoints)"
  # Whoever came last has the folder: a run, or the evaluation, which takes no steps.
  [ $trained = no ] || results out | cmp -s expected - || { [[ " $* " == *" evaluated "* ]] && ! grep -q '"event":"step"' out/log.jsonl; } ||
    echo "the run is not whole: $(results out | diff expected - | head -n 3)"
}

try() { # NAMES..
  rm -rf out status-* printed-*
  local i=0 name pids=()
  for name in "$@"; do
    i=$((i + 1))
    (
      case $name in
        status | report | checkpoint) "$program" ${command[$name]} ;;
        *) timeout 120 "$mpirun" -n $((1 + i % 2)) "$program" ${command[$name]} ;;
      esac >"printed-$i" 2>&1 </dev/null
      echo $? >"status-$i"
    ) &
    pids+=($!)
  done
  wait "${pids[@]}"
  local trouble
  trouble=$(judge "$@")
  if [ -z "$trouble" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$*: $trouble"; fi
}

for ((a = 0; a < ${#writers[@]}; ++a)); do
  for reader in "${readers[@]}"; do try "${writers[a]}" "$reader"; done
  for ((b = a; b < ${#writers[@]}; ++b)); do
    try "${writers[a]}" "${writers[b]}"
    for ((c = b; c < ${#writers[@]}; ++c)); do try "${writers[a]}" "${writers[b]}" "${writers[c]}"; done
  done
done
for ((a = 0; a < ${#readers[@]}; ++a)); do
  for ((b = a; b < ${#readers[@]}; ++b)); do try new "${readers[a]}" "${readers[b]}"; done
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
