#!/usr/bin/env bash
# Checks that every #include "folder/file" of the product follows an arrow of scripts/allowed_includes.txt, and names file and
# line of each that does not. Without arguments it looks at every source file that git knows or could know; it can be given
# files instead. Ends with `N passed, N failed`: one per folder.
set -u
cd "$(dirname "$0")/.." || exit 1
if [ $# -gt 0 ]; then
  printf '%s\n' "$@"
else
  git ls-files -co --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh' | grep -v '^test/'
fi | awk '
  function folder_of(path) { return sub(/\/[^\/]*$/, "", path) ? path : "." }
  function allowed(from, to,   parent) {
    if (from == to || (from, to) in arrow) return 1
    parent = to
    while (sub(/\/[^\/]*$/, "", parent)) if ((from, parent "/*") in arrow) return 1
    return 0
  }
  FILENAME == "scripts/allowed_includes.txt" {
    if ($0 ~ /^#/ || NF == 0) next
    from = $1
    sub(/:$/, "", from)
    known[from] = 1
    for (i = 2; i <= NF; ++i) arrow[from, $i] = 1
    next
  }
  {
    file = $0
    from = folder_of(file)
    if (!(from in known)) {
      printf "%s: the folder %s has no line in scripts/allowed_includes.txt\n", file, from
      bad[from] = 1
    }
    seen[from] = 1
    number = 0
    while ((getline line < file) > 0) {
      ++number
      if (line !~ /^ *# *include *"[^"]*\/[^"]*"/) continue
      header = line
      sub(/^[^"]*"/, "", header)
      sub(/".*/, "", header)
      to = folder_of(header)
      if (allowed(from, to)) continue
      printf "%s:%d: includes %s, but %s may not include %s (scripts/allowed_includes.txt)\n", file, number, header, from, to
      bad[from] = 1
    }
    close(file)
  }
  END {
    for (folder in seen) if (folder in bad) ++failed; else ++passed
    printf "%d passed, %d failed\n", passed, failed
    exit failed > 0
  }' scripts/allowed_includes.txt -
