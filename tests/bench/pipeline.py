#!/usr/bin/env python3
"""Whole trainings on two cores, each figure a ratio within one turn, then medians over the turns.

Without --threads:
 * pipedream on two workers against two one-worker trainings side by side: tokens/s.
 * The time of a step that the simulator predicts from a run's first half against its second half.
With --threads, tokens/s:
 * one worker with two threads against one with one, and two trainings of one thread side by side against one of them alone,
   which is what the machine gives to two threads that share no work.
 * pipedream on two workers with a thread each against one worker with two.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile

SETTINGS = ["training.learning_rate.warmup_steps=4", "validation.every_steps=0"]


def start(arguments, method, workers, *more, threads=1):
    command = [arguments.penstock, "train", arguments.job, "--data", arguments.text, "--method", method,
               "--workers", str(workers), "--device", "cpu", "--json", *more]
    for setting in (f"training.steps={arguments.steps}", *SETTINGS, f"training.threads={threads}", *arguments.set):
        command += ["--set", setting]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def result(process):
    output, _ = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{' '.join(process.args)} ended with {process.returncode}")
    return json.loads(output)


def side_by_side(arguments):
    pair = [start(arguments, "pipedream", 1) for _ in range(2)]
    return sum(result(process)["tokens_per_second"] for process in pair)


def percent(value):
    return f"{100 * value:+.1f} %"


def plain(value):
    return f"{value:.2f}"


def summarize(what, values, text=plain):
    print(f"median {what} {text(statistics.median(values))} ({text(min(values))} to {text(max(values))})")


def pipelines(arguments, directory):
    ratios, errors = [], {"1f1b": [], "pipedream": []}
    for turn in range(arguments.turns):
        speeds = {}
        for method in errors:
            run = result(start(arguments, method, 2, "--timeline", f"{directory}/timeline"))
            speeds[method] = run["tokens_per_second"]
            errors[method].append(run["prediction"]["error"])
        together = side_by_side(arguments)
        ratios.append(speeds["pipedream"] / together)
        print(f"turn {turn + 1}: pipedream on 2 workers {speeds['pipedream']:.0f} tokens/s, two runs side by "
              f"side {together:.0f}, ratio {ratios[-1]:.2f}; measured beyond predicted: "
              + ", ".join(f"{method} {percent(errors[method][-1])}" for method in errors), flush=True)
    summarize("ratio", ratios)
    for method, all_errors in errors.items():
        summarize(f"of measured beyond predicted, {method}:", all_errors, percent)


def threads(arguments, _):
    ratios = {"two threads to one": [], "two trainings side by side to one": [], "two workers to one with two threads": []}
    for turn in range(arguments.turns):
        one, two, pair = (result(start(arguments, "pipedream", workers, threads=count))["tokens_per_second"]
                          for workers, count in ((1, 1), (1, 2), (2, 1)))
        together = side_by_side(arguments)
        for each, ratio in zip(ratios.values(), (two / one, together / one, pair / two)):
            each.append(ratio)
        print(f"turn {turn + 1}: one worker {one:.0f} tokens/s with one thread, {two:.0f} with two; two trainings side by "
              f"side {together:.0f}; two workers {pair:.0f}; ratios of "
              + ", ".join(f"{what} {each[-1]:.2f}" for what, each in ratios.items()), flush=True)
    for what, each in ratios.items():
        summarize(f"ratio of {what}", each)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock", help="the program")
    parser.add_argument("text", help="what is trained on")
    parser.add_argument("turns", nargs="?", type=int, default=5)
    parser.add_argument("--threads", dest="measure", action="store_const", const=threads, default=pipelines,
                        help="measure threads in place of pipelines")
    parser.add_argument("--job", default="examples/shakespeare.yaml")
    parser.add_argument("--steps", type=int, default=60, help="of each training")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the job, as penstock train has it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        arguments.measure(arguments, directory)


main()
