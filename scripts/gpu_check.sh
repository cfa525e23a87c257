#!/usr/bin/env bash
# On a machine with a GPU: builds for its card, runs the kernel tests on it, trains the golden run alone and on 2 and 4 ranks
# that share the GPUs, compares the bits of 1, 2, 4 and 8 ranks in bf16, GPT-2 124M's first losses in bf16 with those of the
# PyTorch of that machine (TRAIN_GPT_PYTHON, else python3), the memory that is taken with the plan's, and the end of a job whose
# rank is killed in mid-step with 24 layers per stage; measures tokens/s and MFU of GPT-2 124M, 350M, 774M and
# 1558M, every operation against its roofline, and products and attention against the PyTorch of that machine. Writes one table
# to stdout and one JSON file.
#
#   scripts/gpu_check.sh [--device cuda|cpu|emulated] [--models "d12 d24"] [--steps N] [--output FILE.json] [--seconds LIMIT]
#                        [--bundle auto|always|never]
#
# Needs nvcc, g++ and make, and no network. Where MPI or GoogleTest are missing (or with --bundle always), it takes
# them from .gpu-bundle/bundle.tar.gz, which `make gpu-bundle` writes on another machine. --device cpu tries the script itself
# where there is no GPU; --device emulated does so with the emulated GPUs of `make test` and tiny sizes, every check included
# (part of make check). What does not fit in the time limit (480 s) is left out and said so. The status is 0 if everything that
# ran was right.
set -u
cd "$(dirname "$0")/.."
device=cuda models= steps=12 output=gpu_check.json limit=480 bundle=auto
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
small=true
case "$device" in
  cuda) small=false precision=bf16 models=${models:-d12 d24 d36 d48} program=train_gpt tests=cuda_tests-gpu rooflines=rooflines-gpu ;;
  cpu) precision=fp32 models=${models:-d12} program=train_gpt tests= rooflines= ;;
  emulated)
    precision=bf16 models=${models:-tiny} steps=4 program=train_gpt-emulated tests=cuda_tests-plain rooflines=rooflines-plain bundle=never
    export EMULATOR_DEVICES=${EMULATOR_DEVICES:-8}
    ;;
  *) echo "gpu_check.sh: error: --device $device: must be cuda, cpu or emulated" >&2; exit 2 ;;
esac
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
  timeout "$(left)" "$mpirun" -n "$ranks" $build/$program --device "${device/emulated/cuda}" --output "$folder" --overwrite "$@" >"$folder.out" 2>"$folder.err"
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
build=build-gpu-check
[ "$device" != emulated ] || build=${BUILD:-build}
targets=
for target in $program golden_files $tests $rooflines; do targets="$targets $build/$target"; done
if [ "$device" = cuda ]; then
  found=$(scripts/find_cuda.sh "$work/cuda.mk") && grep -q CUDA_NVCC "$work/cuda.mk" || { echo "gpu_check.sh: error: $found" >&2; exit 1; }
  echo "$found"
elif [ "$device" = cpu ]; then
  export CUDA=0
fi
# shellcheck disable=SC2086
timeout "$(left)" make BUILD=$build $targets >"$work/build.log" 2>&1 ||
  { tail -n 20 "$work/build.log" >&2; echo "gpu_check.sh: error: the build failed, or took $limit s" >&2; exit 1; }
build_seconds=$SECONDS
card=$([ "$device" = cuda ] && nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || echo cpu)
echo "$card; built in $build_seconds s; MPI and GoogleTest $from"

# The kernel tests on the card; their messages are in gpu_check.tests.log if some fail.
if [ -n "$tests" ]; then
  seconds=$(($(left) < 150 ? $(left) : 150)) filter=*
  [ "$device" != emulated ] || filter=CudaSquaredSums.*
  timeout "$seconds" $build/$tests --gtest_brief=1 --gtest_filter="$filter" >"$work/tests" 2>&1
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

