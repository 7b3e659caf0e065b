import torch.nn.functional as F

from op_numbers import case, f32


def subsample(c, x):
    stride = c.attributes["stride"]
    return F.pad(x[:, ::stride, ::stride, :], (0, c.attributes["channels"] - x.shape[3]))


for name, shape, attributes in [
    ("more_channels", (4, 4, 3), {"stride": 2, "channels": 6}),
    ("odd_sizes", (5, 7, 2), {"stride": 2, "channels": 2}),
    ("by_three", (7, 4, 17), {"stride": 3, "channels": 20}),
]:
    case("subsample", name, attributes, [f32(*shape)], compute=subsample)
