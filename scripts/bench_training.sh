#!/usr/bin/env bash
# GPT-2 124M on this machine's CPU, as ratios within one run:
#   - tokens/s of one process with 2 threads (llm.c's CPU trainer reaches 33-42 on a machine of 2 such cores);
#   - two ranks with one thread each, m = 16, against (1 - simulated bubble) x the one-process rate at the same b and m;
#     also with transports that move nothing unless the program calls MPI (UCX_TLS=posix,self and tcp,self);
#   - resident memory against the plan.
# usage: scripts/bench_training.sh PROGRAM [STEPS]
set -eu
program=${1:?usage: scripts/bench_training.sh PROGRAM [STEPS]}
steps=${2:-6}
mpirun=$(command -v mpirun.mpich || command -v mpirun)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
seq 1 40000 >"$work/text"
"$program" prepare --text "$work/text" --output "$work/tokens.bin" >/dev/null

# The largest resident size without files (RssAnon, KiB) of a rank while the run goes on.
watch_memory() {
  local most=0 now
  while sleep 0.5; do
    now=$(cat /proc/$(pgrep -n -f "output $work/$1" || echo self)/status 2>/dev/null | awk '/RssAnon/ {print $2}')
    [ "${now:-0}" -gt "$most" ] && most=$now && echo "$most" >"$work/$1.rss"
  done
}

# train NAME RANKS THREADS M B: medians of the step events but the first, as "tokens_per_s bubble_predicted bubble"
train() {
  watch_memory "$1" &
  local watcher=$!
  "$mpirun" -n "$2" "$program" train --train-data "$work/tokens.bin" --model d12 --vocab 50257 --seq-len 64 \
    --micro-batches "$4" --micro-batch-size "$5" --steps "$steps" --threads "$3" --output "$work/$1" --overwrite >"$work/$1.txt" 2>&1 ||
    { tail -n 5 "$work/$1.txt" >&2; kill $watcher; return 1; }
  kill $watcher 2>/dev/null
  python3 - "$work/$1/log.jsonl" <<'PYTHON'
import json, statistics, sys
steps = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "step"][1:]
print(*(statistics.median(e[k] for e in steps) for k in ("tokens_per_s", "bubble_predicted", "bubble")))
PYTHON
}

ratio() { awk "BEGIN { printf \"%.3f\", $1 }"; }

read -r rate _ _ <<<"$(train one 1 2 1 4)"
printf 'one process, 2 threads, 4 sequences of 64: %.1f tokens/s, %.1f x llm.c (33-42, taken as 37.5)\n' "$rate" \
  "$(ratio "$rate / 37.5")"
read -r one16 _ _ <<<"$(train one16 1 2 16 1)"
planned=$(python3 -c "import json; print(json.loads(open('$work/one/log.jsonl').readline())['ranks'][0]['bytes'] / 2**20)")
printf 'one process: planned %.0f MiB, resident (RssAnon) %.0f MiB\n' "$planned" "$(ratio "$(cat "$work/one.rss") / 1024")"
for tls in default posix,self tcp,self; do
  [ "$tls" = default ] && unset UCX_TLS || export UCX_TLS=$tls
  read -r two predicted measured <<<"$(train "two-$tls" 2 1 16 1)"
  printf '2 ranks x 1 thread, m = 16, UCX_TLS %-10s %.1f tokens/s = %.3f of (1 - bubble %.3f) x %.1f tokens/s; bubble measured %.3f\n' \
    "$tls:" "$two" "$(ratio "$two / ((1 - $predicted) * $one16)")" "$predicted" "$one16" "$measured"
done
