#!/usr/bin/env python3
"""What scraping every second costs a run: the steps per second with it against those without, in one run.

A cluster of two workers trains one job. Windows of some seconds follow each other, scraped and not scraped in turn
(which comes first changes from pair to pair); each pair of neighbours makes a ratio.

usage: tests/bench/scrape_cost.py BUILD_DIR TEXT [PAIRS]
"""
import json
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/monitoring"))

from cluster import Cluster, eventually, scrape  # noqa: E402

WINDOW_SECONDS = 4.0
WORKERS = 2


class Scraper(threading.Thread):
    """Scrapes all programs once a second while it is told to."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        monitor = cluster.certificates / "monitor"
        self.targets = [(cluster.coordinator_metrics, monitor, "coordinator"),
                        *((address, monitor, "worker") for address in cluster.worker_metrics().values())]
        self.active = threading.Event()
        self.scrapes = 0
        self.scrape_bytes = 0
        self.start()

    def run(self):
        while True:
            self.active.wait()
            began = time.monotonic()
            for target in self.targets:
                self.scrape_bytes += len(scrape(*target)[1])
                self.scrapes += 1
            time.sleep(max(0.0, began + 1 - time.monotonic()))


def steps_at(times, moment):
    """Steps done at `moment`, a part of the step under way included; `times`: when each step was done."""
    done = sum(1 for each in times if each <= moment)
    if done == 0 or done == len(times):
        return float(done)
    return done + (moment - times[done - 1]) / (times[done] - times[done - 1])


def measure(cluster, job, pairs):
    """[(scraped steps/s, not scraped steps/s)] by pair, and the scraper."""
    scraper = Scraper(cluster)
    submitted = cluster.run("submit", job, "--no-wait", "--set", "training.steps=10000000", "--set",
                            "validation.every_steps=0")["job_id"]
    eventually(lambda: cluster.run("status", submitted)["step"] > 20, "the job trains", seconds=60)
    windows = []
    choice = random.Random(1)
    for _ in range(pairs):
        for scraped in choice.choice([(True, False), (False, True)]):
            (scraper.active.set if scraped else scraper.active.clear)()
            began = time.time()
            time.sleep(WINDOW_SECONDS)
            windows.append((scraped, began, time.time()))
    scraper.active.clear()
    cluster.run("cancel", submitted)
    log = subprocess.run(cluster.command("logs", submitted, "--json"), stdout=subprocess.PIPE, check=False).stdout
    events = [json.loads(line) for line in log.splitlines()]
    times = [event["unix_ms"] / 1000 for event in events if event.get("event") == "step_done"]
    speeds = [(scraped, (steps_at(times, ended) - steps_at(times, began)) / (ended - began))
              for scraped, began, ended in windows]
    in_pairs = [dict(speeds[i:i + 2]) for i in range(0, len(speeds), 2)]
    return [(pair[True], pair[False]) for pair in in_pairs], scraper


def main(folder):
    build, text = sys.argv[1:3]
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 30
    shutil.copy(text, f"{folder}/input.txt")
    shutil.copy(ROOT / "examples/shakespeare.yaml", f"{folder}/job.yaml")
    with Cluster(pathlib.Path(build) / "bin", folder, WORKERS) as cluster:
        figures, scraper = measure(cluster, f"{folder}/job.yaml", pairs)
    ratios = sorted(scraped / plain for scraped, plain in figures)
    quarters = statistics.quantiles(ratios, n=4)
    mean_error = statistics.stdev(ratios) / len(ratios) ** 0.5
    print(f"{pairs} pairs of windows of {WINDOW_SECONDS:g} s, {scraper.scrapes} scrapes of "
          f"{scraper.scrape_bytes / scraper.scrapes / 1024:.0f} KiB")
    print(f"steps/s without scrapes: median {statistics.median(plain for _, plain in figures):.2f}")
    print(f"scraped every second / not scraped: median {statistics.median(ratios):.4f}, "
          f"mean {statistics.mean(ratios):.4f} +- {mean_error:.4f}, "
          f"half of them {quarters[0]:.4f} to {quarters[2]:.4f}, all {ratios[0]:.4f} to {ratios[-1]:.4f}")


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the cluster ends with this script
with tempfile.TemporaryDirectory() as scratch:
    main(scratch)
