import torch.nn.functional as F

from op_numbers import case, f32


def avg_pool(c, x):
    a = c.attributes
    x = x.permute(0, 3, 1, 2)
    if a.get("global", False):
        y = F.adaptive_avg_pool2d(x, 1)
    elif "outputs" in a:
        y = F.adaptive_avg_pool2d(x, a["outputs"])
    else:
        y = F.avg_pool2d(x, a["kernel"], a.get("stride", a["kernel"]), a.get("padding", 0))
    return y.permute(0, 2, 3, 1)


def add(name, image, **attributes):
    case("avg_pool", name, attributes, [f32(*image)], avg_pool)


add("2x2", (6, 4, 5), kernel=2)
add("overlapping windows with padding", (7, 8, 17), kernel=3, stride=2, padding=1)
add("windows that are not square", (5, 8, 4), kernel=[2, 3], stride=[1, 2], padding=[1, 0])
add("global", (7, 5, 19), **{"global": True})
add("outputs that divide the inputs", (6, 4, 3), outputs=[3, 2])
add("outputs of windows that overlap", (7, 5, 3), outputs=[3, 4])
add("more outputs than inputs", (3, 2, 2), outputs=5)
