"""Writes a directory of records for `data.records`, with NumPy alone (docs/guides/data.md).

    from write_records import write_records
    write_records("flowers/train", {"image": images, "label": labels})

Entry i of every array is record i. Run as a program it writes a small set to try things with:

    python write_records.py squares/train
"""

import hashlib
import json
import pathlib
import struct
import sys

import numpy as np

TYPES = {np.dtype("uint8"): "U8", np.dtype("<i4"): "I32", np.dtype("<f4"): "F32"}


def safetensors(arrays):
    """The bytes of a safetensors file: the length of the header, the header, the arrays one after the other."""
    header, offset = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": TYPES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in arrays.values())


def write_records(directory, arrays, shard_bytes=256 << 20):
    """Writes arrays, which share their first dimension, to a new directory."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    records = len(next(iter(arrays.values())))
    record_bytes = sum(array[0].nbytes for array in arrays.values())
    count = max(1, shard_bytes // record_bytes)  # of a shard's records
    shards = []
    for first in range(0, records, count):
        shard = {name: np.ascontiguousarray(array[first:first + count]) for name, array in arrays.items()}
        content = safetensors(shard)
        name = f"{len(shards):05}.safetensors"
        (directory / name).write_bytes(content)
        shards.append({"file": name, "records": len(next(iter(shard.values()))),
                       "sha256": hashlib.sha256(content).hexdigest()})
    tensors = {name: {"dtype": TYPES[array.dtype], "shape": list(array.shape[1:])} for name, array in arrays.items()}
    index = {"format": "penstock-records", "tensors": tensors, "shards": shards}
    (directory / "index.json").write_text(json.dumps(index, indent=1))  # last: a directory without it is unfinished


def squares(records, seed=1):
    """Grey images of 8 x 8 with noise and a bright square; the label is the quarter where it is."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 64, (records, 8, 8, 1), dtype=np.uint8)
    labels = random.integers(0, 4, records, dtype=np.int32)
    for image, label in zip(images, labels):
        y, x = 4 * (label // 2), 4 * (label % 2)
        image[y:y + 4, x:x + 4] += 128
    return {"image": images, "label": labels}


if __name__ == "__main__":
    write_records(sys.argv[1], squares(1000))
