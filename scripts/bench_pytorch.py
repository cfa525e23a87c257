#!/usr/bin/env python3
"""GPT-2 training steps of PyTorch on this machine's CPU, for scripts/bench_side_by_side.py: prints the median tokens/s of the
steps after the first two.

    bench_pytorch.py eager|compile --layers L --hidden C --heads NH --vocab V --rows B --seq-len T [--threads N] [--steps N]
    bench_pytorch.py 1f1b|interleaved-zb|zb-v --micro-batches M ..     2 processes over gloo, torch.distributed.pipelining
    bench_pytorch.py products --hidden C --vocab V --rows B --seq-len T ..   GFLOP/s of one layer's and the head's products
"""

import argparse
import os
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    print(f"no PyTorch: {error}", file=sys.stderr)
    sys.exit(3)

RANKS = 2


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["eager", "compile", "1f1b", "interleaved-zb", "zb-v", "products"])
    for name, default in dict(layers=12, hidden=768, heads=12, vocab=50257, rows=4, seq_len=64, threads=2, steps=6, micro_batches=16).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(C, dim=2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Part(nn.Module):
    """Consecutive layers, with the embedding and the head at the ends of the model. The classifier is tied to the embedding
    where both are in one part."""

    def __init__(self, o, first, last, is_first=True, is_last=True):
        super().__init__()
        padded = (o.vocab + 127) // 128 * 128
        self.wte = nn.Embedding(padded, o.hidden) if is_first else None
        self.wpe = nn.Embedding(1024, o.hidden) if is_first else None
        self.blocks = nn.ModuleList(Block(o.hidden, o.heads) for _ in range(first, last))
        self.norm = nn.LayerNorm(o.hidden) if is_last else None
        self.classifier = nn.Linear(o.hidden, padded, bias=False) if is_last else None
        if self.wte is not None and self.classifier is not None:
            self.classifier.weight = self.wte.weight
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, x):
        if self.wte is not None:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return x if self.classifier is None else self.classifier(self.norm(x))


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def optimizer_of(parameters):
    parameters = list(parameters)
    return parameters, torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1, fused=True)


def timed_steps(o, tokens, step):
    seconds = []
    for _ in range(o.steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return tokens / statistics.median(seconds[2:])


def one_process(o):
    model = Part(o, 0, o.layers)
    parameters, optimizer = optimizer_of(model.parameters())
    ids = torch.randint(o.vocab, (o.rows, o.seq_len + 1))

    def loss_and_gradients():
        loss = loss_of(model(ids[:, :-1]), ids[:, 1:])
        loss.backward()

    work = loss_and_gradients
    if o.mode == "compile":
        compiled = torch.compile(lambda x, y: loss_of(model(x), y))
        work = lambda: compiled(ids[:, :-1], ids[:, 1:]).backward()

    def step():
        work()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    print(f"{timed_steps(o, o.rows * o.seq_len, step):.1f}")


def pipeline_rank(rank, o, port):
    from torch.distributed import pipelining
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=RANKS)
    kinds = {"1f1b": (1, pipelining.Schedule1F1B), "interleaved-zb": (2, pipelining.ScheduleInterleavedZeroBubble),
             "zb-v": (2, pipelining.ScheduleZBVZeroBubble)}
    chunks, kind = kinds[o.mode]
    count = RANKS * chunks
    mine = [rank] if chunks == 1 else [rank, count - 1 - rank] if o.mode == "zb-v" else [rank, rank + RANKS]
    head_layers = max(1, round(o.vocab / (12 * o.hidden)))  # layers that the head is worth: an even cut by cost
    cuts = [min(o.layers, round((o.layers + head_layers) * i / count)) for i in range(count)] + [o.layers]
    parts = [Part(o, cuts[i], cuts[i + 1], i == 0, i == count - 1) for i in mine]
    stages = [pipelining.PipelineStage(part, i, count, torch.device("cpu")) for part, i in zip(parts, mine)]
    schedule = kind(stages[0] if chunks == 1 else stages, o.micro_batches, loss_fn=loss_of)
    parameters, optimizer = optimizer_of(p for part in parts for p in part.parameters())
    ids = torch.randint(o.vocab, (o.rows * o.micro_batches, o.seq_len + 1), generator=torch.Generator().manual_seed(1))
    has_first, has_last = 0 in mine, count - 1 in mine

    def step():
        arguments = (ids[:, :-1].contiguous(),) if has_first else ()
        schedule.step(*arguments, target=ids[:, 1:].contiguous() if has_last else None, losses=[] if has_last else None)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.distributed.barrier()

    rate = timed_steps(o, o.rows * o.micro_batches * o.seq_len, step)
    if rank == 0:
        print(f"{rate:.1f}", flush=True)
    torch.distributed.destroy_process_group()


def products(o):
    """The products of one layer and of the head, forward and backward, back to back."""
    C, N, padded = o.hidden, o.rows * o.seq_len, (o.vocab + 127) // 128 * 128
    shapes = [(C, 3 * C)] * o.layers + [(C, C)] * o.layers + [(C, 4 * C)] * o.layers + [(4 * C, C)] * o.layers + [(C, padded)]
    work = []
    for inputs, outputs in shapes:
        x, w, y = torch.randn(N, inputs), torch.randn(outputs, inputs), torch.randn(N, outputs)
        work += [(x, w.t(), torch.empty(N, outputs)), (y, w, torch.empty(N, inputs)), (y.t(), x, torch.empty(outputs, inputs))]
    flops = sum(2 * a.shape[0] * a.shape[1] * b.shape[1] for a, b, _ in work)

    def step():
        for a, b, out in work:
            torch.mm(a, b, out=out)

    print(f"{timed_steps(o, flops, step) * 1e-9:.1f}")


def main():
    o = options()
    torch.set_num_threads(o.threads)
    if o.mode == "products":
        products(o)
    elif o.mode in ("eager", "compile"):
        one_process(o)
    else:
        torch.multiprocessing.spawn(pipeline_rank, args=(o, 29500 + os.getpid() % 1000), nprocs=RANKS)


if __name__ == "__main__":
    main()
