#!/usr/bin/env python3
"""The table of docs/flushless.md: schedules with and without a flush on the timed device, where every action takes the
time that it is given and messages are real. Per schedule what a step takes and how long its ranks are idle, beside the
prediction: of the median step, or the median of the steps with a full pipe.

    scripts/measure_flushless.py [--program ./train_gpt] [--steps 10] [--forward 20] [--ranks 4,8] [--schedules 2bw]
    scripts/measure_flushless.py --cpu [--program ./train_gpt] [--steps 10]

The second is the table of a real device: two ranks of the cpu beside one process with as many threads.
"""

import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

# p, m, --warmup-factor of 2bw, hop as a fraction of F
CASES = [(4, 4, 1, 0.0), (4, 4, 1, 0.01), (4, 8, 2, 0.1), (8, 8, 1, 0.0), (8, 8, 1, 0.01), (8, 16, 2, 0.1)]
SCHEDULES = ["1f1b", "zb-h1", "zb-v", "2bw"]
TOKENS = 100_000  # of the file for --cpu


def run(options, p, m, factor, hop, schedule):
    with tempfile.TemporaryDirectory() as folder:
        command = ["mpirun", "-n", str(p), options.program, "train", "--device", "timed", "--layers", str(2 * p)]
        command += ["--heads", "2", "--hidden", "32", "--vocab", "257", "--seq-len", "16", "--micro-batch-size", "1"]
        command += ["--micro-batches", str(m), "--steps", str(options.steps), "--schedule", schedule]
        command += ["--quiet", "--output", folder + "/run"]
        for cost in ("forward", "input", "weight"):
            command += [f"--cost-{cost}", str(options.forward)]
        command += ["--cost-comm", str(hop * options.forward)]
        if schedule == "2bw":
            command += ["--warmup-factor", str(factor)]
        finished = subprocess.run(command, capture_output=True, text=True)
        if finished.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{finished.stdout}{finished.stderr}")
        lines = pathlib.Path(folder + "/run/log.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    plan = next(event for event in events if event["event"] == "plan")
    predicted = (plan["step_ms_predicted"], plan["bubble_predicted"])
    steady = [event for event in events if event["event"] == "steady"]
    if steady:
        return (steady[0]["period_ms"], steady[0]["bubble"]) + predicted + (steady[0]["norm_wait_ms"],)
    steps = [event for event in events if event["event"] == "step"][1:]
    times = (statistics.median(event["ms"] for event in steps), statistics.median(event["bubble"] for event in steps))
    return times + predicted + (None,)


def tokens_per_second(options, ranks, schedule):
    """Of the median step; of 2bw with a full pipe."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = folder + "/tokens.bin"
        header = [20240520, 1, TOKENS] + 253 * [0]
        pathlib.Path(tokens).write_bytes(
            struct.pack("<256i", *header) + struct.pack(f"<{TOKENS}H", *((i * 2654435761 >> 7) % 2000 for i in range(TOKENS))))
        command = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        command += [options.program, "train", "--device", "cpu", "--train-data", tokens, "--threads", str(2 // ranks)]
        command += ["--layers", "6", "--heads", "6", "--hidden", "192", "--vocab", "2048", "--seq-len", "256"]
        command += ["--micro-batch-size", "4", "--micro-batches", "2", "--steps", str(options.steps)]
        command += ["--schedule", schedule, "--quiet", "--output", folder + "/run"]
        finished = subprocess.run(command, capture_output=True, text=True)
        if finished.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{finished.stdout}{finished.stderr}")
        events = [json.loads(line) for line in pathlib.Path(folder + "/run/log.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    steady = [event for event in steps if event.get("steady")] or steps[1:]
    return (statistics.median(event["tokens_per_s"] for event in steady),
            statistics.median(event["bubble"] for event in steady))


def measure_cpu(options):
    print("| ranks x threads | schedule | tokens/s | bubble |\n| --- | --- | --- | --- |")
    for ranks, schedule in [(1, "1f1b"), (2, "1f1b"), (2, "zb-h1"), (2, "2bw")]:
        speed, bubble = tokens_per_second(options, ranks, schedule)
        print(f"| {ranks} x {2 // ranks} | {schedule} | {speed:.0f} | {100 * bubble:.1f}% |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="./train_gpt")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--forward", type=float, default=20, help="milliseconds of F, I and W each")
    parser.add_argument("--ranks", default="4,8", help="the p of the cases to run")
    parser.add_argument("--schedules", default=",".join(SCHEDULES))
    parser.add_argument("--cpu", action="store_true", help="instead: tokens per second of two ranks and of one process")
    options = parser.parse_args()
    if options.cpu:
        return measure_cpu(options)
    print("| p | m | w | hop / F | schedule | ms per step | predicted | bubble | predicted | wait for the norm, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for p, m, factor, hop in CASES:
        if str(p) not in options.ranks.split(","):
            continue
        for schedule in options.schedules.split(","):
            ms, bubble, ms_predicted, bubble_predicted, norm = run(options, p, m, factor, hop, schedule)
            w = factor if schedule == "2bw" else ""
            print(f"| {p} | {m} | {w} | {hop:g} | {schedule} | {ms:.1f} | {ms_predicted:.1f} | {100 * bubble:.2f}% "
                  f"| {100 * bubble_predicted:.2f}% | {'' if norm is None else f'{norm:.3f}'} |", flush=True)


if __name__ == "__main__":
    main()
