"""Samples/s of one Penstock worker against PyTorch 2, one thread each: compare_torch.py COMPUTE_TRAIN [MODEL...]

PyTorch runs eager and compiled, with images channels first and last, with attention by its own kernel and written out, and the
fastest of these counts. All take turns, a few steps each, so that a change of the machine's speed meets all of them; a ratio
is the median over the turns. Where others use the same core at times, its speed changes within a turn, too: the ratio of the
fastest turns is that of a core of one's own, and needs many short turns (--turns 30 --seconds 0.2). With --curves, bf16's loss
curve of the first model is compared with f32's. If a net fails, the others still run, and the exit status says so. Needs torch 2
and torchvision.

On a GPU (--device cuda:0) the nets have the sizes of published trainings, and PyTorch compiles with channels last only,
because compiling takes most of the time.
"""

import argparse
import contextlib
import glob
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import torch
import torchvision

import torch_baseline as baseline

CURVE_STEPS = 200
WINDOW = 20

SGD = "{sgd: {learning_rate: 1.0e-3, momentum: 0.9}}"
ADAMW = "{adamw: {learning_rate: 1.0e-3}}"
JOB = """name: speed
model:
  {model}
data: {data}
training:
  {{steps: 1000000, batch: {batch}, microbatches: 1, precision: {precision}, seed: 1, optimizer: {optimizer},
   clip: {{global_norm: 1.0}}}}
"""


class Case:
    """A model as a job has it, and as PyTorch has it: `makes` has a function for each way of writing it, by its name."""

    def __init__(self, model, batch, makes, data, has_text=False):
        self.model, self.batch, self.makes, self.data, self.has_text = model, batch, makes, data, has_text
        self.layouts = {"": torch.contiguous_format}
        if not has_text:
            self.layouts = {", NCHW": torch.contiguous_format, ", NHWC": torch.channels_last}
        self.optimizer = (ADAMW, baseline.adamw) if has_text else (SGD, baseline.sgd)


def gpt(layers, width, heads, time, batch):
    return Case(f"gpt: {{layers: {layers}, width: {width}, heads: {heads}, context: {time}}}", batch,
                {"": lambda: baseline.Gpt(layers, width, heads, time, 256, is_fused=True),
                 ", attention written out": lambda: baseline.Gpt(layers, width, heads, time, 256, is_fused=False)},
                lambda: baseline.tokens(batch, time, 256), has_text=True)


def lstm_lm(layers, width, time, batch):
    return Case(f"lstm_lm: {{layers: {layers}, hidden: {width}, context: {time}, dropout: 0}}", batch,
                {"": lambda: baseline.LstmLm(layers, width, 256)},
                lambda: baseline.tokens(batch, time, 256), has_text=True)


def classifier(model, size, batch, make):
    return Case(f"{model[:-1]}, image: {{size: {size}, classes: 10}}}}", batch, {"": make},
                lambda: baseline.images(batch, size, 10))


vision = torchvision.models
CASES = {
    "gpt L4 d256": gpt(4, 256, 4, 256, 8),
    "gpt L6 d192": gpt(6, 192, 6, 128, 8),
    "gpt L12 d768 T256": gpt(12, 768, 12, 256, 4),
    "gpt L12 d768 T1024": gpt(12, 768, 12, 1024, 1),
    "cifar_resnet20": classifier("cifar_resnet: {depth: 20}", 32, 32, lambda: baseline.CifarResNet(20, 16, 10)),
    "resnet18": classifier("resnet: {depth: 18}", 112, 8, lambda: vision.resnet18(num_classes=10)),
    "resnet50": classifier("resnet: {depth: 50}", 112, 8, lambda: vision.resnet50(num_classes=10)),
    "vgg16": classifier("vgg: {depth: 16}", 112, 4, lambda: vision.vgg16(num_classes=10)),
    "lstm_lm L2 h650": lstm_lm(2, 650, 35, 20),
    "alexnet": classifier("alexnet: {variant: torchvision}", 224, 16, lambda: vision.alexnet(num_classes=10)),
}


GPU_CASES = {
    "resnet50": classifier("resnet: {depth: 50}", 224, 64, lambda: vision.resnet50(num_classes=10)),
    "vgg16": classifier("vgg: {depth: 16}", 224, 64, lambda: vision.vgg16(num_classes=10)),
    "alexnet": classifier("alexnet: {variant: torchvision}", 224, 128, lambda: vision.alexnet(num_classes=10)),
    "cifar_resnet20": classifier("cifar_resnet: {depth: 20}", 32, 128, lambda: baseline.CifarResNet(20, 16, 10)),
    "lstm_lm L2 h650": lstm_lm(2, 650, 35, 64),
}


