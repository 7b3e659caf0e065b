#!/usr/bin/env python3
"""Trains the net of examples/translation in PyTorch on the same pairs, and translates the test part greedily, for sacrebleu.

usage: tests/bench/torch_translation.py PAIRS FOLDER [--steps 11000] [--device cuda]

PAIRS is what `penstock data prepare pairs` wrote. FOLDER then has hypotheses.txt and references.txt, as `penstock evaluate
--decode` writes them. Batches, rates, dropout and first weights are those of examples/translation/translation.yaml, but
for the order of pairs and the random numbers. Needs torch 2, NumPy, safetensors and Debian's `sentencepiece`.
"""
import argparse
import math
import pathlib
import subprocess
import sys
import time

import numpy
import torch
from safetensors.numpy import load_file
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "parity"))
import sequence_models  # pylint: disable=wrong-import-position

LAYERS, HIDDEN, PIECES, TIME = 4, 128, 2000, 16
BATCH, RATE, WARMUP, BUCKETS = 64, 8e-3, 300, 16
BEGIN, END = 2, 3


class Gnmt(sequence_models.Gnmt):
    def encode_both_ways(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = self.encoder.rnn_layers[0](packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0]


def read_pairs(directory):
    """Sources and targets, arrays of pieces without ends."""
    sides = {"source": [], "target": []}
    for file in sorted(directory.glob("*.safetensors")):
        shard = load_file(file)
        for name, side in sides.items():
            side += numpy.split(shard[name], shard[name + ".offsets"][1:-1])
    return sides["source"], sides["target"]


def padded(rows):
    width = max(map(len, rows))
    return torch.from_numpy(numpy.stack([numpy.pad(row, (0, width - len(row))) for row in rows])).long()


def batches_of(sources, targets, random):
    """Batches of similar length, without end."""
    fits = [i for i in range(len(sources)) if len(sources[i]) < TIME and len(targets[i]) < TIME]
    fits.sort(key=lambda i: len(sources[i]) + len(targets[i]))
    while True:
        order = []
        for bucket in numpy.array_split(fits, BUCKETS):
            random.shuffle(bucket)
            order += [bucket[i : i + BATCH] for i in range(0, len(bucket) - BATCH + 1, BATCH)]
        random.shuffle(order)
        yield from order


def train(model, sources, targets, steps, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    batches = batches_of(sources, targets, numpy.random.default_rng(1))
    start, losses = time.monotonic(), []
    for step in range(steps):
        batch = next(batches)
        source = padded([numpy.append(sources[i], END) for i in batch])
        lengths = torch.tensor([len(sources[i]) + 1 for i in batch])
        inputs = padded([numpy.insert(targets[i], 0, BEGIN) for i in batch])
        wanted = padded([numpy.append(targets[i], END) for i in batch])
        done = max(0, step - WARMUP) / (steps - WARMUP)
        rate = RATE * min((step + 1) / WARMUP, 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = model(source.to(device), lengths, inputs.to(device), wanted.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: loss {torch.stack(losses[-100:]).mean():.4f}, {time.monotonic() - start:.0f} s", flush=True)


@torch.no_grad()
def translate(model, sources, device):
    """The likeliest piece at each step. Each is a pass over the prefixes, as short as sources are."""
    lengths = torch.tensor([len(source) + 1 for source in sources])
    memory = model.encode(padded([numpy.append(source, END) for source in sources]).to(device), lengths)
    inputs = torch.full((len(sources), 1), BEGIN, device=device)
    ended = torch.zeros(len(sources), dtype=torch.bool, device=device)
    while inputs.shape[1] <= TIME and not ended.all():
        piece = model.decode(memory, lengths, inputs)[:, -1].argmax(dim=-1)
        ended |= piece == END
        inputs = torch.cat([inputs, torch.where(ended, END, piece)[:, None]], dim=1)
    return [[piece for piece in row[1:] if piece != END] for row in inputs.tolist()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=11000)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Gnmt(LAYERS, HIDDEN, PIECES, label_smoothing=0.1, dropout=0.1)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.1, 0.1)
    nn.init.constant_(model.decoder.att_rnn.attn.g, 1 / math.sqrt(HIDDEN))
    nn.init.zeros_(model.decoder.att_rnn.attn.bias)
    model.to(arguments.device)
    train(model, *read_pairs(arguments.pairs / "train"), arguments.steps, arguments.device)

    model.eval()
    test = arguments.pairs / "test"
    sources, _ = read_pairs(test)
    references = (test / "target.txt").read_text(encoding="utf-8").splitlines()
    fits = sorted((i for i in range(len(sources)) if len(sources[i]) < TIME), key=lambda i: len(sources[i]))
    lines = []
    for first in range(0, len(fits), BATCH):
        lines += translate(model, [sources[i] for i in fits[first : first + BATCH]], arguments.device)
    text = "".join(" ".join(map(str, line)) + "\n" for line in lines)
    decoded = subprocess.run(["spm_decode", f"--model={test / 'pieces.model'}", "--input_format=id"], input=text,
                             capture_output=True, text=True, check=True).stdout
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "hypotheses.txt").write_text(decoded, encoding="utf-8")
    (arguments.folder / "references.txt").write_text("".join(references[i] + "\n" for i in fits), encoding="utf-8")


if __name__ == "__main__":
    main()
