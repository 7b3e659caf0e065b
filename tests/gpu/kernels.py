"""Step `kernels`: how long each kernel of a step of GPT-2 takes, by Nsight Compute."""

import collections
import csv
import io
import os
import shutil

import report
from speed import GPT2
from training import train

TIME = "gpu__time_duration.sum"
UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0, "second": 1.0}
# One update of two microbatches, after one that makes plans, takes memory and is not counted.
STEPS = 2
MICROBATCHES = 2
ROWS_MAX = 12


def find_ncu():
    return shutil.which("ncu") or next(filter(os.path.exists, ["/usr/local/cuda/bin/ncu"]), None)


def short_name(kernel):
    """Without what it returns, its arguments and those of its template."""
    name = kernel.replace("(anonymous namespace)", "anonymous").removeprefix("void ")
    return name.split("(")[0].split("<")[0]


def seconds_by_kernel(text):
    """{kernel: (launches, seconds)} of the second half of the launches, from what `ncu --csv` writes, the slowest first."""
    start = text.find('"ID"')
    launches = [row for row in csv.DictReader(io.StringIO(text[max(start, 0):]))
                if row.get("Metric Name") == TIME]
    sums = collections.defaultdict(lambda: [0, 0.0])
    for row in launches[len(launches) // STEPS:]:
        entry = sums[short_name(row["Kernel Name"])]
        entry[0] += 1
        entry[1] += float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
    return dict(sorted(((name, tuple(entry)) for name, entry in sums.items()), key=lambda item: -item[1][1]))


def kernels(context):
    """Rows of the kernels that take most; all of them are in the values of the first row, all launches in a CSV file."""
    ncu = find_ncu()
    if context.dry_run or ncu is None:
        yield report.skipped("kernels", "no GPU" if context.dry_run else "ncu is not here")
        return
    sizes = context.sizes
    load = {"training.batch": MICROBATCHES * sizes.load["batch"] // sizes.load["microbatches"],
            "training.microbatches": MICROBATCHES}
    settings = {"training.steps": STEPS, "training.precision": sizes.precision, "training.deterministic": "false",
                "training.learning_rate.warmup_steps": 1, "validation.every_steps": 0,
                **{f"model.gpt.{key}": value for key, value in sizes.model.items()}, **load}
    written = context.scratch / "kernels.csv"
    command = train(context, GPT2, 1, context.device, settings).command
    result = context.run([ncu, "--target-processes", "all", "--metrics", TIME, "--csv", "--log-file", written, *command], 450)
    text = written.read_text(errors="replace") if written.exists() else ""
    if "ERR_NVGPUCTRPERM" in text + result.errors:
        yield report.skipped("kernels", "this user may not read the GPU's counters")
        return
    times = seconds_by_kernel(text)  # of what there is, if it was ended
    if not times:
        yield report.failed("kernels", result.complaint())
        return
    total = sum(seconds for _, seconds in times.values())
    launches = sum(count for count, _ in times.values())
    yield report.Row("kernels of a microbatch", f"{1e3 * total / MICROBATCHES:.2f} ms in {launches / MICROBATCHES:.0f} launches, "
                     f"with its part of the update",
                     values={"kernels": times, "csv": text, "complete": result.code == 0 and not result.timed_out})
    for name, (count, seconds) in list(times.items())[:ROWS_MAX]:
        yield report.Row(f"kernel {name}"[:60], f"{1e3 * seconds / MICROBATCHES:.3f} ms, {count / MICROBATCHES:.1f} launches, "
                         f"{100 * seconds / total:.1f} %")
