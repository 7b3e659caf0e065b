import math

import torch
import torch.nn.functional as F

from op_numbers import case, f32, i32


def linear(c, name, x):
    return x @ c[f"{name}.weight"] + c[f"{name}.bias"]


def norm(c, name, x):
    return F.layer_norm(x, x.shape[-1:], c[f"{name}.weight"], c[f"{name}.bias"])


def masked(c, x):
    return x * c.dropout(c.attributes["dropout"], x.shape[1], x.shape[2]) if "dropout" in c.attributes else x


def attention_branch(c, x):
    samples, time, width = x.shape
    heads = c.attributes["heads"]
    qkv = linear(c, "attn.c_attn", norm(c, "ln_1", x))
    query, key, value = (part.view(samples, time, heads, -1).transpose(1, 2) for part in qkv.split(width, dim=2))
    scores = query @ key.transpose(-2, -1) / math.sqrt(width // heads)
    future = torch.triu(torch.ones(time, time, dtype=torch.bool), diagonal=1)
    mixed = F.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ value
    return x + masked(c, linear(c, "attn.c_proj", mixed.transpose(1, 2).reshape(x.shape)))


def mlp_branch(c, x):
    hidden = F.gelu(linear(c, "mlp.c_fc", norm(c, "ln_2", x)), approximate="tanh")
    return x + masked(c, linear(c, "mlp.c_proj", hidden))


def gpt_embedding(c, ids):
    return masked(c, F.embedding(ids, c["wte.weight"]) + c["wpe.weight"][: ids.shape[1]])


def gpt_head(c, x, targets):
    logits = x @ c["lm_head.weight"].t()
    flat, ids = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    ignored = c.attributes.get("ignore", -1)
    loss = F.cross_entropy(flat, ids, ignore_index=ignored, label_smoothing=c.attributes.get("label_smoothing", 0.0))
    return (loss if (ids != ignored).any() else flat.sum() * 0.0), logits


def branch(width, norm_name, expansion, expanded, projection, projected):
    return {f"{norm_name}.weight": (width,), f"{norm_name}.bias": (width,),
            f"{expansion}.weight": (width, expanded), f"{expansion}.bias": (expanded,),
            f"{projection}.weight": (projected, width), f"{projection}.bias": (width,)}


for name, extra in (("time and width", {}), ("with dropout", {"dropout": 0.2})):
    case("attention_branch", name, {"width": 6, "heads": 2, **extra}, [f32(5, 6)], attention_branch,
         parameters=branch(6, "ln_1", "attn.c_attn", 18, "attn.c_proj", 6), library=True)
    case("mlp_branch", name, {"width": 6, "hidden": 9, **extra}, [f32(5, 6)], mlp_branch,
         parameters=branch(6, "ln_2", "mlp.c_fc", 9, "mlp.c_proj", 9), library=True)
    case("gpt_embedding", name, {"vocabulary": 7, "context": 6, "width": 5, **extra}, [i32(4, below=7)], gpt_embedding,
         parameters={"wte.weight": (7, 5), "wpe.weight": (6, 5)})
case("gpt_head", "time and width", {"vocabulary": 19, "width": 7}, [f32(5, 7), i32(5, below=19)], gpt_head,
     parameters={"lm_head.weight": (19, 7)}, library=True)
case("gpt_head", "smooth labels", {"vocabulary": 19, "width": 7, "label_smoothing": 0.1}, [f32(5, 7), i32(5, below=19)],
     gpt_head, parameters={"lm_head.weight": (19, 7)}, library=True)
case("gpt_head", "padding", {"vocabulary": 5, "width": 7, "ignore": 2}, [f32(9, 7), i32(9, below=5)], gpt_head,
     parameters={"lm_head.weight": (5, 7)}, library=True)
case("gpt_head", "nothing but padding", {"vocabulary": 5, "width": 3, "ignore": 0}, [f32(4, 3), i32(4, below=1)],
     gpt_head, parameters={"lm_head.weight": (5, 3)}, library=True)
