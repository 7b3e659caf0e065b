"""Reads what model_dump wrote."""

import numpy as np
import torch


def read_arrays(directory, file, names):
    values = np.fromfile(directory / file, dtype=np.float32)
    arrays, at = {}, 0
    for line in (directory / names).read_text().splitlines():
        name, *shape = line.split()
        shape = [int(size) for size in shape]
        count = int(np.prod(shape))
        # What two layers share is there twice; the first has the sum of both gradients.
        arrays.setdefault(name, torch.from_numpy(values[at : at + count].reshape(shape).copy()))
        at += count
    assert at == len(values), (at, len(values))
    return arrays


class Data:
    def __init__(self, directory):
        self.config = dict(line.split() for line in (directory / "config.txt").read_text().splitlines())
        self.steps, self.microbatches, self.samples = (
            int(self.config[key]) for key in ("steps", "microbatches", "samples"))
        self.ports = {}
        for line in (directory / "ports.txt").read_text().splitlines():
            name, kind, *dims = line.split()
            values = np.fromfile(directory / f"port_{name}.bin", dtype={"f32": "f4", "i32": "i4", "u8": "u1"}[kind])
            shape = (self.steps, self.microbatches, self.samples, *(int(dim) for dim in dims))
            values = torch.from_numpy(values.reshape(shape))
            self.ports[name] = values.long() if kind == "i32" else values

    def microbatch(self, step, m, dtype):
        """Ids stay whole numbers; all else is of `dtype`."""
        return {name: values[step, m] if values.dtype == torch.int64 else values[step, m].to(dtype)
                for name, values in self.ports.items()}
