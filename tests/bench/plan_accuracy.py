#!/usr/bin/env python3
"""What `penstock plan` predicts of jobs against what then happens, on emulated devices of unequal speed behind slow
links: the time of a step, the memory of the worker that needs most, and staleness.

Each job is profiled here, planned for a topology whose workers are many times slower than this machine, and trained
as planned by real processes that wait as long as such workers would.

usage: tests/bench/plan_accuracy.py PENSTOCK TEXT
"""
import json
import subprocess
import sys
import tempfile

STEPS = 24

# Name, what is changed in examples/small.yaml, the method, and the workers.
CASES = [
    ("8 blocks, equal workers", ["model.gpt.layers=8"], "1f1b",
     "hosts: [{name: a, workers: [{count: 4, speed: 0.01}]}]"),
    ("6 blocks of width 48, unequal workers", ["model.gpt.layers=6", "model.gpt.width=48"], "zb-h2",
     "hosts: [{name: a, workers: [{speed: 0.02}, {speed: 0.01}, {speed: 0.015}]}]"),
    ("8 blocks, two hosts, slow NICs", ["model.gpt.layers=8"], "pipedream",
     "hosts: [{name: a, count: 2, gigabits: 0.005, workers: [{count: 2, speed: 0.01}]}]"),
    ("4 blocks of width 64, slow path", ["model.gpt.layers=4", "model.gpt.width=64"], "paci",
     "{hosts: [{name: a, gigabits: 1, workers: [{speed: 0.015}, {speed: 0.0075}]}, "
     "{name: b, gigabits: 1, workers: [{speed: 0.015}]}], paths: [{hosts: [a, b], gigabits: 0.005}]}"),
    ("12 blocks, two stages on each worker", ["model.gpt.layers=12"], "interleaved-1f1b",
     "hosts: [{name: a, workers: [{count: 3, speed: 0.0125}]}]"),
]


def penstock(*arguments):
    command = [sys.argv[1], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def percent(measured, predicted):
    return f"{100 * (measured / predicted - 1):+.1f} %"


def judge(directory, name, settings, method, topology):
    with open(f"{directory}/topology.yaml", "w", encoding="utf-8") as file:
        file.write(topology + "\n")
    job = ["examples/small.yaml", "--data", sys.argv[2], "--steps", str(STEPS)]
    for setting in [*settings, "training.learning_rate.warmup_steps=4", "validation.every_steps=0"]:
        job += ["--set", setting]
    files = {key: f"{directory}/{key}.yaml" for key in ("profile", "planned", "times")}
    penstock("profile", *job, "--samples", "1,2,4,8,16,32", "--seconds", "0.05", "--device", "cpu",
             "-o", files["profile"])
    plan = json.loads(penstock(
        "plan", *job, "--profile", files["profile"], "--cluster", f"{directory}/topology.yaml",
        "--methods", method, "--json", "-o", files["planned"], "--times", files["times"]))
    chosen = plan["candidates"][plan["fastest"]]
    run = json.loads(penstock("train", files["planned"], "--device", "cpu", "--json", "--emulate",
                              files["times"], "--timeline", f"{directory}/timeline"))
    step = run["prediction"]["measured_step_seconds"]
    predicted_memory = max(worker["memory_bytes"] for worker in chosen["workers"])
    memory = max(stage["peak_memory_bytes"] for stage in run["per_stage"])
    staleness = max(stage["staleness"]["max"] for stage in run["per_stage"])
    print(f"| {name} | {method} | {chosen['stages']} | {' '.join(map(str, chosen['stage_layers']))} "
          f"| {1e3 * chosen['step_seconds']:.1f} | {1e3 * step:.1f} | {percent(step, chosen['step_seconds'])} "
          f"| {predicted_memory / 1e6:.2f} | {memory / 1e6:.2f} | {percent(memory, predicted_memory)} "
          f"| {chosen['staleness']} | {staleness} |", flush=True)


def main():
    print("| job | method | stages | layers | step predicted, ms | measured | | memory predicted, MB | measured "
          "| | staleness predicted | measured |\n|---|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for case in CASES:
            judge(directory, *case)


main()
