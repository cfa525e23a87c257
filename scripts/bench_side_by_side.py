#!/usr/bin/env python3
"""This program beside PyTorch (and llm.c) on this machine's CPU: A B C A B C .., medians of the rounds, ratios.

    bench_side_by_side.py PROGRAM [--pytorch VENV] [--llmc FOLDER] [--rounds N] [--cases NAME,..] [--output FILE.md]

VENV is a virtual environment with torch (python3 -m venv VENV && VENV/bin/pip install torch); FOLDER holds llm.c's sources and
its train_gpt2, built by its own make. Without them only this program's own rows are printed. Run it on a quiet machine: the
rows share its cores with whatever else runs.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
D12 = dict(layers=12, hidden=768, heads=12, vocab=50257)
D6 = dict(layers=6, hidden=384, heads=6, vocab=257)
SMALL = dict(layers=4, hidden=128, heads=4, vocab=257)
# name: model, rows, seq_len, what the issue of this comparison asks of us against the better of eager and compile
ONE_PROCESS = {
    "d12 4x64": (D12, 4, 64, 1.35), "d12 4x256": (D12, 4, 256, 1.2), "d12 4x1024": (D12, 4, 1024, 1.2),
    "d6 4x256": (D6, 4, 256, 1.3), "small 8x64": (SMALL, 8, 64, 1.5),
}
# name: model, rows of a micro-batch, seq_len, micro-batches; 2 ranks of 1 thread
TWO_RANKS = {"d12 16x1x64": (D12, 1, 64, 16), "d6 8x4x256": (D6, 4, 256, 8)}
SCHEDULES = ["1f1b", "zb-h1", "zb-v"]
PYTORCH_SCHEDULES = ["1f1b", "interleaved-zb", "zb-v"]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--pytorch", default="")
    parser.add_argument("--llmc", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="per run; the first two do not count")
    parser.add_argument("--cases", default="", help="comma-separated; all: " + ", ".join([*ONE_PROCESS, *TWO_RANKS]))
    parser.add_argument("--output", default="", help="also write the table there, with date and machine")
    return parser.parse_args()


class Bench:
    def __init__(self, o):
        self.o = o
        self.work = pathlib.Path(tempfile.mkdtemp())
        self.program = str(pathlib.Path(o.program).resolve())
        self.mpirun = shutil.which("mpirun.mpich") or "mpirun"
        text = self.work / "text"
        text.write_text("\n".join(str(i) for i in range(300000)))
        subprocess.run([self.program, "prepare", "--text", str(text), "--output", str(self.work / "tokens.bin")], check=True,
                       stdout=subprocess.DEVNULL)

    def ours(self, model, rows, seq_len, micro_batches, ranks, threads, schedule="1f1b"):
        """(tokens/s, predicted bubble) of a run, medians of its steps."""
        out = self.work / "run"
        shutil.rmtree(out, ignore_errors=True)
        sizes = [f"--{name}={value}" for name, value in model.items()]
        command = [self.mpirun, "-n", str(ranks), self.program, "train", "--train-data", str(self.work / "tokens.bin"), *sizes,
                   f"--seq-len={seq_len}", f"--micro-batches={micro_batches}", f"--micro-batch-size={rows}",
                   f"--steps={self.o.steps}", f"--threads={threads}", "--schedule", schedule, "--output", str(out)]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{run.stdout[-1000:]}{run.stderr[-1000:]}")
        steps = [e for e in map(json.loads, (out / "log.jsonl").read_text().splitlines()) if e["event"] == "step"][2:]
        return tuple(statistics.median(e[key] for e in steps) for key in ("tokens_per_s", "bubble_predicted"))

    def pytorch(self, mode, model, rows, seq_len, micro_batches=1):
        """tokens/s, or GFLOP/s of products; nothing without PyTorch or where this mode fails."""
        if not self.o.pytorch:
            return None
        sizes = [f"--{name}={value}" for name, value in model.items()]
        run = subprocess.run([self.o.pytorch + "/bin/python", str(HERE / "bench_pytorch.py"), mode, *sizes, f"--rows={rows}",
                              f"--seq-len={seq_len}", f"--micro-batches={micro_batches}", f"--steps={self.o.steps}"],
                             capture_output=True, text=True)
        if run.returncode != 0:
            print(f"PyTorch {mode} failed: {(run.stderr.splitlines() or ['?'])[-1]}", file=sys.stderr)
            return None
        return float(run.stdout.split()[-1])


def median(values):
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def rounds(o, columns):
    """Medians of the columns' work, run in turn."""
    samples = {name: [] for name in columns}
    for _ in range(o.rounds):
        for name, work in columns.items():
            samples[name].append(work())
    return {name: median(values) for name, values in samples.items()}


