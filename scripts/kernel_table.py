#!/usr/bin/env python3
"""Prints the table of kernels in kernels/cuda/README.md: registers, shared memory, occupancy, bank conflicts.

  kernel_table.py --ptxas FILE.. --program BINARY --report FILE     (make kernel-table and make check-kernel-table call it)

--ptxas    what `nvcc -Xptxas -v` said of each kernel file, for every architecture
--recorded a file that has the same table: lines that differ are printed, and the status is 1
--report   what the emulated program BINARY printed at its end under EMULATOR_BANKS=1: threads, dynamic shared memory, conflicts

A line stands for all instances of a kernel that differ in element type and width of access only: the most registers, the
most shared memory, the fewest blocks, the most conflicts. Kernels that BINARY never launched are an error.
"""
import argparse
import difflib
import re
import subprocess
import sys
from collections import defaultdict

# Per multiprocessor: bytes of shared memory, threads, blocks (CUDA C++ Programming Guide, "Technical Specifications per
# Compute Capability"). Everywhere 65,536 registers, given to warps in units of 256; 1 KB of shared memory per block is
# the system's.
MULTIPROCESSOR = {
    "sm_80": ("A100", 164 << 10, 2048, 32),
    "sm_86": ("RTX 30, A10, A40", 100 << 10, 1536, 16),
    "sm_89": ("L40S, RTX 40", 100 << 10, 1536, 24),
    "sm_90": ("H100, H200", 228 << 10, 2048, 32),
    "sm_100": ("B200", 228 << 10, 2048, 32),
    "sm_120": ("RTX 50", 100 << 10, 1536, 24),
}


def blocks_per_multiprocessor(arch, threads, registers, shared):
    _, shared_bytes, max_threads, max_blocks = MULTIPROCESSOR[arch]
    warps = -(-threads // 32)
    registers_of_warp = -(-registers * 32 // 256) * 256
    by_registers = 65536 // registers_of_warp // 4 * 4 // warps  # four schedulers share the warps evenly
    by_shared = shared_bytes // (-(-(shared + 1024) // 128) * 128)
    return min(by_registers, by_shared, max_threads // (warps * 32), max_blocks)


def demangled(lines):
    return subprocess.run(["c++filt"], input="\n".join(lines), capture_output=True, text=True, check=True).stdout.splitlines()


def kernel_of(signature):
    """'flash_forward_kernel<64>' of a demangled signature: no return type, namespaces or parameters."""
    name = signature.replace("(anonymous namespace)::", "").replace("train_gpt::cuda::", "")
    name = re.sub(r"^(void|float) ", "", name.strip()).replace("__nv_bfloat16", "bf16").replace("> >", ">>")
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return name[:i]
    return name


def read_ptxas(files):
    """{kernel: {arch: (registers, static shared bytes)}}"""
    found = defaultdict(dict)
    for path in files:
        with open(path, encoding="utf-8") as file:
            kernel = arch = None
            for line in demangled(file.read().splitlines()):
                entry = re.search(r"Compiling entry function '(.*)' for '(sm_\d+)", line)
                if entry:
                    kernel, arch = kernel_of(entry.group(1)), entry.group(2)
                used = re.search(r"Used (\d+) registers", line)
                if used and kernel:
                    shared = re.search(r"(\d+) bytes smem", line)
                    found[kernel][arch] = (int(used.group(1)), int(shared.group(1)) if shared else 0)
                    kernel = None
    return found


def read_report(path, program):
    """{kernel: (threads, dynamic shared bytes, passes, conflicts)}"""
    symbols = {}
    for line in subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout.splitlines():
        address, _, name = line.partition(" ")
        if re.match(r"[0-9a-f]+ [tTwW] ", line):
            symbols[int(address, 16)] = name[2:]
    found = {}
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            row = re.match(r" {15}\S.*? +(\d+) +(\d+) +(\d+) +(\d+) +[\d.]+% +([0-9a-f]+)$", line)
            if row and int(row.group(5), 16) in symbols:
                found[kernel_of(symbols[int(row.group(5), 16)])] = tuple(int(row.group(i)) for i in range(1, 5))
    return found


def line_of(kernel):
    """The name under which instances that differ only in type and width are listed."""
    name, _, arguments = kernel.partition("<")
    arguments = arguments.rsplit(">", 1)[0]
    name = name.removesuffix("_kernel").replace("_", " ")
    if name == "elementwise":
        operation = arguments.split("<")[0]
        return "elementwise, " + operation
    if name == "tensors":  # kernels/cuda/tensors.cuh
        return "several tensors, " + arguments.removeprefix("OfArena<").split("<")[0].split(",")[0].rstrip(">")
    if name == "column sums of rows":
        return f"{name}, {arguments.split(', ', 2)[2].split('<')[0]}"
    if name.startswith("flash"):
        return f"{name}, head {arguments}"
    return name


def size_text(bytes_used):
    return f"{bytes_used} B" if bytes_used < 1024 else f"{bytes_used / 1024:.4g} KB"


def compare(table, path):
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    if table[0] not in lines:
        sys.exit(f"kernel_table.py: error: {path} has no table that begins with '{table[0]}'")
    begin = lines.index(table[0])
    end = next((i for i in range(begin, len(lines)) if not lines[i].startswith("|")), len(lines))
    changes = [line for line in difflib.ndiff(lines[begin:end], table) if line[0] in "-+"]
    if changes:
        sys.exit(f"kernel_table.py: error: {path} records other figures (- recorded, + now); make kernel-table prints the table, "
                 "if they are meant:\n" + "\n".join(changes))
    print(f"{len(table) - 2} passed, 0 failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", nargs="+", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--report", required=True)
    parser.add_argument("--recorded")
    options = parser.parse_args()
    compiled = read_ptxas(options.ptxas)
    launched = read_report(options.report, options.program)
    missing = sorted(set(compiled) - set(launched))
    if missing:
        sys.exit(f"kernel_table.py: error: {options.program} launched none of: {', '.join(missing)}")
    arches = sorted({arch for kernel in compiled.values() for arch in kernel}, key=lambda a: int(a[3:]))
    lines = defaultdict(list)
    for kernel in compiled:
        lines[line_of(kernel)].append(kernel)
    known = [a for a in arches if a in MULTIPROCESSOR]
    cards = [MULTIPROCESSOR[a][0] for a in known]
    table = ["| kernel | threads | registers | shared memory | " + " | ".join(f"blocks, {c}" for c in cards) + " | conflicts |",
             "| --- " * (5 + len(cards)) + "|"]
    for line, kernels in sorted(lines.items()):
        threads = max(launched[k][0] for k in kernels)
        registers = [max(compiled[k][a][0] for k in kernels) for a in arches]
        shared = max(max(compiled[k][a][1] for a in arches) + launched[k][1] for k in kernels)
        blocks = [min(blocks_per_multiprocessor(a, launched[k][0], compiled[k][a][0], compiled[k][a][1] + launched[k][1])
                      for k in kernels) for a in known]
        shares = [100 * launched[k][3] / launched[k][2] for k in kernels if launched[k][2]]
        conflicts = f"{max(shares):.3g}%" if shares else "-"
        table.append(f"| {line} | {threads} | {' / '.join(map(str, registers))} | {size_text(shared) if shared else '0'} | "
                     + " | ".join(map(str, blocks)) + f" | {conflicts} |")
    if options.recorded is None:
        print("\n".join(table))
    else:
        compare(table, options.recorded)


if __name__ == "__main__":
    main()
