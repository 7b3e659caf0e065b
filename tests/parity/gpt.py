"""The GPT of model/gpt.h in plain PyTorch: Hugging Face's parameter names and layouts, no dropout."""

import math

import torch
import torch.nn.functional as F


def block(w, prefix, x, heads, mask):
    """One block; linear weights are [inputs, outputs]."""

    def norm(name, value):
        return F.layer_norm(value, value.shape[-1:], w[prefix + name + ".weight"], w[prefix + name + ".bias"])

    def linear(name, value):
        return value @ w[prefix + name + ".weight"] + w[prefix + name + ".bias"]

    batch, time, width = x.shape
    qkv = linear("attn.c_attn", norm("ln_1", x))
    query, key, value = (
        part.view(batch, time, heads, width // heads).transpose(1, 2) for part in qkv.split(width, dim=2)
    )
    scores = query @ key.transpose(-2, -1) / math.sqrt(width // heads)
    attention = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
    x = x + linear("attn.c_proj", (attention @ value).transpose(1, 2).reshape(batch, time, width))
    return x + linear("mlp.c_proj", F.gelu(linear("mlp.c_fc", norm("ln_2", x)), approximate="tanh"))


def loss(w, ids, targets, layers, heads):
    """The mean cross-entropy of ids [batch, time] against targets [batch, time]."""
    time = ids.shape[1]
    mask = torch.triu(torch.ones(time, time, dtype=torch.bool), diagonal=1)
    x = F.embedding(ids, w["wte.weight"]) + w["wpe.weight"][:time]
    for number in range(layers):
        x = block(w, f"h.{number}.", x, heads, mask)
    x = F.layer_norm(x, x.shape[-1:], w["ln_f.weight"], w["ln_f.bias"])
    logits = x @ w.get("lm_head.weight", w["wte.weight"]).t()
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), targets.reshape(-1))


def optimizer(w, learning_rate, beta1, beta2, epsilon, weight_decay):
    """AdamW that decays matrices only."""
    groups = [
        {"params": [p for p in w.values() if p.dim() == 2], "weight_decay": weight_decay},
        {"params": [p for p in w.values() if p.dim() != 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(beta1, beta2), eps=epsilon)
