import torch

from op_numbers import case, f32, u8


def image(c, x):
    a = c.attributes
    each = lambda name, otherwise: torch.tensor(a.get(name, otherwise), dtype=torch.float64)
    return (a.get("scale", 1 / 255) * x.double() - each("mean", 0.0)) / each("deviation", 1.0)


case("image", "bytes", {}, [u8(3, 4, 3)], image)
case("image", "bytes as ImageNet's", {"mean": [0.485, 0.456, 0.406], "deviation": [0.229, 0.224, 0.225]},
     [u8(5, 4, 3)], image)
case("image", "numbers", {"scale": 2, "mean": 0.5, "deviation": [0.5, 4]}, [f32(3, 2, 2)], image)
