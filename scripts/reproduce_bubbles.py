#!/usr/bin/env python3
"""Pipeline bubbles four ways: closed form, simulation, timed device, real CPU.

For every schedule and number of ranks: what theory says, what the simulator says, what the executor and MPI make of it
when actions only take their time (train --device timed), and, where every rank has a core of its own, what real training
shows beside its own prediction. Prints a table, writes it as JSON, and draws it (bubbles.svg; one timeline per run,
measured above predicted). F = I = W, so that papers' closed forms hold. Python's standard library alone.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipev"]
COLORS = {"theory": "#9aa5b1", "simulated": "#4c78a8", "timed": "#f58518", "cpu": "#54a24b"}


def theory(schedule, p, m):
    """Share of p ranks x makespan that is idle (F = I = W = 1; interleaved with v = 2)."""
    idle = {  # time beyond the 3m of work, on the busiest path
        "gpipe": 3 * (p - 1),
        "1f1b": 3 * (p - 1),
        "interleaved": 3 * (p - 1) / 2,
        "zb-h1": p - 1,
        "zb-h2": p - 1,
        "zb-v": (p - 1) / 2,
        "dualpipev": (p - 1) / 2,
    }[schedule]
    return idle / (3 * m + idle)


def run(command, environment=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                          env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def simulated(options, schedule, p, m):
    cost = str(options.ms)
    out = run([options.program, "simulate", "--schedule", schedule, "--stages", str(p), "--micro-batches", str(m),
               "--cost-forward", cost, "--cost-input", cost, "--cost-weight", cost, "--json"])
    return json.loads(out)[0]["bubble"]


def events(folder, kind):
    with open(folder / "log.jsonl", encoding="utf-8") as log:
        return [event for event in map(json.loads, log) if event["event"] == kind]


def train(options, name, schedule, p, m, extra):
    """Median of measured bubbles without the first step, and the predicted one."""
    folder = options.output / f"{name}_{schedule}_p{p}"
    run(["mpirun", "-n", str(p), options.program, "train", "--schedule", schedule, "--micro-batches", str(m),
         "--steps", str(options.steps + 1), "--output", str(folder), "--overwrite", "--svg", str(folder) + ".svg"] + extra)
    steps = events(folder, "step")[1:]
    return statistics.median(step["bubble"] for step in steps), steps[0]["bubble_predicted"]


def timed(options, schedule, p, m):
    cost = str(options.ms)
    layers = max(8, p)  # two stages per rank need two units each
    return train(options, "timed", schedule, p, m,
                 ["--device", "timed", "--cost-forward", cost, "--cost-input", cost, "--cost-weight", cost,
                  "--layers", str(layers), "--heads", "6", "--hidden", "384", "--seq-len", str(options.seq_len),
                  "--micro-batch-size", "1"])[0]


def tokens(options):
    path = options.output / "tokens.bin"
    if not path.exists():
        text = pathlib.Path(__file__).resolve()
        run([options.program, "prepare", "--text", str(text.parent / "*.*"), "--output", str(path)])
    return str(path)


def cpu(options, schedule, p, m):
    return train(options, "cpu", schedule, p, m,
                 ["--train-data", tokens(options), "--layers", str(max(8, 2 * p)), "--heads", "4", "--hidden", "256",
                  "--seq-len", "128", "--micro-batch-size", "2", "--threads", "1"])


def draw(rows, path):
    """Grouped bars: one group per row, one bar per way of knowing."""
    kinds = list(COLORS)
    bar, gap, height, left, top = 9, 14, 220, 60, 40
    width = left + len(rows) * (len(kinds) * bar + gap) + 20
    most = max(row[kind] for row in rows for kind in kinds if row[kind] is not None) * 1.1
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 150}" '
           'font-family="sans-serif" font-size="11">', f'<rect width="{width}" height="{height + 150}" fill="white"/>',
           f'<text x="{left}" y="20" font-size="14">Pipeline bubble: theory, simulation, timed device, CPU</text>']
    for i in range(6):
        y = top + height - height * i / 5
        svg.append(f'<line x1="{left}" x2="{width - 20}" y1="{y}" y2="{y}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{100 * most * i / 5:.0f}%</text>')
    for i, row in enumerate(rows):
        x = left + gap / 2 + i * (len(kinds) * bar + gap)
        for k, kind in enumerate(kinds):
            if row[kind] is None:
                continue
            h = height * row[kind] / most
            svg.append(f'<rect x="{x + k * bar}" y="{top + height - h:.1f}" width="{bar - 1}" height="{h:.1f}" '
                       f'fill="{COLORS[kind]}"><title>{row["schedule"]} p={row["p"]} {kind} {row[kind]:.4f}</title></rect>')
        middle = x + len(kinds) * bar / 2
        svg.append(f'<text transform="translate({middle},{top + height + 10}) rotate(60)">'
                   f'{row["schedule"]}, p = {row["p"]}</text>')
    for k, kind in enumerate(kinds):
        x = left + 380 + 90 * k if width > 800 else left + 90 * k
        y = 14 if width > 800 else 32
        svg.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{COLORS[kind]}"/>'
                   f'<text x="{x + 14}" y="{y}">{kind}</text>')
    path.write_text("\n".join(svg + ["</svg>"]), encoding="utf-8")


def figure(value):
    return "      -" if value is None else f"{value:7.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(pathlib.Path(__file__).resolve().parent.parent / "train_gpt"))
    parser.add_argument("--stages", default="2,4,8", help="ranks, a list (default 2,4,8)")
    parser.add_argument("--schedules", default=",".join(SCHEDULES))
    parser.add_argument("--ms", type=float, default=20, help="of F, I and W each on the timed device (default 20)")
    parser.add_argument("--steps", type=int, default=5, help="measured steps per run (default 5)")
    parser.add_argument("--seq-len", type=int, default=64, help="of the timed device's messages (384 wide fp32 rows)")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("out/bubbles"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    cores = len(os.sched_getaffinity(0))

    print(f"{'schedule':12} {'p':>2} {'m':>3} {'theory':>7} {'simul.':>7} {'timed':>7} {'off by':>7}   "
          f"{'cpu':>7} {'its prediction':>14}")
    rows = []
    for p in map(int, options.stages.split(",")):
        m = max(8, 2 * p)
        for schedule in options.schedules.split(","):
            row = {"schedule": schedule, "p": p, "m": m, "theory": theory(schedule, p, m),
                   "simulated": simulated(options, schedule, p, m), "timed": timed(options, schedule, p, m),
                   "cpu": None, "cpu_predicted": None}
            if p <= cores:
                row["cpu"], row["cpu_predicted"] = cpu(options, schedule, p, m)
            rows.append(row)
            print(f"{schedule:12} {p:2} {m:3} {figure(row['theory'])} {figure(row['simulated'])} "
                  f"{figure(row['timed'])} {row['timed'] - row['simulated']:+7.4f}   {figure(row['cpu'])} "
                  f"{figure(row['cpu_predicted']):>14}", flush=True)
    (options.output / "bubbles.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    draw(rows, options.output / "bubbles.svg")
    print(f"drawn to {options.output}/bubbles.svg, one timeline per run beside it")


if __name__ == "__main__":
    main()
