#!/usr/bin/env python3
"""Kills processes of a real cluster at each fault point, and checks that training ends as if nothing had happened.

usage: fault_points_test.py BUILD [--times N] [--only TEXT...] [--action kill|fail|full|sleep] [--seed N] [--jobs N]

BUILD: a build folder of the preset `faults`. Each scenario (scenarios.py) first runs undisturbed, with all points noted:
that says which points each life of a process reaches, and how often. Then for every point of base/fault_point_list.h, until
its fault came about N times, in 2 N trials at most: a scenario, a process and a hit are drawn among those that reach it, the process is killed there (or what --action
says happens), and started again without the fault after 100 ms. The job must end with the weights of an undisturbed
run. --action fail and full leave out places that return no error.

Prints a line for each point: how often its fault came about, and what went wrong. Exits with 1 if a point was reached
too seldom or anything went wrong; then the folders of those trials are kept, and the first line says where they are.
"""
import argparse
import concurrent.futures
import dataclasses
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import cluster as clusters  # noqa: E402  (it is not beside this file)
import scenarios  # noqa: E402

LIST = pathlib.Path(__file__).resolve().parents[2] / "base" / "fault_point_list.h"
# What a scenario's cluster has that others have not, as names and as lines say it.
SETTINGS = {"file": "", "etcd": " with etcd", "remote": " with checkpoints at the coordinator"}
ACTIONS = {"kill": "kill", "fail": "fail", "full": "full", "sleep": "sleep:1500"}


def read_points():
    """{name: whether the place can fail} of the list."""
    rows = re.findall(r'ROW\(\w+, "([a-z_.]+)", (kEnds|kFails)\)', LIST.read_text())
    return {name: ability == "kFails" for name, ability in rows}


@dataclasses.dataclass(frozen=True)
class Reach:
    """A life of a process in a scenario that comes to a point at least `hits` times."""
    scenario: object
    setting: str  # of SETTINGS
    process: str
    life: int
    hits: int

    def name(self):
        return f"{self.scenario.__name__}{SETTINGS[self.setting]}, {self.process}, life {self.life + 1}"


