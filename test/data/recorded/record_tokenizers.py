"""Records what PyPI's `tokenizers` learns from a small text and makes of odd ones, for test/data/tokenizer_test.cpp.

    pip install tokenizers; python test/data/recorded/record_tokenizers.py > test/data/recorded/tokenizers.json
"""
import json

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

PATTERNS = {
    "gpt2": r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    "cl100k": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    "o200k": r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    "qwen": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
}
LEARN = (
    "The cat sat on the mat. The cats' mats aren't the cat's mats; that's that, they're 12345 of 67890.\n"
    "if (a == b) {\n    return a + b;  // aaaaaaaa bbbb aaaa\n}\n\n\n"
    "Der Käse ist über alle Maße gut. Ο Θεός είναι. Привет, мир! 你好,世界。 \U0001f680\U0001f680 e\u0301e\u0301\r\n"
    "banana bandana banana, ananas and bananas. I'LL we'Ve THAT'S\ttabs\t\tand  spaces   here.\n"
) * 2
TEXTS = [
    LEARN,
    "",
    " ",
    "a",
    "\r\n\r\n  \r\n x",
    "   leading and trailing   ",
    "don't DON'T don\u2019t 'S'LL'\u017f 1 12 123 1234 \u00bd \u0663\u0664",
    "\u180e \u180e\u00a0\u3000x\u2028y\u0085z\u001cw \u200b",
    "zero\u0000one\u0001\u007f",
    "caf\u00e9 cafe\u0301 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "before<|endoftext|>after <|endoftext|>\n<|endoftext|>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 3,
]


def record(pattern, pre_tokenizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([LEARN], trainer)
    written = json.loads(tokenizer.to_str())
    return {
        "pattern": pattern,
        "tokenizer.json": written,
        "ids": [tokenizer.encode(text).ids for text in TEXTS],
    }


recorded = {name: record(regex, pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(regex), "isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
])) for name, regex in PATTERNS.items()}
# GPT-2's own form, in which the pattern goes without saying.
recorded["gpt2"] = record(PATTERNS["gpt2"], pre_tokenizers.ByteLevel(add_prefix_space=False))
print(json.dumps({"learn": LEARN, "texts": TEXTS, "tokenizers": recorded}, ensure_ascii=True))
