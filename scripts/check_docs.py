#!/usr/bin/env python3
"""Are the documents true? Links lead somewhere, commands run, and what they are said to print is printed.

    check_docs.py PROGRAM

Looks at every .md file that git knows. A link must lead to a file or folder, and its #part to a heading. A name of the code
must still be one. Fenced blocks with
`./train_gpt simulate` or `plan` are run (those that train are not: they take long). Where such a block shows output after a line
`$ COMMAND`, the output must hold each shown line, except what `...` leaves out; figures with `ms` or `%` in a paragraph
`Expected: ..` after a block must stand in its output. Ends with `N passed, N failed`.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
OTHERS = {"count_tokens", "microbatch_group_size_per_vp_stage"}  # an example's, Megatron-LM's
RUNS = re.compile(r"\./train_gpt (simulate|plan)\b")


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(path):
    return {anchor(m) for m in re.findall(r"^#+ (.*)$", path.read_text(), re.M)}


def check_links(path, text):
    """What is wrong with the links of one file, and how many there are."""
    wrong, seen = [], 0
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.S)):
        if re.match(r"[a-z]+:", target):
            continue
        seen += 1
        place, _, part = urllib.parse.unquote(target).partition("#")
        file = (path.parent / place) if place else path
        if not file.exists():
            wrong.append(f"link to {target}: there is no such file")
        elif part and file.suffix == ".md" and part not in headings(file):
            wrong.append(f"link to {target}: the file has no heading of that name")
    return wrong, seen


def check_names(text, sources):
    """Names of functions and types in running text, such as `Trainer::step`: they must stand somewhere in the sources."""
    wrong, seen = [], 0
    for name in re.findall(r"`([A-Za-z]\w*(?:::\w+)*)(?:\(\))?`", re.sub(r"```.*?```", "", text, flags=re.S)):
        if ("::" not in name and "_" not in name) or name.isupper() or name in OTHERS:
            continue
        seen += 1
        if not all(part in sources for part in name.split("::")):
            wrong.append(f"`{name}`: nothing in the sources has this name")
    return wrong, seen


def run(commands, folder):
    done = subprocess.run(["bash", "-c", commands], cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def check_shown(block, folder):
    """A block of `$ COMMAND` lines, each followed by what it prints."""
    wrong = []
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        if not RUNS.search(command):
            continue
        status, output = run(command, folder)
        lines = {squeezed(line) for line in output.splitlines()}
        missing = [line for line in shown.splitlines() if line.strip() not in ("", "...") and squeezed(line) not in lines]
        if status != 0 or missing:
            wrong.append(f"{command}: status {status}; not printed: {missing}")
    return wrong


def check_run(block, after, folder):
    """A block of commands, and the paragraph that says what to expect."""
    status, output = run(block, folder)
    expected = re.match(r"\s*Expected: .*?(?=\n\n|\Z)", after, re.S)
    text = expected.group(0) if expected else ""
    wanted = 2 if "exit status 2" in text else 0
    figures = re.findall(r"\d[\d.]*(?: ms|%)", squeezed(text))
    missing = [figure for figure in figures if figure.removesuffix(" ms") not in re.findall(r"\d[\d.]*%?", output)]
    if status == wanted and not missing:
        return []
    return [f"{block.splitlines()[0]}: status {status}, wanted {wanted}; not printed: {missing}\n{output[-600:]}"]


def check_commands(text, folder):
    wrong, seen = [], 0
    for block in re.finditer(r"^```\w*\n(.*?)^```$", text, re.S | re.M):
        body = block.group(1)
        if not RUNS.search(body) or "mpirun" in body or "make" in body:
            continue
        seen += 1
        shown = body.lstrip().startswith("$ ")
        wrong += check_shown(body, folder) if shown else check_run(body, text[block.end():], folder)
    return wrong, seen


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    files = [name for name in tracked if name.endswith(".md")]
    sources = set()
    for name in tracked:
        if name and not name.endswith(".md") and (ROOT / name).is_file():
            sources |= set(re.findall(r"[A-Za-z]\w*", name + " " + (ROOT / name).read_text(errors="replace")))
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "train_gpt").symlink_to(program)
        for name in files:
            path = ROOT / name
            text = path.read_text()
            for wrong, seen in (check_links(path, text), check_names(text, sources), check_commands(text, folder)):
                for fault in wrong:
                    print(f"{name}: {fault}")
                failed += len(wrong)
                passed += seen - len(wrong)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
