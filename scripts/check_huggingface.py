"""What `train_gpt` makes of texts and models beside PyPI's `tokenizers`, `transformers` and `torch`.

Called by scripts/check_huggingface.sh. The last line is "N passed, N failed".
"""
import glob
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.environ.setdefault("RAYON_NUM_THREADS", str(os.cpu_count()))
os.environ["HF_HUB_OFFLINE"] = "1"
import numpy
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../test/model/recorded"))
import record_gpt2

PROGRAM = os.path.abspath(sys.argv[1])
END = "<|endoftext|>"
passed = failed = 0


def check(name, holds, figure=""):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    print(("ok      " if holds else "FAILED  ") + name + (": " + str(figure) if figure != "" else ""), flush=True)


def run(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise RuntimeError(" ".join(map(str, words)) + "\n" + done.stdout + done.stderr)
    return done.stdout


def documents_of_this_machine():
    patterns = ["/usr/share/common-licenses/*", "/usr/share/man/**/*.gz", "/usr/share/doc/*/copyright", "/usr/lib/python3*/*.py",
                "/usr/share/i18n/locales/*", "**/*.cpp", "**/*.md"]
    texts = []
    for path in sorted(path for pattern in patterns for path in glob.glob(pattern, recursive=True)):
        try:
            data = (gzip.open if path.endswith(".gz") else open)(path, "rb").read()
            texts.append(data.decode("utf-8").replace(END, ""))
        except (OSError, UnicodeDecodeError, EOFError):
            pass
    random.Random(1).shuffle(texts)
    return texts


def odd_text(known):
    """All code points of `known`, white space of every kind, combining marks, control bytes, a long line."""
    chance = random.Random(2)
    chance.shuffle(known)
    spaces = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u180e", "\u2028", "\x85", "\x1c", " \n", ""]
    ends = ["'s", "'LL", "'\u017f", "123456", "\u00e9", "e\u0301", "", "\U0001f642\U0001f44d\U0001f3fd"]
    text = "".join(chance.choice(spaces) * chance.randint(0, 2) + c + chance.choice(ends) for c in known)
    line = "".join(chance.choice("abcdefghij") for _ in range(1000000))
    return text + "\n" + line + "\n" + " " * 5000 + "x" + "\n" * 3000 + "".join(chr(chance.randrange(32)) for _ in range(20000))


def write(path, text):
    with open(path, "wb") as file:
        file.write(text.encode("utf-8"))


def ids_in(path):
    header = numpy.fromfile(path, dtype=numpy.int32, count=2)
    return numpy.fromfile(path, dtype=numpy.uint16 if header[0] == 20240520 else numpy.uint32, offset=1024)


EVERY = [c for c in range(0x80, 0x110000) if not 0xD800 <= c < 0xE000]


def code_points(ranges):
    """Of "U+0378..U+0379, U+05CD", which may stand in any text."""
    found = set()
    for first, last in re.findall(r"U\+([0-9A-F]{4,6})(?:\.\.U\+([0-9A-F]{4,6}))?", ranges):
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    return found


def classes_tokenizer(path):
    """With GPT-2's pattern and merges that show what is cut where: a letter, a digit and a sign with the first byte of whatever
    follows in the same piece."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    byte_letter = {b: c for c, b in BYTE_OF.items()}
    merges = [(probe, byte_letter[b]) for probe in "a1!" for b in range(0xC2, 0xF5)]
    vocabulary = {token: i for i, token in enumerate([*letters, *(a + b for a, b in merges), END])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.save(path)
    return tokenizer


def check_characters(folder):
    """Which of all code points are letters, digits or white space here and there. Returns those that the library does not know."""
    theirs = classes_tokenizer(folder + "/classes.json")
    probes = [f"a{chr(c)}\n1{chr(c)}\n!{chr(c)}\n" for c in EVERY]
    write(folder + "/classes.jsonl", "".join(json.dumps({"text": probe}) + "\n" for probe in probes))
    run("prepare", "--text", folder + "/classes.jsonl", "--output", folder + "/classes", "--val-fraction", 0, "--tokenizer",
        folder + "/classes.json")
    end = theirs.token_to_id(END)
    ours = ids_in(folder + "/classes/train.bin")
    begins = numpy.flatnonzero(ours == end)
    assert len(begins) == len(EVERY)
    differing = set()
    for first in range(0, len(EVERY), 20000):
        part = theirs.encode_batch_fast(probes[first:first + 20000])
        for i, encoded in enumerate(part, first):
            until = begins[i + 1] if i + 1 < len(begins) else len(ours)
            if encoded.ids != ours[begins[i] + 1:until].tolist():
                differing.add(EVERY[i])
    manifest = json.load(open(folder + "/classes/train.bin.json"))
    unknown = code_points(manifest.get("unknown_characters", ""))
    check("every code point that is cut otherwise than by tokenizers is listed as unknown to the library", differing <= unknown,
          f"{len(differing)} of {len(EVERY)}, {ranges_text(differing - unknown) or 'none'} not listed")
    listed = code_points(open("docs/unicode.md", encoding="utf-8").read())
    check("and docs/unicode.md names it", differing <= listed, ranges_text(differing - listed) or "all")
    return unknown


def ranges_text(characters):
    ranges = []
    for c in sorted(characters):
        if ranges and c == ranges[-1][1] + 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ", ".join(f"U+{a:04X}" + (f"..U+{b:04X}" if a != b else "") for a, b in ranges)


def check_tokens(folder, texts, unknown):
    learn, mixed = folder + "/learn.txt", folder + "/mixed.txt"
    sample = "".join(texts)[:4000000]
    known = [chr(c) for c in [*range(0x80), *EVERY] if c not in unknown]
    text = "".join(texts)[-8000000:] + odd_text(known)
    write(learn, sample)
    write(mixed, text)
    for pattern in ["gpt2", "cl100k", "o200k", "qwen"]:
        ours = folder + "/" + pattern
        run("prepare", "--text", learn, "--output", ours + "-learned", "--val-fraction", 0, "--pattern", pattern)
        run("prepare", "--text", mixed, "--output", ours, "--val-fraction", 0, "--tokenizer", ours + "-learned")
        theirs = Tokenizer.from_file(ours + "/tokenizer.json")
        ids = ids_in(ours + "/train.bin")[1:]
        expected = numpy.array(theirs.encode(text).ids)
        check(f"{pattern}: ids of {len(text.encode()) / 1e6:.1f} MB equal those of tokenizers", numpy.array_equal(ids, expected),
              f"{len(ids)} ids")
        table = tokens_as_bytes(theirs)
        check(f"{pattern}: ids give the text back", b"".join(table[i] for i in ids) == text.encode())

        written = json.load(open(ours + "/tokenizer.json"))["model"]
        trained = Tokenizer(models.BPE())
        trained.pre_tokenizer = theirs.pre_tokenizer
        trained.train_from_iterator([sample], trainers.BpeTrainer(
            vocab_size=len(written["vocab"]) + 1, special_tokens=[END], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        merges = [" ".join(m) if isinstance(m, list) else m for m in json.loads(trained.to_str())["model"]["merges"]]
        check(f"{pattern}: learned merges equal those of tokenizers' trainer", merges == written["merges"], len(merges))


PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHERS = [b for b in range(256) if b not in PRINTABLE]
BYTE_OF = {chr(b): b for b in PRINTABLE} | {chr(256 + n): b for n, b in enumerate(OTHERS)}


def tokens_as_bytes(tokenizer):
    """Every token of the byte alphabet as bytes, by its id."""
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    return [END.encode() if token == END else bytes(BYTE_OF[c] for c in token) for token in tokens]


def check_any_bytes(folder):
    data = random.Random(3).randbytes(300000)
    open(folder + "/noise.txt", "wb").write(data)
    run("prepare", "--text", folder + "/noise.txt", "--output", folder + "/noise", "--val-fraction", 0, "--tokenizer",
        folder + "/gpt2")
    table = tokens_as_bytes(Tokenizer.from_file(folder + "/noise/tokenizer.json"))
    back = b"".join(table[i] for i in ids_in(folder + "/noise/train.bin")[1:])
    check("bytes that are no UTF-8 come back", back == data)


def check_rate(folder, texts):
    """Documents of this machine, by as many threads. Ours reads and writes files as well."""
    rows, size = [], 0
    while size < 40000000:
        rows += texts
        size += sum(len(text.encode()) for text in texts)
    write(folder + "/rate.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in rows))
    tokenizer = Tokenizer.from_file(folder + "/gpt2/tokenizer.json")
    ours, theirs = [], []
    for _ in range(3):
        begin = time.time()
        run("prepare", "--text", folder + "/rate.jsonl", "--output", folder + "/rate", "--val-fraction", 0, "--tokenizer",
            folder + "/gpt2")
        ours.append(size / 1e6 / (time.time() - begin))
        begin = time.time()
        tokenizer.encode_batch_fast(rows)
        theirs.append(size / 1e6 / (time.time() - begin))
    rates = f"{sorted(ours)[1]:.1f} MB/s, tokenizers {sorted(theirs)[1]:.1f} MB/s, {os.cpu_count()} threads each"
    check("rate at least that of tokenizers", sorted(ours)[1] >= sorted(theirs)[1], rates)


def write_tokens(path, ids):
    header = numpy.zeros(256, numpy.int32)
    header[:3] = 20240520, 1, len(ids)
    with open(path, "wb") as file:
        file.write(header.tobytes() + numpy.array(ids, numpy.uint16).tobytes())


def our_loss(model, data, length, folder):
    """Mean loss of the first `length` tokens of a file."""
    run("evaluate", "--init", model, "--val-data", data, "--seq-len", length, "--micro-batch-size", 1, "--micro-batches", 1,
        "--val-batches", 1, "--output", folder, "--overwrite")
    log = [json.loads(line) for line in open(folder + "/log.jsonl")]
    return next(event["loss"] for event in log if event["event"] == "validation")


def check_logits(name, folder, ours, theirs):
    """log-softmax of every token of the vocabulary at the last position: what the loss of a text that ends with the token is
    more than that of the text. (The logits are those but for a constant.)"""
    model = AutoModelForCausalLM.from_pretrained(theirs).eval()
    text = [record_gpt2.token(i) for i in range(record_gpt2.T)]
    with torch.no_grad():
        expected = -model(torch.tensor([text])).logits[0].double().log_softmax(-1)
    before = sum(expected[i, text[i + 1]].item() for i in range(record_gpt2.T - 1))
    worst = 0
    for token in range(record_gpt2.V):
        write_tokens(folder + "/one.bin", text + [token])
        loss = our_loss(ours, folder + "/one.bin", record_gpt2.T, folder + "/evaluated") * record_gpt2.T - before
        worst = max(worst, abs(loss - expected[-1, token].item()))
    check(f"{name}: log-probabilities of all {record_gpt2.V} tokens equal transformers'", worst < 2e-5, f"{worst:.2g}")


def loss_of_transformers(folder, ids):
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids[:-1]])).logits[0]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).item()


def check_models(folder):
    data = folder + "/gpt2-learned"
    sizes = ["--layers", 2, "--heads", 4, "--hidden", 64, "--seq-len", 64, "--max-seq-len", 64]
    model = folder + "/model"
    run("train", "--data", data, *sizes, "--steps", 80, "--learning-rate", "3e-3", "--output", model)
    run("convert", "--init", model, "--output", folder + "/hf")
    ids = [int(i) for i in ids_in(data + "/train.bin")[:65]]
    write_tokens(folder + "/one.bin", ids)
    ours = our_loss(model, folder + "/one.bin", 64, folder + "/evaluated")
    theirs = loss_of_transformers(folder + "/hf", ids)
    check("transformers loads what was exported; its loss is ours", abs(ours - theirs) < 1e-5, f"{ours:.7f} and {theirs:.7f}")
    again = our_loss(folder + "/hf", folder + "/one.bin", 64, folder + "/evaluated")
    check("what was exported is read with the same loss", again == ours, f"{again:.7f}")
    tokenizer = AutoTokenizer.from_pretrained(folder + "/hf")
    check("and its tokenizer", tokenizer(text := "The quick brown fox's 12 caf\u00e9s\n").input_ids ==
          Tokenizer.from_file(folder + "/hf/tokenizer.json").encode(text).ids)
    check_multiple_choice(folder, model, tokenizer)


def check_multiple_choice(folder, model, tokenizer):
    chance = random.Random(4)
    words = open(folder + "/learn.txt", encoding="utf-8").read().split()
    phrase = lambda n: " ".join(words[(at := chance.randrange(len(words) - n)):at + n])
    rows = [{"ctx": phrase(8), "endings": [phrase(chance.randint(1, 9)) for _ in range(4)], "label": chance.randrange(4)}
            for _ in range(50)]
    write(folder + "/questions.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    reference = AutoModelForCausalLM.from_pretrained(folder + "/hf").eval()
    expected = []  # per row: the endings' scores by sum, per token, per byte
    for row in rows:
        scores = []
        for ending in row["endings"]:
            context, rest = tokenizer(row["ctx"]).input_ids, tokenizer(" " + ending).input_ids
            ids = (context + rest)[-65:]
            with torch.no_grad():
                logs = reference(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
            first = max(1, len(ids) - len(rest))
            total = sum(logs[i - 1, ids[i]].item() for i in range(first, len(ids)))
            scores.append((total, total / (len(ids) - first), total / len(ending.encode())))
        expected.append([[score[way] for score in scores] for way in range(3)])
    run("evaluate", "--init", model, "--multiple-choice", folder + "/questions.jsonl", "--seq-len", 64, "--output",
        folder + "/answered")
    log = [json.loads(line) for line in open(folder + "/answered/log.jsonl")]
    ours = [event for event in log if event["event"] == "answer"]
    check("multiple choice answers every row", [event["label"] for event in ours] == [row["label"] for row in rows])
    worst = max(abs(a - b) for event, scores in zip(ours, expected, strict=True)
                for a, b in zip(event["log_probabilities"], scores[0], strict=True))
    check("log-probabilities of 200 endings equal transformers'", worst < 1e-4, f"{worst:.2g}")
    likeliest = lambda scores: max(range(4), key=lambda i: scores[i])
    differing = [f"row {i} {way}" for i, (event, scores) in enumerate(zip(ours, expected))
                 for way, ways in zip(("by_sum", "by_token", "by_byte"), scores) if event[way] != likeliest(ways)]
    check("multiple choice of 50 rows, row by row and in three ways", not differing, ", ".join(differing) or "equal")
    summary = next(event for event in log if event["event"] == "multiple_choice")
    for way in ("by_sum", "by_token", "by_byte"):
        right = sum(event[way] == event["label"] for event in ours)
        check(f"and the share that is right {way.replace('_', ' ')}", summary[way] == right / 50, f"{right} of 50")


def check_training(folder):
    """A random model that transformers saved trains here as it does with PyTorch."""
    model = record_gpt2.make_model()
    model.save_pretrained(folder + "/random")
    losses = record_gpt2.train(model)
    tokens = [record_gpt2.token(i) for i in range(record_gpt2.STEPS * record_gpt2.ROWS * record_gpt2.T + 1)]
    write_tokens(folder + "/tokens.bin", tokens)
    run("train", "--init", folder + "/random", "--train-data", folder + "/tokens.bin", "--seq-len", record_gpt2.T,
        "--micro-batch-size", 2, "--micro-batches", 2, "--shuffle", "false", "--steps", record_gpt2.STEPS, "--learning-rate",
        "1e-2", "--lr-schedule", "constant", "--output", folder + "/trained")
    log = [json.loads(line) for line in open(folder + "/trained/log.jsonl")]
    ours = [event["loss"] for event in log if event["event"] == "step"]
    worst = max(abs(a - b) for a, b in zip(ours, losses, strict=True))
    check("20 losses follow PyTorch's within 5e-5", worst < 5e-5, f"{worst:.2g}")
    check_logits("a random model of transformers", folder, folder + "/random", folder + "/random")
    run("convert", "--init", folder + "/trained", "--output", folder + "/trained-hf")
    check_logits("a model trained here", folder, folder + "/trained", folder + "/trained-hf")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        machine = documents_of_this_machine()
        check_tokens(place, machine, check_characters(place))
        check_any_bytes(place)
        check_rate(place, machine)
        check_models(place)
        check_training(place)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)
