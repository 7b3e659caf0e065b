#!/usr/bin/env python3
"""Does what once broke the jobs of others, to a real cluster, and says what comes of it.

usage: injections.py BUILD [--only TEXT...]

BUILD: a build folder of the preset `faults`. Each injection is a function below, with a cluster and a job of its own, which must end
with the weights of an undisturbed run. Kills, freezes and links at random moments are what chaos.py does. Prints a line
for each: what came of it, and the longest time without a step. Exits with 1 if a job did not end as it should. Disks that fill
up are file systems in memory, which takes the right to mount them: run it as root, or with `unshare -rm`.
"""
import argparse
import contextlib
import dataclasses
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import cluster as clusters  # noqa: E402  (it is beside this folder)

STEPS = 3000
EVERY_STEPS = 150
SMALL_DISK_BYTES = 16 << 20


@dataclasses.dataclass
class Outcome:
    said: str
    seconds: float  # the longest time without a step


class Test:
    """What an injection needs: clusters, and the weights that their jobs should have."""

    def __init__(self, build, folder):
        self.build = pathlib.Path(build).resolve()
        self.folder = folder
        self.weights = None
        self.number = 0

    def cluster(self, fault_of=lambda *_: None, small_disk=None, **more):
        """`small_disk`: "checkpoints" or "state": it is on a disk of its own, which can be filled up."""
        self.number += 1
        folder = self.folder / str(self.number)
        folder.mkdir()
        clusters.write_job(folder, STEPS, EVERY_STEPS)
        if small_disk:
            (folder / small_disk).mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs", folder / small_disk], check=True)
        if small_disk == "state":
            more["state"] = folder / "state" / "state.sqlite"
        return clusters.Cluster(self.build / "bin", folder, fault_of, **more)

    def load(self, cluster, what, clients, seconds):
        """Calls of many clients at once. Returns how many ended how."""
        ran = subprocess.run([self.build / "tests" / "support" / "client_load", cluster.address, what, str(clients), str(seconds)],
                             capture_output=True, text=True, check=True, timeout=seconds + 60)
        ends = json.loads(ran.stdout)
        slowest = ends.pop("slowest_seconds")
        return ", ".join(f"{count} {end}" for end, count in sorted(ends.items())) + f", the slowest in {slowest:.1f} s"

    def ends_well(self, cluster, job_id, attempts=1):
        """Follows the job to its end, and returns the longest time without a step."""
        job, seconds = cluster.follow(job_id)
        if job["state"] != "succeeded":
            raise clusters.Trouble(f"the job has {job['state']}: {job['error'] or job['reason']}")
        self.weights = self.weights or job["result"]["weights_sha256"]
        if job["result"]["weights_sha256"] != self.weights:
            raise clusters.Trouble("its weights are not those of an undisturbed run")
        if len(job["result"]["attempts"]) > attempts:
            raise clusters.Trouble(f"an attempt has ended: {job['result']['attempts'][0]['message']}")
        if crashes := cluster.crashes():
            raise clusters.Trouble("; ".join(crashes))
        return job, seconds


