#!/usr/bin/env bash
# On a machine with a GPU: builds for its card, runs the kernel tests on it, trains the golden run alone and on 2 and 4 ranks
# that share the GPUs, measures tokens/s and MFU of GPT-2 124M, 350M, 774M and 1558M, every operation against its roofline, and
# products and attention against the PyTorch of that machine. Writes one table to stdout and one JSON file.
#
#   scripts/gpu_check.sh [--device cuda|cpu] [--models "d12 d24"] [--steps N] [--output FILE.json] [--seconds LIMIT]
#                        [--bundle auto|always|never]
#
# Needs nvcc, g++ and make, and no network. Where MPI or GoogleTest are missing (or with --bundle always), it takes
# them from .gpu-bundle/bundle.tar.gz, which `make gpu-bundle` writes on another machine. --device cpu tries the script itself
# where there is no GPU. What does not fit in the time limit (480 s) is left out and said so. The status is 0 if everything that
# ran was right.
set -u
cd "$(dirname "$0")/.."
device=cuda models="d12 d24 d36 d48" steps=12 output=gpu_check.json limit=480 bundle=auto
while [ $# -gt 0 ]; do
  case "$1" in
    --device) device=$2; shift 2 ;;
    --models) models=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --output) output=$2; shift 2 ;;
    --seconds) limit=$2; shift 2 ;;
    --bundle) bundle=$2; shift 2 ;;
    *) echo "gpu_check.sh: error: unexpected '$1'; the first lines of this script say how it is called" >&2; exit 2 ;;
  esac
done
SECONDS=0
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
failed=0 results=()

left() { echo $((limit - SECONDS)); }
# record NAME PASSED(true|false) "JSON members" TEXT..
record() {
  local name=$1 passed=$2 members=$3
  shift 3
  printf '%-34s %-6s %s\n' "$name" "$([ "$passed" = true ] && echo ok || echo FAILED)" "$*"
  results+=("{\"name\":\"$name\",\"passed\":$passed${members:+,$members}}")
  [ "$passed" = true ] || failed=$((failed + 1))
}
# train RANKS DIRECTORY OPTIONS..: the log is DIRECTORY/log.jsonl
train() {
  local ranks=$1 folder=$2
  shift 2
  [ "$(left)" -gt 5 ] || { echo "$limit s are over" >"$folder.err"; return 1; }
  timeout "$(left)" "$mpirun" -n "$ranks" $build/train_gpt --device "$device" --output "$folder" --overwrite "$@" >"$folder.out" 2>"$folder.err"
  local status=$?
  [ $status -ne 124 ] || echo "$limit s are over" >>"$folder.err"
  return $status
}
# not_done NAME FOLDER: what did not fit is left out, everything else has failed
not_done() {
  case "$(why "$2")" in
    *memory* | *"are over") echo "$1: left out: $(why "$2")" ;;
    *) record "$1" false "\"error\":\"$(why "$2")\"" "$(why "$2")" ;;
  esac
}
# field LOG EVENT NAME: one value per line
field() { grep "\"event\":\"$2\"" "$1/log.jsonl" | sed -E "s/.*\"$3\":\"?([^,}\"]*).*/\1/"; }
why() { tail -n 1 "$1.err" | tr -d '"\\' | cut -c 1-200; }

# The bundle lies in its own folders, which the compiler, the linker and the loader are told of.
use_bundle() {
  local archive=.gpu-bundle/bundle.tar.gz folder
  [ -f "$archive" ] || { cat "$work/libraries" >&2; echo "gpu_check.sh: error: and no $archive (make gpu-bundle)" >&2; exit 1; }
  folder=$work/bundle
  mkdir -p "$folder" && tar -C "$folder" -xzf "$archive" || exit 1
  export CPLUS_INCLUDE_PATH=$folder/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  export LIBRARY_PATH=$folder/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
  export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PATH=$folder/bin:$PATH
  from="from the bundle"
}
from="of this machine"
if [ "$bundle" = always ]; then
  use_bundle
elif ! INSTALL='' scripts/find_libraries.sh >"$work/libraries" 2>&1; then
  [ "$bundle" = never ] && { cat "$work/libraries" >&2; exit 1; }
  use_bundle
fi
mpirun=$(command -v mpirun.mpich || command -v mpirun) || { echo "gpu_check.sh: error: no mpirun; run make deps" >&2; exit 1; }

# A build folder of its own: what make found in the usual one may be other libraries.
build=build-gpu-check targets="build-gpu-check/train_gpt build-gpu-check/golden_files"
if [ "$device" = cuda ]; then
  targets="$targets build-gpu-check/cuda_tests-gpu build-gpu-check/rooflines-gpu"
  found=$(scripts/find_cuda.sh "$work/cuda.mk") && grep -q CUDA_NVCC "$work/cuda.mk" || { echo "gpu_check.sh: error: $found" >&2; exit 1; }
  echo "$found"
else
  export CUDA=0
fi
# shellcheck disable=SC2086
timeout "$(left)" make BUILD=$build $targets >"$work/build.log" 2>&1 ||
  { tail -n 20 "$work/build.log" >&2; echo "gpu_check.sh: error: the build failed, or took $limit s" >&2; exit 1; }
build_seconds=$SECONDS
card=$([ "$device" = cuda ] && nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || echo cpu)
echo "$card; built in $build_seconds s; MPI and GoogleTest $from"

