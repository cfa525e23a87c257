#!/usr/bin/env python3
"""Counts what the inner loops of the attention kernels issue, and what limits them: the table in kernels/cuda/README.md.

  sass_table.py [--cuobjdump PROGRAM] [--require KERNEL=PERCENT].. OBJECT..     (make sass-table calls it)

OBJECT is what nvcc made for one or more architectures; cuobjdump comes with CUDA (also: pip install nvidia-cuda-cuobjdump).
Per kernel and architecture, over one round of the loop over tiles (parts that only tiles on the diagonal need included):
tensor instructions (HMMA), other instructions per HMMA, bytes of shared memory per FLOP, and as a share of the rate of
mma.sync what each part of a multiprocessor would allow if nothing else limited it. The smallest is the bound. --require
fails where a kernel's bound is less.

A multiprocessor does, per clock: 128 bytes of shared memory, 4 instructions, 16 ex2, and as many additions and
multiplications (fma) and other arithmetic (alu) as MULTIPROCESSOR says.
"""
import argparse
import re
import subprocess
import sys
from collections import Counter

# FLOPs of dense bf16 mma.sync per clock (of a 9.0's tensor cores, 4096, mma.sync reaches 62%; wgmma would reach all), lanes
# of fma and of alu.
MULTIPROCESSOR = {
    "sm_80": ("A100", 2048, 64, 64),
    "sm_90": ("H100, H200", 2540, 128, 64),
}
HMMA_FLOPS = 16 * 8 * 16 * 2
# How many HMMA a round has: products x rows x columns x depth, of a warp.
ROUNDS = {
    "flash_forward_kernel<64>": 2 * 32 * 64 * 64 // 2048,
    "flash_forward_kernel<128>": 2 * 32 * 32 * 128 // 2048,
    "flash_backward_kernel<64>": 5 * 32 * 32 * 64 // 2048,
    "flash_backward_kernel<128>": 5 * 16 * 32 * 128 // 2048,
}
FMA = ("FADD", "FMUL", "FFMA", "IMAD")
ALU = ("FMNMX", "FSEL", "FSETP", "F2FP", "IADD3", "LOP3", "LEA", "ISETP", "SEL", "MOV", "SHF", "IMNMX", "PRMT", "VIADD", "VIMNMX", "PLOP3")


def shared_bytes(name):
    """Of one instruction of a warp: LDSM.16.M88.4 brings four matrices of 128 bytes; LDS, STS 4, 8 or 16 bytes a lane."""
    if name.startswith("LDSM") or name.startswith("STSM"):
        matrices = 4 if ".4" in name else 2 if ".2" in name.replace(".16", "") else 1
        return 128 * matrices
    if name.startswith("LDGSTS"):
        return 32 * (16 if ".128" in name else 8 if ".64" in name else 4)
    if name.startswith("LDS") or name.startswith("STS"):
        return 32 * (16 if ".128" in name else 8 if ".64" in name else 4)
    return 0


def kernels_of(text):
    """{(architecture, kernel): [(address, instruction, target of a branch or None)]}"""
    found, arch, body = {}, None, None
    for line in text.splitlines():
        if match := re.search(r"code for (sm_\d+)", line):
            arch = match.group(1)
        if match := re.search(r"Function : (\S+)", line):
            name = re.search(r"\d(flash_\w+?_kernel)ILi(\d+)E", match.group(1))
            body = found.setdefault((arch, f"{name.group(1)}<{name.group(2)}>"), []) if name else None
        match = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*?);", line)
        if match and body is not None:
            target = re.search(r"0x([0-9a-f]+)\s*$", match.group(3)) if match.group(2) == "BRA" else None
            body.append((int(match.group(1), 16), match.group(2), int(target.group(1), 16) if target else None))
    return found


