"""A cluster of real processes: a coordinator, workers, and the command line that speaks to them."""
import http.client
import json
import pathlib
import re
import socket
import ssl
import subprocess
import time


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


def scrape(address, certificates, role):
    """(content type, text) of the metrics of a program whose certificate has `role`, asked for with `certificates`."""
    context = ssl.create_default_context(cafile=f"{certificates}/ca.crt")
    context.load_cert_chain(f"{certificates}/tls.crt", f"{certificates}/tls.key")
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        with context.wrap_socket(connection, server_hostname=role) as tls:
            tls.sendall(b"GET /metrics HTTP/1.1\r\nHost: penstock\r\nConnection: close\r\n\r\n")
            answer = http.client.HTTPResponse(tls)
            answer.begin()
            text = answer.read().decode()
    if answer.status != 200:
        raise RuntimeError(f"{address} answered {answer.status}: {text}")
    return answer.headers["Content-Type"], text


class Cluster:
    """Use as a context manager: all processes are gone at its end."""

    def __init__(self, programs, folder, workers):
        self.programs = pathlib.Path(programs)
        self.folder = pathlib.Path(folder)
        self.certificates = self.folder / "certificates"
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

    def _identity(self, role):
        """How a program is told who it is."""
        return ["--certificates", str(self.certificates / role)]

    def _spawn(self, name, role, *arguments):
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen(
                [self.programs / f"penstock-{role}", *arguments, *self._identity(role)], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)

    def _said(self, name, pattern):
        """The first group of `pattern` in what a process has printed."""
        def look():
            text = (self.folder / f"{name}.log").read_text()
            if self.processes[name].poll() is not None:
                raise RuntimeError(f"{name} ended with {self.processes[name].returncode}: {text}")
            return re.search(pattern, text)
        return eventually(look, f"{name} prints {pattern}")[1]

    def _start(self):
        subprocess.run([self.programs / "penstock", "certs", "init", "-o", self.certificates], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._spawn("coordinator", "coordinator", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                    "--state", str(self.folder / "state.sqlite"))
        self.address = self._said("coordinator", r"listens on (127\.0\.0\.1:\d+)")
        self.coordinator_metrics = self._said("coordinator", r"metrics at https?://(127\.0\.0\.1:\d+)")
        for name in self.workers:
            self._spawn(name, "worker", "--coordinator", self.address, "--listen", "127.0.0.1:0", "--name",
                        name, "--data-root", str(self.folder), "--threads", "1", "--device", "cpu",
                        "--metrics", "127.0.0.1:0")
        eventually(lambda: len(self.run("workers")) == len(self.workers), "all workers are registered")

    def command(self, *arguments):
        return [self.programs / "penstock", *arguments, "--coordinator", self.address, *self._identity("client")]

    def run(self, *arguments, may_fail=False):
        """The JSON that a command of `penstock` prints."""
        ran = subprocess.run(self.command(*arguments, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             timeout=120, check=False)
        if ran.returncode != 0 and not may_fail:
            raise RuntimeError(f"penstock {' '.join(arguments)} ended with {ran.returncode}: {ran.stderr.decode()}")
        return json.loads(ran.stdout) if ran.stdout else None

    def scrape(self):
        """(content type, text) of each program's metrics, the coordinator's first."""
        monitor = self.certificates / "monitor"
        return [scrape(self.coordinator_metrics, monitor, "coordinator"),
                *(scrape(address, monitor, "worker") for address in self.worker_metrics().values())]

    def worker_metrics(self):
        """Where each worker answers scrapes, by its name."""
        return {worker["name"]: worker["metrics_address"] for worker in self.run("workers")}
