import torch
import torch.nn.functional as F

from op_numbers import case, f32

case("concat", "two", {}, [f32(3, 4), f32(3, 1)], lambda c, *x: torch.cat(x, dim=-1))
case("concat", "channels of images", {}, [f32(2, 3, 5), f32(2, 3, 2), f32(2, 3, 17)],
     lambda c, *x: torch.cat(x, dim=-1))
case("concat", "vectors", {}, [f32(3), f32(2)], lambda c, *x: torch.cat(x, dim=-1))
case("slice", "the middle", {"from": 2, "to": 5}, [f32(3, 7)], lambda c, x: x[..., 2:5])
case("slice", "all", {"from": 0, "to": 4}, [f32(4)], lambda c, x: x)
case("slice", "the end", {"from": 1, "to": 20}, [f32(2, 2, 20)], lambda c, x: x[..., 1:])
case("slice", "time steps", {"from": 1, "to": 4, "dimension": "first"}, [f32(5, 3)], lambda c, x: x[:, 1:4], samples=3)
case("slice", "rows of an image", {"from": 0, "to": 2, "dimension": "first"}, [f32(3, 4, 2)], lambda c, x: x[:, :2])
case("pad", "on both sides", {"before": 2, "behind": 1}, [f32(3, 5)], lambda c, x: F.pad(x, (0, 0, 2, 1)), samples=3)
case("pad", "behind an image", {"behind": 2}, [f32(2, 3, 4)], lambda c, x: F.pad(x, (0, 0, 0, 0, 0, 2)))
case("pad", "a vector", {"before": 3}, [f32(4)], lambda c, x: F.pad(x, (3, 0)))
case("select", "the first", {}, [f32(3, 7)], lambda c, x: x[:, 0])
case("select", "the last", {"index": -1}, [f32(3, 2, 5)], lambda c, x: x[:, -1])
case("select", "one between", {"index": 1}, [f32(3, 4)], lambda c, x: x[:, 1])
case("flatten", "an image", {}, [f32(3, 4, 2)], lambda c, x: x.flatten(1))
case("reshape", "two dimensions", {"dims": [6, 4]}, [f32(3, 4, 2)], lambda c, x: x.reshape(-1, 6, 4))
