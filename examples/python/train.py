#!/usr/bin/env python3
"""Submits a job to a Penstock coordinator and watches it to its end.

Needs nothing of Penstock but proto/: README.md says how the stubs are made from it. The exit code is that of
`penstock submit`: 0 the job succeeded, 1 it failed, 130 it was cancelled.
"""

import argparse
import pathlib
import sys
import time
import uuid

import grpc
from penstock.v1 import cluster_pb2, cluster_pb2_grpc, job_pb2

CALL_SECONDS = 10
WATCH_SECONDS = 600  # of one stream; then another goes on where it ended
RECONNECT_SECONDS = 30  # how long a coordinator may be away
STANDING_SECONDS = 10  # a stream that stood so long had a coordinator, silent as it was
PAUSE_SECONDS = 0.2  # between attempts

# A machine that is gone says nothing: pings find out, also while the job has nothing to tell.
KEEPALIVE = [("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5_000)]

EXIT_CODES = {
    cluster_pb2.JOB_STATE_SUCCEEDED: 0,
    cluster_pb2.JOB_STATE_FAILED: 1,
    cluster_pb2.JOB_STATE_CANCELLED: 130,
}


def make_job(data, steps):
    """A small GPT on the text `data`, a path that the workers know."""
    job = job_pb2.JobSpec(name="python-example")
    job.model.gpt.layers = 2
    job.model.gpt.width = 32
    job.model.gpt.heads = 2
    job.model.gpt.context = 16
    job.model.gpt.tied_head = False
    job.data.text.path = data
    job.data.text.tokenizer = "bytes"
    job.training.steps = steps
    job.training.batch = 16
    job.training.microbatches = 4
    job.training.optimizer.adamw.learning_rate = 1e-2
    job.training.clip.layer_norm = 1.0
    job.validation.every_steps = max(1, steps // 2)
    job.pipeline.method = "pipedream"
    job.pipeline.stages = 2
    return job


def metrics_of(metrics):
    """", accuracy 34.1 %, top5 70.2 %", of a model over classes."""
    return "".join(f", {metric.name} {metric.value:.1%}".replace("%", " %") for metric in metrics)


def connect(coordinator, certificates):
    """A channel with mutual TLS by ca.crt, tls.crt and tls.key in `certificates`; without them in plain text."""
    if certificates is None:
        return grpc.insecure_channel(coordinator, options=KEEPALIVE)
    read = lambda name: (pathlib.Path(certificates) / name).read_bytes()
    credentials = grpc.ssl_channel_credentials(read("ca.crt"), read("tls.key"), read("tls.crt"))
    # A coordinator's certificate names its role, not the hosts that it may run on.
    options = [*KEEPALIVE, ("grpc.ssl_target_name_override", "coordinator")]
    return grpc.secure_channel(coordinator, credentials, options=options)


def watch(jobs, job_id):
    """Yields the job's events, each once and in order, also over a restart of the coordinator."""
    sequence = 0
    away_since = None
    while True:
        began = time.monotonic()
        request = cluster_pb2.WatchJobRequest(job_id=job_id, after_sequence=sequence)
        try:
            for event in jobs.WatchJob(request, timeout=WATCH_SECONDS):
                sequence = event.sequence
                away_since = None
                yield event
            return
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                away_since = None
                continue
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            now = time.monotonic()
            if away_since is None or now - began > STANDING_SECONDS:
                away_since = now
            if now - away_since > RECONNECT_SECONDS:
                raise
            time.sleep(PAUSE_SECONDS)


def get_job(jobs, job_id):
    """The job as it is now, also from a coordinator that is away for a moment."""
    give_up = time.monotonic() + RECONNECT_SECONDS
    while True:
        try:
            return jobs.GetJob(cluster_pb2.GetJobRequest(job_id=job_id), timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > give_up:
                raise
            time.sleep(PAUSE_SECONDS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coordinator", default="127.0.0.1:7070", metavar="HOST:PORT")
    parser.add_argument("--certificates", metavar="DIR", help="ca.crt, tls.crt and tls.key of a client")
    parser.add_argument("--data", required=True, metavar="FILE", help="a text, as the workers know it")
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()

    with connect(arguments.coordinator, arguments.certificates) as channel:
        jobs = cluster_pb2_grpc.JobServiceStub(channel)
        # With the key, a submission that is sent twice makes one job.
        submission = cluster_pb2.SubmitJobRequest(
            spec=make_job(arguments.data, arguments.steps), idempotency_key=uuid.uuid4().hex
        )
        job_id = jobs.SubmitJob(submission, timeout=CALL_SECONDS).job_id
        print("submitted", job_id, flush=True)
        for event in watch(jobs, job_id):
            kind = event.WhichOneof("kind")
            if kind == "step_done":
                print(f"step {event.step_done.step} loss {event.step_done.loss:.4f}", flush=True)
            elif kind == "validation_done":
                done = event.validation_done
                print(f"step {done.step} validation loss {done.loss:.4f}{metrics_of(done.metrics)}", flush=True)
            elif kind == "state_changed":
                state = cluster_pb2.JobState.Name(event.state_changed.state)
                print(state.removeprefix("JOB_STATE_").lower(), event.state_changed.error, flush=True)
        job = get_job(jobs, job_id)
        if job.result.steps > 0:
            print(f"train loss {job.result.train_loss:.4f}")
        if job.result.HasField("validation_loss"):
            right = metrics_of(job.result.validation_metrics)
            print(f"validation loss {job.result.validation_loss:.4f}{right}")
        return EXIT_CODES[job.summary.state]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except grpc.RpcError as error:
        sys.exit(f"train.py: {error.code().name}: {error.details()}")
    except OSError as error:
        sys.exit(f"train.py: {error}")
