#!/usr/bin/env python3
"""How fast a job trains before, while, and after its cluster changes.

usage: changing_cluster.py BUILD [--only lost|slow] [--json FILE]

lost: four workers, on devices that are emulated, of which one is killed and comes back later. The job waits a second for it,
goes on with three, and with four again from a cut. Prints the steps per second of each phase, and the seconds from the kill
until it trains again, and to a step that had not been done before. The weights must be those of a job that was not disturbed.

slow: two workers that compute, of which one gets a fifth of its CPU for a while, in slices of a tenth of a second. Prints when
the job's log names it, when layers have moved, and the steps per second of each phase.
"""
import argparse
import json
import pathlib
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import cluster as clusters  # noqa: E402  (it is beside this folder)

LOST_STEPS = 900
LOST_JOB = """\
name: lost
model:
  gpt: {layers: 4, width: 32, heads: 2, context: 16, tied_head: false}
data:
  text: {path: input.txt, tokenizer: bytes}
training:
  steps: %d
  batch: 16
  microbatches: 8
  optimizer: {adamw: {learning_rate: 1.0e-3}}
  seed: 1
checkpoint: {directory: %s, every_steps: 50}
recovery: {wait_seconds: 1}
pipeline: {method: 1f1b, stages: 4}
planning: {split: estimated}
"""
DEVICE = "model: {forward_ms: 8, backward_input_ms: 8, backward_weight_ms: 8, update_ms: 0}\n"

SLOW_SHARE = 0.2
SLOW_JOB = """\
name: slow
model:
  gpt: {layers: 8, width: 128, heads: 4, context: 64, tied_head: false}
data:
  text: {path: input.txt, tokenizer: bytes}
training:
  steps: 100000
  batch: 16
  microbatches: 4
  optimizer: {adamw: {learning_rate: 1.0e-3}}
  seed: 1
checkpoint: {directory: %s, every_steps: 50}
feedback: {replan: auto}
pipeline: {method: 1f1b, stages: 2}
"""


def steps_per_second(cluster, job_id, seconds):
    def now():
        return cluster.job(job_id)["step"], time.monotonic()
    first, since = now()
    time.sleep(seconds)
    last, until = now()
    return (last - first) / (until - since)


def attempts(job):
    return job["result"]["attempts"]


def layers_of(job):
    """By worker, as of the attempt's last cut."""
    return [stage["layers"] for stage in job["result"]["per_stage"]]


def lose_one(programs, folder):
    clusters.write_job(folder, 1, 1)  # its text
    (folder / "job.yaml").write_text(LOST_JOB % (LOST_STEPS, folder / "checkpoints"))
    (folder / "device.yaml").write_text(DEVICE)
    with clusters.Cluster(programs, folder, lambda *_: None, workers=4, restarts=False,
                          worker_flags=("--emulate", folder / "device.yaml")) as cluster:
        undisturbed = cluster.await_end(cluster.submit("undisturbed"))
        (folder / "job.yaml").write_text(LOST_JOB % (LOST_STEPS, folder / "checkpoints" / "again"))
        job_id = cluster.submit("disturbed")
        cluster.await_step(job_id, 100)
        before = steps_per_second(cluster, job_id, 10)
        at_kill = cluster.job(job_id)
        cluster.signal("worker-3", signal.SIGKILL)
        since, killed_ms = time.monotonic(), 1000 * time.time()
        cluster.eventually(lambda: (job := cluster.job(job_id)) and len(attempts(job)) == 2 and
                           job["step"] > attempts(job)[0]["last_step"], "the job goes on with three workers")
        seconds = time.monotonic() - since
        trains = (attempts(cluster.job(job_id))[0]["resumed_ms"] - killed_ms) / 1000
        three = steps_per_second(cluster, job_id, 10)
        cluster.start("worker-3")
        since = time.monotonic()
        cluster.eventually(lambda: (job := cluster.job(job_id)) and len(attempts(job)) == 3 and
                           job["step"] > attempts(job)[1]["last_step"], "the job goes on with four workers")
        grown = time.monotonic() - since
        after = steps_per_second(cluster, job_id, 10)
        job = cluster.await_end(job_id)
        if job["state"] != "succeeded" or job["result"]["weights_sha256"] != undisturbed["result"]["weights_sha256"]:
            raise clusters.Trouble(f"the job has {job['state']}, with other weights than the undisturbed one: {job['error']}")
        print(f"lost: 4 workers {before:.1f} steps/s, 3 workers {three:.1f}, 4 again {after:.1f} ({100 * (after / before - 1):+.1f} %); "
              f"{trains:.2f} s after the kill at step {at_kill['step']} it trains with 3, after {seconds:.2f} s it is further, with "
              f"{sum(attempt['steps_redone'] for attempt in attempts(job))} steps done again; four again {grown:.2f} s after the fourth was started", flush=True)
        return {"before": before, "three": three, "after": after, "seconds_to_train": trains, "seconds_to_go_on": seconds, "seconds_to_grow": grown}


def be_slow(programs, folder):
    clusters.write_job(folder, 1, 1)  # its text
    (folder / "job.yaml").write_text(SLOW_JOB % (folder / "checkpoints"))
    with clusters.Cluster(programs, folder, lambda *_: None) as cluster:
        job_id = cluster.submit("slow")
        cluster.await_step(job_id, 1)
        time.sleep(25)  # a worker is held against what it took before
        layers = layers_of(cluster.job(job_id))
        before = steps_per_second(cluster, job_id, 10)
        figures = {"before": before, "layers_before": layers}

        def named(words):
            return any("worker-1" in event.get("message", "") and words in event["message"] for event in cluster.logs(job_id))
        with cluster.held_back("worker-1", SLOW_SHARE):
            since = time.monotonic()
            figures["during"] = steps_per_second(cluster, job_id, 8)
            cluster.eventually(lambda: named("is slow"), "worker-1 is named as slow")
            figures["seconds_to_name"] = time.monotonic() - since
            cluster.eventually(lambda: (job := cluster.job(job_id)) and len(attempts(job)) == 2 and
                               job["step"] > attempts(job)[0]["last_step"], "layers have moved")
            figures["seconds_to_move"] = time.monotonic() - since
            figures["moved"] = steps_per_second(cluster, job_id, 15)
            figures["layers_moved"] = layers_of(cluster.job(job_id))
        since = time.monotonic()
        cluster.eventually(lambda: (job := cluster.job(job_id)) and len(attempts(job)) == 3 and
                           job["step"] > attempts(job)[1]["last_step"], "layers have moved back")
        figures["seconds_to_move_back"] = time.monotonic() - since
        figures["after"] = steps_per_second(cluster, job_id, 10)
        figures["layers_after"] = layers_of(cluster.job(job_id))
        cluster.cancel(job_id)
        print("slow: " + ", ".join(f"{name} {value if isinstance(value, list) else round(value, 2)}"
                                   for name, value in figures.items()), flush=True)
        return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", choices=["lost", "slow"])
    parser.add_argument("--json")
    flags = parser.parse_args()
    figures = {}
    for name, measure in {"lost": lose_one, "slow": be_slow}.items():
        if flags.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                figures[name] = measure(pathlib.Path(flags.build) / "bin", pathlib.Path(folder))
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
