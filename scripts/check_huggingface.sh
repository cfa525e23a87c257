#!/usr/bin/env bash
# Tokens, merges, model folders, training losses and multiple choice beside PyPI's tokenizers, transformers and torch.
# usage: scripts/check_huggingface.sh PROGRAM     TRAIN_GPT_PYTHON=PYTHON: one that has the three packages already
# They are installed into .venv-check (ignored by git); without a network the check is skipped, and says so.
set -u
program=${1:?usage: scripts/check_huggingface.sh PROGRAM}
python=${TRAIN_GPT_PYTHON:-.venv-check/bin/python}
skip() { echo "skipped: $1"; exit 0; }

if [ -z "${TRAIN_GPT_PYTHON:-}" ] && ! "$python" -c 'import tokenizers, transformers, torch' 2>/dev/null; then
  python3 -m venv .venv-check 2>/dev/null || skip "python3 has no venv (apt-get install python3-venv)"
  pip=(.venv-check/bin/pip install --quiet --disable-pip-version-check --retries 0 --timeout 20)
  "${pip[@]}" tokenizers transformers numpy 2>/dev/null || skip "pip cannot install tokenizers and transformers; offline?"
  "${pip[@]}" torch --index-url https://download.pytorch.org/whl/cpu 2>/dev/null || "${pip[@]}" torch 2>/dev/null ||
    skip "pip cannot install torch; offline?"
fi
exec "$python" scripts/check_huggingface.py "$program"
