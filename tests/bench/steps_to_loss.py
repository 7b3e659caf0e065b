#!/usr/bin/env python3
"""How well the steps to a loss are predicted (planner/job/steps_to_loss.h), on the small GPT.

Methods train examples/small.yaml, with three settings of its rate and microbatches, on several numbers of stages, once each, by
the serial reference, which a cluster equals bit for bit. The first table holds out one combination of method and stages
after the other, the second everything that runs had after a quarter of their steps, the third a whole setting.

usage: tests/bench/steps_to_loss.py PENSTOCK STEPS_TO_LOSS_TABLE TEXT [DIRECTORY]

STEPS_TO_LOSS_TABLE is build/release/tests/bench/steps_to_loss_table. With a DIRECTORY finished trainings are kept and found there.
"""
import pathlib
import subprocess
import sys
import tempfile

JOB = "examples/small.yaml"
STEPS = 600
STAGES = (2, 3, 4, 6, 8)
METHODS = ("pipedream", "pipedream-2bw", "paci", "pipemare", "nesterov", "nesterov-no-stash", "spectrain", "xpipe",
           "local-sgd")
# Name of the setting: what it changes in the text of the job.
SETTINGS = {
    "small": (),
    "low-rate": (("learning_rate: 3.0e-3", "learning_rate: 1.0e-3"),),
    "four-microbatches": (("microbatches: 8", "microbatches: 4"),),
}
# The same training from other weights and samples: how far two measurements of one number are apart.
SEEDS = (2, 3)
METHODS_AGAIN = ("pipedream", "paci", "nesterov", "spectrain", "xpipe")
STAGES_AGAIN = 4


def write_job(directory, name, changes):
    text = pathlib.Path(JOB).read_text(encoding="utf-8").replace("steps: 400", f"steps: {STEPS}")
    for before, after in changes:
        if before not in text:
            sys.exit(f"{JOB} has no \"{before}\"")
        text = text.replace(before, after)
    file = directory / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def train(directory, name, job, method, stages):
    """A combination that the method refuses has an empty file."""
    file = directory / f"{name}.{method}.{stages}.json"
    if file.exists():
        return
    done = subprocess.run([sys.argv[1], "train", job, "--data", sys.argv[3], "--reference", "--json", "--losses",
                           "--method", method, "--set", f"pipeline.stages={stages}"],
                          capture_output=True, text=True, check=False)
    print(f"{name}, {method}, {stages} stages{': ' + done.stderr.strip() if done.returncode else ''}", file=sys.stderr)
    file.write_text(done.stdout if done.returncode == 0 else "", encoding="utf-8")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(sys.argv[4] if len(sys.argv) > 4 else scratch)
        directory.mkdir(exist_ok=True)
        for name, changes in SETTINGS.items():
            job = write_job(directory, name, changes)
            train(directory, name, job, "1f1b", 1)
            for stages in STAGES:
                for method in METHODS:
                    train(directory, name, job, method, stages)
        for seed in SEEDS:
            name = f"seed-{seed}"
            job = write_job(directory, name, (("seed: 1", f"seed: {seed}"),))
            train(directory, name, job, "1f1b", 1)
            for method in METHODS_AGAIN:
                train(directory, name, job, method, STAGES_AGAIN)
        subprocess.run([sys.argv[2], directory], check=True)


main()
