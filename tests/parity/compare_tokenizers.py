#!/usr/bin/env python3
"""Compares tokenizers with the packages `tokenizers` and `sentencepiece`, on vocabularies that these train here.

    tests/parity/compare_tokenizers.py build/release/tests/parity/tokenize TEXT [MEGABYTES [NAME]]

Makes a text of MEGABYTES (10), half of it TEXT, repeated, and half hostile Unicode (`hostile` below), trains vocabularies of
8000 on a part of it (SentencePiece's with less of the hostile half), and prints for each tokenizer whether all ids and the decoded text are equal, and both speeds: the fastest of
three runs of each in one process, so that words of the text are known to those that remember words; one thread. SentencePiece gets the text line by line. Hostile characters are those that
the packages' versions of Unicode and ours say the same of. Exits with 1 if ids or decoded texts differ. Needs `pip install tokenizers sentencepiece numpy`.
"""

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
VOCABULARY = 8000


def classes_agree():
    """The characters that the package, PCRE2 and Unicode 14 say the same of: later versions of Unicode assigned the others."""
    bert = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    codes = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000 and c != 0xFFFD]
    text = "!".join(chr(c) for c in codes)

    def split(pattern):
        pieces = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)
        return {piece for piece, _ in pieces}

    letters, numbers = split(r"\p{L}"), split(r"\p{N}")
    marks = set(text) - set(bert.normalize_str(text))
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    control = set(text) - set(clean.normalize_str(text))
    punctuation = {p for p, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str("a".join(chr(c) for c in codes))}
    agreed = []
    for code in codes:
        c = chr(code)
        category = unicodedata.category(c)
        if category == "Cn" and code < 0x40000:
            continue  # utf8proc may have it, of Unicode 15
        is_punctuation = category[0] == "P" or (33 <= code < 127 and not c.isalnum())
        is_control = category in ("Cc", "Cf", "Co") and c not in "\t\n\r"
        if ((category[0] == "L") == (c in letters) and (category[0] == "N") == (c in numbers)
                and is_punctuation == (c in punctuation)
                and (is_control or c.isspace() or (c in control) == False)
                and (not is_control or c in control or c.isspace())
                and (category != "Mn" or c in marks) and (category == "Mn" or c not in marks or c == "\x00"
                                                          or unicodedata.decomposition(c))
                and c.lower() == normalizers.Lowercase().normalize_str(c)):
            agreed.append(c)
    return agreed


def hostile(characters, count, seed):
    """Runs of random characters, of one block, of white space, of marks on marks, of a character repeated, words of both."""
    rng = random.Random(seed)
    spaces = [c for c in characters if c.isspace()]
    marks = [c for c in characters if unicodedata.category(c) == "Mn"]
    ascii_characters = [chr(c) for c in range(1, 128)]
    parts, size = [], 0
    while size < count:
        kind = rng.randrange(8)
        length = rng.choice((1, 2, 3, 5, 8, 13, 40, 200))
        if kind == 0:
            part = "".join(rng.choices(characters, k=length))
        elif kind == 1:
            start = rng.randrange(len(characters))
            part = "".join(rng.choices(characters[start:start + 100], k=length))
        elif kind == 2:
            part = "".join(rng.choices(spaces, k=length))
        elif kind == 3:
            part = rng.choice("aeiounAKS가ā") + "".join(rng.choices(marks, k=min(length, 13)))
        elif kind == 4:
            part = rng.choice(characters) * length
        elif kind == 5:
            part = "".join(rng.choices(ascii_characters, k=length))
        elif kind == 6:
            part = rng.choice(("'S", "'ſ", "'LL", "'ve", "<|endoftext|>", "[MASK]", "##", "▁", "\u200d", "\r\n\r\n", "  \n", " \u180e ")) * rng.choice((1, 1, 3))
        else:
            part = " " + "".join(rng.choices("ΣσςİıßŒǅＡ０½①٣१四五", k=length))
        parts.append(part)
        size += len(part.encode())
    return "".join(parts)


def byte_level(sample, pattern, **options):
    tokenizer = Tokenizer(models.BPE(ignore_merges=options.get("ignore_merges", False)))
    if options.get("nfc"):
        tokenizer.normalizer = normalizers.NFC()
    byte_cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    cuts = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts + [byte_cut]) if cuts else byte_cut
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([sample], trainer)
    return tokenizer


