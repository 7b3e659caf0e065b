#!/usr/bin/env python3
"""PipeDream's experiment with the real nets, on four emulated workers: data parallelism, model parallelism, GPipe and
PipeDream, each trained by worker processes over gRPC.

The times of passes are those of PipeDream's own profiles, layer by layer, and links are those of 10 Gb/s; both are FACTOR
times slower here. The workers compute with few samples (and, of sequences, few time steps) in place of the profiled
minibatch, so that this machine can keep up. Activations are then smaller in the same proportion, and links that carry them
are slower by as much; links that carry gradients of parameters, whose size does not depend on samples, are not. So every
message takes FACTOR times what it took of the profiled minibatch. Replicas of a stage share their network cards: each link
between two of r has a part 1 / (r - 1).

What the workers counted as sent must be what the simulator says, to the byte, but for two things that it leaves out:
replicas of the last stage tell each other their losses, and at the end of a run replicas combine the running statistics of
their batch norms.

usage: tests/bench/pipedream_experiment.py PENSTOCK PROFILES [--factor F] [--models NAME,...] [--minibatches N]
"""
import argparse
import heapq
import json
import re
import subprocess
import sys
import tempfile

GIGABITS = 10.0
WORKERS = 4
PARAMETER_BYTES_LEFT_OUT_MAX = 4 * 1025  # the profile of GNMT leaves out its attention's normalisation
LOSS_BYTES_MAX = 64  # that replicas send for each minibatch
# By model: PipeDream's profile, the samples of a minibatch here, how many times that the profiled one is, and the model.
MODELS = {
    "vgg": ("vgg16", 1, 128, "{depth: 16}"),
    "alexnet": ("alexnet", 2, 128, "{}"),
    "resnet": ("resnet50", 1, 128, "{depth: 50}"),
    "gnmt": ("gnmt", 1, 32 * 48 // 6, "{source_time: 6, target_time: 6}"),
}


def penstock(*arguments):
    command = [ARGUMENTS.penstock, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def read_profile(path):
    """The nodes of a graph.txt in an order in which each comes after those it reads, otherwise as in the file."""
    nodes, readers, unread = {}, {}, {}
    for line in open(path, encoding="utf-8"):
        parts = line.rstrip("\n").split(" -- ")
        if line.startswith("\t"):
            source, target = (part.strip() for part in parts)
            readers.setdefault(source, []).append(target)
            unread[target] = unread.get(target, 0) + 1
        else:
            found = dict(re.findall(r"(\w+)=([\d.]+)", parts[2]))
            nodes[parts[0]] = (parts[1], {key: float(value) for key, value in found.items()})
    places = {name: place for place, name in enumerate(nodes)}
    ready = [(places[name], name) for name in nodes if name not in unread]
    ordered = []
    while ready:
        _, name = heapq.heappop(ready)
        if not nodes[name][0].startswith("Input"):
            ordered.append(nodes[name][1])
        for reader in readers.get(name, []):
            unread[reader] -= 1
            if unread[reader] == 0:
                heapq.heappush(ready, (places[reader], reader))
    return ordered


def layer_times(layers, profile):
    """Milliseconds forward and backward of each of our layers, which are runs of the profile's nodes: a node with
    parameters is in the layer that has these, another one in that of the node before it."""
    times = [[0.0, 0.0] for _ in layers]
    ends, total = [], 0
    for layer in layers:
        total += 4 * layer["parameters"]
        ends.append(total)
    seen = 0.0
    for node in profile:
        seen += node["parameter_size"]
        at = next(i for i, end in enumerate(ends) if end >= seen)
        times[at][0] += node["forward_compute_time"]
        times[at][1] += node["backward_compute_time"]
    if not 0 <= total - seen <= PARAMETER_BYTES_LEFT_OUT_MAX:
        sys.exit(f"the profile has parameters of {seen} bytes, the model of {total}")
    return times


def plan(directory, layers, times, profiled_samples, *flags):
    """Penstock's plan of our layers, with the times and activations of the profiled minibatch, which is as many of our
    samples: layers and replicas of each stage."""
    with open(f"{directory}/graph.txt", "w", encoding="utf-8") as file:
        for i, (layer, (forward, backward)) in enumerate(zip(layers, times)):
            file.write(f"node{i} -- {layer['layer']} -- forward_compute_time={forward:.3f}, "
                       f"backward_compute_time={backward:.3f}, "
                       f"activation_size={layer['live_bytes'] * profiled_samples:.1f}, "
                       f"parameter_size={4 * layer['parameters']}\n")
        for i in range(1, len(layers)):
            file.write(f"\tnode{i - 1} -- node{i}\n")
    found = json.loads(penstock("plan", "--profile", f"{directory}/graph.txt", "--workers", str(WORKERS),
                                "--gigabits", str(GIGABITS), "--json", *flags))
    return [len(stage["layers"]) for stage in found["stages"]], [stage["replicas"] for stage in found["stages"]]


def write_devices(directory, layers, times, replicas, share):
    """The file for --emulate. `share`: of the profiled minibatch, that is computed with here."""
    workers = [stage for stage, count in enumerate(replicas) for _ in range(count)]
    slow = GIGABITS / ARGUMENTS.factor
    with open(f"{directory}/devices.yaml", "w", encoding="utf-8") as file:
        file.write("device: profiled by PipeDream's authors\nlayers:\n")
        for layer, (forward, backward) in zip(layers, times):
            file.write(f"  - {{layer: {layer['layer']}, times: {{forward_ms: {forward * ARGUMENTS.factor:.3f}, "
                       f"backward_weight_ms: {backward * ARGUMENTS.factor:.3f}}}}}\n")
        file.write("links:\n")
        for one, stage in enumerate(workers):
            for other in range(one + 1, len(workers)):
                alike = workers[other] == stage
                speed = slow / (replicas[stage] - 1) if alike else slow * share
                file.write(f"  - {{workers: [{one}, {other}], gigabits_per_second: {speed:.6g}}}\n")


def statistics_bytes(layers, stages, replicas):
    """What replicas send in a run to combine the running statistics of their batch norms, which have a mean and a
    variance for each scale and shift."""
    total, first = 0, 0
    for count, copies in zip(stages, replicas):
        nodes = [node for layer in layers[first:first + count] for node in layer["nodes"]]
        total += 2 * (copies - 1) * 4 * sum(node["parameters"] for node in nodes if node["op"] == "batch_norm")
        first += count
    return total


def train(directory, job, method, stage_layers, replicas, step, steps, samples):
    settings = [f"training.steps={steps}", f"training.microbatches={step}", f"training.batch={step * samples}",
                f"validation.every_steps={steps}", "validation.batches=1", f"pipeline.stages={len(stage_layers)}",
                f"pipeline.stage_layers={json.dumps(stage_layers)}", "training.threads=1"]
    if max(replicas) > 1:
        settings.append(f"pipeline.replicas={json.dumps(replicas)}")
    flags = [flag for setting in settings for flag in ("--set", setting)]
    output = penstock("compare", job, "--methods", method, "--emulate", f"{directory}/devices.yaml",
                      "--output", f"{directory}/compare", "--json", *flags)
    return json.loads(output)["rows"][0]


def judge(directory, model):
    profile_name, samples, times_more, options = MODELS[model]
    job = f"{directory}/{model}.yaml"
    with open(job, "w", encoding="utf-8") as file:
        file.write(f"name: {model}\nmodel: {{{model}: {options}}}\ndata: {{synthetic: {{}}}}\n"
                   f"training: {{steps: 1, batch: 1, optimizer: {{sgd: {{learning_rate: 1.0e-4}}}}, seed: 1}}\n")
    layers = json.loads(penstock("model", "show", job, "--json"))["layers"]
    times = layer_times(layers, read_profile(f"{ARGUMENTS.profiles}/{profile_name}.txt"))
    straight, _ = plan(directory, layers, times, samples * times_more, "--straight")
    stages, replicas = plan(directory, layers, times, samples * times_more)
    ones = [1] * len(straight)
    n = ARGUMENTS.minibatches
    # Name, method, layers and replicas of the stages, minibatches of a step.
    ways = [("data parallelism", "gpipe", [len(layers)], [WORKERS], WORKERS),
            ("model parallelism", "gpipe", straight, ones, 1),
            ("GPipe", "gpipe", straight, ones, 4 * len(straight)),
            ("PipeDream", "pipedream", stages, replicas, max(replicas) * 4)]
    one_worker = sum(map(sum, times)) * ARGUMENTS.factor * 1e-3
    print(f"{model}, 1/{times_more} of the profiled minibatch, factor {ARGUMENTS.factor:g}: one worker takes "
          f"{one_worker:.2f} s for a minibatch\n", flush=True)
    print("| way | stages | s of a minibatch, simulated | measured | | over one worker | bytes of a minibatch, "
          "simulated | counted |\n|---|---|---|---|---|---|---|---|", flush=True)
    for name, method, cut, copies, step in ways:
        write_devices(directory, layers, times, copies, 1 / times_more)
        steps = max(1, n // step)
        row = train(directory, job, method, cut, copies, step, steps, samples)
        simulated = row["simulated_seconds"] / (steps * step)
        measured = row["measured_seconds"] / (steps * step)
        bytes_simulated = row["sent_bytes_per_step"] / step
        bytes_counted = row["sent_bytes_per_step_measured"] / step
        print(f"| {name} | {'-'.join(map(str, copies))} ({' '.join(map(str, cut))} layers) | {simulated:.3f} | "
              f"{measured:.3f} | {100 * (measured / simulated - 1):+.1f} % | {one_worker / measured:.2f} | "
              f"{bytes_simulated:.0f} | {bytes_counted:.0f} |", flush=True)
        left_out = (bytes_counted - bytes_simulated) * step - statistics_bytes(layers, cut, copies) / steps
        losses = LOSS_BYTES_MAX * step if copies[-1] > 1 else 0
        if not 0 <= left_out <= losses:
            sys.exit(f"{name}: the workers sent other bytes than simulated")
    print(flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("penstock")
parser.add_argument("profiles")
parser.add_argument("--factor", type=float, default=20.0)
parser.add_argument("--models", default=",".join(MODELS))
parser.add_argument("--minibatches", type=int, default=16)
ARGUMENTS = parser.parse_args()
with tempfile.TemporaryDirectory() as scratch:
    for each in ARGUMENTS.models.split(","):
        judge(scratch, each)
