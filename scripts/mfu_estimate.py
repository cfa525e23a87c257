#!/usr/bin/env python3
"""Estimates the MFU of training on H100s and H200s from counts: the table in docs/mfu_estimate.md. Nothing here was measured.

  mfu_estimate.py [--measured gpu_check.json]     the table; with what scripts/gpu_check.sh measured in a column of its own

Per layer and micro-batch of N tokens: 24 N C^2 FLOPs of products forward and twice that backward; attention's causal half,
2 N T C forward and 2.5 times that backward (5 products against 2); bytes of the passes that are bound by memory; kernels.
Per step: the optimizer's bytes, the pipeline's bubble (p - 1) / (m + p - 1), and the sum of gradients over replicas.
"""
import argparse
import json

# FLOP/s dense bf16, bytes/s and bytes of memory: NVIDIA's data sheets.
CARDS = {"H100": (989.4e12, 3.35e12, 80e9), "H200": (989.4e12, 4.8e12, 141e9)}
PRODUCTS = 0.65  # of the peak: what cuBLASLt reaches on large bf16 products at the card's power limit
MMA_SYNC = 0.62  # of the peak: what mma.sync reaches where wgmma reaches all
BOUNDS = {64: (0.88, 0.74), 128: (0.91, 0.57)}  # of that, forward and backward, by head size (scripts/sass_table.py)
ATTENTION = 0.7  # of that bound: barriers, latency, the diagonal
MEMORY = 0.85  # of the bandwidth
KERNEL_GAP = 1e-6  # s between two kernels of a stream
KERNELS = 24  # per layer and micro-batch, counted by the emulator
LAYER_BYTES = 36  # C bytes per token and layer in LayerNorm's passes and copies, forward and backward
OPTIMIZER_BYTES = 34  # per parameter: AdamW 30, norm 4
NETWORK = 40e9  # bytes/s of a GPU between hosts
STATE_BYTES = 18  # per parameter: fp32 value, gradient, two moments; bf16 copy

# name, layers, heads, C, rows of a micro-batch
MODELS = [("124M", 12, 12, 768, 16), ("1.5B", 48, 25, 1600, 8), ("7B", 32, 32, 4096, 4)]
V, T = 50304, 1024
# GPUs -> stages, replicas, micro-batches
LAYOUTS = {1: (1, 1, 8), 8: (8, 1, 64), 64: (8, 8, 64)}


def parameters(layers, C):
    return 12 * layers * C * C + (V + T) * C


def step_seconds(card, model, layout):
    peak, bandwidth, _ = CARDS[card]
    _, layers, heads, C, rows = model
    stages, replicas, micro_batches = layout
    tokens = rows * T
    products = 72 * tokens * C * C / (PRODUCTS * peak)
    forward, backward = BOUNDS[C // heads]
    attention = 2 * tokens * T * C * (1 / forward + 2.5 / backward) / (ATTENTION * MMA_SYNC * peak)
    gradients = 12 * C * C * 8 / (MEMORY * bandwidth)  # read and written once per micro-batch
    layer = products + attention + gradients + LAYER_BYTES * C * tokens / (MEMORY * bandwidth) + KERNELS * KERNEL_GAP
    passes = -(-tokens // max(3072, -(-tokens // 4)))  # chunks: the weights' gradient is read and written once for each
    head = 6 * tokens * C * V / (PRODUCTS * peak) + (3 * 2 * tokens * V + passes * 8 * C * V) / (MEMORY * bandwidth)
    slowest = -(-layers // stages) * layer if stages > 1 else layers * layer + head
    if stages > 1:  # the cut balances the head's units against layers
        slowest = max(slowest, (layers * layer + head) / stages)
    optimizer = parameters(layers, C) / stages * OPTIMIZER_BYTES / (MEMORY * bandwidth)
    reduction = 0 if replicas == 1 else 2 * 4 * parameters(layers, C) / stages * (replicas - 1) / replicas / NETWORK
    return slowest * (micro_batches + stages - 1) + optimizer + reduction


def mfu(card, model, layout):
    _, layers, heads, C, rows = model
    stages, replicas, micro_batches = layout
    per_token = 3 * (layers * (24 * C * C + 2 * C * (T + 1)) + 2 * C * V)
    tokens = rows * T * micro_batches * replicas
    return per_token * tokens / step_seconds(card, model, layout) / (stages * replicas * CARDS[card][0])


def measured_of(path):
    """{GPT-2 preset: MFU} on one GPU."""
    if path is None:
        return {}
    with open(path, encoding="utf-8") as file:
        results = json.load(file)["results"]
    return {r["name"].split()[1]: r["mfu"] for r in results if r["name"].startswith("speed ") and r.get("mfu")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured")
    measured = measured_of(parser.parse_args().measured)
    presets = {"124M": "d12", "1.5B": "d48"}
    print("| model | card | GPUs | p x d | m | MFU, estimate | measured |\n| --- | --- | --- | --- | --- | --- | --- |")
    for model in MODELS:
        for card in CARDS:
            for gpus, layout in LAYOUTS.items():
                fits = parameters(model[1], model[3]) / layout[0] * STATE_BYTES < 0.9 * CARDS[card][2]
                text = f"{100 * mfu(card, model, layout):.0f}%" if fits else "does not fit"
                found = measured.get(presets.get(model[0])) if gpus == 1 else None
                print(f"| {model[0]} | {card} | {gpus} | {layout[0]} x {layout[1]} | {layout[2]} | {text} | "
                      + (f"{100 * found:.1f}%" if found else "-") + " |")


if __name__ == "__main__":
    main()
