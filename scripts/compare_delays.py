#!/usr/bin/env python3
"""What gradients that are one step old cost: AdamW and Muon, with gradients of this step (1f1b), of the step before
(2bw), and of the step before with error feedback (2bw --delay-correction error-feedback), each at its own best learning
rate, over some seeds. One rank does: without a pipeline the bits are the same.

    ./train_gpt prepare --text tiny_shakespeare.txt --vocab 512 --output data/tiny_shakespeare
    scripts/compare_delays.py --data data/tiny_shakespeare [--program ./train_gpt] [--steps 500] [--seeds 3]
        [--rates 5e-4,1e-3,2e-3,4e-3] [--log results.jsonl] [--svg picture.svg]

Rates are doubled and halved from those given on until the best is not the outermost. Prints a table: validation loss at
the end, mean and spread over the seeds, and the learning rate. Runs that --log has already are not made again.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

ARMS = {"synchronous": ["--schedule", "1f1b"], "delayed": ["--schedule", "2bw"],
        "with feedback": ["--schedule", "2bw", "--delay-correction", "error-feedback"]}
SIZES = ["--layers", "4", "--heads", "4", "--hidden", "128", "--max-seq-len", "64"]


def loss_of(options, optimizer, arm, rate, seed):
    """The last validation loss of a run; infinite where it diverges."""
    with tempfile.TemporaryDirectory() as folder:
        command = [options.program, "train", "--data", options.data]
        command += (options.sizes.split() if options.sizes else SIZES)
        command += ["--seq-len", "64", "--micro-batch-size", "4", "--micro-batches", "2", "--steps", str(options.steps)]
        command += ["--val-every", str(options.steps), "--val-batches", "32", "--warmup-steps", str(options.steps // 20)]
        command += ["--optimizer", optimizer, "--learning-rate", str(rate), "--seed", str(seed), *ARMS[arm]]
        command += ["--quiet", "--threads", str(options.threads), "--output", folder + "/run"]
        finished = subprocess.run(command, capture_output=True, text=True)
        if "is not finite" in finished.stderr:
            return math.inf
        if finished.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{finished.stdout}{finished.stderr}")
        lines = pathlib.Path(folder + "/run/log.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines if '"event":"validation"' in line][-1]


class Results:
    def __init__(self, options):
        self.options = options
        self.known = {}
        if options.log and pathlib.Path(options.log).exists():
            for line in pathlib.Path(options.log).read_text().splitlines():
                *key, loss = json.loads(line)
                self.known[tuple(key)] = loss

    def loss(self, *key):
        if key not in self.known:
            self.known[key] = loss_of(self.options, *key)
            if self.options.log:
                with open(self.options.log, "a") as log:
                    log.write(json.dumps([*key, self.known[key]]) + "\n")
        return self.known[key]


def best_rate(results, optimizer, arm, rates):
    """The best of the first seed, and all losses that were looked at for it."""
    seen = {rate: results.loss(optimizer, arm, rate, 1) for rate in rates}
    while True:
        best = min(seen, key=lambda rate: (seen[rate], rate))
        further = [rate for rate in (best / 2, best * 2) if not any(math.isclose(rate, known) for known in seen)]
        if not further:
            return best, seen
        for rate in further:
            seen[rate] = results.loss(optimizer, arm, rate, 1)


NAMES = {"adamw": "AdamW", "muon": "Muon"}
COLOURS = {"synchronous": "#2b6cb0", "delayed": "#c05621", "with feedback": "#2f855a"}


def draw(path, rows):
    """A panel per optimizer: the loss of the first seed over the learning rate, and all seeds at the best one."""
    finite = [loss for _, _, _, losses, seen in rows for loss in [*losses, *seen.values()] if math.isfinite(loss)]
    low, high = math.floor(10 * min(finite)) / 10, math.ceil(10 * max(finite)) / 10
    rates = sorted({rate for *_, seen in rows for rate in seen})
    width, height, left, top, gap = 300, 240, 50, 34, 40
    y_of = lambda loss: top + height * (high - loss) / (high - low)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + 2 * width + gap + 16} {top + height + 66}" '
           f'width="{left + 2 * width + gap + 16}" font-family="system-ui,sans-serif" font-size="11">',
           '<rect width="100%" height="100%" fill="#fff"/>']
    for panel, optimizer in enumerate(dict.fromkeys(row[0] for row in rows)):
        origin = left + panel * (width + gap)
        x_of = lambda rate: origin + 14 + (width - 28) * rates.index(rate) / max(len(rates) - 1, 1)
        svg.append(f'<text x="{origin}" y="20" font-size="14" font-weight="600">{NAMES[optimizer]}</text>'
                   f'<text x="{origin + 60}" y="20" fill="#555">validation loss over the learning rate</text>')
        for tenth in range(round(10 * low), round(10 * high) + 1, 2):
            y = y_of(tenth / 10)
            svg.append(f'<line x1="{origin}" x2="{origin + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                       f'<text x="{origin - 6}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>')
        for rate in rates:
            svg.append(f'<text x="{x_of(rate):.1f}" y="{top + height + 16}" text-anchor="middle">{rate:g}</text>')
        for name, arm, best, losses, seen in rows:
            if name != optimizer:
                continue
            points = [(x_of(rate), y_of(seen[rate])) for rate in sorted(seen) if math.isfinite(seen[rate])]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            svg.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[arm]}" stroke-width="1.5"/>')
            svg += [f'<circle cx="{x_of(best):.1f}" cy="{y_of(loss):.1f}" r="3.5" fill="{COLOURS[arm]}" '
                    'fill-opacity="0.7"/>' for loss in losses if math.isfinite(loss)]
    x = left
    for arm, colour in COLOURS.items():
        y = top + height + 44
        svg.append(f'<rect x="{x}" y="{y - 9}" width="22" height="10" fill="{colour}"/>'
                   f'<text x="{x + 28}" y="{y}">{arm}</text>')
        x += 130
    svg.append(f'<text x="{x}" y="{top + height + 44}">line: first seed; dots: all seeds at the best rate</text></svg>')
    pathlib.Path(path).write_text("\n".join(svg) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder that prepare made")
    parser.add_argument("--program", default="./train_gpt")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", default="5e-4,1e-3,2e-3,4e-3", help="those that each arm tries at least")
    parser.add_argument("--sizes", default="", help="options that give the model's sizes, instead of " + " ".join(SIZES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--log")
    parser.add_argument("--svg")
    options = parser.parse_args()
    results = Results(options)
    rows = []
    print("| optimizer | gradients | validation loss | spread | learning rate |\n| --- | --- | --- | --- | --- |")
    for optimizer in ("adamw", "muon"):
        for arm in ARMS:
            best, seen = best_rate(results, optimizer, arm, [float(rate) for rate in options.rates.split(",")])
            losses = [results.loss(optimizer, arm, best, seed) for seed in range(1, options.seeds + 1)]
            rows.append((optimizer, arm, best, losses, seen))
            print(f"| {optimizer} | {arm} | {statistics.mean(losses):.3f} | {max(losses) - min(losses):.3f} "
                  f"| {best:g} |", flush=True)
    if options.svg:
        draw(options.svg, rows)


if __name__ == "__main__":
    main()
