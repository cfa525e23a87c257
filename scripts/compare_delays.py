#!/usr/bin/env python3
"""What gradients that are one step old cost: AdamW and Muon, with gradients of this step (1f1b), of the step before
(2bw), and of the step before with error feedback (2bw --delay-correction error-feedback), each at its own best learning
rate, over some seeds. One rank does: without a pipeline the bits are the same.

    scripts/compare_delays.py --train-data data/tiny_shakespeare_train.bin --val-data data/tiny_shakespeare_val.bin
        [--program ./train_gpt] [--steps 400] [--seeds 3] [--rates 1e-3,2e-3,4e-3] [--log results.jsonl] [--svg picture.svg]

Prints a table: validation loss at the end, mean and spread over the seeds, and the learning rate. Runs that --log has
already are not made again.
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
SIZES = ["--layers", "4", "--heads", "4", "--hidden", "128", "--vocab", "50257"]


def loss_of(options, optimizer, arm, rate, seed):
    """The last validation loss of a run; infinite where it diverges."""
    with tempfile.TemporaryDirectory() as folder:
        command = [options.program, "train", "--train-data", options.train_data, "--val-data", options.val_data]
        command += (options.sizes.split() if options.sizes else SIZES)
        command += ["--seq-len", "64", "--micro-batch-size", "4", "--micro-batches", "2", "--steps", str(options.steps)]
        command += ["--val-every", str(options.steps), "--val-batches", "8", "--warmup-steps", str(options.steps // 20)]
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


def draw(path, rows):
    """A dot for each seed, a line from the smallest to the largest."""
    losses = [loss for _, _, _, all_losses in rows for loss in all_losses if math.isfinite(loss)]
    low, high = min(losses), max(losses)
    left, width, height = 190, 480, 28
    place = lambda loss: left + width * (loss - low) / max(high - low, 1e-9)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 40} {height * len(rows) + 40}" '
           'font-family="sans-serif" font-size="13">']
    for row, (optimizer, arm, _, all_losses) in enumerate(rows):
        y = 20 + height * row
        finite = [loss for loss in all_losses if math.isfinite(loss)]
        svg.append(f'<text x="8" y="{y + 4}">{optimizer}, {arm}</text>')
        if not finite:
            continue
        svg.append(f'<line x1="{place(min(finite)):.1f}" x2="{place(max(finite)):.1f}" y1="{y}" y2="{y}" stroke="#888"/>')
        svg += [f'<circle cx="{place(loss):.1f}" cy="{y}" r="4" fill="#36c"/>' for loss in finite]
    y = height * len(rows) + 24
    svg.append(f'<text x="{left}" y="{y}">{low:.3f}</text><text x="{left + width}" y="{y}" text-anchor="end">{high:.3f}'
               "</text></svg>")
    pathlib.Path(path).write_text("\n".join(svg) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-data", required=True)
    parser.add_argument("--val-data", required=True)
    parser.add_argument("--program", default="./train_gpt")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", default="1e-3,2e-3,4e-3")
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
            rates = [float(rate) for rate in options.rates.split(",")]
            best = min(rates, key=lambda rate: results.loss(optimizer, arm, rate, 1))
            losses = [results.loss(optimizer, arm, best, seed) for seed in range(1, options.seeds + 1)]
            rows.append((optimizer, arm, best, losses))
            edge = " (the edge of those tried)" if best in (rates[0], rates[-1]) else ""
            print(f"| {optimizer} | {arm} | {statistics.mean(losses):.3f} | {max(losses) - min(losses):.3f} "
                  f"| {best:g}{edge} |", flush=True)
    if options.svg:
        draw(options.svg, rows)


if __name__ == "__main__":
    main()
