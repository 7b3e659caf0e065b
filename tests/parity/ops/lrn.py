import torch.nn.functional as F

from op_numbers import case, f32


def lrn(c, x):
    a = c.attributes
    y = F.local_response_norm(x.movedim(-1, 1), a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("k", 1.0))
    return y.movedim(1, -1)


def add(name, dims, scale=4, **attributes):
    case("lrn", name, attributes, [f32(*dims, scale=scale)], lrn)


add("as AlexNet", (3, 4, 20), scale=16, size=5, alpha=1e-4, beta=0.75, k=2)
add("strong", (3, 3, 19), size=5, alpha=0.5)
add("even size", (2, 3, 7), size=4, alpha=0.5, beta=0.5, k=0.25)
add("more neighbours than channels", (9, 8, 3), size=9, alpha=1, beta=1.25)
add("itself only", (2, 2, 33), size=1, alpha=0.25, k=0.5)
