#!/usr/bin/env bash
# A step of --optimizer muon beside numpy. usage: scripts/check_muon.sh PROGRAM
# numpy is installed into .venv-check (ignored by git) unless python3 has it; without a network the check is skipped.
set -u
program=${1:?usage: scripts/check_muon.sh PROGRAM}
python=python3
skip() { echo "skipped: $1"; exit 0; }
if ! "$python" -c 'import numpy' 2>/dev/null; then
  python=.venv-check/bin/python
  [ -x "$python" ] || python3 -m venv .venv-check 2>/dev/null || skip "python3 has no venv (apt-get install python3-venv)"
  "$python" -c 'import numpy' 2>/dev/null ||
    .venv-check/bin/pip install --quiet --disable-pip-version-check --retries 0 --timeout 20 numpy 2>/dev/null ||
    skip "pip cannot install numpy; offline?"
fi
exec "$python" scripts/check_muon.py "$program"
