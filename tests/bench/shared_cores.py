#!/usr/bin/env python3
"""A pipeline on two cores that others use at times: shared_cores.py BUILD TEXT [TURNS]

Compares pipedream on two workers with two one-worker trainings side by side, as pipeline.py does, where the speed of a core
changes from second to second. Three groups of programs take turns of half a second, stopped in between: the pipeline, the
two trainings, and a small training pinned to each core. The last says what the cores are worth: two trainings side by side
have the sum of both speeds, two equal stages about twice the lower one, but for what the microbatches in flight even out.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/monitoring"))

from cluster import Cluster, eventually  # noqa: E402

SLICE_SECONDS = 0.5
SMALL_JOB = """name: speed
model: {{gpt: {{layers: 2, width: 192, heads: 6, context: 128}}}}
data: {{text: {{path: {text}}}}}
training: {{steps: 1000000, batch: 4, microbatches: 1, seed: 1, optimizer: {{adamw: {{learning_rate: 1.0e-3}}}}}}
"""


class Group:
    """Programs that run only in slices of time."""

    def __init__(self, processes):
        self.processes = processes
        self.slices = []  # (begin, end) of each, in seconds of the epoch

    def signal(self, number):
        for process in self.processes:
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(map(str, process.args))} ended with {process.returncode}")
            process.send_signal(number)

    def stop(self):
        self.signal(signal.SIGSTOP)

    def run(self):
        begin = time.time()
        self.signal(signal.SIGCONT)
        time.sleep(SLICE_SECONDS)
        self.stop()
        self.slices.append((begin, time.time()))

    def ran(self, moment):
        """Seconds that it had run by then."""
        return sum(min(end, moment) - begin for begin, end in self.slices if begin < moment)


class Training:
    """A cluster that trains the job for as long as it is let."""

    def __init__(self, stack, arguments, workers):
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        shutil.copy(arguments.text, f"{folder}/input.txt")
        self.cluster = stack.enter_context(Cluster(pathlib.Path(arguments.build) / "bin", folder, workers))
        self.job = self.cluster.run("submit", arguments.job, "--no-wait", "--set", "training.steps=10000000", "--set",
                                    "validation.every_steps=0", "--set", "pipeline.method=pipedream")["job_id"]
        # Plans, and what they measure, are over by then.
        eventually(lambda: self.cluster.run("status", self.job)["step"] > 5, "the job trains", seconds=60)

    def times(self):
        """When each step was done, in seconds of the epoch."""
        log = subprocess.run(self.cluster.command("logs", self.job, "--json"), stdout=subprocess.PIPE, check=True).stdout
        steps = [event for event in map(json.loads, log.splitlines()) if event.get("event") == "step_done"]
        numbers = [event["step"] for event in steps]
        if numbers != sorted(set(numbers)):
            raise RuntimeError("a training lost a worker and did steps again; other programs may take too much time")
        return [event["unix_ms"] / 1000 for event in steps]


class Core:
    """A small training on one core, one step after the other."""

    def __init__(self, stack, arguments, job, core):
        self.process = stack.enter_context(subprocess.Popen(
            ["taskset", "-c", str(core), f"{arguments.build}/tests/bench/compute_train", job], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}))
        stack.callback(self.process.kill)
        self.ends = []  # of steps, in seconds of the epoch
        threading.Thread(target=self.train, daemon=True).start()
        eventually(lambda: self.ends or self.process.poll() is not None, "compute_train does a step")

    def train(self):
        with contextlib.suppress(BrokenPipeError):
            print(1, file=self.process.stdin, flush=True)
            while self.process.stdout.readline():
                self.ends.append(time.time())
                print(1, file=self.process.stdin, flush=True)


def speed(times, group, slices):
    """Steps per second of run time, from the first step in these slices to the last; None if there are less than two."""
    inside = [moment for moment in times if slices[0][0] <= moment <= slices[-1][1]]
    return (len(inside) - 1) / (group.ran(inside[-1]) - group.ran(inside[0])) if len(inside) > 1 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("text", type=pathlib.Path, help="what is trained on")
    parser.add_argument("turns", nargs="?", type=int, default=5)
    parser.add_argument("--job", default=ROOT / "examples/shakespeare.yaml")
    parser.add_argument("--slices", type=int, default=24, help="of each group in a turn (default: %(default)s)")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        sys.exit("this needs two cores")
    os.sched_setaffinity(0, cores)  # of all that it starts, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing stays stopped
    with contextlib.ExitStack() as stack:
        job = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "job.yaml"
        job.write_text(SMALL_JOB.format(text=arguments.text.resolve()))
        trainings, groups = [], []
        for workers in (2, 1, 1):
            trainings.append(Training(stack, arguments, workers))
            groups.append(Group(list(trainings[-1].cluster.processes.values())))
            groups[-1].stop()
        pair = Group(groups[1].processes + groups[2].processes)
        small = [Core(stack, arguments, job, core) for core in cores]
        both = Group([core.process for core in small])
        both.stop()
        for _ in range(arguments.turns * arguments.slices):
            for group in (groups[0], pair, both):
                group.run()
        for group in (groups[0], pair):
            group.signal(signal.SIGCONT)
        times = [training.times() for training in trainings]
    ratios, allowed = [], []
    for turn in range(arguments.turns):
        part = slice(turn * arguments.slices, (turn + 1) * arguments.slices)
        speeds = [speed(each, group, group.slices[part]) for each, group in zip(times, (groups[0], pair, pair))]
        if None in speeds:
            sys.exit("a training did less than two steps in a turn; use more --slices")
        ratios.append(speeds[0] / sum(speeds[1:]))
        of_cores = [[speed(core.ends, both, [each]) for core in small] for each in both.slices[part]]
        of_cores = [each for each in of_cores if None not in each]
        allowed.append(sum(2 * min(speeds) for speeds in of_cores) / sum(map(sum, of_cores)))
        print(f"turn {turn + 1}: {ratios[-1]:.2f} of two trainings side by side; the cores allow {allowed[-1]:.2f}")
    for what, values in (("of two trainings side by side", ratios), ("allowed by the cores", allowed),
                         ("of what the cores allow", [ratio / most for ratio, most in zip(ratios, allowed)])):
        print(f"median {statistics.median(values):.2f} {what} ({min(values):.2f} to {max(values):.2f})")


main()
