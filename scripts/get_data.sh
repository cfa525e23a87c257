#!/usr/bin/env bash
# Public corpora that GPT-2s are trained on, downloaded and prepared: scripts/get_data.sh NAME [FOLDER]
#
#   tinystories   2.1 GB of short stories (Eldan and Li 2023); a vocabulary of 4096 is learned from them
#   fineweb       one file of FineWeb-Edu's sample of 10 billion tokens, about 2 GB, as GPT-2's tokens (needs python3 with
#                 pyarrow, which reads the corpus's parquet files)
#   hellaswag     10042 questions with four endings, for --multiple-choice
#
# GPT-2's vocabulary (vocab.json and merges.txt) comes along where it is needed. Every file's size is checked; a download
# that was cut off goes on. PROGRAM names another ./train_gpt; HUGGINGFACE and GITHUB other servers, such as mirrors.
set -eu
name=${1:-}
folder=${2:-data/$name}
program=${PROGRAM:-./train_gpt}
server=${HUGGINGFACE:-https://huggingface.co}
github=${GITHUB:-https://raw.githubusercontent.com}

fail() { echo "error: $*" >&2; exit 1; }
say() { printf '\n-- %s\n' "$*"; }

size_of() { if [ -e "$1" ]; then wc -c <"$1"; else echo 0; fi; }

# download URL PART: what is missing of it; all of it where the server cannot go on in the middle
download() {
  local status=0
  curl --fail --location --continue-at - --retry 3 --connect-timeout 20 --output "$2" "$1" || status=$?
  [ $status -eq 33 ] || return $status
  rm -f "$2"
  curl --fail --location --retry 3 --connect-timeout 20 --output "$2" "$1"
}

# get URL FILE LEAST MOST: the file, of that many bytes
get() {
  local url=$1 file=$2 least=$3 most=$4 bytes
  if [ ! -s "$file" ]; then
    say "$url"
    if [ "$(size_of "$file.part")" -lt "$least" ]; then
      download "$url" "$file.part" ||
        fail "cannot download $url; is there a network? Put the file at $file yourself, and call this again"
    fi
    bytes=$(size_of "$file.part")
    if [ "$bytes" -lt "$least" ] || [ "$bytes" -gt "$most" ]; then
      rm -f "$file.part"
      fail "$url has $bytes bytes, but should have $least to $most: the server sent something else"
    fi
    mv "$file.part" "$file"
  fi
  bytes=$(size_of "$file")
  if [ "$bytes" -lt "$least" ] || [ "$bytes" -gt "$most" ]; then
    fail "$file has $bytes bytes, but should have $least to $most; remove it and call this again"
  fi
}

gpt2_tokenizer() {
  get "$server/openai-community/gpt2/resolve/main/vocab.json" "$folder/vocab.json" 1042301 1042301
  get "$server/openai-community/gpt2/resolve/main/merges.txt" "$folder/merges.txt" 456318 456318
}

case "$name" in
  tinystories | fineweb | hellaswag) ;;
  *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
command -v curl >/dev/null || fail "no curl. Install it: apt-get install curl"
mkdir -p "$folder"

case "$name" in
  tinystories)
    get "$server/datasets/roneneldan/TinyStories/resolve/main/TinyStoriesV2-GPT4-train.txt" "$folder/stories.txt" 2200000000 2300000000
    "$program" prepare --text "$folder/stories.txt" --output "$folder" --vocab 4096 --val-fraction 0.01
    say "$program train --data $folder --model d6 --max-seq-len 512 --seq-len 512"
    ;;
  fineweb)
    gpt2_tokenizer
    get "$server/datasets/HuggingFaceFW/fineweb-edu/resolve/main/sample/10BT/000_00000.parquet" "$folder/000.parquet" 2000000000 2300000000
    if [ ! -s "$folder/000.jsonl" ]; then
      python3 - "$folder/000.parquet" "$folder/000.jsonl.part" <<'PYTHON' || fail "cannot read the parquet file: pip install pyarrow"
import json, sys
import pyarrow.parquet
with open(sys.argv[2], "w") as out:
    for batch in pyarrow.parquet.ParquetFile(sys.argv[1]).iter_batches(columns=["text"]):
        for text in batch.column(0):
            out.write(json.dumps({"text": text.as_py()}) + "\n")
PYTHON
      mv "$folder/000.jsonl.part" "$folder/000.jsonl"
    fi
    "$program" prepare --text "$folder/000.jsonl" --output "$folder" --tokenizer "$folder/vocab.json" --shard-tokens 100000000 \
      --val-fraction 0.01
    say "mpirun -n 4 $program train --data $folder --model d12 --seq-len 1024"
    ;;
  hellaswag)
    get "$github/rowanz/hellaswag/master/data/hellaswag_val.jsonl" "$folder/hellaswag_val.jsonl" 12000000 12500000
    say "$program evaluate --init MODEL --multiple-choice $folder/hellaswag_val.jsonl --seq-len 256"
    ;;
esac
