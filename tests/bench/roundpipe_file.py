#!/usr/bin/env python3
"""RoundPipe with weights and optimizer's state in files: four workers train a GPT whose state is five times what the system lets each have.

usage: tests/bench/roundpipe_file.py PENSTOCK [--directory DIR] [--width N] [--layers N] [--microbatches N] [--steps N] [--stages-per-forward N]
       [--keep DIR]      as root, for the memory cgroups

Weights, gradients and AdamW's state are 16 bytes for each parameter. A fifth of them is what each worker may take beyond an idle one, which the
system enforces by a memory cgroup for each, from the start of the job on: through first weights, training, validation and a checkpoint, and through a
second job that resumes it and trains on. The same jobs run without limits first, with the weights streamed from memory and with them in files.

The serial reference trains the same jobs in one process.

Given for each: the most that a worker's process had beyond an idle one (VmHWM), and of its pool, beside what was predicted of it; tokens per
second of both jobs; the bytes that all workers sent; and digests of the weights, which must be those of the reference. DIR has the files: a disk, not memory.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import cluster as clusters  # noqa: E402  (it is beside this folder)

WORKERS = 4
CONTEXT = 64
BYTES_OF_PARAMETER = 16  # weight, gradient, and two numbers of AdamW
MIB = 1 << 20
CGROUPS = pathlib.Path("/sys/fs/cgroup/memory/penstock-roundpipe-file")


def parameters(layers, width):
    """Of a byte GPT without a tied head: the blocks, the tables of tokens and positions, the last norm and the head."""
    return layers * (12 * width * width + 13 * width) + (256 + CONTEXT) * width + 2 * width + 256 * width


def job_text(mode, steps, resume, folder):
    stages = 2 * OPTIONS.layers + 3  # one for each layer, of which a block has two
    stream = "on" if mode == "streamed" else "file"
    resumes = ", resume: latest" if resume else ""
    return f"""\
name: roundpipe-file
model: {{gpt: {{layers: {OPTIONS.layers}, width: {OPTIONS.width}, heads: 8, context: {CONTEXT}, tied_head: false}}}}
data: {{text: {{path: input.txt, tokenizer: bytes, validation_fraction: 0.1}}}}
training: {{steps: {steps}, batch: {OPTIONS.microbatches}, microbatches: {OPTIONS.microbatches}, optimizer: {{adamw: {{learning_rate: 0.001}}}}, seed: 1}}
validation: {{every_steps: {OPTIONS.steps}, batches: 1}}
checkpoint: {{directory: {folder}/checkpoints, every_steps: {OPTIONS.steps}{resumes}}}
recovery: {{wait_seconds: 600}}
pipeline: {{method: roundpipe, stages: {stages}, workers: {WORKERS}, stage_layers: {[1] * stages}, stream_weights: "{stream}",
           stages_per_forward: {OPTIONS.stages_per_forward}}}
