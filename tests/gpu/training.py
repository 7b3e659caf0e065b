"""Trainings with `penstock train`, and what their results say."""

import concurrent.futures
import contextlib
import json
import os
import statistics

import process


class StepFailed(Exception):
    """A step could not give its figure; the text says why."""


class Training:
    def __init__(self, command, trace=None):
        self.command, self.trace = command, trace

    def read(self, result):
        """The JSON that the command printed."""
        if result.code != 0 or result.timed_out:
            raise StepFailed(f"penstock train: {result.complaint()}")
        document = json.loads(result.output)
        if document["state"] != "succeeded":
            raise StepFailed(f"penstock train: {document['state']}: {document['error']}")
        return document

    def run(self, context, limit_s):
        """It ends with the step at the latest, on any thread."""
        limit_s = context.limit(limit_s)
        return self.read(process.finish(context.start(self.command), limit_s))


@contextlib.contextmanager
def side_by_side(context, trainings, limit_s):
    """Runs {key: training} beside what the caller does, as many at once as there are cores: with all at once no process gets
    a core often enough to answer its peers in time. Gives {key: a future of the result}."""
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0)))
    try:
        yield {key: pool.submit(training.run, context, limit_s) for key, training in trainings.items()}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def train(context, job, workers, device, settings, trace=None, text=True):
    """`settings`: {key of the job: value}. `trace`: a path without ending; the timeline goes there. `text`: whether the job
    trains on one."""
    command = [context.programs.path("penstock"), "train", job, "--workers", workers, "--device", device, "--json"]
    if text:
        command += ["--data", context.text]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    if trace:
        command += ["--timeline", trace]
    return Training(command, trace)


def step_seconds(trace, stage, warmup_steps):
    """How long each step of a synchronous method took: from update to update of a stage, in a trace."""
    with open(f"{trace}.trace.json", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    # The predicted timeline stands beside it, as processes of its own.
    measured = {event["pid"] for event in events
                if event["name"] == "process_name" and event["args"]["name"].startswith("measured")}
    ends = sorted(event["ts"] + event["dur"] for event in events
                  if event["ph"] == "X" and event["name"] == f"{stage}UPDATE" and event["pid"] in measured)
    seconds = [(after - before) * 1e-6 for before, after in zip(ends, ends[1:])][warmup_steps:]
    if len(seconds) < 3:
        raise StepFailed(f"the timeline shows only {len(ends)} updates of stage {stage}")
    return seconds


def summary(seconds, tokens_per_step):
    """Tokens/s by the median step, and by the slowest and the fastest."""
    return {"steps": len(seconds),
            "tokens_per_second": tokens_per_step / statistics.median(seconds),
            "tokens_per_second_min": tokens_per_step / max(seconds),
            "tokens_per_second_max": tokens_per_step / min(seconds)}
