"""Runs programs with a time limit, in sessions of their own, so that what they start ends with them."""

import dataclasses
import glob
import os
import signal
import subprocess
import time


@dataclasses.dataclass
class Result:
    code: int  # the exit code; negative: the signal that ended it
    output: str
    errors: str
    seconds: float
    timed_out: bool

    def complaint(self):
        """Why it failed, in one line."""
        if self.timed_out:
            return f"not done after {self.seconds:.0f} s"
        lines = [line.strip() for line in (self.errors + "\n" + self.output).splitlines() if line.strip()]
        told = [line for line in lines if "rror" in line or line.startswith("penstock")]
        return f"exit code {self.code}" + "".join(f": {line}" for line in (told or lines[-1:])[:1])


def start(command, env=None, cwd=None, log=None):
    """`log`: an open file that takes what the program says, for one that says more than a pipe holds."""
    return subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log or subprocess.PIPE,
        stderr=log or subprocess.PIPE, text=True, errors="replace", env=env, cwd=cwd, start_new_session=True)


def _session(number):
    """The processes of a session that still run. Not a group: build tools give compilers groups of their own."""
    members = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat, encoding="utf-8", errors="replace") as file:
                state, _, _, session = file.read().rpartition(") ")[2].split()[:4]
        except OSError:
            continue  # has just ended
        if int(session) == number and state not in "ZX":
            members.append(int(stat.split("/")[2]))
    return members


def kill(process):
    """Ends the whole session of a process that `start` began."""
    for _ in range(5):  # again, for what was started meanwhile
        members = _session(process.pid)
        for member in members:
            try:
                os.kill(member, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not members:
            return
        time.sleep(0.01)


def finish(process, limit_s):
    began = time.monotonic()
    timed_out = False
    try:
        output, errors = process.communicate(timeout=max(0.1, limit_s))
    except subprocess.TimeoutExpired:
        timed_out = True
        kill(process)
        output, errors = process.communicate()
    except BaseException:
        kill(process)
        raise
    return Result(process.returncode, output or "", errors or "", time.monotonic() - began, timed_out)


def run(command, limit_s, env=None, cwd=None):
    """Errors: OSError if the program is not there."""
    return finish(start(command, env, cwd), limit_s)
