#!/usr/bin/env python3
"""Whether a race (`penstock plan --race`) chooses the method that reaches a loss first.

Every method trains examples/small.yaml with S stages to the end, once, by the serial reference, which a cluster
equals bit for bit; its validation losses are stamped with the simulated time of the steps of its fastest candidate with
S stages on S workers. The race knows nothing of this: it trains for a part of the time and looks at training losses.

usage: tests/bench/time_to_target.py PENSTOCK TEXT [DIRECTORY]

With a DIRECTORY finished trainings are kept and found there.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

JOB = "examples/small.yaml"
STEPS = 600
GIGABITS = 10
STAGES = (2, 4, 8)
TARGETS = (2.6, 2.4, 2.3)
CONFIRMED = ((2, "spectrain", 2.6), (4, "nesterov", 2.6), (8, "zb-h2", 2.6))
SLOWER = 100


def penstock(*arguments):
    command = [sys.argv[1], *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def job(*more):
    return [JOB, "--data", sys.argv[2], "--set", f"training.steps={STEPS}", *more]


def draining_methods():
    return {method["method"] for method in json.loads(penstock("methods", "--json")) if method["synchronous"]}


def validations(directory, method, stages):
    """Of a whole training: (step, loss)."""
    file = directory / f"{method}-{stages}.json"
    if not file.exists():
        file.write_text(penstock("train", *job("--reference", "--json", "--method", method, "--set",
                                               f"pipeline.stages={stages}")), encoding="utf-8")
    return [(at["step"], at["loss"]) for at in json.loads(file.read_text(encoding="utf-8"))["validations"]]


def steps_to(target, losses):
    before = losses[0]
    for step, loss in losses:
        if loss <= target:
            if loss == before[1]:
                return step
            return before[0] + (step - before[0]) * (before[1] - target) / (before[1] - loss)
        before = (step, loss)
    return None


def judge(directory, profile, draining, stages, target):
    plan = json.loads(penstock("plan", *job("--profile", profile, "--workers", stages, "--stages", stages,
                                            "--gigabits", GIGABITS, "--race", "--until", target, "--race-steps", STEPS,
                                            "--json")))
    kind = lambda candidate: "1f1b" if candidate["method"] in draining - {"local-sgd"} else candidate["method"]
    fastest = {}
    for candidate in plan["candidates"]:
        if "rejected" not in candidate:
            fastest.setdefault(kind(candidate), candidate)
    times = {}
    for name, candidate in fastest.items():
        steps = steps_to(target, validations(directory, name, stages))
        if steps is not None:
            times[name] = steps * candidate["step_seconds"]
    order = sorted(times, key=times.get)
    race = plan["race"]
    chosen = kind(plan["candidates"][race["winner"]])
    trained = sum(racer["steps"] for racer in race["racers"])
    best = ", ".join(f"{fastest[name]['method']} {times[name]:.3f}" for name in order[:3])
    lost = f"{100 * (times[chosen] / times[order[0]] - 1):.1f} %" if chosen in times else "does not get there"
    print(f"| {stages} | {target} | {best} | {fastest[order[-1]]['method']} {times[order[-1]]:.3f} "
          f"| {len(fastest) - len(order)} | {fastest[chosen]['method']} | {lost} "
          f"| {trained / (STEPS * len(fastest)):.0%} |", flush=True)


def confirm(directory, profile, stages, method, target):
    """The same on emulated workers: processes that wait as long as such workers would, SLOWER times as slow."""
    files = {key: directory / f"{key}.yaml" for key in ("topology", "planned", "times")}
    files["topology"].write_text(f"hosts: [{{name: a, count: {stages}, gigabits: {GIGABITS / SLOWER}, "
                                 f"workers: [{{speed: {1 / SLOWER}}}]}}]\n", encoding="utf-8")
    penstock("plan", *job("--profile", profile, "--cluster", files["topology"], "--methods", method, "--stages",
                          stages, "-o", files["planned"], "--times", files["times"]))
    ran = json.loads(penstock("compare", files["planned"], "--data", sys.argv[2], "--methods", method, "--workers",
                              stages, "--until", target, "--emulate", files["times"], "--device", "cpu", "--json",
                              "-o", directory / "compared"))
    row = ran["rows"][0]
    simulated, measured = row["simulated_seconds"], row["measured_seconds"]
    print(f"| {stages} | {method} | {target} | {row['steps']} | {simulated:.1f} | {measured:.1f} "
          f"| {100 * (measured / simulated - 1):+.1f} % |", flush=True)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else scratch)
        directory.mkdir(exist_ok=True)
        profile = directory / "profile.yaml"
        if not profile.exists():
            penstock("profile", *job("--samples", "1,2,4,8,16,32", "--device", "cpu", "-o", profile))
        draining = draining_methods()
        print("| stages | loss | seconds to it, the first three | the last | never | the race chose | which costs "
              "| steps trained for it |\n|---|---|---|---|---|---|---|---|")
        for stages in STAGES:
            for target in TARGETS:
                judge(directory, profile, draining, stages, target)
        print("\n| stages | method | loss | steps to it | seconds, simulated | measured | |\n|---|---|---|---|---|---|---|")
        for cell in CONFIRMED:
            confirm(directory, profile, *cell)


main()
