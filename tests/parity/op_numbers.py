#!/usr/bin/env python3
"""Writes tests/golden/ops/: what PyTorch computes in float64 for each case of the conformance suite of ops.

    tests/parity/op_numbers.py [OP...]

To add a case, add it to tests/parity/ops/OP.py and run this: the file that it writes holds both the case and its
numbers, and the suite (tests/compute/conformance_ops.cc) reads nothing else. An op that has no file yet gets one:

    case("linear", "rows", {"outputs": 5}, [f32(3, 7)], parameters={"weight": (5, 7), "bias": (5,)},
         compute=lambda c, x: F.linear(x, c["weight"], c["bias"]))

`compute` gets a Case and the inputs, [samples, ...] each, and returns the output; of a loss the mean, or the mean and
its predictions. What the suite feeds an op comes from `numbers`, which tests/compute/op_case.cc has, too.
"""

import importlib
import pathlib
import sys

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOSS_SCALE = 0.75
SEED, DRAW, FIRST_SAMPLE = 5, 3, 100  # of the passes

# What numbers are for.
INPUT, PARAMETER, STATE, GRAD_OUTPUT = 1, 100, 400, 500


def hashes(count, purpose):
    """`count` words of 32 bits, fixed by the purpose."""
    with np.errstate(over="ignore"):
        h = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B1)
        h += np.uint32(purpose * 0x85EBCA77 & 0xFFFFFFFF)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return h


def numbers(shape, purpose, scale=1.0):
    """Numbers in (-scale, scale), none of them 0, that a float holds exactly."""
    h = hashes(int(np.prod(shape)), purpose).astype(np.int64) >> 9
    values = ((2 * h + 1) * 2.0**-23 - 1.0) * scale
    return torch.tensor(values, dtype=torch.float64).reshape(tuple(shape))


def philox(key, counters):
    """Philox4x32-10 of rows of four words: four uniform words each."""
    c = [counters[:, i].astype(np.uint64) for i in range(4)]
    key0, key1 = key & 0xFFFFFFFF, key >> 32
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key0), b & low,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key1), a & low]
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=1)


class Input:
    def __init__(self, kind, dims, scale=1.0, below=0):
        self.kind, self.dims, self.scale, self.below = kind, dims, scale, below

    def tensor(self, samples, purpose):
        shape = (samples,) + self.dims
        if self.kind == "f32":
            return numbers(shape, purpose, self.scale)
        h = hashes(int(np.prod(shape)), purpose).astype(np.int64)
        return torch.tensor(h % self.below if self.kind == "i32" else h & 255).reshape(shape)

    def text(self):
        text = " ".join([self.kind] + [str(d) for d in self.dims])
        if self.scale != 1.0:
            text += f" scale {self.scale:g}"
        return text + (f" below {self.below}" if self.kind == "i32" else "")


def f32(*dims, scale=1.0):
    """`scale` is a power of two."""
    return Input("f32", dims, scale=scale)


def i32(*dims, below):
    return Input("i32", dims, below=below)


def u8(*dims):
    return Input("u8", dims)


