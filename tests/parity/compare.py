"""Repeats what parity_dump did with PyTorch and compares: compare.py DIRECTORY LABEL

Checks, and fails with exit code 1 if one does not hold:
  every gradient tensor of the first step, relative to its norm          1e-5
  the loss of every step                                                 1e-5
  all weights after the last step, relative to the distance travelled    1e-4

Left out of the weights: the biases of the attention keys. Moving all scores of a query by the same
amount changes nothing, so their true gradient is zero, and AdamW turns the rounding errors that are left
into steps of full size in either framework.
"""

import sys

import numpy as np
import torch

import gpt

GRADIENT_MAX = 1e-5
LOSS_MAX = 1e-5
WEIGHTS_MAX = 1e-4


def read_config(directory):
    with open(f"{directory}/config.txt") as file:
        pairs = dict(line.split() for line in file)
    whole = ("layers", "heads", "batch", "time", "steps", "microbatches")
    return {name: int(value) if name in whole else float(value) for name, value in pairs.items()}


def read_tensors(directory, name):
    values = np.fromfile(f"{directory}/{name}", dtype=np.float32)
    tensors, at = {}, 0
    with open(f"{directory}/tensors.txt") as file:
        for line in file:
            tensor, *dims = line.split()
            shape = [int(dim) for dim in dims]
            size = int(np.prod(shape))
            tensors[tensor] = torch.from_numpy(values[at : at + size].reshape(shape).copy())
            at += size
    assert at == len(values), f"{name} has {len(values)} numbers, expected {at}"
    return tensors


def train(config, weights, tokens):
    """Returns the losses, and the gradients of the first step."""
    optimizer = gpt.optimizer(weights, config["learning_rate"], config["beta1"], config["beta2"],
                              config["epsilon"], config["weight_decay"])
    losses, gradients = [], None
    for step in range(config["steps"]):
        optimizer.zero_grad()
        total = 0.0
        for ids, targets in tokens[step]:
            loss = gpt.loss(weights, ids, targets, config["layers"], config["heads"])
            (loss / config["microbatches"]).backward()
            total += loss.item()
        losses.append(total / config["microbatches"])
        if step == 0:
            gradients = {name: weight.grad.clone() for name, weight in weights.items()}
        optimizer.step()
    return losses, gradients


def without_key_biases(name, tensor):
    if not name.endswith("attn.c_attn.bias"):
        return tensor
    query, _, value = tensor.chunk(3)
    return torch.cat([query, value])


def norm(tensors):
    return float(torch.sqrt(sum((tensor.double() ** 2).sum() for tensor in tensors)))


def main():
    directory, label = sys.argv[1:]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = read_config(directory)
    initial = read_tensors(directory, "initial.bin")
    ours = read_tensors(directory, "final.bin")
    our_gradients = read_tensors(directory, "gradients.bin")
    our_losses = np.loadtxt(f"{directory}/losses.txt")
    tokens = torch.from_numpy(
        np.fromfile(f"{directory}/tokens.bin", dtype=np.int32)
        .reshape(config["steps"], config["microbatches"], 2, config["batch"], config["time"])
        .astype(np.int64))

    weights = {name: tensor.clone().requires_grad_() for name, tensor in initial.items()}
    losses, gradients = train(config, weights, tokens)

    def gradient_error(name):
        difference = [without_key_biases(name, our_gradients[name] - gradients[name])]
        return norm(difference) / norm([without_key_biases(name, gradients[name])])

    worst = max(gradients, key=gradient_error)
    loss_error = float(np.max(np.abs(our_losses - np.array(losses))))
    names = list(weights)
    distance = norm(without_key_biases(n, weights[n].detach() - initial[n]) for n in names)
    weight_error = norm(without_key_biases(n, weights[n].detach() - ours[n]) for n in names) / distance

    rows = [
        (f"gradients of {len(names)} tensors (worst: {worst})", gradient_error(worst), GRADIENT_MAX),
        (f"losses of {config['steps']} steps ({losses[0]:.4f} to {losses[-1]:.4f})", loss_error, LOSS_MAX),
        (f"weights after {config['steps']} steps, of the distance travelled", weight_error, WEIGHTS_MAX),
    ]
    failed = False
    for what, error, limit in rows:
        good = error <= limit  # not so for NaN
        failed |= not good
        print(f"{label:8} {what:62} {error:9.2e}  limit {limit:.0e}  {'ok' if good else 'FAILED'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
