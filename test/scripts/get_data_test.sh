#!/usr/bin/env bash
# scripts/get_data.sh with a server on this machine: no network, no such file, something else in its place, a download that was
# cut off, with a server that can go on in the middle and with one that cannot; then each corpus up to its token files, with a
# small text in the place of the gigabytes. usage: test/scripts/get_data_test.sh PROGRAM     Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
real=$(realpath "${1:?usage: test/scripts/get_data_test.sh PROGRAM}") || exit 1
command -v curl >/dev/null || { echo "skipped: no curl"; echo "0 passed, 0 failed"; exit 0; }
work=$(mktemp -d)
server_pid=
trap '[ -z "$server_pid" ] || kill "$server_pid"; rm -rf "$work"' EXIT
passed=0 failed=0

corpus=hellaswag program=true
expect() {  # expect NAME STATUS TEXT..: get_data.sh ends with that status and says every text
  local name=$1 status=$2 output seen=0 text missing=
  shift 2
  output=$(GITHUB=$url HUGGINGFACE=$url PROGRAM=$program scripts/get_data.sh $corpus "$work/data" 2>&1) || seen=$?
  for text in "$@"; do grep -qF -- "$text" <<<"$output" || missing+=" '$text'"; done
  check "$name: status $seen, missing:$missing in $output" $((seen == status && ${#missing} == 0))
}
check() {  # check WHAT 1|0
  if [ "$2" -eq 1 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $1"; fi
}
is_whole() { cmp -s "$work/data/hellaswag_val.jsonl" "$served" && echo 1 || echo 0; }

# Says the port that it listens on. With "ranges" it can begin in the middle of a file.
cat >"$work/server.py" <<'PYTHON'
import http.server, os, sys
os.chdir(sys.argv[1])
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        wanted = self.headers.get("Range")
        if wanted is None or sys.argv[2] != "ranges" or not os.path.exists("." + self.path):
            return super().do_GET()
        data = open("." + self.path, "rb").read()
        begin = int(wanted.split("=")[1].split("-")[0])
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        self.wfile.write(data[begin:])
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
PYTHON

start_server() {  # start_server ranges|whole
  [ -z "$server_pid" ] || kill "$server_pid"
  rm -f "$work/port" && mkfifo "$work/port"
  python3 "$work/server.py" "$work/served" "$1" >"$work/port" 2>"$work/server.log" &
  server_pid=$!
  read -r port <"$work/port"
  url=http://127.0.0.1:$port
}

served=$work/served/rowanz/hellaswag/master/data/hellaswag_val.jsonl
mkdir -p "$(dirname "$served")"
usage=$(scripts/get_data.sh nonsense 2>&1); status=$?
check "usage" $((status == 2 && $(grep -cE 'tinystories|fineweb|hellaswag' <<<"$usage") >= 3))

url=http://127.0.0.1:1
expect "no network" 1 "cannot download $url/rowanz" "is there a network" "$work/data/hellaswag_val.jsonl yourself"
start_server ranges
expect "no such file" 1 "cannot download" "404"
echo "<html>Please log in</html>" >"$served"
expect "a page in its place" 1 "has 27 bytes, but should have 12000000 to 12500000" "the server sent something else"
check "the page is not kept" "$([ -e "$work/data/hellaswag_val.jsonl" ] || [ -e "$work/data/hellaswag_val.jsonl.part" ] && echo 0 || echo 1)"
head -c 12246618 /dev/urandom >"$served"
expect "whole" 0 "true evaluate --init MODEL --multiple-choice $work/data/hellaswag_val.jsonl"
check "the whole file" "$(is_whole)"
expect "a second time" 0 "evaluate --init MODEL"
for kind in ranges whole; do
  start_server $kind
  rm "$work/data/hellaswag_val.jsonl"
  head -c 5000000 "$served" >"$work/data/hellaswag_val.jsonl.part"
  expect "goes on, server: $kind" 0 "evaluate --init MODEL"
  check "the rest of the file, server: $kind" "$(is_whole)"
done
mv "$work/data/hellaswag_val.jsonl" "$work/data/hellaswag_val.jsonl.part"
expect "ended before it had its name" 0 "evaluate --init MODEL"
check "the file that was there" "$(is_whole)"
head -c 100 "$served" >"$work/data/hellaswag_val.jsonl"
expect "cut off by somebody else" 1 "has 100 bytes" "remove it and call this again"

# The program, which finds a small text where a large one is named. Sparse files have the size, and take no room.
export REAL=$real SMALL=$work/small.txt SMALL_ROWS=$work/small.jsonl
program=$work/program
cat >"$program" <<'SCRIPT'
#!/usr/bin/env bash
words=("$@")
for i in "${!words[@]}"; do
  case ${words[i]} in */stories.txt) words[i]=$SMALL ;; */000.jsonl) words[i]=$SMALL_ROWS ;; esac
done
exec "$REAL" "${words[@]}"
SCRIPT
chmod +x "$program"
for i in {1..400}; do echo "Once upon a time there was a cat number $i who sat on a mat."; echo "<|endoftext|>"; done >"$SMALL"
for i in {1..400}; do echo "{\"text\": \"A row with the number $i about cats.\"}"; done >"$SMALL_ROWS"

corpus=tinystories
url=http://127.0.0.1:1
expect "stories, no network" 1 "cannot download $url/datasets/roneneldan/TinyStories/resolve/main/TinyStoriesV2-GPT4-train.txt"
truncate -s 2199999999 "$work/data/stories.txt"
expect "stories, too short" 1 "has 2199999999 bytes, but should have 2200000000 to 2300000000"
rm "$work/data/stories.txt"
truncate -s 2227753162 "$work/data/stories.txt.part"
expect "stories" 0 "401 documents" "train --data $work/data --model d6"
for file in train.bin val.bin tokenizer.json; do check "stories: $file" "$([ -s "$work/data/$file" ] && echo 1 || echo 0)"; done
rm -r "$work/data"

corpus=fineweb
tokenizer=$work/served/openai-community/gpt2/resolve/main
mkdir -p "$tokenizer"
# GPT-2's form and sizes: a vocabulary of bytes, one merge, the end of text; the rest is white space.
python3 - "$tokenizer" <<'PYTHON'
import json, sys
kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters = [chr(b) for b in kept] + [chr(256 + n) for n in range(256 - len(kept))]
tokens = [*letters, "ca", "<|endoftext|>"]
write = lambda name, text, size: open(sys.argv[1] + "/" + name, "wb").write(text.encode().ljust(size, b"\n"))
write("vocab.json", json.dumps({token: i for i, token in enumerate(tokens)}), 1042301)
write("merges.txt", "#version: 0.2\nc a\n", 456318)
PYTHON
start_server ranges
mkdir "$work/data"
truncate -s 2150000000 "$work/data/000.parquet.part"
expect "fineweb, no parquet file" 1 "cannot read the parquet file: pip install pyarrow"
check "nothing half made" "$([ -e "$work/data/000.jsonl" ] && echo 0 || echo 1)"
cp "$SMALL_ROWS" "$work/data/000.jsonl"
expect "fineweb" 0 "400 documents" "vocabulary 258" "train --data $work/data --model d12"
check "fineweb: shards" "$(compgen -G "$work/data/train-*.bin" >/dev/null && echo 1 || echo 0)"
truncate -s 1042300 "$work/data/vocab.json"
expect "another vocabulary" 1 "vocab.json has 1042300 bytes, but should have 1042301"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
