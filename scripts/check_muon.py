#!/usr/bin/env python3
"""A step of --optimizer muon beside numpy.

usage: scripts/check_muon.py PROGRAM     (python3 with numpy; scripts/check_muon.sh brings one)

Two consecutive checkpoints give the parameters before and after a step and Muon's average M before and after it; from
the averages follows the gradient, from that the step. Nothing of the program is used but its files.
"""
import math
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

HEADER = 1024
LEARNING_RATE, WEIGHT_DECAY, MOMENTUM = 1e-2, 0.1, 0.95


def run(program, folder, scale):
    tokens = os.path.join(folder, "tokens.bin")
    ids = np.random.default_rng(1).integers(0, 100, 5000).astype("<u2")
    with open(tokens, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, len(ids), *([0] * 253)) + ids.tobytes())
    output = os.path.join(folder, scale)
    subprocess.run([program, "--train-data", tokens, "--layers", "2", "--heads", "3", "--hidden", "33", "--vocab", "100",
                    "--seq-len", "32", "--max-seq-len", "32", "--micro-batches", "2", "--steps", "4", "--device", "cpu",
                    "--checkpoint-every", "1", "--keep", "9", "--optimizer", "muon", "--muon-scale", scale,
                    "--learning-rate", str(LEARNING_RATE), "--lr-schedule", "constant", "--weight-decay",
                    str(WEIGHT_DECAY), "--output", output], check=True, stdout=subprocess.DEVNULL)
    return output


def tensors(path, layers, hidden, vocab_rows, positions):
    """Matrices of each layer of a file whose body is the tensors in llm.c's order: name -> array (layers, rows, columns)."""
    values = np.fromfile(path, dtype="<f4", offset=HEADER).astype(np.float64)
    C, L = hidden, layers
    sizes = [("wte", vocab_rows * C), ("wpe", positions * C), ("ln1w", L * C), ("ln1b", L * C), ("qkvw", L * 3 * C * C),
             ("qkvb", L * 3 * C), ("attprojw", L * C * C), ("attprojb", L * C), ("ln2w", L * C), ("ln2b", L * C),
             ("fcw", L * 4 * C * C), ("fcb", L * 4 * C), ("fcprojw", L * 4 * C * C)]
    shapes = {"qkvw": (L, 3 * C, C), "attprojw": (L, C, C), "fcw": (L, 4 * C, C), "fcprojw": (L, C, 4 * C)}
    found, at = {}, 0
    for name, size in sizes:
        if name in shapes:
            found[name] = values[at:at + size].reshape(shapes[name])
        at += size
    return found


def orthogonalised(gradient):
    x = gradient.T if gradient.shape[0] > gradient.shape[1] else gradient
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if gradient.shape[0] > gradient.shape[1] else x


def check(output, scale):
    worst, matrices = 0.0, 0
    folders = [os.path.join(output, "checkpoints", f"step-{step}") for step in (2, 3)]
    files = [[tensors(os.path.join(folder, name), 2, 33, 128, 32) for name in ("model.bin", "optimizer.bin")]
             for folder in folders]
    (before, average), (after, average_after) = files
    for name in before:
        for layer in range(2):
            parts = 3 if name == "qkvw" else 1
            for w, m, w2, m2 in zip(*(np.split(x[name][layer], parts) for x in (before, average, after, average_after))):
                gradient = (m2 - MOMENTUM * m) / (1 - MOMENTUM)
                update = orthogonalised((1 - MOMENTUM) * gradient + MOMENTUM * m2)
                rows, columns = w.shape
                factor = 0.2 * math.sqrt(max(rows, columns)) if scale == "rms" else math.sqrt(max(1, rows / columns))
                expected = (1 - LEARNING_RATE * WEIGHT_DECAY) * w - LEARNING_RATE * factor * update
                step = LEARNING_RATE * factor * np.abs(update).max()
                worst = max(worst, np.abs(expected - w2).max() / step)
                matrices += 1
    print(f"--muon-scale {scale}: {matrices} matrices, largest difference {worst:.1e} of the largest element of a step")
    return worst < 1e-4  # the gradient is a difference of averages in fp32


def main():
    with tempfile.TemporaryDirectory() as folder:
        passed = sum(check(run(os.path.abspath(sys.argv[1]), folder, scale), scale) for scale in ("rms", "spectral"))
    print(f"{passed} passed, {2 - passed} failed")
    return 0 if passed == 2 else 1


sys.exit(main())