def fill_up(folder):
    """Leaves no byte on the disk of a folder. Returns what frees it."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as out, contextlib.suppress(OSError):
        while True:
            out.write(bytes(4096))
    return filler.unlink


def undisturbed(test):
    with test.cluster() as cluster:
        _, seconds = test.ends_well(cluster, cluster.submit("job"))
        return Outcome("trains", seconds)


def executor_stands_still(test):
    """The thread that computes hangs, while its process answers calls and sends heartbeats; there is a spare."""
    hangs = "executor.after_action=sleep:60000@9000"
    with test.cluster(lambda name, life: hangs if (name, life) == ("worker-1", 0) else None, workers=3, restarts=False,
                      late=["worker-2"]) as cluster:
        job_id = cluster.submit("job")
        cluster.await_step(job_id, 1)
        cluster.start("worker-2")  # only now, so that it is the spare
        job, seconds = test.ends_well(cluster, job_id, attempts=2)
        attempt = job["result"]["attempts"][0]
        if (attempt["cause"], attempt["worker"]) != ("stalled", "worker-1"):
            raise clusters.Trouble(f"the attempt ended with {attempt}")
        return Outcome("worker-1 is blamed, the spare takes its place", seconds)


def coordinator_link_stands_still(test):
    with test.cluster(linked=True) as cluster:
        job_id = cluster.submit("job")
        cluster.await_step(job_id, 100)
        cluster.uplinks["worker-1"].swallow(2.5)
        _, seconds = test.ends_well(cluster, job_id)
        return Outcome("goes on, no attempt ends", seconds)


def says_link_is_dead(attempt):
    if (attempt["cause"], attempt["worker"] or "") != ("unreachable", "") or "the link between workers" not in attempt["message"]:
        raise clusters.Trouble(f"the attempt ended with {attempt}")


def link_between_workers_is_dead(test):
    """Nothing goes between two workers, which both reach the coordinator; there is a spare."""
    with test.cluster(linked=True, workers=3, restarts=False, late=["worker-2"]) as cluster:
        job_id = cluster.submit("job")
        cluster.await_step(job_id, 1)
        cluster.start("worker-2")  # only now, so that it is the spare
        cluster.await_step(job_id, 300)
        cluster.part("worker-0", "worker-1", 60)
        job, seconds = test.ends_well(cluster, job_id, attempts=2)
        says_link_is_dead(job["result"]["attempts"][0])
        return Outcome("the link is named, the spare takes the place of one of the two", seconds)


def link_between_workers_is_dead_for_a_while(test):
    """The same without a spare."""
    with test.cluster(linked=True) as cluster:
        job_id = cluster.submit("job")
        cluster.await_step(job_id, 300)
        cluster.part("worker-0", "worker-1", 10)
        job, seconds = test.ends_well(cluster, job_id, attempts=8)
        attempts = [attempt for attempt in job["result"]["attempts"] if attempt["cause"] is not None]
        for attempt in attempts:
            says_link_is_dead(attempt)
        return Outcome(f"the link is named, {len(attempts)} attempts end, and the next goes on", seconds)


def open_connections_take_nothing(test):
    """The connections to a worker stay open, as where its process read nothing; it takes new ones."""
    with test.cluster(linked=True) as cluster:
        job_id = cluster.submit("job")
        cluster.await_step(job_id, 300)
        cluster.links["worker-1"].stall()
        _, seconds = test.ends_well(cluster, job_id)
        return Outcome("goes on over others, no attempt ends", seconds)


def coordinator_is_killed_while_draining(test):
    slow_save = "save.before_layer=sleep:200"
    with test.cluster(lambda name, life: slow_save if name.startswith("worker") and life == 0 else None) as cluster:
        job_id = cluster.submit("job")
        cluster.await_step(job_id, 100)
        cluster.signal("worker-1", signal.SIGTERM)
        cluster.eventually(lambda: (cluster.job(job_id) or {}).get("state") == "draining", "the job drains")
        cluster.signal("coordinator", signal.SIGKILL)
        job, seconds = test.ends_well(cluster, job_id, attempts=3)
        return Outcome(f"drains and goes on, {sum(attempt['steps_redone'] for attempt in job['result']['attempts'])} steps done again", seconds)


def checkpoint_disk_is_full(test):
    with test.cluster(small_disk="checkpoints") as cluster:
        job_id = cluster.submit("job")
        cluster.await_step(job_id, EVERY_STEPS + 10)
        free = fill_up(cluster.checkpoints)
        time.sleep(4)
        free()
        job, seconds = test.ends_well(cluster, job_id)
        kept = sorted(path.name for path in cluster.checkpoints.glob("step-*"))
        if len(kept) != 2 or not kept[-1].endswith(str(STEPS)):
            raise clusters.Trouble(f"the checkpoints in the end are {kept}")
        return Outcome("trains on, saves again afterwards, leaves nothing behind", seconds)


def state_disk_is_full(test):
    with test.cluster(small_disk="state") as cluster:
        job_id = cluster.submit("job")
        cluster.await_step(job_id, 100)
        free = fill_up(cluster.folder / "state")
        ends = []
        for call in (("submit", "job.yaml", "--no-wait"), ("cancel", job_id)):
            acknowledged = cluster.run(*call)
            if acknowledged or "full" not in cluster.last_error:
                raise clusters.Trouble(f"{call[0]}: {acknowledged or cluster.last_error}")
            ends.append(cluster.last_error)
        free()
        cluster.signal("coordinator", signal.SIGKILL)
        _, seconds = test.ends_well(cluster, job_id)
        return Outcome(f"submit and cancel are refused ({ends[0]}), and the job goes on", seconds)


def beside(what, clients, seconds=15, audit_ms=0):
    """An injection: clients beside a job that trains, and an audit log whose disk takes that long."""
    def inject(test):
        audit = f"audit.before_write=sleep:{audit_ms}" if audit_ms else None
        with test.cluster(lambda name, life: audit if name == "coordinator" else None) as cluster:
            job_id = cluster.submit("job")
            cluster.await_step(job_id, 100)
            calls = []
            load = threading.Thread(
                target=lambda: calls.append(test.load(cluster, job_id if what == "watch" else what, clients, seconds)))
            load.start()
            _, stood_still = test.ends_well(cluster, job_id)
            load.join()
            return Outcome(f"the job does not notice; {calls[0] if calls else 'no calls'}", stood_still)
    return inject


def slow(share):
    """An injection: a worker that gets only a part of its CPU."""
    def inject(test):
        with test.cluster() as cluster:
            job_id = cluster.submit("job")
            cluster.await_step(job_id, STEPS // 2)
            with cluster.held_back("worker-1", share):
                _, seconds = test.ends_well(cluster, job_id)
            return Outcome("survives", seconds)
    return inject


INJECTIONS = {
    "undisturbed": undisturbed,
    "executor stands still": executor_stands_still,
    "link to the coordinator stands still for 2.5 s": coordinator_link_stands_still,
    "link between two workers is dead": link_between_workers_is_dead,
    "link between two workers is dead for 10 s, no spare": link_between_workers_is_dead_for_a_while,
    "open connections to a worker take nothing": open_connections_take_nothing,
    "coordinator is killed while a job drains": coordinator_is_killed_while_draining,
    "checkpoint disk is full for 4 s": checkpoint_disk_is_full,
    "state disk is full": state_disk_is_full,
    "500 clients cancel an unknown job": beside("cancel", 500),
    "64 clients, an audit disk of 50 ms": beside("cancel", 64, audit_ms=50),
    "8 clients, an audit disk of 2 s": beside("cancel", 8, audit_ms=2000),
    "100 clients submit": beside("submit", 100, seconds=5),
    "100 clients list and look": beside("look", 100),
    "300 clients watch the job": beside("watch", 300, seconds=8),
    "worker at 20 % of its CPU": slow(0.2),
    "worker at 5 % of its CPU": slow(0.05),
}


def succeeds(name, inject, test):
    """Injects it, and says how that went."""
    try:
        outcome = inject(test)
        print(f"{name}: {outcome.said}; {outcome.seconds:.2f} s without a step", flush=True)
        return True
    except (clusters.Trouble, subprocess.SubprocessError) as trouble:
        print(f"{name}: WRONG: {trouble}", flush=True)
        return False
    finally:
        for small in test.folder.glob("*/*"):
            if small.is_mount():
                subprocess.run(["umount", "--lazy", small], check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", nargs="+", default=[""], help="those whose names contain one of these")
    parser.add_argument("--times", type=int, default=1, help="each so often")
    flags = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-injections-"))
    test = Test(flags.build, folder)
    print(f"in {folder}", flush=True)
    wrong = 0
    for name, inject in INJECTIONS.items():
        if name != "undisturbed" and not any(text in name for text in flags.only):
            continue
        for _ in range(flags.times if name != "undisturbed" else 1):
            wrong += not succeeds(name, inject, test)
    if not wrong:
        shutil.rmtree(folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
