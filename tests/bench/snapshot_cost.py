#!/usr/bin/env python3
"""What snapshots in the memory of workers cost where nothing fails.

usage: snapshot_cost.py BUILD [--windows N] [--steps N] [--every N...] [--json FILE]

Trains a GPT of 3.3 million parameters on two workers with one thread each, by turns without snapshots and with one after every
N steps, on the same cluster. Divides the seconds of a step with snapshots by those of the neighbouring windows without them, and prints the
median and the interval that has 95 % of the medians of resampled windows. Also prints the share of the time in which a worker
trained that it stood still for its own copy (and for the copy before, if that was not done), and the CPU seconds that both workers
take for a GB that is copied to a peer.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import cluster as clusters  # noqa: E402  (it is beside this folder)

JOB = """\
name: cost
model:
  gpt: {layers: 4, width: 256, heads: 8, context: 128, tied_head: false}
data:
  text: {path: input.txt, tokenizer: bytes}
training:
  steps: %d
  batch: 16
  microbatches: 4
  optimizer: {adamw: {learning_rate: 1.0e-3}}
  seed: 1
recovery: {mode: %s, snapshot_every_steps: %d}
pipeline: {method: 1f1b, stage_layers: [5, 6]}
"""
FLOATS_PER_PARAMETER = 3  # with the moments of AdamW
BYTES_PER_FLOAT = 4


def cpu_seconds(cluster):
    ticks = 0
    for worker in cluster.workers:
        pid = cluster.lives_of(worker)[-1].process.pid
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def snapshot_bytes(cluster):
    show = [cluster.programs / "penstock", "model", "show", "job.yaml", "--json"]
    model = json.loads(subprocess.run(show, check=True, stdout=subprocess.PIPE, cwd=cluster.folder).stdout)
    return sum(layer["parameters"] for layer in model["layers"]) * FLOATS_PER_PARAMETER * BYTES_PER_FLOAT


class Window:
    """One job, from its start to its end."""

    def __init__(self, cluster, key, every, steps):
        mode = "auto" if every else "\"off\""
        (cluster.folder / "job.yaml").write_text(JOB % (steps, mode, every))
        before = cpu_seconds(cluster)
        job = cluster.await_end(cluster.submit(key))
        if job["state"] != "succeeded":
            raise clusters.Trouble(f"the job has {job['state']}: {job['error']}")
        self.cpu_seconds = cpu_seconds(cluster) - before
        self.step_seconds = job["result"]["wall_seconds"] / steps
        self.weights = job["result"]["weights_sha256"]
        self.copy_share = max(stage["idle_causes"].get("checkpoint", 0) / stage["window_seconds"]
                              for stage in job["result"]["per_stage"])


def interval(values):
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[-51]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--windows", type=int, default=20, help="with snapshots, for each interval")
    parser.add_argument("--steps", type=int, default=24, help="of a window")
    parser.add_argument("--every", type=int, nargs="+", default=[1, 4, 12])
    parser.add_argument("--json")
    flags = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        clusters.write_job(folder, 1, 1)  # its text
        with clusters.Cluster(pathlib.Path(flags.build) / "bin", folder, lambda *_: None) as cluster:
            Window(cluster, "first", 0, flags.steps)
            for every in flags.every:
                plain = [Window(cluster, f"plain-{every}", 0, flags.steps)]
                kept = []
                for number in range(flags.windows):
                    kept.append(Window(cluster, f"kept-{every}-{number}", every, flags.steps))
                    plain.append(Window(cluster, f"plain-{every}-{number}", 0, flags.steps))
                if len({window.weights for window in plain + kept}) != 1:
                    raise clusters.Trouble("snapshots have changed the weights")
                ratios = [with_one.step_seconds / statistics.mean((a.step_seconds, b.step_seconds))
                          for with_one, a, b in zip(kept, plain, plain[1:])]
                low, high = interval(ratios)
                more_cpu = statistics.median(window.cpu_seconds for window in kept) - statistics.median(
                    window.cpu_seconds for window in plain)
                copies = statistics.median(window.copy_share for window in kept)
                gigabytes = 1e-9 * snapshot_bytes(cluster) * ((flags.steps - 1) // every)
                rows.append({"every_steps": every, "windows": flags.windows,
                             "step_seconds": statistics.median(window.step_seconds for window in plain),
                             "ratio": statistics.median(ratios), "low": low, "high": high,
                             "copy_share": copies, "cpu_seconds_per_gb": more_cpu / gigabytes})
                row = rows[-1]
                print(f"every {every} steps of {row['step_seconds']:.3f} s: {100 * (row['ratio'] - 1):+.1f} % "
                      f"({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f}), own copy {100 * copies:.1f} %, "
                      f"{row['cpu_seconds_per_gb']:.1f} CPU seconds per GB", flush=True)
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
