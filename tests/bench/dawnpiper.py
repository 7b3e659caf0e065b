#!/usr/bin/env python3
"""DawnPiper's cuts against ours and against none, on four equal workers whose memory is limited more and more.

usage: tests/bench/dawnpiper.py PENSTOCK --graphs [NAME ...]    PipeDream's published profiles, tensor by tensor
       tests/bench/dawnpiper.py PENSTOCK --jobs [NAME ...]      jobs profiled here: the simulated step, and the largest batch

Limits are shares of what the worker that needs most takes with the fastest cuts, everything kept. "None" keeps everything.
The published profiles train as PipeDream does, with a version of the weights for each minibatch in flight and Adam's state, on links of
10 Gb/s, and copy 12 GB/s each way to the host. Jobs recompute whole stages, which is what a job can say, and run 1f1b.
"""
import argparse
import json
import subprocess
import tempfile

GRAPHS = ("vgg16", "resnet50", "gnmt")
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
JOBS = {
    "gpt": ("gpt: {layers: 8, width: 64, heads: 4, context: 64, tied_head: false}", "synthetic: {}"),
    "vgg16": ("vgg: {depth: 16, hidden: 512, image: {size: 64, classes: 100}}", "synthetic: {}"),
    "resnet50": ("resnet: {depth: 50, image: {size: 64, classes: 100}}", "synthetic: {}"),
    "gnmt": ("gnmt: {layers: 8, hidden: 256, vocabulary: 8000, source_time: 32, target_time: 32}", "synthetic: {}"),
}
MICROBATCHES = 8
SAMPLES = (1, 2, 4, 8, 16)  # of a microbatch, for the largest batch
MIB = 1 << 20


def penstock(*arguments):
    done = subprocess.run([OPTIONS.penstock, *arguments], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.stdout.startswith("{") else done.stderr


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def cluster(directory, memory_bytes):
    memory = "" if memory_bytes is None else f", memory_gib: {memory_bytes / (1 << 30):.12f}"
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


def plan_job(files, path, planner, *arguments):
    """The candidate with the shortest step that fits, or None."""
    plan = penstock("plan", files["job"], "--profile", files["profile"], "--cluster", path, "--methods", "1f1b",
                    "--stages", "4", "--planner", planner, "--json", "--all", *arguments)
    if isinstance(plan, str):
        return None, plan
    runs = [one for one in plan["candidates"]
            if "rejected" not in one and one["microbatches"] == MICROBATCHES]
    return runs, plan


def fastest(runs):
    return min((one["step_seconds"] for one in runs or []), default=None)


def judge_jobs(directory, names):
    print("| job | limit | none, ms | dawnpiper, ms | ours, ms |\n|---|---|---|---|---|")
    largest = []
    for name in names:
        files = {"job": f"{directory}/job.yaml", "profile": f"{directory}/{name}.yaml"}
        model, data = JOBS[name]

        def job(samples):
            write(files["job"], f"name: {name}\nmodel: {{{model}}}\ndata: {{{data}}}\n"
                  f"training: {{steps: 3, batch: {samples * MICROBATCHES}, microbatches: {MICROBATCHES}, "
                  "optimizer: {adamw: {learning_rate: 0.001}}}\npipeline: {method: 1f1b}\n")

        job(4)
        penstock("profile", files["job"], "--samples", ",".join(map(str, SAMPLES)), "--seconds", "0.05", "--device", "cpu",
                 "-o", files["profile"])
        free, said = plan_job(files, cluster(directory, None), "dawnpiper")
        if not free:
            print(said)
            continue
        needs = max(worker["memory_bytes"] for worker in free[0]["workers"])
        for share in SHARES:
            path = cluster(directory, share * needs)
            ours = plan_job(files, path, "penstock")[0] or []
            dawnpiper = plan_job(files, path, "dawnpiper")[0] or []
            times = [fastest([one for one in ours if one["recompute"] == "none"]), fastest(dawnpiper), fastest(ours)]
            row(f"{name} | {share:.0%} of {needs / MIB:.1f} MiB", *(time and 1e3 * time for time in times))
        path = cluster(directory, needs)
        most = {"none": 0, "dawnpiper": 0, "ours": 0}
        for samples in SAMPLES:
            job(samples)
            ours = plan_job(files, path, "penstock")[0] or []
            fits = {"none": any(one["recompute"] == "none" for one in ours),
                    "dawnpiper": bool(plan_job(files, path, "dawnpiper")[0]), "ours": bool(ours)}
            for planner, fit in fits.items():
                if fit:
                    most[planner] = samples * MICROBATCHES
        largest.append(f"| {name} | {needs / MIB:.1f} MiB | {most['none']} | {most['dawnpiper']} | {most['ours']} |")
    print("\n| job | limit | none, samples | dawnpiper | ours |\n|---|---|---|---|---|")
    print("\n".join(largest))


PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("penstock")
PARSER.add_argument("--graphs", nargs="*", choices=GRAPHS)
PARSER.add_argument("--jobs", nargs="*", choices=JOBS)
OPTIONS = PARSER.parse_args()
with tempfile.TemporaryDirectory() as folder:
    if OPTIONS.graphs is not None:
        judge_graphs(folder, OPTIONS.graphs or GRAPHS)
    if OPTIONS.jobs is not None:
        judge_jobs(folder, OPTIONS.jobs or JOBS)
