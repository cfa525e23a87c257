#!/usr/bin/env bash
# Runs GoogleTest programs and other test commands one after the other, and closes with one line: `N passed, N failed`.
# Each argument is one command. One that says `skipped: WHY` counts for nothing. A program that ends without saying how many tests passed counts as one failed test.
set -u
passed=0 failed=0
log=$(mktemp) && trap 'rm -f "$log"' EXIT
for command in "$@"; do
  echo "== $command"
  begin=$SECONDS
  bash -c "$command" >"$log" 2>&1
  status=$?
  if [ $status -eq 0 ] && grep -m 1 '^skipped: ' "$log"; then continue; fi
  # GoogleTest says "[  PASSED  ] 12 tests." and "3 FAILED TESTS"; our scripts say "12 passed, 3 failed".
  ok=$(sed -n -e 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' -e 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
  bad=$(sed -n -e 's/^ *\([0-9]*\) FAILED TEST.*/\1/p' -e 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
  if [ $status -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  if [ $((ok + bad)) -eq 0 ]; then
    echo "no test was run"
    bad=1
  fi
  if [ "$bad" -gt 0 ]; then cat "$log"; fi
  echo "   $ok passed, $bad failed (exit status $status) in $((SECONDS - begin)) s"
  passed=$((passed + ok)) failed=$((failed + bad))
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
