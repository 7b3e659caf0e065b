import torch.nn.functional as F

from op_numbers import case, f32


def layer_norm(c, x):
    return F.layer_norm(x, x.shape[-1:], c["weight"], c["bias"], eps=c.attributes.get("epsilon", 1e-5))


def rms_norm(c, x):
    return F.rms_norm(x, x.shape[-1:], c["weight"], eps=c.attributes.get("epsilon", 1e-6))


case("layer_norm", "time and width", {"width": 19}, [f32(5, 19)], layer_norm,
     parameters={"weight": (19,), "bias": (19,)})
case("layer_norm", "many rows", {"width": 4}, [f32(70, 4, scale=8)], layer_norm,
     parameters={"weight": (4,), "bias": (4,)})
case("layer_norm", "a large epsilon", {"width": 6, "epsilon": 0.25}, [f32(6)], layer_norm,
     parameters={"weight": (6,), "bias": (6,)})
case("rms_norm", "time and width", {}, [f32(5, 19)], rms_norm, parameters={"weight": (19,)})
case("rms_norm", "many rows", {"epsilon": 1e-05}, [f32(70, 4, scale=8)], rms_norm, parameters={"weight": (4,)})
case("rms_norm", "a vector and a large epsilon", {"epsilon": 0.25}, [f32(6)], rms_norm, parameters={"weight": (6,)})
case("rms_norm", "more than two vectors", {}, [f32(3, 33)], rms_norm, parameters={"weight": (33,)})
case("rms_norm", "each head of each time step", {}, [f32(5, 3, 8)], rms_norm, parameters={"weight": (8,)})
