#!/usr/bin/env python3
"""Whole trainings on two cores, each figure a ratio within one turn, then medians over the turns.

 * pipedream on two workers against two one-worker trainings side by side: tokens/s.
 * The time of a step that the simulator predicts from a run's first half against its second half.

usage: tests/bench/pipeline.py PENSTOCK TEXT [TURNS]
"""
import json
import statistics
import subprocess
import sys
import tempfile

STEPS = 60
SETTINGS = [f"training.steps={STEPS}", "training.learning_rate.warmup_steps=4", "validation.every_steps=0"]


def start(penstock, text, method, workers, *more):
    command = [penstock, "train", "examples/shakespeare.yaml", "--data", text, "--method", method,
               "--workers", str(workers), "--device", "cpu", "--json", *more]
    for setting in SETTINGS:
        command += ["--set", setting]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def result(process):
    output, _ = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{' '.join(process.args)} ended with {process.returncode}")
    return json.loads(output)


def percent(value):
    return f"{100 * value:+.1f} %"


def main(directory):
    penstock, text = sys.argv[1:3]
    turns = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    ratios, errors = [], {"1f1b": [], "pipedream": []}
    for turn in range(turns):
        speeds = {}
        for method in errors:
            run = result(start(penstock, text, method, 2, "--timeline", f"{directory}/timeline"))
            speeds[method] = run["tokens_per_second"]
            errors[method].append(run["prediction"]["error"])
        pair = [start(penstock, text, "pipedream", 1) for _ in range(2)]
        together = sum(result(process)["tokens_per_second"] for process in pair)
        ratios.append(speeds["pipedream"] / together)
        print(f"turn {turn + 1}: pipedream on 2 workers {speeds['pipedream']:.0f} tokens/s, two runs side by "
              f"side {together:.0f}, ratio {ratios[-1]:.2f}; measured beyond predicted: "
              + ", ".join(f"{method} {percent(errors[method][-1])}" for method in errors), flush=True)
    print(f"median ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    for method, all_errors in errors.items():
        print(f"median of measured beyond predicted, {method}: {percent(statistics.median(all_errors))} "
              f"({percent(min(all_errors))} to {percent(max(all_errors))})")


with tempfile.TemporaryDirectory() as scratch:
    main(scratch)
