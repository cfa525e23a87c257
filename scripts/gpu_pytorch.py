#!/usr/bin/env python3
"""What PyTorch reaches on this GPU with the products and the attention of GPT-2 124M in bf16: one JSON object per line, named
as test/cuda/rooflines.cpp names the same work, so that the two can be compared. Exit status 3: no PyTorch, or it sees no GPU.

    gpu_pytorch.py [--small]       --small: tiny sizes on the CPU, to try the script itself
"""

import json
import statistics
import sys
import time

SMALL = "--small" in sys.argv[1:]

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"no PyTorch: {error}", file=sys.stderr)
    sys.exit(3)
if not SMALL and not torch.cuda.is_available():
    print("PyTorch sees no GPU", file=sys.stderr)
    sys.exit(3)

B, T, C, NH, VP, HEAD_ROWS = (1, 64, 64, 1, 256, 32) if SMALL else (16, 1024, 768, 12, 50304, 4096)
N, RUNS = B * T, 1 if SMALL else 20
DEVICE = "cpu" if SMALL else "cuda"


def random(*shape, deviation=1.0):
    return torch.randn(*shape, device=DEVICE, dtype=torch.float32).mul_(deviation).to(torch.bfloat16)


def microseconds(work):
    """The median of RUNS calls, by events of the device."""
    for _ in range(min(RUNS, 3)):
        work()
    if SMALL:
        begin = time.perf_counter()
        work()
        return 1e6 * (time.perf_counter() - begin)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(RUNS + 1)]
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize()
    return 1000 * statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:]))


def say(name, us):
    print(json.dumps({"operation": name, "us": round(us, 3)}, separators=(",", ":")), flush=True)


def report(name, work):
    say(name, microseconds(work))


def products():
    """Products alone: what is fused into ours (residual, GELU, bias gradient) comes on top in PyTorch."""
    x, h, qkv = random(N, C), random(N, 4 * C), random(N, 3 * C)
    w_qkv, w_projection = random(3 * C, C, deviation=0.02), random(C, C, deviation=0.02)
    w_up, w_down = random(4 * C, C, deviation=0.02), random(C, 4 * C, deviation=0.02)
    b_qkv, b_projection, b_up = random(3 * C), random(C), random(4 * C)
    report("product qkv", lambda: F.linear(x, w_qkv, b_qkv))
    report("product projection + residual", lambda: F.linear(x, w_projection, b_projection))
    report("product up + gelu", lambda: F.linear(x, w_up, b_up))
    report("product down + residual", lambda: F.linear(h, w_down, b_projection))
    report("product qkv dx", lambda: torch.matmul(qkv, w_qkv))
    report("product down dx + dgelu", lambda: torch.matmul(x, w_down))
    report("product qkv dw + db", lambda: torch.matmul(qkv.t(), x))
    report("product up dw + db", lambda: torch.matmul(h.t(), x))
    x_head, wte = random(HEAD_ROWS, C), random(VP, C, deviation=0.02)
    report("product logits", lambda: F.linear(x_head, wte))


def attention():
    """Flash attention on q, k, v of (B, NH, T, HS); the backward is that of the whole minus the forward."""
    q, k, v = (random(B, NH, T, C // NH).requires_grad_() for _ in range(3))
    gradient = random(B, NH, T, C // NH)

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        q.grad = k.grad = v.grad = None
        forward().backward(gradient)

    with torch.no_grad():
        forward_us = microseconds(forward)
    both_us = microseconds(both)
    say("attention forward", forward_us)
    say("attention backward", max(both_us - forward_us, 1e-3))


products()
attention()