# The same bits on 1, 2, 4 and 8 ranks, with a GPU each where there are as many.
shape=(--model d12 --vocab 50257 --seq-len 1024 --micro-batch-size 4)
$small && shape=(--layers 6 --heads 2 --hidden 32 --vocab 50257 --seq-len 16 --micro-batch-size 1)
shape+=(--train-data "$work/speed_tokens.bin" --precision "$precision")
first_hash=
for case in "1 gpipe" "2 zb-v" "4 1f1b" "8 zb-h1"; do
  read -r ranks schedule <<<"$case"
  name="bits $precision $schedule, $ranks rank(s)" folder=$work/bits-$ranks
  if ! train "$ranks" "$folder" --schedule "$schedule" --micro-batches 8 --steps 2 "${shape[@]}"; then
    not_done "$name" "$folder"
    continue
  fi
  hash=$(field "$folder" end parameter_hash)
  first_hash=${first_hash:-$hash}
  record "$name" "$([ "$hash" = "$first_hash" ] && echo true || echo false)" "\"hash\":\"$hash\"" \
    "parameters $hash, those of 1 rank $first_hash"
done

# The first losses in bf16, with heads on tensor cores, from parameters that PyTorch starts from as well. A learning rate
# that moves nothing writes them.
python=${TRAIN_GPT_PYTHON:-python3}
curve=(--model d12 --vocab 50257 --max-seq-len 1024) length=1024 rows=4 curve_steps=10
$small && curve=(--layers 2 --heads 2 --hidden 128 --vocab 1009 --max-seq-len 64) length=64 rows=1 curve_steps=4
batch=(--train-data "$work/speed_tokens.bin" --shuffle false --seq-len $length --micro-batch-size $rows --micro-batches 2
  --schedule gpipe --lr-schedule constant --warmup-steps 0 --weight-decay 0 --grad-clip 0)
name="losses $precision against PyTorch" begins=$work/curve-begin folder=$work/curve
if ! train 1 "$begins" "${curve[@]}" "${batch[@]}" --steps 1 --learning-rate 1e-30 --precision fp32; then
  not_done "$name" "$begins"
elif ! train 1 "$folder" --init "$begins/model.bin" "${batch[@]}" --steps $curve_steps --learning-rate 3e-4 --precision "$precision"; then
  not_done "$name" "$folder"
elif ! timeout "$(left)" "$python" scripts/gpu_loss_curve.py "$begins/model.bin" "$work/speed_tokens.bin" --seq-len $length --rows $rows \
  --micro-batches 2 --steps $curve_steps --learning-rate 3e-4 $($small && echo --cpu) >"$work/curve.pytorch" 2>"$work/curve.err"; then
  echo "$name: left out: $(tail -n 1 "$work/curve.err")"
else
  worst=$(paste <(field "$folder" step loss) "$work/curve.pytorch" |
    awk '{d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d} END {printf "%.2e", NF == 2 ? worst : 9}')
  record "$name" "$(awk -v w="$worst" 'BEGIN {print (w < 5e-3) ? "true" : "false"}')" "\"worst\":$worst" \
    "$curve_steps steps of $((2 * rows * length)) tokens, within $worst of PyTorch's (5e-3 allowed), the last $(field "$folder" step loss | tail -n 1)"
fi

# Memory that a run takes of the GPU, against its prediction: the plan, and estimates for CUDA's own.
if [ "$device" = cuda ]; then
  used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1; }
  before=$(used) most=0
  train 1 "$work/memory" --schedule gpipe --micro-batches 2 --steps 20 "${shape[@]}" &
  run=$!
  while kill -0 $run 2>/dev/null; do
    now=$(used)
    [ "$now" -le "$most" ] || most=$now
    sleep 0.2
  done
  planned=$(field "$work/memory" plan bytes | head -n 1)
  taken=$((most - before)) allowed=$(awk -v p="${planned:-0}" 'BEGIN {printf "%d", p / 1048576 + 256 + 700}')  # and a context
  record "memory, $precision" "$([ "$taken" -gt 0 ] && [ "$taken" -le "$allowed" ] && echo true || echo false)" \
    "\"taken_mib\":$taken,\"allowed_mib\":$allowed" "$taken MiB taken, at most $allowed MiB were to be expected"
