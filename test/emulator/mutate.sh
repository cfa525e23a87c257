#!/usr/bin/env bash
# Mutation test: leaves out one barrier, wait or event at a time and demands that some command notices.
#
#   mutate.sh [--only REGEX] [--sources FILE..] -- COMMAND [-- COMMAND]...
#
# Each command is an emulated program that succeeds (status 0). All are first run as they are, listing the synchronisation
# sites they reach; then, for each site that matches REGEX, with that site left out, one after the other until one fails:
# detected. Put the build that notices most (race) first. A site that no command notices is either not tested or not needed:
# it is printed and the status is 1. With --sources, synchronisations in these files that no command reaches are reported
# too. No compilation is needed: the emulator leaves out a site by its source line (sites.h).
# MUTATE_TIMEOUT (120): seconds for one run; running longer counts as detected, since a lost wait may well hang.
set -u
only=. sources=() commands=() current=
while [ $# -gt 0 ]; do
  case "$1" in
    --only) only=$2; shift 2 ;;
    --sources) shift; while [ $# -gt 0 ] && [ "$1" != -- ]; do sources+=("$1"); shift; done ;;
    --) shift; current=; while [ $# -gt 0 ] && [ "$1" != -- ]; do current+="$(printf '%q' "$1") "; shift; done
        commands+=("$current") ;;
    *) echo "mutate.sh: error: unexpected '$1'; the first lines of this script say how it is called" >&2; exit 2 ;;
  esac
done
[ ${#commands[@]} -gt 0 ] || { echo "mutate.sh: error: no command" >&2; exit 2; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
limit=${MUTATE_TIMEOUT:-120}

for command in "${commands[@]}"; do
  if ! EMULATOR_SITES=$work/sites timeout "$limit" bash -c "$command" >"$work/log" 2>&1; then
    echo "mutate.sh: error: fails without any mutation: $command" >&2
    tail -n 20 "$work/log" >&2
    exit 2
  fi
done
touch "$work/sites"
sort -u "$work/sites" | grep -E -- "$only" >"$work/chosen"

detected=0 survived=0
while read -r operation site; do
  found=
  for command in "${commands[@]}"; do
    EMULATOR_SKIP=$site timeout "$limit" bash -c "$command" >"$work/log" 2>&1 </dev/null  # mpirun would eat the list
    status=$?
    if [ $status -ne 0 ]; then
      found=$(grep -o 'error \[[a-z-]*\]' "$work/log" | head -n 1)
      [ $status -eq 124 ] && found="did not end"
      : "${found:=status $status}"
      break
    fi
  done
  if [ -n "$found" ]; then
    detected=$((detected + 1))
    echo "detected  $site $operation: $found"
  else
    survived=$((survived + 1))
    echo "SURVIVED  $site $operation: nothing notices that it is missing"
  fi
done <"$work/chosen"

unreached=0
for file in ${sources[@]+"${sources[@]}"}; do
  while IFS=: read -r line _; do
    if ! grep -q -F -- " $file:$line" "$work/sites" ; then
      echo "UNREACHED $file:$line: $(sed -n "${line}p" "$file" | sed 's/^ *//')"
      unreached=$((unreached + 1))
    fi
  done < <(sed 's,//.*,,' "$file" | grep -nE '__sync(threads|warp)[a-z_]*\(|cp_async_(wait|commit)[a-z_]*(<[^>]*>)?\(|cuda(StreamWaitEvent|EventRecord)\(')
done
echo "mutations: $((detected + survived)), detected $detected, survived $survived; unreached sites: $unreached"
[ $survived -eq 0 ] && [ $unreached -eq 0 ] && [ $((detected + survived)) -gt 0 ]
