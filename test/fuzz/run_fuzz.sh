#!/usr/bin/env bash
# Feeds every reader with changed files. usage: test/fuzz/run_fuzz.sh PROGRAM LIMIT READER..
# LIMIT: -runs=N, the same inputs each time, or -max_total_time=SECONDS. Inputs that are new to a reader are collected in
# FOLDER/corpus/READER, where FOLDER has PROGRAM; what was found is in FOLDER/found. Prints `N passed, N failed`.
set -u
program=$(realpath "$1") limit=$2
shift 2
seeds=$(dirname "$(realpath "$0")")/seeds
folder=$(dirname "$program")
mkdir -p "$folder/found"
passed=0 failed=0
for reader in "$@"; do
  corpus=$(mktemp -d)
  if [[ $limit != -runs=* ]]; then
    rmdir "$corpus"
    corpus=$folder/corpus/$reader
    mkdir -p "$corpus"
  fi
  if FUZZ_READER=$reader "$program" "$limit" -seed=1 -timeout=10 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=0 \
    -artifact_prefix="$folder/found/$reader-" "$corpus" "$seeds/$reader" >"$folder/found/$reader.log" 2>&1; then
    passed=$((passed + 1))
    rm -f "$folder/found/$reader.log"
  else
    failed=$((failed + 1))
    echo "$reader:"
    grep -a -m 12 -E 'ERROR|SUMMARY|runtime error|what\(\)|terminate|Test unit|    #[0-9]' "$folder/found/$reader.log"
  fi
  [[ $limit == -runs=* ]] && rm -rf "$corpus"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
