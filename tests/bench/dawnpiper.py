#!/usr/bin/env python3
"""DawnPiper's cuts against ours and against none, on four equal workers whose memory is limited more and more.

usage: tests/bench/dawnpiper.py PENSTOCK --graphs [NAME ...]    PipeDream's published profiles, tensor by tensor
       tests/bench/dawnpiper.py PENSTOCK --jobs [NAME ...]      jobs profiled here: the simulated step, and the largest batch
       ... --jobs [NAME ...] --train                            which a real cluster then trains for three steps, as root

Limits are shares of what the worker that needs most takes with the fastest cuts, everything kept. "None" looks at no memory: it has the fastest
cuts and keeps everything.
The published profiles train as PipeDream does, with a version of the weights for each minibatch in flight and Adam's state, on links of
10 Gb/s, and copy 12 GB/s each way to the host. Jobs recompute whole stages, which is what a job can say, and run 1f1b.

With --train the largest batch of each planner is trained by four workers, each in a memory cgroup of its own, whose limit is the plan's and
96 MiB for the process itself. The most that a worker had beyond an idle one is given beside the limit.
"""
import argparse
import functools
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import cluster as clusters  # noqa: E402  (it is beside this folder)

GRAPHS = ("vgg16", "resnet50", "gnmt")
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
JOBS = {
    "gpt": ("gpt: {layers: 8, width: 192, heads: 6, context: 128, tied_head: false}", "synthetic: {}"),
    "vgg16": ("vgg: {depth: 16, hidden: 512, image: {size: 64, classes: 100}}", "synthetic: {}"),
    "resnet50": ("resnet: {depth: 50, image: {size: 64, classes: 100}}", "synthetic: {}"),
    "gnmt": ("gnmt: {layers: 8, hidden: 384, vocabulary: 8000, source_time: 32, target_time: 32}", "synthetic: {}"),
}
MICROBATCHES = 8
SAMPLES = (1, 2, 4, 8, 16, 32)  # of a microbatch, for the largest batch
MIB = 1 << 20
CGROUPS = pathlib.Path("/sys/fs/cgroup/memory/penstock-bench")
# Of each worker beside its plan: what the process of an idle one has (some 50 MiB with its code), and 20 to 30 MiB of compiled kernels, the heaps
# of its threads, and messages on their way.
PROCESS_BYTES = 96 * MIB