# The kernel tests on the card; their messages are in gpu_check.tests.log if some fail.
if [ "$device" = cuda ]; then
  seconds=$(($(left) < 150 ? $(left) : 150))
  timeout "$seconds" $build/cuda_tests-gpu --gtest_brief=1 >"$work/tests" 2>&1
  status=$?
  good=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$work/tests") bad=$(sed -n 's/^ *\([0-9]*\) FAILED TEST.*/\1/p' "$work/tests")
  if [ $status -eq 0 ] && [ -z "$good" ]; then
    echo "kernel tests: left out: $(head -n 1 "$work/tests")"
  else
    record "kernel tests on the card" "$([ $status -eq 0 ] && echo true || echo false)" "\"good\":${good:-0},\"bad\":${bad:-0}" \
      "${good:-0} passed, ${bad:-0} failed$([ $status -eq 124 ] && echo ", ended after $seconds s")"
    [ $status -eq 0 ] || { cp "$work/tests" gpu_check.tests.log; grep -m 20 -E 'FAILED|Failure|expected' "$work/tests"; }
  fi
fi

# The golden run, 20 steps: alone, and on 2 and 4 ranks that share the GPUs there are.
$build/golden_files "$work" >"$work/losses"
golden=(--init "$work/golden.bin" --train-data "$work/golden_tokens.bin" --shuffle false --seq-len 64 --micro-batch-size 1
  --micro-batches 4 --learning-rate 1e-4 --lr-schedule constant --warmup-steps 0 --beta1 0.9 --beta2 0.999 --eps 1e-8 --weight-decay 0 --grad-clip 0
  --steps 20 --precision fp32)
first_hash=
for case in "1 gpipe" "2 1f1b" "4 zb-v" "4 zb-h1"; do
  read -r ranks schedule <<<"$case"
  name="golden $schedule, $ranks rank(s)" folder=$work/golden-$schedule-$ranks
  if ! train "$ranks" "$folder" --schedule "$schedule" "${golden[@]}"; then
    not_done "$name" "$folder"
    continue
  fi
  worst=$(paste <(field "$folder" step loss) <(head -n 20 "$work/losses") |
    awk '{d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d} END {printf "%.2e", NR == 20 ? worst : 9}')
  hash=$(field "$folder" end parameter_hash)
  first_hash=${first_hash:-$hash}
  good=$(awk -v w="$worst" 'BEGIN {print (w < 5e-5) ? "true" : "false"}')
  [ "$hash" = "$first_hash" ] || good=false
  record "$name" "$good" "\"worst\":$worst,\"hash\":\"$hash\"" "losses within $worst of llm.c's (5e-5 allowed), parameters $hash"
done

# Speed: bf16 on GPUs, one rank. Medians without the first two steps.
precision=$([ "$device" = cuda ] && echo bf16 || echo fp32)
for model in $models; do
  rows=$([ "$model" = d12 ] && echo 16 || echo 8) length=1024
  [ "$device" = cpu ] && rows=1 length=64
  folder=$work/speed-$model
  if [ "$(left)" -lt 30 ]; then echo "speed $model: left out, less than 30 s of $limit are left"; continue; fi
  train 1 "$folder" --schedule gpipe --model "$model" --train-data "$work/speed_tokens.bin" --vocab 50257 --seq-len "$length" \
    --micro-batch-size "$rows" --micro-batches 1 --steps "$steps" --precision "$precision" ||
    { not_done "speed $model" "$folder"; continue; }
  median() { field "$folder" step "$1" | tail -n +3 | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
  tokens=$(median tokens_per_s) mfu=$(median mfu)
  record "speed $model $precision" true "\"tokens_per_s\":$tokens,\"mfu\":${mfu:-null}" \
    "$(printf '%.0f' "$tokens") tokens/s, MFU $([ "${mfu:-null}" = null ] && echo n/a || awk -v m="$mfu" 'BEGIN {printf "%.1f%%", 100 * m}')"
done

# Operations against the card's limits, and against PyTorch in the same minute.
if [ "$device" = cuda ] && [ "$(left)" -gt 20 ]; then
  timeout "$(left)" $build/rooflines-gpu --seconds $(($(left) / 2)) --json "$work/rooflines" >"$work/rooflines.txt" 2>&1
  record "rooflines" "$([ $? -eq 0 ] && echo true || echo false)" "\"operations\":[$(paste -sd, "$work/rooflines" 2>/dev/null)]" \
    "$(wc -l <"$work/rooflines") operations"
  cat "$work/rooflines.txt"
  : >"$work/pytorch"
  if [ "$(left)" -lt 20 ]; then
    echo "PyTorch: left out, less than 20 s of $limit are left"
  elif timeout "$(left)" python3 scripts/gpu_pytorch.py >"$work/pytorch" 2>"$work/pytorch.err"; then
    record "PyTorch, the same work" true "\"operations\":[$(paste -sd, "$work/pytorch")]" "$(wc -l <"$work/pytorch") operations"
    field_of() { sed -n "s/.*\"operation\":\"$2\",\"us\":\([0-9.]*\).*/\1/p" "${1/#/$work/}" | head -n 1; }
    printf '%-34s %12s %12s %8s\n' "operation" "ours us" "PyTorch us" "ratio"
    sed -n 's/.*"operation":"\([^"]*\)".*/\1/p' "$work/pytorch" | while read -r operation; do
      ours=$(field_of rooflines "$operation") theirs=$(field_of pytorch "$operation")
      [ -n "$ours" ] && awk -v n="$operation" -v a="$ours" -v b="$theirs" 'BEGIN {printf "%-34s %12.1f %12.1f %8.2f\n", n, a, b, b / a}'
    done
  else
    echo "PyTorch: left out: $(tail -n 1 "$work/pytorch.err")"
  fi
fi

printf '{"device":"%s","build_seconds":%s,"seconds":%s,"results":[%s]}\n' "$card" "$build_seconds" "$SECONDS" \
  "$(IFS=,; echo "${results[*]}")" >"$output"
echo "${#results[@]} checks, $failed failed, $SECONDS s; $output"
[ $failed -eq 0 ]
