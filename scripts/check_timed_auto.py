#!/usr/bin/env python3
"""Runs what `--schedule auto` chooses for a head in shards on the timed device, and holds the step beside the prediction.

Usage: scripts/check_timed_auto.py [PROGRAM] [PER CENT]      the last line is "N passed, N failed"

`plan` cuts d12 with a vocabulary of 50257 for 4 ranks. Its stages' costs, by operation counts, are given to `train --device
timed --schedule auto`: real executor, real messages, actions that take their time. Other programs on the machine make a step
longer and never shorter, so that the shortest of a few steps counts, and actions are long enough for what a scheduler of
processes takes to matter little.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

LAYERS, HIDDEN, VOCABULARY, SEQUENCE = 12, 768, 50257, 256
RANKS, MICRO_BATCHES, STEPS = 4, 16, 4
MS_OF_A_RANK = 60  # F of an average rank


def unit_costs():
    """[F, I, W][unit] of `plan` without a profile: layers 1:1:1, shards of the head 2:0:1, the embedding 1:0:1."""
    blocks = math.ceil(VOCABULARY / 128)
    shards = math.ceil(VOCABULARY / 2048)
    widths = [128 * (blocks // shards + (k < blocks % shards)) for k in range(shards)]
    widths[-1] -= 128 * blocks - VOCABULARY
    thirds = [HIDDEN]
    for _ in range(LAYERS):
        thirds += [8 * HIDDEN**2 + 2 * SEQUENCE * HIDDEN, 16 * HIDDEN**2]
    first_head = len(thirds)
    thirds += [2 * HIDDEN * width for width in widths]
    ms = [MS_OF_A_RANK * RANKS * third / sum(thirds) for third in thirds]
    head = [unit >= first_head for unit in range(len(ms))]
    forward = [2 * t if h else t for t, h in zip(ms, head)]
    gradient = [0 if h or unit == 0 else t for unit, (t, h) in enumerate(zip(ms, head))]
    return [forward, gradient, ms]


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "./train_gpt"
    tolerance = float(sys.argv[2]) if len(sys.argv) > 2 else 3
    mpirun = os.environ.get("MPIRUN") or shutil.which("mpirun.mpich") or "mpirun"
    model = ["--layers", LAYERS, "--heads", 12, "--hidden", HIDDEN, "--vocab", VOCABULARY, "--seq-len", SEQUENCE,
             "--max-seq-len", SEQUENCE, "--micro-batch-size", 1, "--micro-batches", MICRO_BATCHES]
    asked = [program, "plan", "--stages", RANKS, *model, "--train-data", "none", "--schedule", "auto", "--json"]
    planned = subprocess.run(list(map(str, asked)), check=True, capture_output=True, text=True, timeout=300)
    plan = json.loads(planned.stdout)
    # By model stage; a V and a loop of two have as many.
    costs = [[sum(pass_ms[first:last]) for first, last in plan["stage_units"]] for pass_ms in unit_costs()]
    options = []
    for name, values in zip(("--cost-forward", "--cost-input", "--cost-weight"), costs):
        options += [name, ",".join("%.6f" % ms for ms in values)]
    with tempfile.TemporaryDirectory() as folder:
        command = [mpirun, "-n", RANKS, program, "train", "--device", "timed", "--schedule", "auto", "--chunks", plan["chunks"],
                   *model, *options, "--steps", STEPS, "--output", folder + "/run"]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, timeout=600)
        with open(folder + "/run/log.jsonl", encoding="utf-8") as log:
            events = [json.loads(line) for line in log]
    predicted = next(event for event in events if event["event"] == "plan")["step_ms_predicted"]
    steps = [event["ms"] for event in events if event["event"] == "step"]
    ok = True
    for what, found, right in (("the plan's figure", predicted, MS_OF_A_RANK * plan["step_ms_predicted"]),
                               ("the timed device", min(steps), predicted)):
        off = 100 * (found / right - 1)
        ok = ok and abs(off) <= tolerance
        print("auto, %d ranks, %d stages each: %s %.1f ms, predicted %.1f ms, off by %.2f%% (at most %g%%)"
              % (RANKS, plan["chunks"], what, found, right, off, tolerance))
    print("%d passed, %d failed" % (ok, not ok))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
