import torch
import torch.nn.functional as F

from op_numbers import case, f32


def activation(op, attributes, function):
    name = " ".join(["range", *attributes.values()])
    case(op, name, attributes, [f32(5, 23, scale=8)], lambda c, x: function(x), samples=1)
    case(op, f"near 0 {name}", attributes, [f32(3, 7)], lambda c, x: function(x))


activation("relu", {}, F.relu)
activation("silu", {}, F.silu)
activation("tanh", {}, torch.tanh)
activation("sigmoid", {}, torch.sigmoid)
activation("gelu", {}, F.gelu)
activation("gelu", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh"))