class Penstock:
    """A running compute_train."""

    def __init__(self, program, directory, case, precision, text, device):
        job = pathlib.Path(directory) / "job.yaml"
        data = f"{{text: {{path: {text}}}}}" if case.has_text else "{synthetic: {}}"
        job.write_text(JOB.format(model=case.model, data=data, batch=case.batch, precision=precision,
                                  optimizer=case.optimizer[0]))
        self.process = subprocess.Popen([program, job, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"compute_train ended with {self.process.wait()}; its reason is above")
        seconds, loss = line.split()
        return float(seconds), float(loss)

    def run(self, steps):
        return self.answer(steps)[0]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def ways(case, device):
    """How PyTorch may run it: (name, what makes the model, layout, whether it is compiled)."""
    for kind in ("eager", "compiled"):
        for (way, make), (order, layout) in itertools.product(case.makes.items(), case.layouts.items()):
            is_compiled = kind == "compiled"
            if device == "cpu" or not is_compiled or order in ("", ", NHWC"):
                yield kind + way + order, make, layout, is_compiled


def compare(arguments, directory, name, case, precision, text):
    """Prints a row of the table, and returns it as a dictionary."""
    data = case.data()
    theirs = {way: baseline.Trainer(make, data, case.optimizer[1], precision, layout, is_compiled, arguments.device)
              for way, make, layout, is_compiled in ways(case, arguments.device)}
    with contextlib.closing(Penstock(arguments.program, directory, case, precision, text, arguments.device)) as ours:
        ours.run(2)
        for trainer in theirs.values():
            trainer.run(2)  # compiles
        steps = max(1, round(arguments.seconds / ours.run(1)))
        turns = []
        for _ in range(arguments.turns):
            turns.append((ours.run(steps), {kind: trainer.run(steps) for kind, trainer in theirs.items()}))
    rate = statistics.median(steps * case.batch / mine for mine, _ in turns)
    ratios = {kind: statistics.median(other[kind] / mine for mine, other in turns) for kind in theirs}
    own_fastest = min(mine for mine, _ in turns)
    of_fastest = {kind: min(other[kind] for _, other in turns) / own_fastest for kind in theirs}
    best = min(ratios, key=ratios.get)
    best_of_fastest = min(of_fastest, key=of_fastest.get)
    each = "; ".join(f"{kind} {ratio:.2f}, {of_fastest[kind]:.2f}" for kind, ratio in ratios.items())
    print(f"| {name} | {case.batch} | {precision} | {rate:.1f} | {ratios[best]:.2f} | {best} | {of_fastest[best_of_fastest]:.2f} | "
          f"{best_of_fastest} | {each} |", flush=True)
    return {"model": name, "batch": case.batch, "precision": precision, "samples_per_second": rate, "ratios": ratios,
            "ratios_of_fastest_turns": of_fastest, "fastest": best}


def compare_curves(program, directory, case, text, device):
    curves = []
    for precision in ("f32", "bf16"):
        ours = Penstock(program, directory, case, precision, text, device)
        curves.append([ours.answer(1)[1] for _ in range(CURVE_STEPS)])
        ours.close()
    # Single steps differ by chance once two runs differ at all; means over a few steps are the curve.
    means = [[statistics.mean(curve[at : at + WINDOW]) for at in range(0, CURVE_STEPS, WINDOW)]
             for curve in curves]
    worst = max(abs(b - a) / a for a, b in zip(*means))
    print(f"bf16 against f32, {CURVE_STEPS} steps in means of {WINDOW}: {means[0][-1]:.4f} and "
          f"{means[1][-1]:.4f} at the end, largest difference {100 * worst:.2f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("models", nargs="*", help=f"{', '.join(CASES)}; on a GPU {', '.join(GPU_CASES)}")
    parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda:N")
    parser.add_argument("--precision", choices=("f32", "bf16"), action="append")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of a turn, roughly")
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--text", type=pathlib.Path, help="of language models; default: the licence texts of this system")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes the figures there")
    arguments = parser.parse_args()
    cases = CASES if arguments.device == "cpu" else GPU_CASES
    rows, failed = [], []
    unknown = set(arguments.models) - set(cases)
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))} on {arguments.device}; there are {', '.join(cases)}")
    with tempfile.TemporaryDirectory() as directory:
        text = arguments.text or pathlib.Path(directory) / "text"
        if not arguments.text:
            licences = (path for path in sorted(glob.glob("/usr/share/common-licenses/*")) if not os.path.islink(path))
            text.write_bytes(b"".join(pathlib.Path(path).read_bytes() for path in licences))
        print(f"PyTorch {torch.__version__} on {arguments.device}, one thread each, {arguments.turns} turns of about {arguments.seconds:g} s\n")
        print("| model | batch | | samples/s | times PyTorch, median | its fastest | of the fastest turns | its fastest | against each |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in arguments.models or cases:
            for precision in arguments.precision or ("f32", "bf16"):
                try:
                    rows.append(compare(arguments, directory, name, cases[name], precision, text))
                except (OSError, RuntimeError) as error:  # PyTorch's are RuntimeErrors; the other nets still count
                    failed.append(f"{name} in {precision}: {error}")
                    print(f"| {name} | {cases[name].batch} | {precision} | failed | | | | | |", flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
        if arguments.curves:
            compare_curves(arguments.program, directory, next(iter(cases.values())), text, arguments.device)
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