"""


def of_process(pid, what):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(what):
            return int(line.split()[1]) << 10
    raise clusters.Trouble(f"process {pid} has no {what}")


def in_group(cluster, worker):
    group = CGROUPS / worker
    group.mkdir(parents=True, exist_ok=True)
    cluster.commands[worker] = ["sh", "-c", f"echo $$ > {group}/cgroup.procs && exec \"$@\"", "sh", *cluster.commands[worker]]
    return group


def train(mode, limit_bytes):
    """Both jobs. Prints what they took."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=OPTIONS.directory))
    clusters.write_job(folder, 1, 1)
    cluster = clusters.Cluster(pathlib.Path(OPTIONS.penstock).parent, folder, lambda *_: None, workers=WORKERS, restarts=False,
                               worker_flags=("--offload-dir", OPTIONS.directory))
    groups = {} if limit_bytes is None else {worker: in_group(cluster, worker) for worker in cluster.workers}
    with cluster:
        cluster.eventually(lambda: len(cluster.run("workers") or []) == WORKERS, "four workers are there")
        idle = {worker: of_process(cluster.pid(worker), "VmHWM:") for worker in cluster.workers}
        for worker, group in groups.items():
            (group / "memory.limit_in_bytes").write_text(str(idle[worker] + limit_bytes), encoding="utf-8")
        jobs = []
        for number, steps in enumerate((OPTIONS.steps, 2 * OPTIONS.steps)):
            (folder / "job.yaml").write_text(job_text(mode, steps, number > 0, folder), encoding="utf-8")
            job = await_end(cluster, cluster.submit(f"job-{number}"))
            if job["state"] != "succeeded":
                raise clusters.Trouble(f"{mode}: {job['state']}: {job['error'] or job['reason']}")
            jobs.append(job)
            if OPTIONS.keep:
                pathlib.Path(OPTIONS.keep, f"{mode}-{limit_bytes}-{number}.json").write_text(json.dumps(job), encoding="utf-8")
        peak = max(of_process(cluster.pid(worker), "VmHWM:") - idle[worker] for worker in cluster.workers)
    print_row(mode, limit_bytes, peak, jobs)
    return [job["result"]["weights_sha256"] for job in jobs]


def train_reference():
    """The digests of both jobs' weights. The second goes on from the first, as the reference does if it trains all steps at once."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=OPTIONS.directory))
    clusters.write_job(folder, 1, 1)
    digests = []
    for steps in (OPTIONS.steps, 2 * OPTIONS.steps):
        (folder / "job.yaml").write_text(job_text("streamed", steps, False, folder), encoding="utf-8")
        done = subprocess.run([OPTIONS.penstock, "train", folder / "job.yaml", "--reference", "--device", "cpu", "--json"],
                              stdout=subprocess.PIPE, check=True, text=True)
        digests.append(json.loads(done.stdout)["weights_sha256"])
    print(json.dumps({"mode": "reference", "weights_sha256": digests}), flush=True)
    return digests


def await_end(cluster, job_id):
    return cluster.eventually(lambda: (job := cluster.job(job_id)) and job["ended_unix_ms"] is not None and job,
                              "the job has ended", seconds=3600)


def print_row(mode, limit_bytes, peak, jobs):
    stages = [stage for job in jobs for stage in job["result"]["per_stage"]]
    pool = max(stage["peak_memory_bytes"] for stage in stages)
    predicted = max(stage["predicted_memory_bytes"] for stage in stages)
    sent = sum(stage["bytes_sent"] - stage.get("validation_bytes_sent", 0) for stage in stages)
    print(json.dumps({"mode": mode, "limit_mib": limit_bytes and limit_bytes / MIB, "peak_mib": peak / MIB, "pool_mib": pool / MIB,
                      "predicted_mib": predicted / MIB, "tokens_per_second": [job["result"]["tokens_per_second"] for job in jobs],
                      "bytes_sent": sent, "weights_sha256": [job["result"]["weights_sha256"] for job in jobs],
                      "validation_loss": [job["result"]["validation_loss"] for job in jobs]}), flush=True)


PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("penstock")
PARSER.add_argument("--directory", default="/var/tmp")
PARSER.add_argument("--width", type=int, default=384)
PARSER.add_argument("--layers", type=int, default=36)
PARSER.add_argument("--microbatches", type=int, default=4)
PARSER.add_argument("--steps", type=int, default=2)
PARSER.add_argument("--stages-per-forward", type=int, default=1)
PARSER.add_argument("--keep", help="a directory for what the jobs report")
OPTIONS = PARSER.parse_args()
state = BYTES_OF_PARAMETER * parameters(OPTIONS.layers, OPTIONS.width)
LIMIT = state // 5
print(f"state {state / MIB:.1f} MiB, weights {state / 4 / MIB:.1f} MiB, limit {LIMIT / MIB:.1f} MiB", flush=True)
reference = train_reference()
same = [train(name, limit) == reference for name, limit in (("file", LIMIT), ("file", None), ("streamed", None))]
if not all(same):
    sys.exit("the weights are not those of the reference")
