#!/usr/bin/env python3
"""How much memory a worker takes for longer contexts at equal tokens.

usage: long_context.py BUILD [--contexts N...] [--vocabulary N] [--tokens N] [--svg FILE] [--json FILE]

Trains a llama of about 7 million parameters in a single worker with one thread (compute_train), two steps at each context, a
microbatch of as many tokens each time: 4 samples of 1,024 or one of 4,096. Reads the worker's peak of resident memory, prints a
table and draws it beside what logits and the scores of attention would take, were they kept.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

RATIO_MAX = 1.3  # of memory, any context to the first
JOB = """\
name: long-context
model:
  llama: {layers: 4, width: 256, heads: 8, key_value_heads: 4, hidden: 688, context: %(context)d, vocabulary: %(vocabulary)d}
data: {synthetic: {}}
training:
  steps: 2
  batch: %(samples)d
  microbatches: 1
  optimizer: {adamw: {learning_rate: 1.0e-3}}
  seed: 1
pipeline: {method: 1f1b}
"""
LAYERS, HEADS, BYTES_PER_FLOAT, MIB = 4, 8, 4, 1 << 20


def peak_bytes(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("no VmHWM")


def measure(flags, context):
    samples = flags.tokens // context
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.yaml"
        job.write_text(JOB % {"context": context, "vocabulary": flags.vocabulary, "samples": samples})
        program = pathlib.Path(flags.build).resolve() / "tests" / "bench" / "compute_train"
        worker = subprocess.Popen([program, job], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        worker.stdin.write("2\n")
        worker.stdin.flush()
        answer = worker.stdout.readline().split()
        if len(answer) != 2:
            sys.exit(f"compute_train ended at context {context}")
        peak = peak_bytes(worker)
        worker.communicate()
    return {"context": context, "samples": samples, "peak_mib": peak / MIB, "seconds_per_step": float(answer[0]) / 2,
            "loss": float(answer[1]), "logits_mib": flags.tokens * flags.vocabulary * BYTES_PER_FLOAT / MIB,
            "scores_mib": samples * LAYERS * HEADS * context ** 2 * BYTES_PER_FLOAT / MIB}


LINES = (("peak_mib", "peak of resident memory", "#1f77b4"), ("scores_mib", "scores of attention, were they kept", "#d62728"),
         ("logits_mib", "logits, were they kept", "#2ca02c"))


def draw(rows):
    """A chart of MiB over the context, both by their logarithm."""
    width, height, left, bottom = 560, 320, 64, 44
    low = min(min(row[key] for key, _, _ in LINES) for row in rows) / 1.3
    high = max(max(row[key] for key, _, _ in LINES) for row in rows) * 1.3
    first, last = rows[0]["context"], rows[-1]["context"]
    from math import log
    x = lambda context: left + (width - left - 24) * log(context / first) / log(last / first)
    y = lambda mib: height - bottom - (height - bottom - 84) * log(mib / low) / log(high / low)
    text = lambda at_x, at_y, words, more="": f'<text x="{at_x:.0f}" y="{at_y:.0f}" {more}>{words}</text>'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             text(left, 18, "Memory of a worker at equal tokens, MiB", 'font-size="14"')]
    for row in rows:
        parts.append(text(x(row["context"]), height - bottom + 18, f'{row["context"]:,}', 'text-anchor="middle"'))
    parts.append(text(left + (width - left) / 2, height - 8, "context", 'text-anchor="middle"'))
    mib = 1
    while mib < high:
        if mib > low:
            parts.append(f'<line x1="{left}" x2="{width - 24}" y1="{y(mib):.0f}" y2="{y(mib):.0f}" stroke="#ddd"/>')
            parts.append(text(left - 8, y(mib) + 4, f"{mib:,}", 'text-anchor="end"'))
        mib *= 4
    for number, (key, label, color) in enumerate(LINES):
        points = " ".join(f'{x(row["context"]):.1f},{y(row[key]):.1f}' for row in rows)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(row["context"]):.1f}" cy="{y(row[key]):.1f}" r="3" fill="{color}"/>' for row in rows]
        parts.append(text(left + 8, 38 + 15 * number, label, f'fill="{color}"'))
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--contexts", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--tokens", type=int, default=4096, help="of a microbatch, which is a step")
    parser.add_argument("--svg", help="where the chart goes")
    parser.add_argument("--json")
    flags = parser.parse_args()
    rows = []
    for context in flags.contexts:
        rows.append(measure(flags, context))
        row = rows[-1]
        print(f"| {row['context']:,} | {row['samples']} | {row['peak_mib']:.0f} MiB | {row['peak_mib'] / rows[0]['peak_mib']:.2f} | "
              f"{row['scores_mib']:,.0f} MiB | {row['seconds_per_step']:.1f} s |", flush=True)
    if flags.svg:
        pathlib.Path(flags.svg).write_text(draw(rows))
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps(rows, indent=2) + "\n")
    ratio = max(row["peak_mib"] for row in rows) / rows[0]["peak_mib"]
    if ratio > RATIO_MAX:
        sys.exit(f"a longer context took {ratio:.2f} times the memory; at most {RATIO_MAX} is right")


if __name__ == "__main__":
    main()
