#!/usr/bin/env python3
"""Published tables, from cost files: what the planner says about machines that one does not have.

1. Zero Bubble Pipeline Parallelism (Qi et al., ICLR 2024): bubble rates (span measure) of 1F1B, ZB-H1, ZB-H2 and of
   `auto` with memory for 2p micro-batches, from the times that the paper profiled.
2. Megatron-LM PTD-P (Narayanan et al., SC 2021): ten models of 1.7 to 1008 billion parameters on up to 3072 A100.
   A roofline model of one A100 (below) gives the times of the units; `train_gpt plan` does the rest. Printed: parameters,
   FLOPs of a step with and without recomputation, memory per GPU, and the share of peak beside the published one.

Python's standard library alone.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

# p, m, milliseconds of F, I, W and a hop, published rates, heads, hidden size (for the memory between I and W)
ZERO_BUBBLE = [
    ("1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, (0.2431, 0.1585, 0.1083, 0.0433), 0.366),
    ("1.5B", 8, 64, 18.546, 18.097, 9.321, 0.762, (0.1240, 0.0674, 0.0444, 0.0026), 0.366),
    ("6.2B", 8, 32, 29.802, 29.428, 19.530, 0.577, (0.1898, 0.1045, 0.0559, 0.0022), 0.444),
    ("14.6B", 16, 48, 11.347, 11.248, 8.132, 0.377, (0.2552, 0.1397, 0.0672, 0.0066), 0.451),
    ("28.3B", 32, 96, 10.419, 10.207, 7.715, 0.408, (0.2646, 0.1421, 0.0641, 0.0038), 0.444),
]

# billions of parameters, heads, hidden, layers, tensor, pipeline, GPUs, batch, published TFLOP/s per GPU, and what the
# paper leaves open: rows of a micro-batch and virtual stages per rank
PTD_P = [
    (1.7, 24, 2304, 24, 1, 1, 32, 512, 137, 4, 1),
    (3.6, 32, 3072, 30, 2, 1, 64, 512, 138, 4, 1),
    (7.5, 32, 4096, 36, 4, 1, 128, 512, 142, 4, 1),
    (18.4, 48, 6144, 40, 8, 1, 256, 1024, 135, 4, 1),
    (39.1, 64, 8192, 48, 8, 2, 512, 1536, 138, 4, 2),
    (76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140, 2, 3),
    (145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148, 2, 2),
    (310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155, 1, 2),
    (529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163, 1, 3),
    (1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163, 1, 2),
]
SEQ_LEN, VOCAB = 2048, 51200
SHARDS = VOCAB // 2048  # of the head

# One A100-80GB, eight in a node with NVLink, an InfiniBand adapter per GPU. Rates that kernels of 2021 reach, not peaks.
PEAK = 312e12            # FLOP/s, bf16
MATMUL = 0.72 * PEAK     # large matrix products
ATTENTION = 0.40 * PEAK  # batched products of one head's size
MEMORY = 1.7e12          # bytes/s, of 2.0e12
NVLINK = 200e9           # bytes/s of an all-reduce within a node
INFINIBAND = 21e9        # bytes/s per GPU, of 25e9


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=1800)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with status {done.returncode}:\n{done.stderr}")
    return done.stdout


def zero_bubble(program, rows):
    print("Zero Bubble (ICLR 2024), bubble rate in the span measure: here / published")
    print(f"{'model':>6} {'p':>3} {'m':>3}   {'1F1B':^15} {'ZB-H1':^15} {'ZB-H2':^15} {'auto, 2p':^15}")
    for name, p, m, f, i, w, hop, published, kept in ZERO_BUBBLE[:rows]:
        costs = ["--stages", str(p), "--micro-batches", str(m), "--cost-forward", str(f), "--cost-input", str(i),
                 "--cost-weight", str(w), "--cost-comm", str(hop), "--json"]
        named = json.loads(run([program, "simulate", "--schedule", "1f1b,zb-h1,zb-h2"] + costs))
        found = json.loads(run([program, "simulate", "--schedule", "auto", "--objective", "span", "--activation-limit",
                                str(2 * p), "--weight-memory", str(kept)] + costs))
        pairs = zip([schedule["bubble_span"] for schedule in named + found], published)
        print(f"{name:>6} {p:3} {m:3}   " + " ".join(f"{here:.4f} / {there:.4f}" for here, there in pairs), flush=True)


def layer_times(tokens, heads, hidden, tensor):
    """Seconds of (attention F, attention backward of one kind, mlp F, mlp backward of one kind) on one GPU."""
    all_reduce = 2 * (tensor - 1) / tensor * 2 * tokens * hidden / NVLINK if tensor > 1 else 0
    attention = 8 * hidden**2 * tokens / tensor / MATMUL + 4 * SEQ_LEN * hidden * tokens / tensor / ATTENTION
    mlp = 16 * hidden**2 * tokens / tensor / MATMUL
    scores = 5 * 2 * heads / tensor * tokens * SEQ_LEN  # written, normalised, dropped out, read: 5 passes of 2 bytes
    rows = 2 * tokens * hidden                          # one pass over (b, s, h)
    attention_bytes = scores + 7 * rows + 4 * 3 * rows / tensor
    mlp_bytes = 7 * rows + 3 * 4 * rows / tensor
    forward = (attention + attention_bytes / MEMORY + all_reduce, mlp + mlp_bytes / MEMORY + all_reduce)
    # backward does the products twice, the passes about 1.5 times, and one all-reduce: shared out over I and W
    backward = (attention + (1.5 * attention_bytes / MEMORY + all_reduce) / 2,
                mlp + (1.5 * mlp_bytes / MEMORY + all_reduce) / 2)
    return forward, backward


def spread(seconds):
    return {"median": 1e3 * seconds, "min": 1e3 * seconds, "max": 1e3 * seconds}


def unit(forward, backward_input, backward_weight):
    return {"forward": spread(forward), "input": spread(backward_input), "weight": spread(backward_weight)}


def cost_file(heads, hidden, tensor, rows):
    """The A100 as a profile that `train_gpt plan --profile` reads."""
    tokens = rows * SEQ_LEN
    (attention, mlp), (attention_back, mlp_back) = layer_times(tokens, heads, hidden, tensor)
    head = 2 * hidden * VOCAB * tokens / tensor / MATMUL + 3 * 4 * tokens * VOCAB / tensor / MEMORY
    embedding = 4 * 2 * tokens * hidden / MEMORY
    message = 2 * tokens * hidden
    return {
        "version": 2, "device": "A100-80GB, roofline model", "unit": "ms",
        "sizes": {"heads": heads, "hidden": hidden, "vocab": VOCAB, "micro_batch_size": rows, "seq_len": SEQ_LEN,
                  "precision": "bf16"},
        "ranks": [{
            "embedding": unit(embedding, 0, embedding),
            "attention": unit(attention, attention_back, attention_back),
            "mlp": unit(mlp, mlp_back, mlp_back),
            "head streamed": unit(3 * head, 0, 0),
            "head first": unit(2 * head / SHARDS, 0, head / SHARDS),
            "head shard": unit(2 * head / SHARDS, 0, head / SHARDS)}],
        # scatter/gather: each GPU of a tensor group sends its part over its own adapter
        "messages": [{"bytes": 256, "one_way": spread(10e-6)},
                     {"bytes": message, "one_way": spread(10e-6 + message / (tensor * INFINIBAND))}]}


def stage_units(layers, stages):
    units = [2 * layers // stages] * stages
    units[0] += 1
    units[-1] += SHARDS
    return units


def ptd_p(program, rows, folder):
    print("\nMegatron-LM PTD-P (SC 2021), A100-80GB, sequence 2048, activations recomputed; PFLOP of one step")
    print(f"{'params':>8} {'published':>9} {'GPUs':>5} {'t':>2} {'p':>3} {'v':>2} {'b':>2} {'m':>4} {'PFLOP':>8} "
          f"{'without':>8} {'GB/GPU':>7} {'bubble':>7} {'TFLOP/s':>8} {'publ.':>5} {'% peak':>7} {'publ.':>5}")
    for billions, heads, hidden, layers, tensor, p, gpus, batch, published, b, v in PTD_P[:rows]:
        replicas = gpus // (tensor * p)
        m = batch // (replicas * b)
        parameters = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (VOCAB + SEQ_LEN) / (12 * layers * hidden))
        flops = 96 * batch * SEQ_LEN * layers * hidden**2 * (1 + SEQ_LEN / (6 * hidden) + VOCAB / (16 * layers * hidden))
        # without the repeated forward of the layers (the classifier is not repeated)
        layer_part = 96 * batch * SEQ_LEN * layers * hidden**2 * (1 + SEQ_LEN / (6 * hidden))
        plain = flops - layer_part / 4
        profile = folder / "a100.json"
        profile.write_text(json.dumps(cost_file(heads, hidden, tensor, b)), encoding="utf-8")
        units = stage_units(layers, p * v)
        layer_units = [2 * layers // (p * v)] * (p * v)
        command = [program, "plan", "--stages", str(p), "--profile", str(profile), "--layers", str(layers), "--heads",
                   str(heads), "--hidden", str(hidden), "--vocab", str(VOCAB), "--max-seq-len", str(SEQ_LEN),
                   "--seq-len", str(SEQ_LEN), "--micro-batch-size", str(b), "--micro-batches", str(m),
                   "--json", "--partition", ",".join(map(str, units)), "--recompute", ",".join(map(str, layer_units))]
        command += ["--schedule", "interleaved", "--chunks", str(v)] if v > 1 else ["--schedule", "1f1b"]
        plan = json.loads(run(command).strip().splitlines()[-1])
        share = parameters / (tensor * p)
        reduce_gradients = 2 * (replicas - 1) / replicas * 2 * share / INFINIBAND
        update = 30 * share / MEMORY  # reads and writes of AdamW in mixed precision
        step = plan["step_ms_predicted"] / 1e3 + reduce_gradients + update
        rate = flops / step / gpus
        # 18 bytes of state per parameter; the input of every unit that is live; one layer at work
        live = max(rank["live_micro_batches"] for rank in plan["ranks"]) * layer_units[0]
        at_work = b * SEQ_LEN * hidden * (10 + 24 / tensor + 5 * heads * SEQ_LEN / hidden / tensor)
        memory = 18 * share + live * 2 * b * SEQ_LEN * hidden + at_work
        print(f"{parameters / 1e9:7.1f}B {billions:8.1f}B {gpus:5} {tensor:2} {p:3} {v:2} {b:2} {m:4} "
              f"{flops / 1e15:8.1f} {plain / 1e15:8.1f} {memory / 1e9:7.1f} {plan['bubble_predicted']:7.3f} "
              f"{rate / 1e12:8.0f} {published:5} {100 * rate / PEAK:7.1f} {100 * published * 1e12 / PEAK:5.0f}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(pathlib.Path(__file__).resolve().parent.parent / "train_gpt"))
    parser.add_argument("--rows", type=int, default=100, help="of each table (default: all)")
    parser.add_argument("--table", choices=["all", "zero-bubble", "ptd-p"], default="all")
    options = parser.parse_args()
    if options.table in ("all", "zero-bubble"):
        zero_bubble(options.program, options.rows)
    if options.table in ("all", "ptd-p"):
        with tempfile.TemporaryDirectory() as folder:
            ptd_p(options.program, options.rows, pathlib.Path(folder))


if __name__ == "__main__":
    main()
