#!/usr/bin/env python3
"""Published throughputs beside what `simulate` and `plan --ranks` say of them, each with its error.

1. Zero Bubble Pipeline Parallelism (Qi et al., arXiv 2401.10241): samples per GPU and second of its table 4, on 8 to 32 A100
   without replicas, from the times of F, I, W and a hop that its authors profiled (their repository's settings).
2. Megatron-LM PTD-P (Narayanan et al., SC 2021, arXiv 2104.04473), table 2: FSDP (ZeRO-3 of DeepSpeed) against pipelines with
   tensor parallelism, for 175 and 530 billion parameters on 384 to 2240 A100. Times are those of a roofline model of an
   A100 (reproduce_tables.py), tensor parallelism a factor in them: eight GPUs of a host are one rank.

Nothing was fitted to these tables. An error beyond the bounds at the end of each part is a failure. Python's standard library alone.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import reproduce_tables as roofline

# model, p, m, b, chunks of 1F1B-I (a layer each), ms of F, I, W and a hop, samples per GPU and second of 1F1B, ZB-1p, 1F1B-I
ZERO_BUBBLE = [
    ("1.5B", 8, 24, 6, 3, (18.522, 18.086, 9.337, 0.601), (11.8, 12.9, 13.1)),
    ("1.5B", 8, 32, 6, 3, (18.513, 18.086, 9.331, 0.626), (12.5, 13.4, 13.4)),
    ("1.5B", 8, 64, 6, 3, (18.546, 18.097, 9.321, 0.762), (13.6, 14.2, 13.9)),
    ("6.2B", 8, 24, 3, 4, (29.718, 29.444, 19.927, 0.527), (3.50, 3.88, 4.01)),
    ("6.2B", 8, 32, 3, 4, (29.802, 29.428, 19.530, 0.577), (3.70, 4.00, 4.08)),
    ("6.2B", 8, 64, 3, 4, (29.935, 29.621, 19.388, 0.535), (4.03, 4.20, 4.19)),
    ("14.6B", 16, 48, 1, 3, (11.347, 11.248, 8.132, 0.377), (1.40, 1.61, 1.54)),
    ("14.6B", 16, 64, 1, 3, (11.307, 11.254, 8.101, 0.379), (1.49, 1.67, 1.59)),
    ("14.6B", 16, 128, 1, 3, (11.325, 11.308, 8.109, 0.378), (1.64, 1.76, 1.66)),
    ("28.3B", 32, 96, 1, 2, (10.419, 10.207, 7.715, 0.408), (0.76, 0.87, 0.82)),
    ("28.3B", 32, 128, 1, 2, (10.408, 10.204, 7.703, 0.408), (0.80, 0.90, 0.85)),
    ("28.3B", 32, 256, 1, 2, (10.402, 10.248, 7.698, 0.460), (0.88, 0.96, 0.90)),
]

# parameters (billion), layers, heads, hidden, t, p, batch, GPUs, b, TFLOP/s per GPU
TABLE_2 = [
    (174.6, 96, 96, 12288, 1, 1, 1536, 384, 4, 144),
    (174.6, 96, 96, 12288, 1, 1, 1536, 768, 2, 88),
    (174.6, 96, 96, 12288, 1, 1, 1536, 1536, 1, 44),
    (529.6, 105, 128, 20480, 1, 1, 2560, 640, 4, 138),
    (529.6, 105, 128, 20480, 1, 1, 2240, 1120, 2, 98),
    (529.6, 105, 128, 20480, 1, 1, 2240, 2240, 1, 48),
    (174.6, 96, 96, 12288, 8, 12, 1536, 384, 1, 153),
    (174.6, 96, 96, 12288, 8, 12, 1536, 768, 1, 149),
    (174.6, 96, 96, 12288, 8, 12, 1536, 1536, 1, 141),
    (529.6, 105, 128, 20480, 8, 35, 2240, 560, 1, 171),
    (529.6, 105, 128, 20480, 8, 35, 2240, 1120, 1, 167),
    (529.6, 105, 128, 20480, 8, 35, 2240, 2240, 1, 159),
]


def percent(here, there):
    return 100 * (here / there - 1)


def zero_bubble(program):
    """Whether the errors are as small as they were."""
    print("Zero Bubble (arXiv 2401.10241), samples per GPU and second: simulated / published, and the gain over 1F1B likewise")
    good = True
    for model, p, m, b, v, (f, i, w, hop), published in ZERO_BUBBLE:
        costs = ["--stages", str(p), "--micro-batches", str(m), "--cost-forward", str(f), "--cost-input", str(i),
                 "--cost-weight", str(w), "--cost-comm", str(hop), "--json"]
        named = json.loads(roofline.run([program, "simulate", "--schedule", "1f1b,zb-h1"] + costs))
        interleaved = json.loads(roofline.run([program, "simulate", "--schedule", "interleaved", "--chunks", str(v)] + costs))
        # zero-bubble schedules begin the next step without waiting for the slowest rank
        steps = [named[0]["makespan"], named[1]["span"], interleaved[0]["makespan"]]
        here = [1e3 * m * b / p / step for step in steps]
        errors = [percent(a, c) for a, c in zip(here, published)]
        gains = [percent(here[k] / here[0], published[k] / published[0]) for k in (1, 2)]
        print(f"{model:>6} p {p:2} m {m:3}  " + "  ".join(
            f"{name} {a:5.2f} / {c:5.2f} {e:+5.1f}%" for name, a, c, e in zip(("1F1B", "ZB-1p", "1F1B-I"), here, published, errors))
            + f"   gain of ZB-1p {gains[0]:+.1f}%, of 1F1B-I {gains[1]:+.1f}%", flush=True)
        good = good and all(0 < e < 18 for e in errors) and abs(gains[0]) < 2.5 and abs(gains[1]) < 8.5
    return good


def table_2(program, folder):
    print("\nPTD-P (arXiv 2104.04473), table 2, TFLOP/s per GPU: planned / published")
    good = True
    for billions, layers, heads, hidden, tensor, p, batch, gpus, b, published in TABLE_2:
        profile = roofline.cost_file(heads, hidden, tensor, b)
        for kind in ("attention", "mlp"):  # activations are recomputed
            times = profile["ranks"][0][kind]
            for value in times["input"]:
                times["input"][value] += times["forward"][value]
        path = folder / "a100.json"
        path.write_text(json.dumps(profile), encoding="utf-8")
        command = [program, "plan", "--ranks", str(gpus // tensor), "--profile", str(path), "--layers", str(layers), "--heads",
                   str(heads), "--hidden", str(hidden), "--vocab", str(roofline.VOCAB), "--max-seq-len", str(roofline.SEQ_LEN),
                   "--seq-len", str(roofline.SEQ_LEN), "--micro-batch-size", str(b), "--global-batch-size", str(batch),
                   "--stages", str(p), "--zero", "3" if p == 1 else "0", "--recompute", "none", "--json",
                   "--ranks-per-host", str(8 // tensor), "--link-inside", str(roofline.NVLINK / 1e9),
                   "--link-between", str(tensor * roofline.INFINIBAND / 1e9)]
        if p > 1:
            command += ["--schedule", "interleaved"]
        best = json.loads(roofline.run(command))["layouts"][0]
        flops = 96 * batch * roofline.SEQ_LEN * layers * hidden**2 * (
            1 + roofline.SEQ_LEN / (6 * hidden) + roofline.VOCAB / (16 * layers * hidden))
        rate = flops / (best["step_ms_predicted"] / 1e3) / gpus / 1e12
        print(f"{billions}B {'ZeRO-3' if p == 1 else f'PTD-P, t {tensor}, p {p}':>16} {gpus:5} GPUs b {b}: {rate:4.0f} / "
              f"{published:3} {percent(rate, published):+5.1f}%  ({best['schedule']}, {best['chunks']} stages per rank)", flush=True)
        good = good and abs(percent(rate, published)) < 30
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=str(pathlib.Path(__file__).resolve().parent.parent / "train_gpt"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [zero_bubble(options.program), table_2(options.program, pathlib.Path(folder))]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
