#!/usr/bin/env bash
# Opens the page of `simulate --html` in headless Chromium, points at an action and steps back, and reads what the page shows then.
#
# Usage: test/scripts/page_test.sh [BINARY]
set -euo pipefail
binary=${1:-./train_gpt}
chromium=$(command -v chromium || command -v chromium-headless-shell || command -v google-chrome || true)
[ -n "$chromium" ] || { echo 'skipped: there is no Chromium here (Debian: chromium-headless-shell)'; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0

# shows PATTERN: what the page must say
shows() {
  if grep -Eq "$1" "$folder/shown"; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "page_test: no line like $1 in"
    cat "$folder/shown"
  fi
}

# look SCHEDULE: with two ranks and two micro-batches, points at the first B (or I) of rank 0, then goes to the moment 1 ms
look() {
  "$binary" simulate --stages 2 --micro-batches 2 --schedule "$1" --html "$folder/page.html" >/dev/null
  cat >>"$folder/page.html" <<'PAGE'
<script>
const say = text => { const p = document.createElement('p'); p.className = 'seen'; p.textContent = text; document.body.appendChild(p); };
const lit = kind => all.filter(it => it.box.classList.contains(kind)).map(it => it.name).join(' ');
const at = all.find(it => it.rank === 0 && it.op !== 'F');
at.box.dispatchEvent(new MouseEvent('mouseenter'));
say('at ' + at.name + ': needs ' + lit('needs') + '; feeds ' + lit('feeds') + '; it ' + lit('it') + '.');
say('about: ' + document.getElementById('about').textContent);
at.box.dispatchEvent(new MouseEvent('mouseleave'));
say('left: ' + lit('needs') + lit('feeds') + lit('it') + '.');
say('end: ' + document.getElementById('clock').textContent + ', later ' + lit('later') + '.');
while (document.getElementById('clock').textContent.split(' ')[0] !== '1') document.getElementById('back').click();
say('back: ' + document.getElementById('clock').textContent + ', now ' + lit('now') + ', later ' + lit('later') + '.');
say('memory: ' + [...document.querySelectorAll('#memory text')].map(t => t.textContent).join('; ') + '.');
</script>
PAGE
  "$chromium" --headless --no-sandbox --disable-gpu --virtual-time-budget=5000 --dump-dom "file://$folder/page.html" \
    2>"$folder/errors" | grep -o '<p class="seen">[^<]*' | sed 's/[^>]*>//' >"$folder/shown"
}

# rank 0 | F0 F1 .  B0--- .  B1---        F0 0..1, F1 1..2, B0 4..6, B1 7..9
# rank 1 | .  F0 B0--- F1 B1---           F0 1..2, B0 2..4, F1 4..5, B1 5..7
look 1f1b
shows '^at 0B0: needs 0F0 0F1 1B0; feeds 0B1; it 0B0\.$'
shows '^about: 0B0 \(rank 0, 4 to 6 ms\) waits for 0F1, 0F0, 1B0; for it wait 0B1$'
shows '^left: \.$'
shows '^end: 9 of 9 ms, later \.$'
shows '^back: 1 of 9 ms, now 0F1 1F0, later 0B0 0B1 1B0 1F1 1B1\.$'
shows '^memory: rank 0: 2; rank 1: 1\.$'
# rank 0 | F0 F1 .  I0 W0 I1 W1           I0 3..4
look zb-h1
shows '^at 0I0: needs 0F0 0F1 1I0; feeds 0W0; it 0I0\.$'
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