class Etcd:
    """A member of its own for the whole test; each cluster has a prefix of its keys."""

    def __init__(self, folder):
        client, peer = clusters.free_port(), clusters.free_port()
        self.address = f"127.0.0.1:{client}"
        urls = [f"http://127.0.0.1:{port}" for port in (client, peer)]
        with open(folder / "etcd.log", "wb") as log:
            self.process = subprocess.Popen(
                ["etcd", "--name", "one", "--data-dir", str(folder / "etcd"), "--listen-client-urls", urls[0],
                 "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1],
                 "--initial-cluster", f"one={urls[1]}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Test:
    def __init__(self, flags, folder, etcd):
        self.programs = pathlib.Path(flags.build).resolve() / "bin"
        self.action = ACTIONS[flags.action]
        self.folder = folder
        self.etcd = etcd
        self.reference = None  # the SHA-256 of the weights of an undisturbed run

    def check_refusals(self):
        """A program that is told a wrong point or action says so, and does not start."""
        for program in ("penstock-coordinator", "penstock-worker"):
            for wrong, expected in (("store.befor_commit=kill", "store.before_commit"), ("run.at_cut=die", "expected kill")):
                ran = subprocess.run([self.programs / program, "--insecure"], stdin=subprocess.DEVNULL, capture_output=True,
                                     text=True, timeout=20, check=False, env={clusters.VARIABLE: wrong})
                if ran.returncode != 2 or expected not in ran.stderr:
                    raise clusters.Trouble(f"{program} with {wrong} ended with {ran.returncode}: {ran.stderr}")

    def scenarios(self):
        """[(scenario, setting)]"""
        found = [(scenario, "file") for scenario in scenarios.IN_A_FILE]
        found += [(scenario, "remote") for scenario in scenarios.WITH_REMOTE_CHECKPOINTS]
        return found + ([(scenario, "etcd") for scenario in scenarios.IN_ETCD] if self.etcd else [])

    def make_cluster(self, folder, setting, fault_of):
        folder.mkdir()
        clusters.write_job(folder, scenarios.STEPS, scenarios.EVERY_STEPS)
        state = f"etcd://{self.etcd.address}/{folder.name}" if setting == "etcd" else None
        return clusters.Cluster(self.programs, folder, fault_of, state=state, remote_checkpoints=setting == "remote")

    def check(self, job):
        """Raises Trouble if the job has not ended as it should."""
        if job["state"] != "succeeded":
            raise clusters.Trouble(f"the job has {job['state']}: {job['error'] or job['reason']}")
        weights = job["result"]["weights_sha256"]
        if self.reference is None:
            self.reference = weights
        if weights != self.reference:
            raise clusters.Trouble(f"the weights are {weights[:12]}..., expected {self.reference[:12]}...")

    def census(self, points):
        """{name: the lives that reach it} of undisturbed runs."""
        reaches = {name: [] for name in points}
        notes = ",".join(f"{name}=note" for name in points)
        for scenario, setting in self.scenarios():
            since = time.monotonic()
            folder = self.folder / f"census-{scenario.__name__}-{setting}"
            with self.make_cluster(folder, setting, lambda name, life: notes) as cluster:
                self.check(scenario(cluster))
                if crashes := cluster.crashes():
                    raise clusters.Trouble("; ".join(crashes))
            for process, lives in cluster.lives.items():
                for number, life in enumerate(lives):
                    for name, (hits, _) in life.hits().items():
                        reaches[name].append(Reach(scenario, setting, process, number, hits))
            print(f"undisturbed: {scenario.__name__}{SETTINGS[setting]}, "
                  f"{time.monotonic() - since:.1f} s", flush=True)
            shutil.rmtree(folder)
        return reaches

    def trial(self, name, reaches, seed):
        """Returns (whether the fault came about, what went wrong or None, what was done)."""
        draw = random.Random(f"{seed} {name}")
        reach = draw.choice(reaches)
        hit = draw.randint(1, reach.hits)
        folder = self.folder / f"{name}-{seed}"
        said = f"{reach.name()}, hit {hit}"
        fault = f"{name}={self.action}@{hit}"
        in_life = (reach.process, reach.life)
        trouble = None
        with self.make_cluster(folder, reach.setting, lambda *life: fault if life == in_life else None) as cluster:
            try:
                self.check(reach.scenario(cluster))
            except clusters.Trouble as caught:
                trouble = str(caught)
            if crashes := cluster.crashes():
                trouble = "; ".join([trouble or "the job ended well", *crashes])
        lives = cluster.lives[reach.process]
        fired = reach.life < len(lives) and name in lives[reach.life].hits()
        if trouble is None:
            shutil.rmtree(folder)
        return fired, trouble, said

    def run_point(self, name, reaches, flags):
        fired, troubles, number = 0, [], 0
        # Some hits of the undisturbed run do not come about each time, for example those of an attempt that did not end in time.
        while reaches and fired < flags.times and number < 2 * flags.times:
            came_about, trouble, said = self.trial(name, reaches, f"{flags.seed}-{number}")
            fired += came_about
            number += 1
            if trouble is not None:
                troubles.append(f"{said}: {trouble}")
        return name, fired, troubles


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[""], help="points whose name contains one of these")
    parser.add_argument("--action", choices=ACTIONS, default="kill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="points that are tried at the same time")
    flags = parser.parse_args()
    points = read_points()
    chosen = [name for name, fails in points.items()
              if any(text in name for text in flags.only) and (fails or flags.action not in ("fail", "full"))]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-fault-points-"))
    print(f"{len(chosen)} fault points, {flags.times} times {flags.action}, seed {flags.seed}, in {folder}", flush=True)
    etcd = Etcd(folder) if shutil.which("etcd") else None
    if etcd is None:
        print("without etcd, which is not installed: points of area etcd are left out")
        chosen = [name for name in chosen if not name.startswith("etcd.")]
    failed = []
    try:
        test = Test(flags, folder, etcd)
        test.check_refusals()
        reaches = test.census(points)
        with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
            for name, fired, troubles in pool.map(lambda name: test.run_point(name, reaches[name], flags), chosen):
                good = fired == flags.times and not troubles
                outcome = f"{len(troubles)} BAD" if troubles else "good" if good else "reached too seldom"
                print(f"{name:32} {fired:4} of {flags.times:4}  {outcome}", flush=True)
                for trouble in troubles:
                    print(f"    {trouble}", flush=True)
                if not good:
                    failed.append(name)
    except clusters.Trouble as trouble:
        sys.exit(f"without any fault: {trouble}; logs are in {folder}")
    finally:
        if etcd is not None:
            etcd.stop()
    print(f"{len(chosen) - len(failed)} of {len(chosen)} fault points good")
    if not failed:
        shutil.rmtree(folder)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
