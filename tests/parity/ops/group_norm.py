import torch.nn.functional as F

from op_numbers import case, f32


def group_norm(c, x):
    a = c.attributes
    y = F.group_norm(x.movedim(-1, 1), a["groups"], c["weight"], c["bias"], a.get("epsilon", 1e-5))
    return y.movedim(1, -1)


def add(name, dims, **attributes):
    case("group_norm", name, attributes, [f32(*dims)], group_norm,
         parameters={"weight": (dims[-1],), "bias": (dims[-1],)})


add("two groups", (3, 4, 6), groups=2)
add("one group", (3, 3, 5), groups=1)
add("a group for each channel", (4, 5, 3), groups=3)
add("more rows than a block has", (9, 8, 6), groups=3)
add("groups wider than a piece of channels", (1, 2, 210), groups=3)
add("epsilon", (3, 2, 4), groups=2, epsilon=0.1)
