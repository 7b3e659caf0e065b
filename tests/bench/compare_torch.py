"""Tokens/s of one Penstock worker against eager PyTorch, one thread each: compare_torch.py COMPUTE_TRAIN

The two take turns, a few steps each, so that a change of the machine's speed meets both; the ratio is the
median over the turns. Then bf16's loss curve is compared with f32's on the same data.
"""

import glob
import os
import statistics
import subprocess
import sys
import tempfile

import torch

from torch_baseline import Trainer

# layers, width, heads, time, batch
MODELS = [(4, 256, 4, 256, 8), (6, 192, 6, 128, 8)]
TURNS = 9
STEPS = 3  # of a turn
CURVE_STEPS = 200
WINDOW = 20


class Penstock:
    """A running compute_train."""

    def __init__(self, program, text, model, precision):
        self.process = subprocess.Popen(
            [program, text, *map(str, model), precision],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        seconds, loss = self.process.stdout.readline().split()
        return float(seconds), float(loss)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(program, text, model, precision):
    with open(text, "rb") as file:
        baseline = Trainer(file.read(), *model, precision)
    ours = Penstock(program, text, model, precision)
    tokens = STEPS * model[3] * model[4]
    ours.run(STEPS), baseline.run(STEPS)  # warm-up
    rates = []
    for _ in range(TURNS):
        rates.append((tokens / ours.run(STEPS)[0], tokens / baseline.run(STEPS)[0]))
    ours.close()
    layers, width, heads, length, batch = model
    name = f"L{layers} d{width} H{heads} T{length} B{batch}"
    mine, theirs = (statistics.median(rate) for rate in zip(*rates))
    ratio = statistics.median(a / b for a, b in rates)
    print(f"{name:24} {precision:5} {mine:8.0f} {theirs:8.0f} {ratio:6.2f}", flush=True)


def compare_curves(program, text, model):
    curves = []
    for precision in ("f32", "bf16"):
        ours = Penstock(program, text, model, precision)
        curves.append([ours.run(1)[1] for _ in range(CURVE_STEPS)])
        ours.close()
    # Single steps differ by chance once two runs differ at all; means over a few steps are the curve.
    means = [[statistics.mean(curve[at : at + WINDOW]) for at in range(0, CURVE_STEPS, WINDOW)]
             for curve in curves]
    worst = max(abs(b - a) / a for a, b in zip(*means))
    print(f"bf16 against f32, {CURVE_STEPS} steps in means of {WINDOW}: {means[0][-1]:.4f} and "
          f"{means[1][-1]:.4f} at the end, largest difference {100 * worst:.2f} %")


def main():
    program = sys.argv[1]
    with tempfile.NamedTemporaryFile() as text:
        for path in sorted(glob.glob("/usr/share/common-licenses/*")):
            if not os.path.islink(path):
                with open(path, "rb") as licence:
                    text.write(licence.read())
        text.flush()
        print(f"PyTorch {torch.__version__}, one thread each, median of {TURNS} turns of {STEPS} steps")
        print(f"{'model':24} {'':5} {'Penstock':>8} {'PyTorch':>8}  ratio   (tokens/s)")
        for model in MODELS:
            for precision in ("f32", "bf16"):
                compare(program, text.name, model, precision)
        compare_curves(program, text.name, MODELS[0])


if __name__ == "__main__":
    main()