def word_piece(sample, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, show_progress=False,
                                        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.train_from_iterator([sample], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def pieces(sample, **options):
    model = io.BytesIO()
    lines = [line[:1000] for line in sample.replace("\x00", " ").split("\n") if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=VOCABULARY, num_threads=1,
        minloglevel=2, hard_vocab_limit=False, **options)
    return model.getvalue()


def fastest(run):
    times = []
    for _ in range(3):
        began = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - began)
    return result, min(times)


def main():
    program, source = sys.argv[1:3]
    half = int(float(sys.argv[3] if len(sys.argv) > 3 else 10) * 500_000)
    plain = pathlib.Path(source).read_text()
    plain = (plain * (half // len(plain) + 1))[:half]
    characters = classes_agree()
    text = plain + hostile(characters, half, seed=1)
    sample = plain[:600_000] + hostile(characters, 300_000, seed=2)
    calm = plain[:600_000] + hostile(characters, 15_000, seed=2)  # SentencePiece needs a piece for each character
    print(f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}, "
          f"{len(text.encode()) / 1e6:.1f} MB, hostile characters from {len(characters)}")
    print(f"{'tokenizer':28} {'ids':>9} {'equal':>6} {'decoded':>8} {'MB/s':>7} {'package':>8} {'times':>6}")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text").write_text(text, newline="")
        only = sys.argv[4] if len(sys.argv) > 4 else ""
        cases = [
            ("GPT-2", "json", lambda: byte_level(sample, None)),
            ("Llama 3", "json", lambda: byte_level(sample, LETTERS % r"\p{N}{1,3}", ignore_merges=True)),
            ("Qwen", "json", lambda: byte_level(sample, LETTERS % r"\p{N}", nfc=True)),
            ("WordPiece, uncased", "json", lambda: word_piece(sample, True)),
            ("WordPiece, cased", "json", lambda: word_piece(sample, False)),
            ("SentencePiece unigram", "model", lambda: pieces(calm, model_type="unigram")),
            ("SentencePiece BPE", "model", lambda: pieces(calm, model_type="bpe")),
            ("SentencePiece BPE, Llama 2's", "model", lambda: pieces(
                calm, model_type="bpe", byte_fallback=True, split_digits=True, normalization_rule_name="identity",
                remove_extra_whitespaces=False, user_defined_symbols=["<|endoftext|>", "  "])),
        ]
        if not only:
            (folder / "sample").write_text(sample, newline="")
            ran = subprocess.run([program, "--train", str(VOCABULARY), folder / "sample", folder / "trained.json"], text=True,
                                 capture_output=True, check=True)
            began = time.perf_counter()
            theirs = byte_level(sample, None)
            took = time.perf_counter() - began
            same = json.loads((folder / "trained.json").read_text())["model"] == json.loads(theirs.to_str())["model"]
            Tokenizer.from_file(str(folder / "trained.json"))
            failed |= not same
            print(f"training, {VOCABULARY} tokens: vocabulary and merges {'equal' if same else 'DIFFER'}, {float(ran.stdout):.2f} s, "
                  f"package {took:.2f} s", flush=True)
        for name, kind, make in cases:
            if not name.startswith(only):
                continue
            made = make()
            path = folder / f"tokenizer.{kind}"
            if kind == "json":
                made.save(str(path))
                # A Tokenizer that was loaded, as users have it.
                made = Tokenizer.from_file(str(path))
                encode = lambda: [made.encode(text, add_special_tokens=False).ids]
                decode = lambda ids: made.decode(ids, skip_special_tokens=False)
            else:
                path.write_bytes(made)
                processor = sentencepiece.SentencePieceProcessor(model_proto=made)
                lines = text.split("\n")
                encode = lambda: processor.encode(lines, num_threads=1)
                decode = processor.decode
            encoded, theirs = fastest(encode)
            expected = [i for line in encoded for i in line]
            ran = subprocess.run([program, path, folder / "text", folder / "ids", folder / "decoded"], text=True,
                                 capture_output=True)
            if ran.returncode != 0:
                print(f"{name:28} {ran.stderr.strip()}")
                failed = True
                continue
            ours = float(ran.stdout)
            ids = memoryview((folder / "ids").read_bytes()).cast("i").tolist()
            decoded = (folder / "decoded").read_bytes().decode(errors="replace") == decode(expected)
            megabytes = len(text.encode()) / 1e6
            failed |= ids != expected or not decoded
            print(f"{name:28} {len(expected):9} {'yes' if ids == expected else 'NO':>6} {'yes' if decoded else 'no':>8} "
                  f"{megabytes / ours:7.1f} {megabytes / theirs:8.2f} {theirs / ours:6.1f}", flush=True)
            if ids != expected:
                at = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
                print("   first difference at", at, ids[at - 2:at + 6], expected[at - 2:at + 6],
                      ascii(decode(expected[at - 2:at + 6])), ascii(decode(ids[at - 2:at + 6])))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
