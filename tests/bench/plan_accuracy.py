#!/usr/bin/env python3
"""What `penstock plan` predicts of jobs against what then happens: the time of a step, the memory of each worker, the
bytes that it sends, and staleness.

Without `--families`: GPTs on emulated devices of unequal speed behind slow links. Each job is profiled here, planned for a
topology whose workers are many times slower than this machine, and trained as planned by real processes that wait as
long as such workers would.

With `--families`: models with other layers than a GPT's, on two real workers of one thread each, and on four emulated ones.

usage: tests/bench/plan_accuracy.py PENSTOCK TEXT
       tests/bench/plan_accuracy.py PENSTOCK --families [NAME ...] [--workers 2|4] [--runs 5] [--precision f32|bf16]
"""
import argparse
import json
import statistics
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


# A job of each family. Images are small, so that a step takes a part of a second.
FAMILIES = {
    "resnet50": "resnet: {depth: 50, image: {size: 64, classes: 100}}",
    "vgg16": "vgg: {depth: 16, hidden: 512, image: {size: 64, classes: 100}}",
    "gnmt": "gnmt: {layers: 8, hidden: 256, vocabulary: 8000, source_time: 32, target_time: 32}",
    "unet": """layers:
    - input: {image: {u8: [64, 64, 3]}, label: {i32: []}}
    - image: {of: image}
    - conv2d: {channels: 24, kernel: 3, padding: 1, name: outer}
    - relu
    - max_pool: {kernel: 2, stride: 2}
    - conv2d: {channels: 48, kernel: 3, padding: 1, name: inner}
    - batch_norm
    - relu: {name: inner_out}
    - conv2d: {channels: 48, kernel: 3, padding: 1, name: bottom}
    - relu: {name: bottom_out}
    - concat: {of: [bottom_out, inner_out], name: up}
    - conv2d: {channels: 24, kernel: 1, name: mix}
    - group_norm: {groups: 2, name: mixed}
    - max_pool: {of: outer, kernel: 2, stride: 2, name: outer_small}
    - concat: {of: [mixed, outer_small], name: all}
    - conv2d: {channels: 16, kernel: 3, stride: 4}
    - flatten
    - linear: {outputs: 10}
    - cross_entropy: {targets: label}""",
}
JOB = """name: {name}
model:
  {model}
data: {{synthetic: {{}}}}
training:
  steps: {steps}
  batch: 16
  microbatches: 4
  optimizer: {{sgd: {{learning_rate: 0.001, momentum: 0.9}}}}
  precision: {precision}
pipeline: {{method: {method}}}
"""
# Workers, whether they are emulated, and their cluster. Emulated ones are so slow that the real arithmetic of all four hides.
PLACES = {
    2: (False, "hosts: [{name: a, workers: [{count: 2}]}]"),
    4: (True, "hosts: [{name: a, gigabits: 1, workers: [{count: 4, speed: 0.1}]}]"),
}


def penstock(*arguments):
    command = [OPTIONS.penstock, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def percent(measured, predicted):
    return f"{100 * (measured / predicted - 1):+.1f} %"


def judge(directory, name, settings, method, topology):
    with open(f"{directory}/topology.yaml", "w", encoding="utf-8") as file:
        file.write(topology + "\n")
    job = ["examples/small.yaml", "--data", OPTIONS.text, "--steps", str(STEPS)]
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


def judge_family(directory, name, method, precision, workers):
    is_emulated, cluster = PLACES[workers]
    files = {key: f"{directory}/{key}.yaml" for key in ("job", "cluster", "profile", "planned", "times")}
    with open(files["job"], "w", encoding="utf-8") as file:
        file.write(JOB.format(name=name, model=FAMILIES[name], method=method, precision=precision,
                              steps=8 if is_emulated else STEPS))
    with open(files["cluster"], "w", encoding="utf-8") as file:
        file.write(cluster + "\n")
    penstock("profile", files["job"], "--samples", "4", "--seconds", "0.5", "--device", "cpu",
             "--workers", "1" if is_emulated else str(workers), "-o", files["profile"])
    plan = json.loads(penstock(
        "plan", files["job"], "--profile", files["profile"], "--cluster", files["cluster"], "--methods", method,
        "--stages", str(workers), "--json", "-o", files["planned"], "--times", files["times"]))
    chosen = plan["candidates"][plan["fastest"]]
    emulate = ["--emulate", files["times"]] if is_emulated else []
    runs = [json.loads(penstock("train", files["planned"], "--device", "cpu", "--json", *emulate))["feedback"]["measured"]
            for _ in range(OPTIONS.runs)]
    step = statistics.median(run["step_seconds"] for run in runs)
    used = runs[0]["workers"]
    memory = max((abs(real["memory_bytes"] / worker["memory_bytes"] - 1), real["memory_bytes"], worker["memory_bytes"])
                 for worker, real in zip(chosen["workers"], used))
    bytes_differ = [(worker["sent_bytes_per_step"], real["sent_bytes_per_step"])
                    for worker, real in zip(chosen["workers"], used)
                    if worker["sent_bytes_per_step"] != real["sent_bytes_per_step"]]
    print(f"| {name} | {precision} | {method} | {workers}{' emulated' if is_emulated else ''} "
          f"| {' '.join(map(str, chosen['stage_layers']))}{' reordered' if chosen['layer_order'] else ''} "
          f"| {1e3 * chosen['step_seconds']:.1f} | {1e3 * step:.1f} | {percent(step, chosen['step_seconds'])} "
          f"| {memory[2] / 1e6:.2f} | {memory[1] / 1e6:.2f} | {percent(memory[1], memory[2])} "
          f"| {bytes_differ or 'equal'} |", flush=True)


def judge_families(directory):
    print("| model | precision | method | workers | layers | step predicted, ms | measured | | memory predicted, MB | measured | "
          "| bytes sent |\n|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name in OPTIONS.families or FAMILIES:
        for precision in [OPTIONS.precision] if OPTIONS.precision else ("f32", "bf16"):
            for workers in [OPTIONS.workers] if OPTIONS.workers else PLACES:
                for method in ("1f1b", "pipedream"):
                    judge_family(directory, name, method, precision, workers)


def judge_gpts(directory):
    print("| job | method | stages | layers | step predicted, ms | measured | | memory predicted, MB | measured "
          "| | staleness predicted | measured |\n|---|---|---|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        judge(directory, *case)


def main():
    with tempfile.TemporaryDirectory() as directory:
        if OPTIONS.families is None:
            judge_gpts(directory)
        else:
            judge_families(directory)


PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("penstock")
PARSER.add_argument("text", nargs="?")
PARSER.add_argument("--families", nargs="*", choices=FAMILIES)
PARSER.add_argument("--workers", type=int, choices=PLACES)
PARSER.add_argument("--runs", type=int, default=5)
PARSER.add_argument("--precision", choices=("f32", "bf16"))
OPTIONS = PARSER.parse_args()
if OPTIONS.families is None and OPTIONS.text is None:
    PARSER.error("TEXT is missing")
main()
