import torch.nn.functional as F

from op_numbers import case, f32


def max_pool(c, x):
    a = c.attributes
    stride = a.get("stride", a["kernel"])
    return F.max_pool2d(x.permute(0, 3, 1, 2), a["kernel"], stride, a.get("padding", 0)).permute(0, 2, 3, 1)


def add(name, image, numbers=0, **attributes):
    case("max_pool", name, attributes, [f32(*image, scale=8)], max_pool, numbers=numbers)


add("2x2", (6, 4, 5), kernel=2)
add("overlapping windows", (7, 7, 17), numbers=1, kernel=3, stride=2)
add("padding", (7, 8, 3), kernel=3, stride=2, padding=1)
add("windows that are not square", (5, 8, 4), kernel=[2, 3], stride=[1, 2], padding=[1, 0])
add("the whole image", (4, 3, 2), kernel=[4, 3])
