"""A cluster of real processes: a coordinator, workers, and the command line that speaks to them."""
import json
import pathlib
import re
import subprocess
import time

# What every program needs to speak without certificates, on loopback only.
PLAINTEXT = ["--insecure"]


def eventually(condition, what, seconds=20.0):
    """What `condition` returns once that is something, looked at again and again."""
    give_up_at = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"after {seconds:g} s still not: {what}")
        time.sleep(0.05)


class Cluster:
    """Use as a context manager: all processes are gone at its end."""

    def __init__(self, programs, folder, workers):
        self.programs = pathlib.Path(programs)
        self.folder = pathlib.Path(folder)
        self.workers = [f"worker-{number}" for number in range(workers)]
        self.processes = {}
        self.address = None
        self.coordinator_metrics = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    def _spawn(self, name, program, *arguments):
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen(
                [self.programs / program, *arguments, *PLAINTEXT], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _said(self, name, pattern):
        """The first group of `pattern` in what a process has printed."""
        def look():
            text = (self.folder / f"{name}.log").read_text()
            if self.processes[name].poll() is not None:
                raise RuntimeError(f"{name} ended with {self.processes[name].returncode}: {text}")
            return re.search(pattern, text)
        return eventually(look, f"{name} prints {pattern}")[1]

    def _start(self):
        self._spawn("coordinator", "penstock-coordinator", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                    "--state", str(self.folder / "state.sqlite"))
        self.address = self._said("coordinator", r"listens on (127\.0\.0\.1:\d+)")
        self.coordinator_metrics = self._said("coordinator", r"metrics at https?://(127\.0\.0\.1:\d+)")
        for name in self.workers:
            self._spawn(name, "penstock-worker", "--coordinator", self.address, "--listen", "127.0.0.1:0", "--name",
                        name, "--data-root", str(self.folder), "--threads", "1", "--device", "cpu",
                        "--metrics", "127.0.0.1:0")
        eventually(lambda: len(self.run("workers")) == len(self.workers), "all workers are registered")

    def command(self, *arguments):
        return [self.programs / "penstock", *arguments, "--coordinator", self.address, *PLAINTEXT]

    def run(self, *arguments, may_fail=False):
        """The JSON that a command of `penstock` prints."""
        ran = subprocess.run(self.command(*arguments, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             timeout=120, check=False)
        if ran.returncode != 0 and not may_fail:
            raise RuntimeError(f"penstock {' '.join(arguments)} ended with {ran.returncode}: {ran.stderr.decode()}")
        return json.loads(ran.stdout) if ran.stdout else None

    def worker_metrics(self):
        """Where each worker answers scrapes, by its name."""
        return {worker["name"]: worker["metrics_address"] for worker in self.run("workers")}
