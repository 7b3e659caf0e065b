#!/usr/bin/env python3
"""Trains families of models for some steps in PyTorch, from the weights and data that model_dump wrote, and compares.

    tests/parity/families.py build/release/tests/parity/model_dump [FAMILY...] [--precision f32|bf16]

PyTorch in float64 is the truth. What passes in f32: gradients of the first step, by the norm of each tensor, within the
larger of 1e-4 of the largest norm and twice the distance of PyTorch in float32; losses of all steps within the larger of
1e-5 and twice that distance. In bf16: both within twice the distance of PyTorch with autocast to bfloat16. The models of
PyTorch are torchvision's, and those here and in sequence_models.py. Microbatches are accumulated, so that batch norms
see the same ones; dropout is off. Needs torch and torchvision.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

import sequence_models as sequences
from dumps import Data, read_arrays

JOB = """name: parity
model:
  {model}
data: {{synthetic: {{}}}}
training:
  steps: 20
  batch: {batch}
  microbatches: 2
  optimizer: {{sgd: {{learning_rate: {rate}, momentum: 0.9, nesterov: {nesterov}}}}}
  precision: {precision}
  seed: 5
"""


class CifarResNet(torch.nn.Module):
    """He et al., section 4.2, with the shortcut of option A."""

    class Block(torch.nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(outputs)
            self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = torch.nn.BatchNorm2d(outputs)
            self.stride, self.more = stride, outputs - inputs

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
            return F.relu(y + shortcut)

    def __init__(self, depth, width, classes):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        inputs = width
        for part in range(3):
            blocks = []
            for i in range((depth - 2) // 6):
                blocks.append(self.Block(inputs, width << part, 2 if part > 0 and i == 0 else 1))
                inputs = width << part
            setattr(self, f"layer{part + 1}", torch.nn.Sequential(*blocks))
        self.fc = torch.nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def alexnet_2012(classes):
    """Krizhevsky et al., NIPS 2012, with torchvision's names of modules."""
    nn = torch.nn
    lrn = lambda: nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2.0)
    model = torchvision.models.AlexNet(num_classes=classes, dropout=0.0)
    model.features = nn.Sequential(
        nn.Conv2d(3, 96, 11, 4, 2), nn.ReLU(), lrn(), nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, 1, 2, groups=2), nn.ReLU(), lrn(), nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, 1, 1), nn.ReLU(), nn.Conv2d(384, 384, 3, 1, 1, groups=2), nn.ReLU(),
        nn.Conv2d(384, 256, 3, 1, 1, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2))
    return model


class Classifier(torch.nn.Module):
    """The loss of torchvision's `network`, on pixels brought to mean 0 and deviation 1."""

    def __init__(self, network, mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225)):
        super().__init__()
        self.network = network
        self.normal = [torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1) for values in (mean, deviation)]

    def forward(self, image, label):
        mean, deviation = (values.to(image.dtype) for values in self.normal)
        return F.cross_entropy(self.network((image.permute(0, 3, 1, 2) / 255 - mean) / deviation), label)

    # Named as the network alone.
    def named_parameters(self):
        return self.network.named_parameters()

    def load_state_dict(self, *arguments, **options):
        return self.network.load_state_dict(*arguments, **options)


# name: (the job's model, batch, rate, the same in PyTorch)
FAMILIES = {
    "gpt": ("gpt: {layers: 4, width: 64, heads: 4, context: 32}", 8, 0.05, lambda: sequences.Gpt(4, 64, 4, 32, 256)),
    "vgg16": ("vgg: {depth: 16, dropout: 0, hidden: 256, image: {size: 64, classes: 10}}", 4, 0.001,
              lambda: vgg(torchvision.models.vgg16, 256)),
    "vgg11_bn": ("vgg: {depth: 11, batch_norm: true, dropout: 0, hidden: 128, image: {size: 32, classes: 10}}", 8, 0.01,
                 lambda: vgg(torchvision.models.vgg11_bn, 128)),
    "alexnet": ("alexnet: {dropout: 0, image: {size: 96, classes: 10}}", 4, 0.01,
                lambda: Classifier(torchvision.models.alexnet(num_classes=10, dropout=0.0))),
    "alexnet_2012": ("alexnet: {variant: \"2012\", dropout: 0, image: {size: 96, classes: 10}}", 4, 0.01,
                     lambda: Classifier(alexnet_2012(10))),
    "resnet18": ("resnet: {depth: 18, image: {size: 64, classes: 10}}", 8, 0.001,
                 lambda: Classifier(torchvision.models.resnet18(num_classes=10))),
    "resnet50": ("resnet: {depth: 50, image: {size: 64, classes: 10}}", 8, 0.001,
                 lambda: Classifier(torchvision.models.resnet50(num_classes=10))),
    "cifar_resnet": ("cifar_resnet: {depth: 20}", 16, 0.01,
                     lambda: Classifier(CifarResNet(20, 16, 10), [0.5] * 3, [0.25] * 3)),
    "lstm_lm": ("lstm_lm: {layers: 2, hidden: 96, context: 20, vocabulary: 300, dropout: 0}", 8, 0.5,
                lambda: sequences.LanguageModel(300, 96, [96, 96], tied=False)),
    "awd_lm": ("awd_lm: {hidden: 115, embedding: 40, context: 30, vocabulary: 300, input_dropout: 0, hidden_dropout: 0, "
               "output_dropout: 0, row_dropout: 0, weight_dropout: 0}", 8, 0.5,
               lambda: sequences.LanguageModel(300, 40, [115, 115, 40], tied=True)),
    "gnmt": ("gnmt: {hidden: 64, vocabulary: 200, source_time: 14, target_time: 12, dropout: 0}", 8, 0.5,
             lambda: sequences.Gnmt(8, 64, 200, 0.1)),
    "s2vt": ("s2vt: {vocabulary: 200, frames: 12, words: 8, features: 128, hidden: 80, embedding: 48}", 8, 0.5,
             lambda: sequences.S2vt(200, 128, 80, 48)),
}


