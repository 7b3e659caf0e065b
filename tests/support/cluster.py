"""A cluster of real processes whose supervisor starts again what ends, without the fault that ended it."""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import threading
import time

import links  # it is beside this file

VARIABLE = "PENSTOCK_FAULT_POINTS"
RESTART_SECONDS = 0.1
COMMAND_SECONDS = 20  # for one command of penstock
PATIENCE_SECONDS = 120  # for what a job waits for


class Trouble(Exception):
    """Something that should not have happened."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Life:
    """A process of the cluster, from its start to its end."""

    def __init__(self, process, log):
        self.process = process
        self.log = log
        self.told_to_end = False

    def text(self):
        return self.log.read_text(errors="replace")

    def hits(self):
        """How often each point was reached at least, and what was done last there: {name: (hit, action)}."""
        found = {}
        for name, hit, action in re.findall(r"^fault point ([a-z_.]+): hit (\d+): (\w+)$", self.text(), re.MULTILINE):
            found[name] = (int(hit), action)
        return found


class Cluster:
    """Use as a context manager: all processes are gone at its end.

    `fault_of(name, number)`: what the variable says for a life of a process, its lives counted from 0; None: nothing.
    `restarts`: whether processes that end are started again. `linked`: whether others reach each worker through a link
    (links.py), and each worker the coordinator through another. `worker_flags`: of all workers. `late`: names of workers that the
    caller starts, the last of all. `remote_checkpoints`: whether workers have no disk in common with the
    coordinator, and keep their checkpoints there.
    """

    def __init__(self, programs, folder, fault_of, workers=2, state=None, restarts=True, linked=False, worker_flags=(), late=(),
                 remote_checkpoints=False):
        self.programs = pathlib.Path(programs).resolve()  # processes start in another folder
        self.folder = pathlib.Path(folder)
        self.checkpoints = self.folder / "checkpoints"
        self.fault_of = fault_of
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        common = ["--insecure", "--metrics", "off"]
        self.restarts = restarts
        self.links = {}  # to a worker, by worker
        self.uplinks = {}  # from it to the coordinator
        self.commands = {"coordinator": [self.programs / "penstock-coordinator", *common, "--listen", self.address,
                                         "--checkpoint-root", self.checkpoints,
                                         "--state", state or self.folder / "state.sqlite"]}
        checkpoint_root = "coordinator" if remote_checkpoints else self.checkpoints
        for number in range(workers):
            self.commands[f"worker-{number}"] = [
                self.programs / "penstock-worker", *common, "--name", f"worker-{number}", "--data-root", self.folder,
                "--checkpoint-root", checkpoint_root, "--threads", "1", "--device", "cpu", *worker_flags]
            if linked:
                self._link(f"worker-{number}")
            else:
                self.commands[f"worker-{number}"] += ["--coordinator", self.address]
        self.workers = [name for name in self.commands if name != "coordinator"]
        self.late = late
        self.lives = {name: [] for name in self.commands}
        self.thaws = []
        self.lock = threading.Lock()
        self.closing = False
        self.last_error = ""  # of a command of penstock
        self.supervisor = threading.Thread(target=self._supervise)

    def _link(self, worker):
        port = free_port()
        self.links[worker] = links.Link(("127.0.0.1", port))
        self.uplinks[worker] = links.Link(("127.0.0.1", int(self.address.split(":")[1])))
        self.commands[worker] += ["--listen", f"127.0.0.1:{port}", "--advertise", self.links[worker].address,
                                  "--coordinator", self.uplinks[worker].address]

    def __enter__(self):
        self.checkpoints.mkdir(exist_ok=True)
        for name in self.commands:
            if name not in self.late:
                self.start(name)
        self.supervisor.start()
        return self

    def __exit__(self, *_):
        self.closing = True
        self.supervisor.join()
        last = [lives[-1] for lives in self.lives.values() if lives]
        for life in last:
            life.process.kill()
        for life in last:
            life.process.wait()
        for link in [*self.links.values(), *self.uplinks.values()]:
            link.close()

    def start(self, name):
        """REQUIRES: it does not run."""
        lives = self.lives[name]
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        fault = self.fault_of(name, len(lives))
        if fault:
            environment[VARIABLE] = fault
        log = self.folder / f"{name}.{len(lives)}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen([str(word) for word in self.commands[name]], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out, env=environment, cwd=self.folder)
        with self.lock:
            lives.append(Life(process, log))

    def _supervise(self):
        restart_at = {}
        while not self.closing:
            for name, lives in self.lives.items():
                if not lives or lives[-1].process.poll() is None or not self._starts_again(name):
                    continue
                due = restart_at.setdefault((name, len(lives)), time.monotonic() + RESTART_SECONDS)
                if time.monotonic() >= due:
                    self.start(name)
            time.sleep(0.01)

    def _starts_again(self, name):
        return self.restarts or name == "coordinator"

    def signal(self, name, number):
        with self.lock:
            life = self.lives[name][-1]
        life.told_to_end = True
        life.process.send_signal(number)

    def pid(self, name):
        with self.lock:
            return self.lives[name][-1].process.pid

    def part(self, one, other, seconds):
        """Nothing goes between two workers, while everybody else reaches both. REQUIRES: linked."""
        self.links[one].swallow(seconds, of=self.pid(other))
        self.links[other].swallow(seconds, of=self.pid(one))

    def freeze(self, name, seconds):
        """Stops the process's threads for so long, while this returns at once."""
        with self.lock:
            life = self.lives[name][-1]
        life.process.send_signal(signal.SIGSTOP)
        thaw = threading.Timer(seconds, lambda: life.process.poll() is None and life.process.send_signal(signal.SIGCONT))
        self.thaws.append(thaw)
        thaw.start()

    @contextlib.contextmanager
    def held_back(self, name, share):
        """Meanwhile the process gets that share of its CPU, in slices of a tenth of a second."""
        over = threading.Event()
        def hold():
            while not over.is_set():
                self.signal(name, signal.SIGSTOP)
                time.sleep(0.1 * (1 - share))
                self.signal(name, signal.SIGCONT)
                time.sleep(0.1 * share)
        holder = threading.Thread(target=hold)
        holder.start()
        try:
            yield
        finally:
            over.set()
            holder.join()

    def thaw(self):
        """Waits until no process is frozen."""
        for thaw in self.thaws:
            thaw.join()

    def lives_of(self, name):
        with self.lock:
            return list(self.lives[name])

    def await_next_life(self, name, after):
        """Until process `name` has had more than `after` lives."""
        self.eventually(lambda: len(self.lives_of(name)) > after, f"{name} has been started again")

    def crashes(self):
        """Ends of processes that nobody asked for, each as a text. A fault's own SIGKILL is none."""
        found = []
        for name, lives in self.lives.items():
            for number, life in enumerate(lives):
                code = life.process.poll()
                hits = life.hits()
                is_fault = any(action == "kill" for _, action in hits.values())
                # A worker whose device is lost ends with 1 by itself, for a new process to take its place.
                loses_device = "run.device_lost" in hits and hits["run.device_lost"][1] == "fail"
                if loses_device and not self.closing and code != 1:
                    found.append(f"{name} has lost its device, and ended with {code}, expected 1")
                if loses_device and code == 1:
                    continue
                if code is None or life.told_to_end and code in (0, 1, -signal.SIGKILL):
                    continue
                if code == -signal.SIGKILL and (is_fault or self.closing):
                    continue
                last = (life.text().strip().splitlines() or ["nothing"])[-1]
                found.append(f"{name} ended with {code}: {last}")
        return found

    def eventually(self, condition, what, seconds=PATIENCE_SECONDS):
        give_up_at = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > give_up_at:
                raise Trouble(f"after {seconds:g} s still not: {what}")
            time.sleep(0.02)

    def _output(self, *arguments):
        """What a command of penstock prints, or nothing if it failed."""
        command = [self.programs / "penstock", *arguments, "--json", "--insecure", "--coordinator", self.address]
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        try:
            ran = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 timeout=COMMAND_SECONDS, check=False, env=environment, cwd=self.folder)
        except subprocess.TimeoutExpired:
            self.last_error = f"penstock {arguments[0]} did not end within {COMMAND_SECONDS} s"
            return b""
        self.last_error = ran.stderr.decode(errors="replace").strip()
        return ran.stdout if ran.returncode == 0 else b""

    def run(self, *arguments):
        """The JSON that a command of penstock prints, or None if it failed."""
        output = self._output(*arguments)
        return json.loads(output) if output else None

    def logs(self, job_id):
        """What happened in the job: [event]."""
        return [json.loads(line) for line in self._output("logs", job_id).splitlines()]

    def submit(self, key, *arguments):
        """Submits the job, again and again under one key, until the coordinator has taken it. Returns its ID."""
        try:
            return self.eventually(
                lambda: self.run("submit", "job.yaml", "--no-wait", "--idempotency-key", key, *arguments),
                f"job {key} is submitted", seconds=30)["job_id"]
        except Trouble as trouble:
            raise Trouble(f"{trouble}: {self.last_error}") from None

    def cancel(self, job_id):
        """Asks for it, again and again until the coordinator has taken it or the job has ended by itself."""
        def taken():
            job = self.job(job_id)
            return job and job["ended_unix_ms"] is not None or self.run("cancel", job_id)
        self.eventually(taken, f"job {job_id} is asked to end")

    def job(self, job_id):
        return self.run("status", job_id)

    def await_step(self, job_id, step):
        """Until the job has trained `step` steps, or has ended."""
        def far_enough():
            job = self.job(job_id)
            return job if job and (job["step"] >= step or job["ended_unix_ms"] is not None) else None
        return self.eventually(far_enough, f"job {job_id} has trained {step} steps")

    def follow(self, job_id):
        """Until the job has ended. Returns its status and the longest time without a step that it had not done before."""
        furthest, since, longest = 0, time.monotonic(), 0.0
        while True:
            job = self.job(job_id)
            now = time.monotonic()
            if job and job["step"] > furthest:
                longest, furthest, since = max(longest, now - since) if furthest else 0.0, job["step"], now
            if job and job["ended_unix_ms"] is not None:
                return job, longest
            if now - since > PATIENCE_SECONDS:
                raise Trouble(f"job {job_id} comes no further than step {furthest}: {job and job['reason']}")
            time.sleep(0.02)

    def await_end(self, job_id):
        last = {}
        def ended():
            job = self.job(job_id)
            last.update(job or {})
            return job if job and job["ended_unix_ms"] is not None else None
        try:
            return self.eventually(ended, "the job has ended")
        except Trouble as trouble:
            raise Trouble(f"{trouble}: {last.get('state')} at step {last.get('step')}, reason {last.get('reason')}, "
                          f"error {last.get('error')}") from None


