import torch
import torch.nn.functional as F

from op_numbers import case, f32


def updated(c, x):
    """The running mean and variance after a forward in training."""
    mean, var = c["running_mean"].clone(), c["running_var"].clone()
    channels = x.movedim(-1, 1)
    y = F.batch_norm(channels, mean, var, c["weight"], c["bias"], c.training, c.attributes.get("momentum", 0.1),
                     c.attributes.get("epsilon", 1e-5))
    return y.movedim(1, -1), mean, var


def add(name, dims, scale=1.0, samples=2, **attributes):
    width = dims[-1]
    zeros = torch.zeros(width, dtype=torch.float64)
    case("batch_norm", name, attributes, [f32(*dims, scale=scale)], lambda c, x: updated(c, x)[0],
         parameters={"weight": (width,), "bias": (width,)},
         buffers={"running_mean": (zeros, lambda c, x: updated(c, x)[1]),
                  "running_var": (zeros + 1, lambda c, x: updated(c, x)[2])}, samples=samples)


add("image", (3, 4, 5))
add("more rows than a block has", (7, 5, 17), scale=4)
add("wide", (1, 2, 150))
add("vectors", (9,), samples=5)
add("epsilon and momentum", (3, 3, 4), scale=0.125, epsilon=0.01, momentum=0.75)
