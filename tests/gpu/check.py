#!/usr/bin/env python3
"""Checks Penstock on a GPU and prints a table of figures last: correctness, speed, memory.

Each step has a time limit of its own and fails by itself. Where a step misses its limit or its target the
table says FAILED and the exit code is 1. Without a GPU it says so and ends with 0: nothing was checked.
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
import process
import programs
import report
import speed
from context import Context
from training import StepFailed

SCRATCH = "build/gpu-check"
# The steps in order, and the seconds that the earlier ones leave them at least.
STEPS = {
    "environment": (environment.check, 20),
    "conformance": (correctness.conformance, 30),
    "losses": (correctness.losses, 50),
    "families": (families.families, 30),
    "sanitizers": (correctness.sanitizers, 10),
    "build": (build.check, 10),
    "speed": (speed.speed, 200),
    "pipelining": (speed.pipelining, 40),
    "nets": (speed.nets, 100),
    "graphs": (speed.graphs, 20),
    "memory": (correctness.memory, 0),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", metavar="BUILD_DIR", help="its programs, not the bundle's")
    parser.add_argument("--text", metavar="FILE", help="what to train on; default: the bundle's text")
    parser.add_argument("--only", metavar="STEP,...", help=f"of {', '.join(STEPS)}; default: all")
    parser.add_argument("--limit", metavar="SECONDS", type=float, default=525.0, help="of all together")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="writes the table and all figures behind it")
    parser.add_argument("--dry-run", action="store_true",
                        help="runs every step with tiny sizes on the CPU, to check the check")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",") if arguments.only else list(STEPS)
    unknown = set(arguments.only) - set(STEPS)
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


def run_step(name, context):
    step, _ = STEPS[name]
    print(f"gpu-check: {name} ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    try:
        rows = step(context)
    except (StepFailed, OSError, ValueError, KeyError) as failure:
        rows = [report.failed(name, str(failure) or type(failure).__name__)]
    finally:
        context.kill_children()
    for row in rows:
        print(f"gpu-check:   {row.step}: {row.figure} {row.status}", file=sys.stderr, flush=True)
    print(f"gpu-check: {name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return rows


def run_steps(only, context):
    rows = []
    if context.gpu and "environment" not in only:
        environment.use_cuda(context)
    if "build" in only:
        build.prepare(context)
    for position, name in enumerate(only):
        context.reserved_s = sum(STEPS[later][1] for later in only[position + 1:])
        rows += run_step(name, context)
    return rows


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended on the way out
    gpu = None if arguments.dry_run else device.find_gpu()
    if isinstance(gpu, str):
        print(f"gpu-check: skipped, nothing was checked: {gpu}; --dry-run tries the check itself on the CPU")
        return 0
    began = time.monotonic()
    folder = pathlib.Path(SCRATCH).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = find_programs(arguments, folder)
    except (FileNotFoundError, ValueError) as missing:
        print(f"gpu-check: {missing}", file=sys.stderr)
        return 2
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    context = Context(found, gpu, find_text(arguments, found, scratch), scratch, arguments.limit)
    try:
        rows = run_steps(arguments.only, context)
    finally:
        for child in context.background.values():
            process.kill(child)
    failures = sum(row.status == report.FAILED for row in rows)
    facts = {"dry_run": arguments.dry_run, "failures": failures, "seconds": time.monotonic() - began,
             "commit": found.manifest.get("commit")}
    if arguments.json:
        arguments.json.write_text(report.document(rows, **facts))
    if not failures:
        shutil.rmtree(scratch)
    print(f"\n{report.table(rows)}\n")
    print(f"gpu-check: {failures} failed, {facts['seconds']:.0f} s"
          + (f"; logs in {scratch}" if failures else ""))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
