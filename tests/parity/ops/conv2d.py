import torch.nn.functional as F

from op_numbers import case, f32


def pair(value):
    return list(value) if isinstance(value, (list, tuple)) else [value, value]


def conv2d(c, x):
    a = c.attributes
    stride, dilation = pair(a.get("stride", 1)), pair(a.get("dilation", 1))
    x = x.permute(0, 3, 1, 2)
    padding = pair(a.get("padding", 0))
    if a.get("same", False):
        # ONNX's SAME_UPPER, which is PyTorch's "same" for a stride of 1.
        sides = []
        for axis in (1, 0):
            size, reach = x.shape[2 + axis], dilation[axis] * (pair(a["kernel"])[axis] - 1) + 1
            outputs = -(-size // stride[axis])
            total = max(0, (outputs - 1) * stride[axis] + reach - size)
            sides += [total // 2, total - total // 2]
        x, padding = F.pad(x, sides), [0, 0]
    bias = c["bias"] if a.get("bias", True) else None
    return F.conv2d(x, c["weight"], bias, stride, padding, dilation, a.get("groups", 1)).permute(0, 2, 3, 1)


def add(name, image, channels, kernel, samples=2, **attributes):
    inputs = image[2] // attributes.get("groups", 1)
    parameters = {"weight": (channels, inputs, *pair(kernel))}
    if attributes.get("bias", True):
        parameters["bias"] = (channels,)
    case("conv2d", name, {"channels": channels, "kernel": kernel, **attributes}, [f32(*image)], conv2d,
         parameters=parameters, samples=samples, library=True)


add("3x3", (6, 5, 4), 6, 3, padding=1)
add("more samples than a block has rows", (3, 3, 2), 3, 2, samples=18)
add("1x1 without bias", (4, 5, 18), 17, 1, bias=False)
add("1x1 with a stride", (7, 6, 5), 8, 1, stride=2, bias=False)
add("stride, dilation and padding, each of its own", (11, 12, 3), 5, [3, 2], stride=[2, 3], padding=[2, 1],
    dilation=[2, 1])
add("first layer of a ResNet", (15, 15, 3), 16, 7, stride=2, padding=3, bias=False)
add("groups", (5, 6, 6), 9, 3, padding=1, groups=3)
add("wide groups", (4, 4, 32), 32, 3, padding=1, groups=2)
add("a group for each channel", (6, 5, 7), 7, 3, padding=1, groups=7)
add("several outputs for each channel", (5, 5, 3), 6, 3, stride=2, padding=1, groups=3)
add("kernel as large as the image", (3, 4, 5), 7, [3, 4])
add("same", (5, 6, 3), 4, 4, same=True)
add("same with a stride", (7, 6, 3), 4, 3, stride=2, same=True)
add("one sample, one channel", (4, 3, 1), 1, 3, samples=1, padding=1)