elif [ "$device" = emulated ]; then  # a GPU that has what is planned, and a MiB more
  planned=$(field "$work/bits-1" plan bytes | head -n 1)
  EMULATOR_MEMORY=$(awk -v p="${planned:-0}" 'BEGIN {printf "%.9f", (p + 257 * 1048576) / 1073741824}') \
    train 1 "$work/memory" --schedule gpipe --micro-batches 8 --steps 2 "${shape[@]}"
  good=$([ $? -eq 0 ] && echo true || echo false)
  record "memory, $precision" "$good" "\"planned_bytes\":${planned:-0}" \
    "$([ $good = true ] && echo "a GPU of ${planned:-0} bytes, which the plan takes, and 257 MiB is enough" || why "$work/memory")"
fi

# A rank that dies in mid-step, when the others have launched all that the GPU's queue holds: all end, within seconds.
folder=$work/killed
deep=(--layers 48 --heads 12 --hidden 768 --vocab 50257 --seq-len 1024 --micro-batch-size 1)
$small && deep=(--layers 48 --heads 2 --hidden 32 --vocab 1009 --seq-len 16 --micro-batch-size 1)
begin=$SECONDS
train 2 "$folder" --schedule 1f1b --micro-batches 4 --steps 1000 --partition uniform --train-data "$work/speed_tokens.bin" \
  --precision "$precision" "${deep[@]}" &
run=$!
while kill -0 $run 2>/dev/null && ! grep -q '"event":"step"' "$folder/log.jsonl" 2>/dev/null; do sleep 0.2; done
victim=$(pgrep -f "$folder" | while read -r process; do
  tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qE '^(PMI_RANK|OMPI_COMM_WORLD_RANK)=1$' && echo "$process" && break
done)
[ -z "$victim" ] || kill -KILL "$victim"
killed=$SECONDS
wait $run
status=$?
good=$([ -n "$victim" ] && [ $status -ne 0 ] && [ $((SECONDS - killed)) -le 30 ] && echo true || echo false)
record "a rank killed in mid-step" "$good" "\"seconds\":$((SECONDS - killed))" \
  "24 layers per stage: the job ended $((SECONDS - killed)) s later, status $status, $((killed - begin)) s after its start"

# Speed: one rank. Medians without the first two steps.
for model in $models; do
  rows=$([ "$model" = d12 ] && echo 16 || echo 8) length=1024
  options=(--model "$model")
  $small && rows=1 length=64
  [ "$model" = tiny ] && options=(--layers 2 --heads 2 --hidden 32)
  folder=$work/speed-$model
  if [ "$(left)" -lt 30 ]; then echo "speed $model: left out, less than 30 s of $limit are left"; continue; fi
  train 1 "$folder" --schedule gpipe "${options[@]}" --train-data "$work/speed_tokens.bin" --vocab 50257 --seq-len "$length" \
    --micro-batch-size "$rows" --micro-batches 1 --steps "$steps" --precision "$precision" ||
    { not_done "speed $model" "$folder"; continue; }
  median() { field "$folder" step "$1" | tail -n +3 | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
  tokens=$(median tokens_per_s) mfu=$(median mfu)
  record "speed $model $precision" true "\"tokens_per_s\":$tokens,\"mfu\":${mfu:-null}" \
    "$(printf '%.0f' "$tokens") tokens/s, MFU $([ "${mfu:-null}" = null ] && echo n/a || awk -v m="$mfu" 'BEGIN {printf "%.1f%%", 100 * m}')"
done

# Operations against the card's limits, and against PyTorch in the same minute.
if [ -n "$rooflines" ] && [ "$(left)" -gt 20 ]; then
  timeout "$(left)" $build/$rooflines $($small && echo --small) --seconds $(($(left) / 2)) --json "$work/rooflines" >"$work/rooflines.txt" 2>&1
  record "rooflines" "$([ $? -eq 0 ] && echo true || echo false)" "\"operations\":[$(paste -sd, "$work/rooflines" 2>/dev/null)]" \
    "$(wc -l <"$work/rooflines") operations"
  cat "$work/rooflines.txt"
  : >"$work/pytorch"
  if [ "$(left)" -lt 20 ]; then
    echo "PyTorch: left out, less than 20 s of $limit are left"
  elif timeout "$(left)" "$python" scripts/gpu_pytorch.py $($small && echo --small) >"$work/pytorch" 2>"$work/pytorch.err"; then
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
