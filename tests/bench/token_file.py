#!/usr/bin/env python3
"""How much memory training takes on a file of tokens that is larger than memory.

usage: token_file.py BUILD [--gigabytes N] [--drained N] [--folder DIR] [--json FILE]

Writes a file of N GB of token ids of two bytes, none of them zero, and a small one. Of each, reads N GB in shuffled order, as the
workers of a job do (data_drain). Then trains a small GPT on each with two workers, and prints the largest peak of a worker's
resident memory (VmHWM: anonymous memory and pages of files). On the large file it trains once more up to a step that is drawn, and goes on from
there with four workers: the weights must be those of the first run, so all batches were the same. Exits with 1 if they are not, or if the large file takes 1.5 times the memory.
"""
import argparse
import array
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import cluster as clusters  # noqa: E402  (it is beside this folder)

VOCABULARY = 8192
BLOCK_TOKENS = 32 << 20
SMALL_TOKENS = 8 << 20
STEPS = 60
RATIO_MAX = 1.5  # of memory, large file to small
JOB = """\
name: tokens
model:
  gpt: {layers: 4, width: 64, heads: 2, context: 128, vocabulary: %d, tied_head: false}
data:
  tokens: {path: %s, format: u16, order: shuffled}
training:
  steps: %d
  batch: 16
  microbatches: 4
  optimizer: {adamw: {learning_rate: 1.0e-3}}
  seed: 7
checkpoint: {directory: %s, every_steps: %d}
pipeline: {method: 1f1b, stages: %d}
"""


def write_tokens(path, tokens, draw):
    """`tokens` ids from 1 on: a block of random ones over and over, from another place each time."""
    block = array.array("H", (1 + draw.randrange(VOCABULARY - 1) for _ in range(1 << 20)))
    block = block * (BLOCK_TOKENS >> 20)
    with open(path, "wb") as file:
        while tokens > 0:
            first = draw.randrange(len(block))
            part = (block[first:] + block[:first])[:tokens]
            part.tofile(file)
            tokens -= len(part)


class Measurement:
    def __init__(self, build, folder):
        self.build = pathlib.Path(build).resolve()
        self.folder = folder
        self.clusters = 0

    def write_job(self, file, steps, stages, checkpoints):
        """Saves after the last step."""
        directory = self.folder / "checkpoints" / checkpoints
        text = JOB % (VOCABULARY, self.folder / file, steps, directory, steps, stages)
        (self.folder / "job.yaml").write_text(text)

    def drain(self, file, gigabytes):
        self.write_job(file, STEPS, 2, "none")
        ran = subprocess.run([self.build / "tests/bench/data_drain", self.folder / "job.yaml", str(int(gigabytes * 1e9))],
                             stdout=subprocess.PIPE, check=True)
        return json.loads(ran.stdout)

    def train(self, file, steps, workers, checkpoints, *arguments):
        """On a cluster that knows of nothing before. Returns the digest of the weights and the largest peak of a worker's memory."""
        self.write_job(file, steps, workers, checkpoints)
        self.clusters += 1
        state = self.folder / f"state-{self.clusters}.sqlite"
        with clusters.Cluster(self.build / "bin", self.folder, lambda *_: None, workers=workers, state=state) as cluster:
            job = cluster.await_end(cluster.submit("job", *arguments))
            peaks = [peak_bytes(cluster.lives_of(worker)[-1].process.pid) for worker in cluster.workers]
        if job["state"] != "succeeded":
            raise clusters.Trouble(f"the job has {job['state']}: {job['error']}")
        return job["result"]["weights_sha256"], max(peaks)


def peak_bytes(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--gigabytes", type=float, default=8.0, help="of the large file")
    parser.add_argument("--drained", type=float, default=2.0, help="GB of each file that are read")
    parser.add_argument("--folder", help="where there is room for the file")
    parser.add_argument("--json")
    flags = parser.parse_args()
    draw = random.Random(time.time_ns())
    with tempfile.TemporaryDirectory(dir=flags.folder) as folder:
        folder = pathlib.Path(folder)
        measurement = Measurement(flags.build, folder)
        write_tokens(folder / "small.bin", SMALL_TOKENS, random.Random(1))
        write_tokens(folder / "large.bin", int(flags.gigabytes * 1e9) // 2, random.Random(2))
        rows = {}
        for file in ("small.bin", "large.bin"):
            drained = measurement.drain(file, 2 * flags.drained)
            weights, peak = measurement.train(file, STEPS, 2, file)
            rows[file] = {"file_bytes": os.path.getsize(folder / file), "drained_file_bytes": drained["bytes"] // 2,
                          "drain_seconds": drained["seconds"], "drain_peak_bytes": drained["peak_resident_bytes"],
                          "worker_peak_bytes": peak, "weights_sha256": weights}
            print(f"{file}: {rows[file]['file_bytes'] / 1e9:.2f} GB; {drained['bytes'] / 2e9:.2f} GB of it read in "
                  f"{drained['seconds']:.1f} s with a peak of {drained['peak_resident_bytes'] / 1e6:.1f} MB; "
                  f"training: {peak / 1e6:.1f} MB", flush=True)
        step = draw.randrange(1, STEPS)
        measurement.train("large.bin", step, 2, "resumed")
        weights, _ = measurement.train("large.bin", STEPS, 4, "resumed", "--resume", "latest")
        same = weights == rows["large.bin"]["weights_sha256"]
        ratios = {key: rows["large.bin"][key] / rows["small.bin"][key] for key in ("drain_peak_bytes", "worker_peak_bytes")}
        print(f"memory, large to small: {ratios['drain_peak_bytes']:.2f} to read, {ratios['worker_peak_bytes']:.2f} to train")
        print(f"after step {step} with four workers instead of two: {'the same weights' if same else 'OTHER WEIGHTS'}")
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps({"files": rows, "ratios": ratios, "resumed_at": step, "same": same},
                                                       indent=2) + "\n")
    if max(ratios.values()) >= RATIO_MAX:
        sys.exit(f"the large file took {max(ratios.values()):.2f} times the memory of the small one; at most {RATIO_MAX} is right")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
