#!/usr/bin/env python3
"""Trains families of models for some steps in PyTorch, from the weights and data that model_dump wrote, and compares.

    tests/parity/families.py build/release/tests/parity/model_dump [FAMILY...]

PyTorch in float64 is the truth. What passes: gradients of the first step, by the norm of each tensor, within the
larger of 1e-4 of the largest norm and twice the distance of PyTorch in float32; losses of all steps within the larger of
1e-5 and twice that distance. The models of PyTorch are torchvision's, and for CIFAR's ResNets a few lines here.
Microbatches are accumulated, so that batch norms see the same ones. Needs torch and torchvision.
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


# name: (the job's model, batch, rate, the same in PyTorch)
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
FAMILIES = {
    "vgg16": ("vgg: {depth: 16, dropout: 0, hidden: 256, image: {size: 64, classes: 10}}", 4, 0.001, IMAGENET,
              lambda: vgg(torchvision.models.vgg16, 256)),
    "vgg11_bn": ("vgg: {depth: 11, batch_norm: true, dropout: 0, hidden: 128, image: {size: 32, classes: 10}}", 8, 0.01,
                 IMAGENET, lambda: vgg(torchvision.models.vgg11_bn, 128)),
    "alexnet": ("alexnet: {dropout: 0, image: {size: 96, classes: 10}}", 4, 0.01, IMAGENET,
                lambda: torchvision.models.alexnet(num_classes=10, dropout=0.0)),
    "alexnet_2012": ("alexnet: {variant: \"2012\", dropout: 0, image: {size: 96, classes: 10}}", 4, 0.01, IMAGENET,
                     lambda: alexnet_2012(10)),
    "resnet18": ("resnet: {depth: 18, image: {size: 64, classes: 10}}", 8, 0.001, IMAGENET,
                 lambda: torchvision.models.resnet18(num_classes=10)),
    "resnet50": ("resnet: {depth: 50, image: {size: 64, classes: 10}}", 8, 0.001, IMAGENET,
                 lambda: torchvision.models.resnet50(num_classes=10)),
    "cifar_resnet": ("cifar_resnet: {depth: 20}", 16, 0.01, ([0.5] * 3, [0.25] * 3), lambda: CifarResNet(20, 16, 10)),
}


def vgg(make, hidden):
    model = make(num_classes=10, dropout=0.0)
    model.classifier[0] = torch.nn.Linear(512 * 7 * 7, hidden)
    model.classifier[3] = torch.nn.Linear(hidden, hidden)
    model.classifier[6] = torch.nn.Linear(hidden, 10)
    return model


def read_arrays(directory, file, names):
    values = np.fromfile(directory / file, dtype=np.float32)
    arrays, at = {}, 0
    for line in (directory / names).read_text().splitlines():
        name, *shape = line.split()
        shape = [int(size) for size in shape]
        count = int(np.prod(shape))
        arrays[name] = torch.from_numpy(values[at : at + count].reshape(shape).copy())
        at += count
    assert at == len(values), (at, len(values))
    return arrays


class Data:
    def __init__(self, directory):
        self.config = dict(line.split() for line in (directory / "config.txt").read_text().splitlines())
        self.steps, self.microbatches, self.samples = (
            int(self.config[key]) for key in ("steps", "microbatches", "samples"))
        labels = np.fromfile(directory / "port_label.bin", dtype=np.int32)
        images = np.fromfile(directory / "port_image.bin", dtype=np.uint8)
        size = int(round((len(images) / len(labels) / 3) ** 0.5))
        batches = (self.steps, self.microbatches, self.samples)
        self.labels = torch.from_numpy(labels.reshape(batches).astype(np.int64))
        self.images = torch.from_numpy(images.reshape(*batches, size, size, 3))


def train(make, start, data, normal, dtype):
    """The losses of all steps and the gradients of the first."""
    model = make().to(dtype)
    missing = model.load_state_dict({name: value.to(dtype) for name, value in start.items()}, strict=False)
    assert not missing.unexpected_keys, missing.unexpected_keys
    assert all(name.endswith("num_batches_tracked") for name in missing.missing_keys), missing.missing_keys
    c = data.config
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=float(c["momentum"]),
                                nesterov=c["nesterov"] == "1")
    mean, deviation = (torch.tensor(values, dtype=dtype).view(1, 3, 1, 1) for values in normal)
    model.train()
    losses, gradients = [], {}
    for step in range(data.steps):
        optimizer.zero_grad()
        total = 0.0
        for m in range(data.microbatches):
            x = data.images[step, m].permute(0, 3, 1, 2).to(dtype) / 255
            loss = F.cross_entropy(model((x - mean) / deviation), data.labels[step, m])
            (loss / data.microbatches).backward()
            total += loss.item()
        losses.append(total / data.microbatches)
        if step == 0:
            gradients = {name: p.grad.double().clone() for name, p in model.named_parameters()}
        optimizer.param_groups[0]["lr"] = float(c[f"rate_{step + 1}"])
        optimizer.step()
    return np.array(losses), gradients


def compare(program, name, precision, directory):
    model, batch, rate, normal, make = FAMILIES[name]
    job = directory / "job.yaml"
    job.write_text(JOB.format(model=model, batch=batch, rate=rate, nesterov="true", precision=precision))
    subprocess.run([program, job, directory], check=True)
    data = Data(directory)
    start = read_arrays(directory, "initial.bin", "tensors.txt")
    ours = read_arrays(directory, "gradients.bin", "parameters.txt")
    our_losses = np.loadtxt(directory / "losses.txt")
    true_losses, true = train(make, start, data, normal, torch.float64)
    other_losses, other = train(make, start, data, normal, torch.float32)
    largest = max(g.norm().item() for g in true.values())

    def distance(gradients):
        return max((gradients[key].double() - true[key]).norm().item() for key in true) / largest

    d_ours, d_other = distance(ours), distance(other)
    l_ours, l_other = (np.abs(losses - true_losses).max() for losses in (our_losses, other_losses))
    good = d_ours <= max(1e-4, 2 * d_other) and l_ours <= max(1e-5, 2 * l_other)
    print(f"| {name} | {precision} | {d_ours:.2e} | {d_other:.2e} | {l_ours:.2e} | {l_other:.2e} | "
          f"{true_losses[0]:.4f} -> {true_losses[-1]:.4f} | {'ok' if good else 'FAILED'} |", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| family | precision | gradients, ours | PyTorch f32 | losses, ours | PyTorch f32 | loss | |")
    print("|---|---|---|---|---|---|---|---|")
    good = True
    for name in arguments.families or FAMILIES:
        with tempfile.TemporaryDirectory() as directory:
            good &= compare(arguments.program, name, "f32", pathlib.Path(directory))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