def text(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def one_process(bench, name, lines):
    model, rows, seq_len, wanted = ONE_PROCESS[name]
    rates = rounds(bench.o, {
        "ours": lambda: bench.ours(model, rows, seq_len, 1, 1, 2)[0],
        "eager": lambda: bench.pytorch("eager", model, rows, seq_len),
        "compile": lambda: bench.pytorch("compile", model, rows, seq_len),
    })
    best = max((rates[k] for k in ("eager", "compile") if rates[k] is not None), default=None)
    ratio = rates["ours"] / best if best else None
    lines.append(f"| {name} | {text(rates['eager'])} | {text(rates['compile'])} | {text(rates['ours'])} | {text(ratio, 2)} | {wanted} |")
    print(lines[-1], flush=True)


def two_ranks(bench, name, lines):
    model, rows, seq_len, micro_batches = TWO_RANKS[name]
    predicted = {}

    def ours(schedule):
        rate, predicted[schedule] = bench.ours(model, rows, seq_len, micro_batches, 2, 1, schedule)
        return rate

    columns = {"one": lambda: bench.ours(model, rows, seq_len, micro_batches, 1, 2)[0]}
    columns |= {s: lambda s=s: ours(s) for s in SCHEDULES}
    columns |= {"PyTorch " + s: lambda s=s: bench.pytorch(s, model, rows, seq_len, micro_batches) for s in PYTORCH_SCHEDULES}
    rates = rounds(bench.o, columns)
    theirs = max((rates["PyTorch " + s] for s in PYTORCH_SCHEDULES if rates["PyTorch " + s] is not None), default=None)
    for s in SCHEDULES:
        of_ideal = rates[s] / ((1 - predicted[s]) * rates["one"])
        ratio = rates[s] / theirs if theirs else None
        lines.append(f"| {name} {s} | {text(theirs)} | {text(rates['one'])} | {text(rates[s])} | {text(of_ideal, 3)} | {text(ratio, 2)} |")
        print(lines[-1], flush=True)


def llmc(bench):
    """Milliseconds of llm.c's train_gpt2 (4 x 64, fixed there) become tokens/s; its inputs are ours under its names."""
    folder = bench.work / "llmc"
    data = folder / "dev/data/tinyshakespeare"
    data.mkdir(parents=True)
    out = bench.work / "model"
    subprocess.run([bench.program, "train", "--train-data", str(bench.work / "tokens.bin"), "--model=d12", "--vocab=50257", "--seq-len=64",
                    "--micro-batches=1", "--micro-batch-size=1", "--steps=1", "--output", str(out)], check=True, stdout=subprocess.DEVNULL)
    shutil.copy(out / "model.bin", folder / "gpt2_124M.bin")
    for part in ("train", "val"):
        shutil.copy(bench.work / "tokens.bin", data / f"tiny_shakespeare_{part}.bin")
    process = subprocess.Popen([str(pathlib.Path(bench.o.llmc).resolve() / "train_gpt2")], cwd=folder, text=True, stdout=subprocess.PIPE,
                               env={**os.environ, "OMP_NUM_THREADS": "2"})
    times = []
    for line in process.stdout:
        if line.startswith("step ") and "took" in line:
            times.append(float(line.split("took")[1].split()[0]))
        if len(times) == bench.o.steps:
            break
    process.terminate()
    process.wait()
    return 256 / statistics.median(times[1:]) * 1000 if len(times) > 1 else None


def machine():
    name = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown processor")
    return f"{datetime.date.today()}, {name}, {len(os.sched_getaffinity(0))} cores"


def main():
    o = options()
    wanted = [c.strip() for c in o.cases.split(",") if c.strip()] or [*ONE_PROCESS, *TWO_RANKS]
    for case in wanted:
        if case not in ONE_PROCESS and case not in TWO_RANKS:
            sys.exit(f"bench_side_by_side.py: error: --cases {case}: known are {', '.join([*ONE_PROCESS, *TWO_RANKS])}")
    bench = Bench(o)
    lines = [f"{machine()}; tokens/s, medians of {o.rounds} rounds, default environment.", "",
             "| one process, 2 threads | eager | compile | ours | ours / better | wanted |", "| --- | --- | --- | --- | --- | --- |"]
    print("\n".join(lines), flush=True)
    try:
        for name in wanted:
            if name in ONE_PROCESS:
                one_process(bench, name, lines)
        head = ["", "| 2 ranks x 1 thread | PyTorch's best | one process | ours | of (1 - predicted bubble) x one process | ours / PyTorch |",
                "| --- | --- | --- | --- | --- | --- |"]
        lines += head
        print("\n".join(head), flush=True)
        for name in wanted:
            if name in TWO_RANKS:
                two_ranks(bench, name, lines)
        tail = []
        if o.pytorch and "d12 4x256" in wanted:
            tail.append(f"PyTorch's products of a d12 step, 4x256, 2 threads: {text(bench.pytorch('products', D12, 4, 256))} GFLOP/s")
        if o.llmc:
            tail.append(f"llm.c, d12 4x64, 2 threads: {text(llmc(bench))} tokens/s")
        lines += [""] + tail if tail else []
        print("\n".join(tail), flush=True)
    finally:
        shutil.rmtree(bench.work, ignore_errors=True)
    if o.output:
        pathlib.Path(o.output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