def vgg(make, hidden):
    model = make(num_classes=10, dropout=0.0)
    model.classifier[0] = torch.nn.Linear(512 * 7 * 7, hidden)
    model.classifier[3] = torch.nn.Linear(hidden, hidden)
    model.classifier[6] = torch.nn.Linear(hidden, 10)
    return Classifier(model)


def train(make, start, data, dtype, autocast=False):
    """The losses of all steps and the gradients of the first."""
    model = make().to(dtype)
    missing = model.load_state_dict({name: value.to(dtype) for name, value in start.items()}, strict=False)
    assert not missing.unexpected_keys, missing.unexpected_keys
    # A tied output has the name of the table.
    known = ("num_batches_tracked", "decoder.weight")
    assert all(name.endswith(known) for name in missing.missing_keys), missing.missing_keys
    c = data.config
    parameters = dict(model.named_parameters())
    assert parameters.keys() <= start.keys(), parameters.keys() - start.keys()
    optimizer = torch.optim.SGD(parameters.values(), lr=1.0, momentum=float(c["momentum"]),
                                nesterov=c["nesterov"] == "1")
    model.train()
    losses, gradients = [], {}
    for step in range(data.steps):
        optimizer.zero_grad()
        total = 0.0
        for m in range(data.microbatches):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = model(**data.microbatch(step, m, dtype))
            (loss / data.microbatches).backward()
            total += loss.item()
        losses.append(total / data.microbatches)
        if step == 0:
            gradients = {name: p.grad.double().clone() for name, p in parameters.items()}
        optimizer.param_groups[0]["lr"] = float(c[f"rate_{step + 1}"])
        optimizer.step()
    return np.array(losses), gradients


def compare(program, name, precision, directory):
    model, batch, rate, make = FAMILIES[name]
    job = directory / "job.yaml"
    job.write_text(JOB.format(model=model, batch=batch, rate=rate, nesterov="true", precision=precision))
    subprocess.run([program, job, directory], check=True)
    data = Data(directory)
    start = read_arrays(directory, "initial.bin", "tensors.txt")
    ours = read_arrays(directory, "gradients.bin", "parameters.txt")
    our_losses = np.loadtxt(directory / "losses.txt")
    true_losses, true = train(make, start, data, torch.float64)
    other_losses, other = train(make, start, data, torch.float32, autocast=precision == "bf16")
    largest = max(g.norm().item() for g in true.values())

    def distance(gradients):
        return max((gradients[key].double() - true[key]).norm().item() for key in true) / largest

    d_ours, d_other = distance(ours), distance(other)
    l_ours, l_other = (np.abs(losses - true_losses).max() for losses in (our_losses, other_losses))
    # What nobody could tell from rounding, in f32.
    d_least, l_least = (1e-4, 1e-5) if precision == "f32" else (0.0, 0.0)
    good = d_ours <= max(d_least, 2 * d_other) and l_ours <= max(l_least, 2 * l_other)
    print(f"| `{name}` | {precision} | {d_ours:.1e} | {d_other:.1e} | {l_ours:.1e} | {l_other:.1e} | "
          f"{true_losses[0]:.4f} -> {true_losses[-1]:.4f} | {'ok' if good else 'FAILED'} |", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--precision", choices=("f32", "bf16"), help="default: both")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| family | precision | gradients, Penstock | PyTorch | losses, Penstock | PyTorch | loss | |")
    print("|---|---|---|---|---|---|---|---|")
    good = True
    for name in arguments.families or FAMILIES:
        for precision in (arguments.precision,) if arguments.precision else ("f32", "bf16"):
            with tempfile.TemporaryDirectory() as directory:
                good &= compare(arguments.program, name, precision, pathlib.Path(directory))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