def penstock(*arguments):
    done = subprocess.run([OPTIONS.penstock, *arguments], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.stdout.startswith("{") else done.stderr


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def cluster(directory, memory_bytes):
    memory = "" if memory_bytes is None else f", memory_gib: {(memory_bytes + 0.5) / (1 << 30):.12f}"
    return write(f"{directory}/cluster.yaml",
                 f"hosts: [{{name: a, count: 4, gigabits: 10, workers: [{{count: 1{memory}}}]}}]\n")


def cell(milliseconds, best):
    if milliseconds is None:
        return "does not fit"
    return f"{milliseconds:.3f}" if best is None or milliseconds <= best * (1 + 1e-9) else f"{milliseconds:.3f} (+{100 * (milliseconds / best - 1):.1f} %)"


def row(head, none, dawnpiper, ours):
    print(f"| {head} | {cell(none, None)} | {cell(dawnpiper, ours)} | {cell(ours, None)} |", flush=True)
    if dawnpiper is not None and (ours is None or ours > dawnpiper * (1 + 1e-9)):
        print(f"OURS IS WORSE: {head}")


def plan_graph(name, path, *arguments):
    plan = penstock("plan", "--profile", f"tests/planner/graph/profiles/{name}.txt", "--cluster", path, "--json", *arguments)
    return None if isinstance(plan, str) else plan


def judge_graphs(directory, names):
    print("| profile | limit | none, ms | dawnpiper, ms | best-cuts, ms |\n|---|---|---|---|---|")
    for name in names:
        free = plan_graph(name, cluster(directory, None), "--planner", "best-cuts")
        needs = max(stage["memory_bytes"] for stage in free["stages"])
        for share in SHARES:
            path = cluster(directory, share * needs)
            periods = []
            for planner in (("best-cuts", "--no-recompute"), ("dawnpiper",), ("best-cuts",)):
                plan = plan_graph(name, path, "--planner", *planner)
                periods.append(plan and 1e3 * plan["period_seconds"])
            row(f"{name} | {share:.0%} of {needs / 1e9:.2f} GB", *periods)


def plan_job(files, path, planner):
    """The candidates that fit."""
    plan = penstock("plan", files["job"], "--profile", files["profile"], "--cluster", path, "--methods", "1f1b",
                    "--stages", "4", "--planner", planner, "--json", "--all")
    if isinstance(plan, str):
        return []
    return [one for one in plan["candidates"] if "rejected" not in one and one["microbatches"] == MICROBATCHES]


def fastest(runs):
    return min(runs, key=lambda one: one["step_seconds"], default=None)


def memory_of(run):
    return max(worker["memory_bytes"] for worker in run["workers"])


def job_text(name, samples, pipeline="method: 1f1b"):
    model, data = JOBS[name]
    return (f"name: {name}\nmodel: {{{model}}}\ndata: {{{data}}}\n"
            f"training: {{steps: 3, batch: {samples * MICROBATCHES}, microbatches: {MICROBATCHES}, "
            f"optimizer: {{adamw: {{learning_rate: 0.001}}}}}}\npipeline: {{{pipeline}}}\n")


def peak_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise clusters.Trouble(f"process {pid} has no peak")


def train(directory, name, samples, candidate, limit_bytes):
    """Trains the candidate with each worker's memory limited by the system. Returns the MiB that the fullest took."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=directory))
    pipeline = f"method: 1f1b, stage_layers: {candidate['stage_layers']}, recompute: '{candidate['recompute']}'"
    write(folder / "job.yaml", job_text(name, samples, pipeline))
    cluster = clusters.Cluster(pathlib.Path(OPTIONS.penstock).parent, folder, lambda *_: None, workers=4, restarts=False)
    for worker in cluster.workers:
        group = CGROUPS / worker
        group.mkdir(parents=True, exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(int(limit_bytes) + PROCESS_BYTES), encoding="utf-8")
        cluster.commands[worker] = ["sh", "-c", f"echo $$ > {group}/cgroup.procs && exec \"$@\"", "sh", *cluster.commands[worker]]
    with cluster:
        cluster.eventually(lambda: len(cluster.run("workers") or []) == 4, "four workers are there")
        idle = {worker: peak_bytes(cluster.pid(worker)) for worker in cluster.workers}
        job = cluster.await_end(cluster.submit("job"))
        if job["state"] != "succeeded":
            raise clusters.Trouble(f"{name}, {samples} samples: {job['state']}: {job['error'] or job['reason']}")
        return max(peak_bytes(cluster.pid(worker)) - idle[worker] for worker in cluster.workers) / MIB


def largest_batches(directory, name, limit_bytes, plans):
    """The largest batch that each planner has a plan for, and with --train what training it takes."""
    most = {"none": (0, None), "dawnpiper": (0, None), "ours": (0, None)}
    for samples in SAMPLES:
        for planner, run in plans(samples, limit_bytes).items():
            if run:
                most[planner] = (samples, run)
    cells = []
    for samples, run in most.values():
        trained = f", trained in {train(directory, name, samples, run, limit_bytes):.0f} MiB" if OPTIONS.train and samples else ""
        cells.append(f"{samples * MICROBATCHES}{trained}")
    return f"| {name} | {limit_bytes / MIB:.1f} MiB | {' | '.join(cells)} |"


def judge_jobs(directory, names):
    print("| job | limit | none, ms | dawnpiper, ms | ours, ms |\n|---|---|---|---|---|")
    largest = []
    for name in names:
        files = {"job": f"{directory}/job.yaml", "profile": f"{directory}/{name}.yaml"}
        write(files["job"], job_text(name, 4))
        penstock("profile", files["job"], "--samples", ",".join(map(str, SAMPLES)), "--seconds", "0.05", "--device", "cpu",
                 "-o", files["profile"])

        @functools.cache
        def free(samples):
            """The fastest candidate without a limit."""
            write(files["job"], job_text(name, samples))
            runs = [one for one in plan_job(files, cluster(directory, None), "penstock") if one["recompute"] == "none"]
            if not runs:
                raise clusters.Trouble(f"{name}, {samples} samples: there is no plan without a limit")
            return fastest(runs)

        def plans(samples, limit_bytes):
            none = free(samples)
            write(files["job"], job_text(name, samples))
            path = cluster(directory, limit_bytes)
            return {"none": none if memory_of(none) <= limit_bytes else None,
                    "dawnpiper": fastest(plan_job(files, path, "dawnpiper")), "ours": fastest(plan_job(files, path, "penstock"))}

        needs = memory_of(free(4))
        for share in SHARES:
            times = [run and 1e3 * run["step_seconds"] for run in plans(4, share * needs).values()]
            row(f"{name} | {share:.0%} of {needs / MIB:.1f} MiB", *times)
        largest.append(largest_batches(directory, name, needs, plans))
    print("\n| job | limit | none, samples | dawnpiper | ours |\n|---|---|---|---|---|")
    print("\n".join(largest))


PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("penstock")
PARSER.add_argument("--graphs", nargs="*", choices=GRAPHS)
PARSER.add_argument("--jobs", nargs="*", choices=JOBS)
PARSER.add_argument("--train", action="store_true")
OPTIONS = PARSER.parse_args()
with tempfile.TemporaryDirectory() as folder:
    if OPTIONS.graphs is not None:
        judge_graphs(folder, OPTIONS.graphs or GRAPHS)
    if OPTIONS.jobs is not None:
        judge_jobs(folder, OPTIONS.jobs or JOBS)
