#!/usr/bin/env python3
"""Writes the small tokenizers of golden/ and the ids that the packages give, which tokenizer_test checks:

    tests/tokenizer/make_golden.py tests/tokenizer/golden

Needs `pip install tokenizers sentencepiece`.
"""

import io
import json
import pathlib
import sys

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LEARNED = ("The pipe carries water to the turbines, and the water carries the pipe's pressure. It's 1, 12, 123, 1234 pipes; "
           "they'll water the turbines' water again and again.\n") * 5
TEXTS = ["", " ", "the water", "  The pipes carry 12345 waters,\n\n  and they'LL turn; it'ſ so.\r\n \t\u180e x", "naïve café — e\u0301 a\u0323\u0307 가각",
         "水 carries 日本語 ﬁ Ａ", "<s>the<s> water </s>", "\u00a0\u2003 \u0000\u0001 \ufffd \u200d \U0001f468\u200d\U0001f469",
         "ΣΑΣ İstanbul ŒUVRE pressured unpipes!?.,'s don't", "aaaa" * 30]


def finish(tokenizer, folder, name, trainer):
    tokenizer.train_from_iterator([LEARNED], trainer)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])])
    (folder / f"{name}.json").write_text(tokenizer.to_str() + "\n")
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({"text": text, "ids": ids, "framed": tokenizer.encode(text).ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)})
    return cases


def main():
    folder = pathlib.Path(sys.argv[1])
    golden = {}
    special = ["<s>", "</s>", "[UNK]"]
    for name, pattern, nfc, ignore, space in (("gpt2", None, False, False, True), ("llama3", r"\p{N}{1,3}", False, True, False),
                                              ("qwen", r"\p{N}", True, False, False)):
        tokenizer = Tokenizer(models.BPE(ignore_merges=ignore))
        if nfc:
            tokenizer.normalizer = normalizers.NFC()
        cut = pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=pattern is None)
        tokenizer.pre_tokenizer = cut if pattern is None else pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(LETTERS % pattern), "isolated"), cut])
        tokenizer.decoder = decoders.ByteLevel()
        golden[name] = finish(tokenizer, folder, name, trainers.BpeTrainer(
            vocab_size=300, special_tokens=special, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    for name, lowercase in (("uncased", True), ("cased", False)):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        golden[name] = finish(tokenizer, folder, name, trainers.WordPieceTrainer(
            vocab_size=120, special_tokens=special, show_progress=False, initial_alphabet=["水", "ï", "é", "o", "σ"]))
    for name, options in (("unigram", {"model_type": "unigram"}), ("bpe", {"model_type": "bpe"}),
                          ("llama2", {"model_type": "bpe", "byte_fallback": True, "split_digits": True,
                                      "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                                      "user_defined_symbols": ["<x>", "  "]})):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LEARNED.split("\n")[:-1]), model_writer=model,
                                                 vocab_size=330 if name == "llama2" else 60, hard_vocab_limit=False,
                                                 minloglevel=2, num_threads=1, **options)
        (folder / f"{name}.model").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        golden[name] = [{"text": text, "ids": processor.encode(text), "framed": processor.encode(text),
                         "decoded": processor.decode(processor.encode(text))} for text in TEXTS]
    trained = Tokenizer.from_file(str(folder / "gpt2.json"))
    del trained
    (folder / "golden.json").write_text(json.dumps({"learned": LEARNED, "cases": golden}, indent=1) + "\n")


if __name__ == "__main__":
    main()
