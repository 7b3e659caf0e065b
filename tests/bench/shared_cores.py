#!/usr/bin/env python3
"""A pipeline on two cores that others use at times: shared_cores.py BUILD TEXT [TURNS]

Compares pipedream on two workers with two one-worker trainings side by side, as pipeline.py does, where the speed of a core
changes from second to second. All take turns of half a second, stopped in between, so that they meet the same cores.

In a third turn the same small training runs on each core, pinned, which says what the cores are worth: two trainings side by
side have the sum of both speeds, two equal stages twice the lower one, but for what the microbatches between them even out.
"""
import argparse
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import threading
import time

SLICE_SECONDS = 0.5
SMALL_JOB = """name: speed
model: {{gpt: {{layers: 2, width: 192, heads: 6, context: 128}}}}
data: {{text: {{path: {text}}}}}
training: {{steps: 1000000, batch: 4, microbatches: 1, seed: 1, optimizer: {{adamw: {{learning_rate: 1.0e-3}}}}}}
"""


def with_children(pid):
    """The process and all that it started, and these did."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            return [pid] + [each for child in children.read().split() for each in with_children(int(child))]
    except OSError:  # it ended
        return []


class Program:
    """A process whose time counts only while it may run."""

    def __init__(self, command, **more):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)
        self.ran, self.since = 0.0, time.monotonic()

    def clock(self):
        since = self.since
        return self.ran + (0 if since is None else time.monotonic() - since)

    def signal(self, number):
        for pid in with_children(self.process.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def stop(self):
        self.signal(signal.SIGSTOP)
        ran, self.since = time.monotonic() - self.since, None
        self.ran += ran

    def go_on(self):
        self.since = time.monotonic()
        self.signal(signal.SIGCONT)

    def is_done(self):
        return self.process.poll() is not None

    def end(self):
        self.signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait()


class Training(Program):
    def __init__(self, arguments, workers):
        settings = [f"training.steps={arguments.steps}", "training.learning_rate.warmup_steps=4", "validation.every_steps=0"]
        super().__init__([f"{arguments.build}/bin/penstock", "train", arguments.job, "--data", arguments.text, "--method",
                          "pipedream", "--workers", str(workers), "--device", "cpu",
                          *(word for setting in settings for word in ("--set", setting))],
                         stderr=subprocess.STDOUT)
        self.marks = []  # (seconds that it ran, steps done)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if step := re.match(r"step (\d+)/", line):
                self.marks.append((self.clock(), int(step[1])))

    def check(self):
        if self.is_done() and (self.process.returncode != 0 or not self.marks):
            raise RuntimeError(f"{' '.join(map(str, self.process.args))} ended with {self.process.returncode}")

    def wait_for_first_step(self):
        while not self.marks:  # a profile is measured before it
            self.check()
            time.sleep(SLICE_SECONDS)

    def steps_per_second(self):
        (begin, first), (end, last) = self.marks[0], self.marks[-1]
        return (last - first) / (end - begin)


class Core(Program):
    """One step after the other, all the time."""

    def __init__(self, arguments, job, core):
        super().__init__(["taskset", "-c", str(core), f"{arguments.build}/tests/bench/compute_train", job],
                         stdin=subprocess.PIPE)
        self.ends = []  # seconds that it ran, by step
        self.speeds = []  # by slice
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        try:
            while True:
                print(1, file=self.process.stdin, flush=True)
                if not self.process.stdout.readline():
                    return
                self.ends.append(self.clock())
        except BrokenPipeError:
            pass

    def stop(self):
        super().stop()
        ends, self.ends = self.ends, []
        if len(ends) > 2:
            self.speeds.append((len(ends) - 1) / (ends[-1] - ends[0]))


def turn(arguments, job):
    """Returns what the pipeline reaches of two trainings side by side, and what two equal stages could."""
    pipeline = [Training(arguments, 2)]
    pair, cores = [], []
    try:
        pipeline[0].wait_for_first_step()
        pipeline[0].stop()
        pair = [Training(arguments, 1) for _ in range(2)]
        for training in pair:
            training.wait_for_first_step()
        for training in pair:
            training.stop()
        cores = [Core(arguments, job, core) for core in range(2)]
        time.sleep(SLICE_SECONDS)
        for core in cores:
            core.stop()
        while not any(training.is_done() for training in pipeline + pair):
            for group in (pipeline, pair, cores):
                for program in group:
                    program.go_on()
                time.sleep(SLICE_SECONDS)
                for program in group:
                    program.stop()
        for training in pipeline + pair:
            training.check()
    finally:
        for program in pipeline + pair + cores:
            program.end()
    slices = list(zip(*(core.speeds for core in cores)))
    limit = sum(2 * min(speeds) for speeds in slices) / sum(map(sum, slices))
    return pipeline[0].steps_per_second() / sum(training.steps_per_second() for training in pair), limit


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("text", type=pathlib.Path, help="what is trained on")
    parser.add_argument("turns", nargs="?", type=int, default=5)
    parser.add_argument("--job", default="examples/shakespeare.yaml")
    parser.add_argument("--steps", type=int, default=60, help="of each training (default: %(default)s)")
    arguments = parser.parse_args()
    ratios, limits = [], []
    with tempfile.TemporaryDirectory() as directory:
        job = pathlib.Path(directory) / "job.yaml"
        job.write_text(SMALL_JOB.format(text=arguments.text.resolve()))
        for number in range(arguments.turns):
            ratio, limit = turn(arguments, job)
            ratios.append(ratio)
            limits.append(limit)
            print(f"turn {number + 1}: {ratio:.2f} of two trainings side by side; the cores allow {limit:.2f}", flush=True)
    for what, values in (("of two trainings side by side", ratios), ("allowed by the cores", limits),
                         ("of what the cores allow", [ratio / limit for ratio, limit in zip(ratios, limits)])):
        print(f"median {statistics.median(values):.2f} {what} ({min(values):.2f} to {max(values):.2f})")


main()
