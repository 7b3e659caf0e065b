"""Builds test programs and runs them."""
import dataclasses
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from checkout import Trouble

# Tests run on the CPU, and nobody waits for benchmarks.
OPTIONS = ["-DPENSTOCK_CUDA=OFF", "-DPENSTOCK_BUILD_BENCHMARKS=OFF"]
LINES_OF_ERROR = 30


@dataclasses.dataclass(frozen=True)
class Ran:
    how: str  # passed, failed, crashed or hung
    case: str = ""  # GoogleTest's name of the first that failed, or of the one under way; empty: not known
    seconds: float = 0.0
    output: str = ""


def first_failed(output):
    """The name of the first test that GoogleTest says has failed; empty: none."""
    found = re.search(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", output, re.MULTILINE)
    return found.group(1) if found else ""


def under_way(output):
    """The name of the test that has begun and not ended; empty: none."""
    marks = re.findall(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] ([^\s,]+)", output, re.MULTILINE)
    return marks[-1][1] if marks and marks[-1][0] == "RUN" else ""


def judge(code, output, seconds):
    """`code`: the exit code, negative after a signal; None: the time was over."""
    if code == 0:
        return Ran("passed", "", seconds, output)
    if code is None:
        return Ran("hung", first_failed(output) or under_way(output), seconds, output)
    failed = first_failed(output)
    return Ran("failed", failed, seconds, output) if failed else Ran("crashed", under_way(output), seconds, output)


class Build:
    """The preset release of a checkout."""

    def __init__(self, checkout, jobs, limit_s):
        self.source = checkout
        self.folder = checkout / "build" / "release"
        self.jobs = jobs
        self.limit_s = limit_s

    def configure(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        ran = self._call(["cmake", "--preset", "release", *OPTIONS])
        if ran.returncode != 0:
            raise Trouble(f"cannot configure {self.folder}:\n{ran.stdout[-4000:]}")

    def make(self, targets):
        """What the compiler says that keeps it from being built; empty: it is built."""
        ran = self._call(["cmake", "--build", str(self.folder), "--parallel", str(self.jobs), "--target", *targets])
        if ran.returncode == 0:
            return ""
        lines = ran.stdout.splitlines()
        errors = [line for line in lines if "error" in line.lower()]
        return "\n".join((errors or lines)[-LINES_OF_ERROR:])

    def run(self, test, case=""):
        """Runs a test program as ctest would, or one test of it."""
        command, environment, folder = self._of_ctest(test)
        if case:
            command = command + [f"--gtest_filter={case}"]
        began = time.monotonic()
        # A file, for what a test has started may outlive it and keep a pipe open.
        with tempfile.TemporaryFile() as log:
            # A process group of its own, which is killed as a whole.
            process = subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, start_new_session=True)
            try:
                code = process.wait(timeout=self.limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            log.seek(0)
            return judge(code, log.read().decode(errors="replace"), time.monotonic() - began)

    def _of_ctest(self, test):
        ran = subprocess.run(["ctest", "--test-dir", str(self.folder), "--show-only=json-v1", "--tests-regex", f"^{test}$"],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        tests = json.loads(ran.stdout)["tests"] if ran.returncode == 0 else []
        if len(tests) != 1 or "command" not in tests[0]:
            raise Trouble(f"ctest knows no program of the test {test}: {ran.stderr.strip()}")
        properties = {each["name"]: each["value"] for each in tests[0].get("properties", [])}
        environment = dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))
        return tests[0]["command"], environment, properties.get("WORKING_DIRECTORY", str(self.folder))

    def _call(self, command):
        return subprocess.run(command, cwd=self.source, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