def write_job(folder, steps, every_steps, pipeline="method: 1f1b\n  stages: 2", on_disk=True):
    """A byte GPT, its text, and the job file. `pipeline`: the keys of that part of it. The job is validated after every
    `every_steps` steps. `on_disk`: whether there are checkpoints as often, or only snapshots in its workers' memory."""
    saved = f"checkpoint: {{directory: {folder}/checkpoints, every_steps: {every_steps}, keep: 2}}" if on_disk else ""
    letters = random.Random(1)
    words = ("".join(letters.choice("etaoinshrdlu") for _ in range(letters.randint(1, 8))) for _ in range(3000))
    (folder / "input.txt").write_text(" ".join(words))
    (folder / "job.yaml").write_text(f"""\
name: faults
model:
  gpt: {{layers: 4, width: 32, heads: 2, context: 16, tied_head: false}}
data:
  text: {{path: input.txt, tokenizer: bytes, validation_fraction: 0.1}}
training:
  steps: {steps}
  batch: 16
  microbatches: 4
  optimizer: {{adamw: {{learning_rate: 1.0e-3}}}}
  seed: 1
validation: {{every_steps: {every_steps}, batches: 1}}
{saved}
recovery: {{wait_seconds: 60}}
pipeline:
  {pipeline}
""")
