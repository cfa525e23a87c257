#!/usr/bin/env bash
# scripts/get_data.sh with a server on this machine: no network, no such file, something else in its place, a download that was
# cut off, with a server that can go on in the middle and with one that cannot. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v curl >/dev/null || { echo "skipped: no curl"; echo "0 passed, 0 failed"; exit 0; }
work=$(mktemp -d)
server_pid=
trap '[ -z "$server_pid" ] || kill "$server_pid"; rm -rf "$work"' EXIT
passed=0 failed=0

expect() {  # expect NAME STATUS TEXT..: get_data.sh hellaswag ends with that status and says every text
  local name=$1 status=$2 output seen=0 text missing=
  shift 2
  output=$(GITHUB=$url PROGRAM=true scripts/get_data.sh hellaswag "$work/data" 2>&1) || seen=$?
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
expect "whole" 0 "evaluate --init MODEL --multiple-choice $work/data/hellaswag_val.jsonl"
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
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
