import torch.nn.functional as F

from op_numbers import case, f32

SHAPES = {"weight": (5, 7), "bias": (5,)}


def linear(c, x):
    return F.linear(x, c["weight"], c["bias"])


case("linear", "a vector", {"outputs": 5}, [f32(7)], linear, parameters=SHAPES, samples=3, library=True)
case("linear", "rows", {"outputs": 5}, [f32(4, 7)], linear, parameters=SHAPES, library=True)
case("linear", "rows of two dimensions", {"outputs": 5}, [f32(3, 2, 7)], linear, parameters=SHAPES, library=True)
case("linear", "inputs first", {"outputs": 9, "layout": "inputs_first"}, [f32(4, 6)],
     lambda c, x: x @ c["weight"] + c["bias"], parameters={"weight": (6, 9), "bias": (9,)}, library=True)
case("linear", "no bias", {"outputs": 3, "bias": False}, [f32(4, 6)], lambda c, x: F.linear(x, c["weight"]),
     parameters={"weight": (3, 6)}, library=True)
case("linear", "several chunks", {"outputs": 2}, [f32(257, 3)], linear, parameters={"weight": (2, 3), "bias": (2,)},
     samples=2, library=True)