class Case:
    """What `compute` knows beside the inputs; c["weight"] is a parameter, a buffer or a carried state."""

    def __init__(self, attributes, samples, tensors, training):
        self.attributes, self.samples, self.tensors, self.training = attributes, samples, tensors, training

    def __getitem__(self, name):
        return self.tensors[name]

    def dropout(self, probability, time, width):
        """The factors of compute/cpu/kernels/dropout.h: [samples, time, width]."""
        if not self.training:
            return torch.ones(self.samples, time, width, dtype=torch.float64)
        groups = (width + 63) // 64
        sample, step, column = np.meshgrid(
            np.arange(self.samples), np.arange(time), np.arange(64 * groups), indexing="ij")
        lane = (step * groups + column // 64) * 16 + column % 16
        counters = np.stack([lane, np.full_like(lane, DRAW), sample + FIRST_SAMPLE, np.zeros_like(lane)], axis=-1)
        words = philox(SEED ^ 0x64726F706F757421, counters.reshape(-1, 4))
        word = np.take_along_axis(words, (column.reshape(-1, 1) % 64) // 16, axis=1).reshape(lane.shape)
        kept = word[:, :, :width] >= round(probability * 2.0**32 * (1 - 2.0**-32))
        return torch.tensor(kept.astype(np.float64)) / (1.0 - probability)


CASES = []


def case(op, name, attributes, inputs, compute, parameters={}, buffers={}, states={}, samples=2, numbers=0,
         library=False):
    """Adds one. `parameters`: shapes in the op's order. `buffers`: their new contents, by a function of Case and
    inputs; in `compute` c[name] is their initial content. `states`: the same of what is carried, with its shape for one
    sample in the place of the content, which is [samples, ...]. `numbers`: others, where an input lies so near a kink that
    differences go across. `library`: products of a library, whose bits depend on the number of threads."""
    CASES.append(dict(op=op, name=name, attributes=attributes, inputs=inputs, compute=compute, parameters=parameters,
                      buffers=buffers, states=states, samples=samples, numbers=numbers, library=library))


def yaml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def values(what, tensor):
    flat = tensor.detach().reshape(-1)
    lines = [f"{what}:" + "".join(f" {d}" for d in tensor.shape)]
    for first in range(0, len(flat), 8):
        lines.append("  " + " ".join(f"{v:.9g}" for v in flat[first:first + 8].tolist()))
    return "\n".join(lines) + "\n"


def text_of(c):
    salt = 10000 * c["numbers"]
    inputs = [spec.tensor(c["samples"], salt + INPUT + i) for i, spec in enumerate(c["inputs"])]
    for tensor in inputs:
        tensor.requires_grad_(tensor.is_floating_point())
    tensors = {}
    for p, (name, shape) in enumerate(c["parameters"].items()):
        tensors[name] = numbers(shape, salt + PARAMETER + p).requires_grad_()
    for name, (initial, _) in c["buffers"].items():
        tensors[name] = initial
    for b, (name, (shape, _)) in enumerate(c["states"].items()):
        tensors[name] = numbers((c["samples"],) + shape, salt + STATE + b)
    training = Case(c["attributes"], c["samples"], tensors, True)
    result = c["compute"](training, *inputs)
    output, predictions = result if isinstance(result, tuple) else (result, None)
    is_loss = output.dim() == 0
    upstream = torch.tensor(LOSS_SCALE, dtype=torch.float64) if is_loss else numbers(output.shape, salt + GRAD_OUTPUT)
    if output.requires_grad:
        output.backward(upstream)

    text = f"case: {c['name']}\n"
    for name, value in c["attributes"].items():
        text += f"attribute: {name} {yaml(value)}\n"
    for spec in c["inputs"]:
        text += f"input: {spec.text()}\n"
    text += f"samples: {c['samples']}\n"
    if c["numbers"]:
        text += f"numbers: {c['numbers']}\n"
    if c["library"]:
        text += "library: true\n"
    text += values("output", output)
    if predictions is not None:
        text += values("predictions", predictions)
    with torch.no_grad():
        evaluated = c["compute"](Case(c["attributes"], c["samples"], tensors, False), *inputs)
    evaluated = evaluated[0] if isinstance(evaluated, tuple) else evaluated
    if not torch.equal(evaluated, output.detach()):
        text += values("evaluation", evaluated)
    for i, tensor in enumerate(inputs):
        if tensor.requires_grad:
            text += values(f"gradient of input {i}", tensor.grad)
    for name in c["parameters"]:
        text += values(f"gradient of {name}", tensors[name].grad)
    for name, (_, update) in [*c["buffers"].items(), *c["states"].items()]:
        text += values(f"buffer {name}", update(training, *inputs))
    return text


def main():
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    sys.modules["op_numbers"] = sys.modules["__main__"]
    for file in sorted(pathlib.Path(__file__).parent.glob("ops/*.py")):
        importlib.import_module(f"ops.{file.stem}")
    wanted = set(sys.argv[1:])
    for op in sorted({c["op"] for c in CASES}):
        if wanted and op not in wanted:
            continue
        text = "\n".join(text_of(c) for c in CASES if c["op"] == op)
        (ROOT / "tests/golden/ops" / f"{op}.txt").write_text(
            "# Written by tests/parity/op_numbers.py with PyTorch in float64.\n\n" + text)


if __name__ == "__main__":
    main()
