#!/usr/bin/env python3
"""The losses of PyTorch's first steps from a given model, for scripts/gpu_check.sh to compare with ours: one per line.

    gpu_loss_curve.py MODEL.bin TOKENS.bin --seq-len T --rows b --micro-batches m --steps N --learning-rate X [--cpu]

MODEL.bin is llm.c's file, in fp32; step i reads the next m b rows of T tokens. bf16 by autocast with parameters in fp32,
AdamW with betas 0.9 and 0.95, no weight decay, no clipping. Exit status 3: no PyTorch, or it sees no GPU.
"""
import argparse
import array
import math
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"no PyTorch: {error}", file=sys.stderr)
    sys.exit(3)


def read_model(path, device):
    """Sizes and parameters, in the order of the file (llm.c: gpt2_build_from_checkpoint)."""
    with open(path, "rb") as file:
        header = array.array("i", file.read(1024))
        magic, version, positions, vocab, layers, heads, C, padded = header[:8]
        if (magic, version) != (20240326, 3):
            sys.exit(f"gpu_loss_curve.py: error: {path} is no model file in fp32")
        values = torch.frombuffer(bytearray(file.read()), dtype=torch.float32).to(device)
    L = layers
    shapes = [("wte", (padded, C)), ("wpe", (positions, C)), ("ln1w", (L, C)), ("ln1b", (L, C)), ("qkvw", (L, 3 * C, C)),
              ("qkvb", (L, 3 * C)), ("projw", (L, C, C)), ("projb", (L, C)), ("ln2w", (L, C)), ("ln2b", (L, C)),
              ("upw", (L, 4 * C, C)), ("upb", (L, 4 * C)), ("downw", (L, C, 4 * C)), ("downb", (L, C)), ("lnfw", (C,)), ("lnfb", (C,))]
    parameters, at = {}, 0
    for name, shape in shapes:
        count = math.prod(shape)
        parameters[name] = values[at:at + count].view(shape).clone().requires_grad_()
        at += count
    if at != values.numel():
        sys.exit(f"gpu_loss_curve.py: error: {path} has {values.numel()} parameters, {at} are right for its sizes")
    return (layers, heads, vocab), parameters


def loss_of(p, sizes, x, y):
    layers, heads, vocab = sizes
    B, T = x.shape
    h = p["wte"][x] + p["wpe"][:T]
    C = h.shape[-1]
    for i in range(layers):
        n = F.layer_norm(h, (C,), p["ln1w"][i], p["ln1b"][i])
        q, k, v = (t.view(B, T, heads, -1).transpose(1, 2) for t in F.linear(n, p["qkvw"][i], p["qkvb"][i]).split(C, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        h = h + F.linear(a, p["projw"][i], p["projb"][i])
        n = F.layer_norm(h, (C,), p["ln2w"][i], p["ln2b"][i])
        h = h + F.linear(F.gelu(F.linear(n, p["upw"][i], p["upb"][i]), approximate="tanh"), p["downw"][i], p["downb"][i])
    logits = F.linear(F.layer_norm(h, (C,), p["lnfw"], p["lnfb"]), p["wte"][:vocab])
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tokens")
    for name in ("seq-len", "rows", "micro-batches", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--cpu", action="store_true")
    o = parser.parse_args()
    if not o.cpu and not torch.cuda.is_available():
        print("PyTorch sees no GPU", file=sys.stderr)
        sys.exit(3)
    device = "cpu" if o.cpu else "cuda"
    sizes, parameters = read_model(o.model, device)
    with open(o.tokens, "rb") as file:
        file.seek(1024)
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.int16).to(torch.int64) & 0xFFFF
    optimizer = torch.optim.AdamW(parameters.values(), lr=o.learning_rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    block = o.rows * o.seq_len
    at = 0
    for _ in range(o.steps):
        total = 0.0
        for _ in range(o.micro_batches):
            window = tokens[at:at + block + 1].to(device)
            at += block
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = loss_of(parameters, sizes, window[:-1].view(o.rows, -1), window[1:].view(o.rows, -1)) / o.micro_batches
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"{total:.5f}", flush=True)


main()
