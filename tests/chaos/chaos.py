#!/usr/bin/env python3
"""Disturbs real clusters at random, and checks that training ends as if nothing had happened.

usage: chaos.py BUILD [--minutes M | --trials N] [--seed N] [--methods NAME...] [--faults NAME...] [--most N] [--spare N]
                [--links] [--snapshots] [--load N] [--json FILE]

Each method first trains undisturbed. Then, for as long as it is told, a run of a method is started on a cluster of its own,
one to three faults of faults.py are drawn with the pauses between them, and what was killed is started again after 100 ms, or, with
--spare, workers stay away and one that was left over takes their place. With --links others reach each worker through a
proxy, and each worker the coordinator through another, whose faults are drawn as well. With --snapshots nothing is on disk: jobs go on from the memory of workers, which survives
faults of one worker at a time, and of the coordinator. The job must end with the weights of the undisturbed run, and no worker but those of the faults may be to blame; where only
faults were drawn that a cluster should not notice, no attempt may end.

With --load it does all that beside processes that keep the cores busy.

Prints a line for each run and, at the end, by fault: the seconds until the job had come further than before it, as
`penstock status` saw it. Steps that are done again until then count. Exits with 1 if anything went wrong; the folders of those
runs are kept, and their lines say which command repeats them. The same seed draws the same faults, but a pause is a part
of the time of the undisturbed run.
"""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import cluster as clusters  # noqa: E402  (it is beside this folder)
import faults  # noqa: E402
import table  # noqa: E402

STEPS = 600
EVERY_STEPS = 30
MOST_FAULTS = 3  # in a run
STEPS_ON_THEIR_WAY_SECONDS = 0.3  # which a cut link does not stop
# The layers of the stages are given, for a split by measured times may differ from run to run, and weights with it.
METHODS = {
    "1f1b": "method: 1f1b\n  stage_layers: [5, 6]",
    "zb-h1": "method: zb-h1\n  stage_layers: [5, 6]",
    "pipedream": "method: pipedream\n  stage_layers: [5, 6]",
    "paci": "method: paci\n  stage_layers: [5, 6]",
    "replicas": "method: 1f1b\n  stage_layers: [5, 6]\n  replicas: [2, 1]",
}
WORKERS = {"replicas": 3}  # 2 without
LOSE_MEMORY = {"kill-two", "kill-all"}  # of a worker and of the peer with its copies


def ended_attempts(job):
    return [attempt for attempt in job["result"]["attempts"] if attempt["cause"] is not None]


def came_further(job, before, ends_attempts):
    """Whether the job has done a step since that it had not done before the fault, or when that ended its attempt."""
    ended = ended_attempts(job)
    if len(ended) == len(ended_attempts(before)):
        return not ends_attempts and job["step"] > before["step"]
    return job["step"] > max(attempt["last_step"] for attempt in ended)


class Trial:
    """One run of a job on a cluster of its own."""

    def __init__(self, programs, folder, method, flags):
        folder.mkdir(parents=True)
        clusters.write_job(folder, STEPS, EVERY_STEPS, METHODS[method], on_disk=not flags.snapshots)
        self.cluster = clusters.Cluster(programs, folder, lambda *_: None, workers=WORKERS.get(method, 2) + flags.spare,
                                        restarts=not flags.spare, linked=flags.links)
        self.done = []  # (fault, the workers that it concerns, seconds until the job came further or None)

    def run(self, drawn, draw):
        """Returns the job's status at its end, and the seconds that it trained."""
        with self.cluster as cluster:
            job_id = cluster.submit("job")
            cluster.await_step(job_id, 1)
            began = time.monotonic()
            for pause, fault in drawn:
                time.sleep(pause)
                self.disturb(job_id, fault, draw)
            job = cluster.await_end(job_id)
            seconds = time.monotonic() - began
            cluster.thaw()
            if crashes := cluster.crashes():
                raise clusters.Trouble("; ".join(crashes))
            return job, seconds

    def disturb(self, job_id, fault, draw):
        before = self.cluster.job(job_id)
        if before is None or before["ended_unix_ms"] is not None:
            return
        taken = sorted({stage["worker"] for stage in before["result"]["per_stage"]}) or self.cluster.workers
        since = time.monotonic()
        concerned = fault.do(self.cluster, taken, draw)
        if fault.ends_attempts is None:
            time.sleep(STEPS_ON_THEIR_WAY_SECONDS)
            before = self.cluster.job(job_id) or before
        def further():
            job = self.cluster.job(job_id)
            over = job and job["ended_unix_ms"] is not None
            return job if over or job and came_further(job, before, fault.ends_attempts) else None
        job = self.cluster.eventually(further, f"the job comes further than step {before['step']} after {fault.name}")
        seconds = time.monotonic() - since
        self.done.append((fault, concerned, None if job["ended_unix_ms"] is not None else seconds))

    def check(self, job, reference):
        """Raises Trouble if the job has not ended as it should."""
        if job["state"] != "succeeded":
            raise clusters.Trouble(f"the job has {job['state']}: {job['error'] or job['reason']}")
        weights = job["result"]["weights_sha256"]
        if reference not in (None, weights):
            raise clusters.Trouble(f"the weights are {weights[:12]}..., expected {reference[:12]}...")
        concerned = set().union(*(workers for _, workers, _ in self.done))
        failed = [attempt for attempt in ended_attempts(job) if attempt["cause"] not in ("left", "new_split", "grew")]
        for attempt in failed:
            if attempt["worker"] and attempt["worker"] not in concerned:
                raise clusters.Trouble(f"{attempt['worker']} is blamed: {attempt['message']}")
        if failed and all(fault.ends_attempts is False for fault, _, _ in self.done):
            raise clusters.Trouble(f"an attempt has ended for what should not be noticed: {failed[0]['message']}")


