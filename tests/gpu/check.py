#!/usr/bin/env python3
"""Checks Penstock on a GPU and prints a table of figures last: correctness, speed, memory.

The steps are grouped in parts, each of which ends within nine minutes, so that a machine that is lent for ten can be asked
for one part after the other. Each step has a time limit of its own and fails by itself; its rows are in the file of --json
as soon as they are known. Where a step misses its limit or its target the table says FAILED and the exit code is 1.
Without a GPU it says so and ends with 0: nothing was checked.
"""

import argparse
import pathlib
import shutil
import signal
import sys
import tempfile
import time

import build
import correctness
import device
import environment
import families
import kernels
import process
import programs
import report
import speed
from context import Context
from training import StepFailed

SCRATCH = "build/gpu-check"
# The steps, and the seconds that the earlier ones of a part leave them at least. A step gives its rows one by one.
STEPS = {
    "environment": (environment.check, 25),
    "conformance": (correctness.conformance, 450),
    "speed": (speed.speed, 250),
    "graphs": (speed.graphs, 160),
    "fp8": (speed.fp8, 95),
    "memory": (correctness.memory, 1),
    "kernels": (kernels.kernels, 450),
    "losses": (correctness.losses, 450),
    "pipelining": (speed.pipelining, 170),
    "families": (families.families, 300),
    "nets": (speed.nets, 250),
    "build": (build.check, 200),
    "sanitizers": (correctness.sanitizers, 450),
}
# In the order of what a first run on a GPU should tell.
PARTS = {
    "smoke": ["environment", "conformance"],
    "speed": ["speed", "graphs", "fp8", "memory"],
    "kernels": ["kernels"],
    "losses": ["losses", "memory"],
    "models": ["pipelining", "families"],
    "nets": ["nets", "build"],
    "sanitizers": ["sanitizers"],
}
PART_SECONDS = 525.0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", metavar="BUILD_DIR", help="its programs, not the bundle's")
    parser.add_argument("--text", metavar="FILE", help="what to train on; default: the bundle's text")
    parser.add_argument("--part", metavar="PART", choices=list(PARTS), help=f"one of {', '.join(PARTS)}; default: all")
    parser.add_argument("--only", metavar="STEP,...", help=f"of {', '.join(STEPS)}; default: all of the part")
    parser.add_argument("--limit", metavar="SECONDS", type=float, default=PART_SECONDS, help="of a part")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="writes the table and all figures behind it")
    parser.add_argument("--dry-run", action="store_true",
                        help="runs every step with tiny sizes on the CPU, to check the check")
    arguments = parser.parse_args()
    if arguments.only and arguments.part:
        parser.error("--only and --part: give one of them")
    arguments.parts = [PARTS[arguments.part]] if arguments.part else list(PARTS.values())
    if arguments.only:
        arguments.parts = [arguments.only.split(",")]
    unknown = set(sum(arguments.parts, [])) - set(STEPS)
    if unknown:
        parser.error(f"no step {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    if arguments.json and not arguments.json.resolve().parent.is_dir():
        parser.error(f"no folder {arguments.json.resolve().parent} for --json")
    return arguments


def find_programs(arguments, scratch):
    bundle = pathlib.Path(programs.BUNDLE)
    if arguments.programs:
        return programs.in_build(pathlib.Path(arguments.programs).resolve())
    if bundle.exists():
        return programs.unpack(bundle, scratch / "bundle")
    return programs.in_build(pathlib.Path("build/release").resolve())


def find_text(arguments, found, scratch):
    if arguments.text or found.text:
        return arguments.text or found.text
    text = scratch / "text.txt"
    with open(text, "wb") as file:
        for path in sorted(pathlib.Path("/usr/share/common-licenses").glob("*")):
            if path.is_file() and not path.is_symlink():
                file.write(path.read_bytes())
    return text


def run_step(name, context, take):
    """Gives `take` each row as soon as the step knows it."""
    step, _ = STEPS[name]
    print(f"gpu-check: {name} ...", file=sys.stderr, flush=True)
    began = time.monotonic()

    def told(row):
        print(f"gpu-check:   {row.step}: {row.figure} {row.status}", file=sys.stderr, flush=True)
        take(row)

    try:
        for row in step(context):
            told(row)
    except (StepFailed, OSError, ValueError, KeyError) as failure:
        told(report.failed(name, str(failure) or type(failure).__name__))
    finally:
        context.kill_children()
    print(f"gpu-check: {name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def run_part(steps, context, take):
    if context.gpu and "environment" not in steps:
        environment.use_cuda(context)
    if "build" in steps:
        build.prepare(context)
    for position, name in enumerate(steps):
        context.reserved_s = sum(STEPS[later][1] for later in steps[position + 1:])
        run_step(name, context, take)


class Record:
    """The rows so far, in the file of --json at any moment."""

    def __init__(self, path, **facts):
        self.rows, self._path, self._facts = [], path, facts
        self._began = time.monotonic()

    def facts(self):
        return {**self._facts, "failures": self.failures(), "seconds": time.monotonic() - self._began}

    def failures(self):
        return sum(row.status == report.FAILED for row in self.rows)

    def take(self, row):
        self.rows.append(row)
        self.write()

    def write(self):
        if not self._path:
            return
        # Whole at any moment, also if this process is ended while it writes.
        written = self._path.with_name(self._path.name + ".part")
        written.write_text(report.document(self.rows, **self.facts()))
        written.replace(self._path)


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended on the way out
    gpu = None if arguments.dry_run else device.find_gpu()
    if isinstance(gpu, str):
        print(f"gpu-check: skipped, nothing was checked: {gpu}; --dry-run tries the check itself on the CPU")
        return 0
    folder = pathlib.Path(SCRATCH).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = find_programs(arguments, folder)
    except (FileNotFoundError, ValueError) as missing:
        print(f"gpu-check: {missing}", file=sys.stderr)
        return 2
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    text = find_text(arguments, found, scratch)
    record = Record(arguments.json, dry_run=arguments.dry_run, commit=found.manifest.get("commit"))
    record.write()
    results = {}  # of all parts
    for steps in arguments.parts:
        context = Context(found, gpu, text, scratch, arguments.limit, results)
        try:
            run_part(steps, context, record.take)
        finally:
            for child in context.background.values():
                process.kill(child)
    rows, failures = record.rows, record.failures()
    if not failures:
        shutil.rmtree(scratch)
    print(f"\n{report.table(rows)}\n")
    print(f"gpu-check: {failures} failed, {record.facts()['seconds']:.0f} s"
          + (f"; logs in {scratch}" if failures else ""))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