def round_of(body, products):
    """Instructions of one round of the loop over tiles: the largest loop with tensor instructions, inner loops as often as
    the number of products wants."""
    loops = [(target, address) for address, _, target in body if target is not None and target < address]
    tensor = [address for address, name, _ in body if name.startswith("HMMA")]
    loops = [loop for loop in loops if any(loop[0] <= at <= loop[1] for at in tensor)]
    begin, end = max(loops, key=lambda loop: loop[1] - loop[0])
    inner = [loop for loop in loops if begin < loop[0] and loop[1] < end]
    counts, in_inner = Counter(), Counter()
    for address, name, _ in body:
        if begin <= address <= end:
            nested = any(low <= address <= high for low, high in inner)
            (in_inner if nested else counts)[name] += 1
    hmma = lambda of: sum(n for name, n in of.items() if name.startswith("HMMA"))
    times = (products - hmma(counts)) / hmma(in_inner) if hmma(in_inner) else 0
    if hmma(counts) + times * hmma(in_inner) != products or times != int(times):
        sys.exit(f"sass_table.py: error: a round of {products} HMMA was expected, the loop has {hmma(counts)} and inner loops {hmma(in_inner)}")
    for name, n in in_inner.items():
        counts[name] += int(times) * n
    return counts


def row(arch, kernel, counts):
    _, rate, fma_lanes, alu_lanes = MULTIPROCESSOR[arch]
    hmma = ROUNDS[kernel]
    total = sum(counts.values())
    shared = sum(shared_bytes(name) * n for name, n in counts.items())
    fma = sum(n for name, n in counts.items() if name.split(".")[0] in FMA)
    alu = sum(n for name, n in counts.items() if name.split(".")[0] in ALU)
    special = sum(n for name, n in counts.items() if name.startswith("MUFU"))
    loads = sum(n for name, n in counts.items() if name.startswith("LDSM"))
    clocks = hmma * HMMA_FLOPS / rate  # of a multiprocessor, per warp and round
    shares = {
        "shared memory": clocks / (shared / 128),
        "issue": clocks / (total / 4),
        "fma": clocks / (fma * 32 / fma_lanes),
        "alu": clocks / (alu * 32 / alu_lanes),
        "ex2": clocks / (special * 32 / 16),
    }
    return hmma, loads / hmma, (total - hmma) / hmma, shared / (hmma * HMMA_FLOPS), {k: min(1.0, v) for k, v in shares.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--require", action="append", default=[])
    parser.add_argument("objects", nargs="+")
    options = parser.parse_args()
    required = {k: float(v) / 100 for k, _, v in (r.partition("=") for r in options.require)}
    print("| kernel | for | HMMA | ldmatrix per HMMA | other instructions per HMMA | shared bytes per FLOP | shared memory | issue | fma | alu | ex2 | bound |")
    print("| --- " * 12 + "|")
    failed = False
    found = {}
    for path in options.objects:
        try:
            text = subprocess.run([options.cuobjdump, "-sass", path], capture_output=True, text=True, check=True).stdout
        except FileNotFoundError:
            sys.exit(f"sass_table.py: error: no {options.cuobjdump}; it comes with CUDA, or: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
        found.update(kernels_of(text))
    for (arch, kernel), body in sorted(found.items(), key=lambda item: (item[0][1], int(item[0][0][3:]))):
        if kernel not in ROUNDS or arch not in MULTIPROCESSOR:
            continue
        hmma, loads, others, per_flop, shares = row(arch, kernel, round_of(body, ROUNDS[kernel]))
        bound = min(shares.values())
        percent = [f"{100 * shares[k]:.0f}%" for k in ("shared memory", "issue", "fma", "alu", "ex2")]
        print(f"| {kernel} | {MULTIPROCESSOR[arch][0]} | {hmma} | {loads:.2f} | {others:.2f} | {per_flop:.4f} | "
              + " | ".join(percent) + f" | {100 * bound:.0f}% |")
        if bound < required.get(kernel, 0):
            print(f"sass_table.py: error: {kernel} on {arch}: the bound is {100 * bound:.0f}%, wanted {100 * required[kernel]:.0f}%", file=sys.stderr)
            failed = True
    missing = set(required) - {kernel for _, kernel in found}
    if missing:
        sys.exit(f"sass_table.py: error: no {', '.join(sorted(missing))} in {' '.join(options.objects)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