class Chaos:
    def __init__(self, flags, folder):
        self.flags = flags
        self.programs = pathlib.Path(flags.build) / "bin"
        self.folder = folder
        self.among = [faults.BY_NAME[name] for name in flags.faults]
        self.among = [fault for fault in self.among if flags.links or not fault.needs_links]
        self.among = [fault for fault in self.among if flags.spare or not fault.needs_spare]
        self.among = [fault for fault in self.among if not flags.snapshots or fault.name not in LOSE_MEMORY]
        self.figures = {fault.name: table.Figures() for fault in self.among}
        self.undisturbed = {}  # by method: (weights, seconds)
        self.redone = []
        self.troubles = 0

    def train_undisturbed(self):
        for method in self.flags.methods:
            trial = Trial(self.programs, self.folder / f"undisturbed-{method}", method, self.flags)
            job, seconds = trial.run([], random.Random(0))
            trial.check(job, None)
            self.undisturbed[method] = (job["result"]["weights_sha256"], seconds)
            print(f"undisturbed: {method}, {seconds:.1f} s", flush=True)

    def trial(self, number):
        # Of streams of their own, so that the run is the same again with its method alone.
        method = random.Random(f"{self.flags.seed} {number} method").choice(self.flags.methods)
        draw = random.Random(f"{self.flags.seed} {number} faults")
        weights, seconds = self.undisturbed[method]
        drawn = faults.draw_faults(draw, self.among, seconds, self.flags.most, self.flags.spare or None)
        folder = self.folder / f"trial-{number}"
        trial = Trial(self.programs, folder, method, self.flags)
        said = f"{number:5} {method:10} " + ", ".join(f"{fault.name} after {pause:.1f} s" for pause, fault in drawn)
        try:
            job, took = trial.run(drawn, draw)
            trial.check(job, weights)
        except clusters.Trouble as trouble:
            self.troubles += 1
            print(f"{said}\n    WRONG: {trouble}\n    kept in {folder}; again: {self.command_of(number, method)}", flush=True)
        else:
            self.redone.append(sum(attempt["steps_redone"] for attempt in job["result"]["attempts"]))
            recovered = ", ".join("ended" if seconds is None else f"{seconds:.2f} s" for _, _, seconds in trial.done)
            print(f"{said}: over after {recovered}; {took:.1f} s, {self.redone[-1]} steps done again", flush=True)
            shutil.rmtree(folder)
        for fault, _, recovered in trial.done:
            of = self.figures[fault.name]
            of.count += 1
            if recovered is None:
                of.over_first += 1
            else:
                of.recovery_seconds.append(recovered)

    def command_of(self, number, method):
        words = [pathlib.Path(__file__).name, self.flags.build, "--seed", self.flags.seed, "--only-trial", number,
                 "--methods", method]
        if self.flags.links:
            words.append("--links")
        if self.flags.snapshots:
            words.append("--snapshots")
        if self.flags.most != MOST_FAULTS:
            words += ["--most", self.flags.most]
        if self.flags.spare:
            words += ["--spare", self.flags.spare]
        if self.flags.load:
            words += ["--load", self.flags.load]
        if set(self.flags.faults) != set(faults.BY_NAME):
            words += ["--faults", *self.flags.faults]
        return " ".join(str(word) for word in words)

    def run(self):
        self.train_undisturbed()
        if self.flags.only_trial is not None:
            return self.trial(self.flags.only_trial)
        give_up_at = time.monotonic() + 60 * self.flags.minutes
        number = 0
        while number < self.flags.trials if self.flags.trials else time.monotonic() < give_up_at:
            self.trial(number)
            number += 1

    def report(self):
        print(f"\nuntil the job had come further than before the fault:\n{table.text_of(self.figures)}")
        print(f"steps done again in a run: {sum(self.redone) / max(1, len(self.redone)):.1f} on average, "
              f"{max(self.redone, default=0)} at most (checkpoints every {EVERY_STEPS})")
        print(f"{len(self.redone)} runs ended as undisturbed ones, {self.troubles} did not")
        if self.flags.json:
            pathlib.Path(self.flags.json).write_text(json.dumps({
                "seed": self.flags.seed, "runs": len(self.redone), "troubles": self.troubles,
                "faults": {name: of.as_json() for name, of in self.figures.items()}}, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--trials", type=int, help="the number of runs, instead of minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=MOST_FAULTS, help="the most faults in a run")
    parser.add_argument("--spare", type=int, default=0, help="this many workers more than the job needs; killed ones stay away")
    parser.add_argument("--links", action="store_true", help="disturb links, too; all bytes then pass a proxy")
    parser.add_argument("--load", type=int, default=0, help="the number of processes that keep the cores busy meanwhile")
    parser.add_argument("--snapshots", action="store_true", help="jobs have no checkpoints on disk")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--faults", nargs="+", choices=faults.BY_NAME, default=list(faults.BY_NAME))
    parser.add_argument("--only-trial", type=int, help="this run alone")
    parser.add_argument("--json", help="the file that the figures go to")
    flags = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    print(f"seed {flags.seed}, in {folder}", flush=True)
    chaos = Chaos(flags, folder)
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(flags.load)]
    try:
        chaos.run()
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        for process in load:
            process.kill()
    chaos.report()
    if chaos.troubles == 0:
        shutil.rmtree(folder)
    sys.exit(1 if chaos.troubles else 0)


if __name__ == "__main__":
    main()
