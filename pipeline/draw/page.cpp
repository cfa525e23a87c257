#include "pipeline/draw/page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "pipeline/draw/markup.h"

namespace train_gpt {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>
body { font: 14px sans-serif; margin: 1em; color: #222; background: #fff }
#chart, #memory { overflow-x: auto }
rect.a { stroke: #fff; cursor: default } rect.F { fill: #5b8def } rect.B { fill: #3aa675 }
rect.I { fill: #59c08f } rect.W { fill: #d9a441 } rect.later { opacity: .18 } rect.now { stroke: #000; stroke-width: 2 }
rect.needs { stroke: #c00; stroke-width: 3; opacity: 1 } rect.feeds { stroke: #06c; stroke-width: 3; opacity: 1 }
rect.it { stroke: #000; stroke-width: 3; opacity: 1 }
text { pointer-events: none; font: 10px sans-serif } text.rank { font: 12px sans-serif }
polyline { fill: none; stroke: #555 } line.time { stroke: #c00 }
button { font: inherit; padding: .2em .8em } #about { min-height: 3em; margin: .6em 0 } #time { width: 20em }
.k { padding: 0 .5em; color: #fff }
</style>)";

constexpr const char* kBody = R"(
<p><button id="back">&#9664; back</button> <button id="next">next &#9654;</button>
<input id="time" type="range" min="0" value="0" aria-label="moment"> <span id="clock"></span></p>
<div id="chart"></div>
<p id="about">Point at an action: red is what it waits for, blue what waits for it.</p>
<h2 style="font-size:1em">Activations alive on each rank, in micro-batches through a rank's share</h2>
<div id="memory"></div>
<p>F forward; I and W the halves of the backward, of inputs and of weights; B both in one. 2F0: stage 2, forward, micro-batch
0. Left and right arrow keys step, too.</p>
<script>
'use strict';
)";

// The schedule's data come between the two.
constexpr const char* kScript = R"(, NS = 'http://www.w3.org/2000/svg', left = 64, row = 24, width = 1100;
const scale = width / d.makespan, x = t => left + t * scale;
const make = (name, attributes, parent, text) => {
  const e = document.createElementNS(NS, name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.appendChild(e);
  return e;
};
const picture = (id, height) => {
  const svg = make('svg', { width: left + width + 10, height });
  document.getElementById(id).appendChild(svg);
  return svg;
};
const all = [], made = { F: {}, B: {}, W: {} };
const key = (stage, mb) => stage + ',' + mb;
const kind = op => op === 'F' ? 'F' : op === 'W' ? 'W' : 'B';
d.ranks.forEach((list, rank) => list.forEach((a, i) => {
  const it = { op: a[0], stage: a[1], mb: a[2], start: a[3], end: a[4], rank, i, needs: [], feeds: [] };
  it.name = it.stage + it.op + it.mb;
  all.push(it);
  made[kind(it.op)][key(it.stage, it.mb)] = it;
}));
const joins = (it, other) => { if (other && !it.needs.includes(other)) { it.needs.push(other); other.feeds.push(it); } };
let before = null;
for (const it of all) {
  const s = d.stages[it.stage];
  if (before && before.rank === it.rank) joins(it, before);
  before = it;
  if (it.op === 'F') { if (s.previous >= 0) joins(it, made.F[key(s.previous, it.mb)]); }
  else if (it.op === 'W') joins(it, made.B[key(it.stage, it.mb)]);
  else {
    joins(it, made.F[key(it.stage, it.mb)]);
    if (s.next >= 0) joins(it, made.B[key(s.next, it.mb)]);
  }
}
const chart = picture('chart', d.ranks.length * row + 8);
d.ranks.forEach((_, r) => make('text', { x: 2, y: r * row + 16, class: 'rank' }, chart, 'rank ' + r));
for (const it of all) {
  const w = Math.max(1, (it.end - it.start) * scale);
  it.box = make('rect', { x: x(it.start), y: it.rank * row + 2, width: w, height: row - 4, class: 'a ' + it.op }, chart);
  make('title', {}, it.box, it.name + ' on rank ' + it.rank + ', ' + it.start + ' to ' + it.end + ' ms');
  if (w > 22) make('text', { x: x(it.start) + 2, y: it.rank * row + 16 }, chart, it.name);
  it.box.addEventListener('mouseenter', () => light(it, true));
  it.box.addEventListener('mouseleave', () => light(it, false));
}
const timeLine = make('line', { y1: 0, y2: d.ranks.length * row, class: 'time' }, chart);
const names = list => list.map(o => o.name).join(', ') || 'nothing';
function light(it, on) {
  it.box.classList.toggle('it', on);
  it.needs.forEach(o => o.box.classList.toggle('needs', on));
  it.feeds.forEach(o => o.box.classList.toggle('feeds', on));
  if (on) document.getElementById('about').textContent =
    it.name + ' (rank ' + it.rank + ', ' + it.start + ' to ' + it.end + ' ms) waits for ' + names(it.needs) +
    '; for it wait ' + names(it.feeds);
}
const height = 40, memory = picture('memory', d.ranks.length * height + 8);
let most = 0;
const curves = d.ranks.map((_, r) => {
  const changes = [];
  for (const it of all.filter(o => o.rank === r)) {
    if (it.op === 'F') changes.push([it.start, 1]);
    if (it.op === 'B') changes.push([it.end, -1]);
    if (it.op === 'I') changes.push([it.end, d.weightMemory - 1]);
    if (it.op === 'W') changes.push([it.end, -d.weightMemory]);
  }
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let live = 0;
  return changes.map(c => { live += c[1] / d.chunks; most = Math.max(most, live); return [c[0], live]; });
});
curves.forEach((curve, r) => {
  const y = v => (r + 1) * height - v / Math.max(most, 1e-9) * (height - 8);
  let points = x(0) + ',' + y(0), level = 0, peak = 0;
  for (const [t, v] of curve) {
    points += ' ' + x(t) + ',' + y(level) + ' ' + x(t) + ',' + y(v);
    level = v; peak = Math.max(peak, v);
  }
  make('polyline', { points: points + ' ' + x(d.makespan) + ',' + y(level) }, memory);
  make('text', { x: 2, y: (r + 1) * height - 4, class: 'rank' }, memory, 'rank ' + r + ': ' + Math.round(peak * 100) / 100);
});
const memoryLine = make('line', { y1: 0, y2: d.ranks.length * height, class: 'time' }, memory);
const moments = [...new Set(all.flatMap(it => [it.start, it.end]))].sort((a, b) => a - b);
const slider = document.getElementById('time');
slider.max = moments.length - 1;
function show(i) {
  const t = moments[i];
  slider.value = i;
  document.getElementById('clock').textContent = t + ' of ' + d.makespan + ' ms';
  for (const it of all) {
    it.box.classList.toggle('later', it.start > t);
    it.box.classList.toggle('now', it.start <= t && t < it.end);
  }
  for (const line of [timeLine, memoryLine]) { line.setAttribute('x1', x(t)); line.setAttribute('x2', x(t)); }
}
const step = by => show(Math.min(moments.length - 1, Math.max(0, +slider.value + by)));
document.getElementById('back').onclick = () => step(-1);
document.getElementById('next').onclick = () => step(1);
slider.oninput = () => show(+slider.value);
document.addEventListener('keydown', e => {
  if (e.target === slider) return;
  if (e.key === 'ArrowLeft') step(-1);
  if (e.key === 'ArrowRight') step(1);
});
show(moments.length - 1);
</script></body></html>
)";

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// The schedule as JavaScript data: only numbers and fixed words.
std::string data_of(const Schedule& schedule, const Simulation& simulation, double weight_memory) {
  double first = simulation.first_start.empty() ? 0.0 : simulation.first_start.front();
  for (const double start : simulation.first_start) first = std::min(first, start);
  std::string text = "{makespan:" + number(simulation.makespan > 0 ? simulation.makespan : 1) +
                     ",chunks:" + std::to_string(schedule.chunks) + ",weightMemory:" + number(weight_memory) +
                     ",stages:[";
  for (const Placement::VirtualStage& stage : schedule.placement.stages)
    text += "{previous:" + std::to_string(stage.previous) + ",next:" + std::to_string(stage.next) + "},";
  text += "],ranks:[";
  for (std::size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    text += "\n[";
    for (std::size_t i = 0; i < schedule.lists[rank].size(); ++i) {
      const Action& action = schedule.lists[rank][i];
      const Interval& interval = simulation.intervals[rank][i];
      text += std::string("['") + op_letter(action.op) + "'," + std::to_string(action.stage) + "," +
              std::to_string(action.micro_batch) + "," + number(interval.start - first) + "," +
              number(interval.end - first) + "],";
    }
    text += "],";
  }
  return text + "]}";
}

}  // namespace

std::string schedule_page(const Schedule& schedule, const Simulation& simulation, double weight_memory) {
  const std::string title = escaped_markup(schedule.name) + ", p = " + std::to_string(schedule.ranks) +
                            ", m = " + std::to_string(schedule.micro_batches);
  return std::string(kHead) + "<title>" + title + "</title></head><body>\n<h1 style=\"font-size:1.2em\">" + title +
         ": " + number(simulation.makespan) + " ms, bubble " + number(std::round(1e4 * simulation.bubble) / 100) +
         "%</h1>" + kBody + "const d = " + data_of(schedule, simulation, weight_memory) + kScript;
}

}  // namespace train_gpt
