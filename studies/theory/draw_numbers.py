#!/usr/bin/env python3
"""Draws with NumPy what the authors of arXiv 2606.03498 drew for PipeDream in figure 2b.

usage: draw_numbers.py FILE [--stages S...]

FILE is what `penstock theory drawn --data FILE` reads: the rows and targets of the logistic problem, and the noise of all updates for each
number of stages. Their code tries step sizes from 2^-12 on with one generator, so that the noise of 2^-6 is what comes after six runs'
draws. The losses that it stored stand beside the noise. Needs NumPy (packages-parity.txt).
"""
import argparse
import json
import struct

import numpy

ROWS = 50
WIDTH = 512
TICKS = 3180
DEVIATION = 0.5
SMALLER_STEPS = 6
PUBLISHED = {2: "1.0780e-02", 4: "9.5911e-03", 8: "1.3124e-02", 16: "7.5628e-03"}


def write_safetensors(path, tensors, metadata):
    header = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F64", "shape": tensor.shape, "data_offsets": [end, end + tensor.nbytes]}
        end += tensor.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            out.write(tensor.astype("<f8").tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--stages", type=int, nargs="+", default=list(PUBLISHED))
    flags = parser.parse_args()

    draw = numpy.random.default_rng(0)
    features = draw.normal(size=(ROWS, WIDTH))
    truth = draw.normal(size=WIDTH)
    targets = draw.binomial(1, 1 / (1 + numpy.exp(-(features @ truth)))).astype(numpy.float64)
    tensors = {"features": features, "targets": targets}
    metadata = {"l2": "1e-4"}
    for stages in flags.stages:
        microbatches = (TICKS - 2 * (stages - 1) + 1) // 2
        numbers = microbatches * WIDTH
        draw = numpy.random.default_rng(0)
        for _ in range(SMALLER_STEPS):
            draw.normal(scale=DEVIATION, size=numbers)
        tensors[f"noise.{stages}"] = draw.normal(scale=DEVIATION, size=numbers)
        if stages in PUBLISHED:
            metadata[f"published.{stages}"] = PUBLISHED[stages]
    write_safetensors(flags.file, tensors, metadata)


if __name__ == "__main__":
    main()
