#!/usr/bin/env bash
# scripts/check_includes.sh refuses an include that goes against an arrow, naming file and line, and accepts the tree as it is.
set -u
cd "$(dirname "$0")/../.." || exit 1
planted=pipeline/schedule/planted_include.h
trap 'rm -f "$planted"' EXIT
passed=0 failed=0
expect() {  # what was expected, what was seen
  case "$2" in
    *"$1"*) passed=$((passed + 1)) ;;
    *) failed=$((failed + 1)); printf 'expected: %s\nseen: %s\n' "$1" "$2" ;;
  esac
}
expect ' 0 failed' "$(scripts/check_includes.sh)"
printf '#pragma once\n#include "pipeline/train/executor.h"\n' >"$planted"
expect "$planted:2: includes pipeline/train/executor.h, but pipeline/schedule may not include pipeline/train" "$(scripts/check_includes.sh)"
if scripts/check_includes.sh >/dev/null; then expect 'a status other than 0' 'status 0'; else passed=$((passed + 1)); fi
printf '#pragma once\n#include "pipeline/schedule/schedule.h"\n#include <vector>\n' >"$planted"
expect ' 0 failed' "$(scripts/check_includes.sh "$planted")"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
