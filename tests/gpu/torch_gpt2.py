#!/usr/bin/env python3
"""GPT-2 in PyTorch as fast as it goes on one GPU, and the rates of the card: prints one JSON object.

torch.compile, scaled_dot_product_attention, fused AdamW, bf16 autocast with float weights, gradients summed
over the microbatches of a step and clipped: the training that examples/gpt2-124m.yaml describes.

usage: torch_gpt2.py '{"text": PATH, "device": "cuda", "precision": "bf16", "layers": 12, "width": 768,
                       "heads": 12, "context": 1024, "vocabulary": 50304, "batch": 128, "microbatches": 8,
                       "steps": 20, "warmup_steps": 5, "matmul_size": 8192, "copy_bytes": 1073741824}'
"""

import json
import math
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.expansion = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                             for part in self.expansion(x).split(width, dim=2))
        y = attention(query, key, value)
        return self.projection(y.transpose(1, 2).reshape(batch, length, width))


def attention(query, key, value):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    length, size = query.shape[-2:]
    hidden = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(size)
    return F.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ value


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm_2 = nn.LayerNorm(width)
        self.expansion, self.projection = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.projection(F.gelu(self.expansion(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The head is tied to the embedding of tokens."""

    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Trainer:
    def __init__(self, config):
        self.config, self.device = config, torch.device(config["device"])
        with open(config["text"], "rb") as file:
            self.text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).to(self.device)
        model = Gpt(*(config[key] for key in ("layers", "width", "heads", "context", "vocabulary")))
        self.model = model.to(self.device)
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        others = [p for p in self.model.parameters() if p.dim() != 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            lr=6e-4, betas=(0.9, 0.95), **({"fused": True} if self.device.type == "cuda" else {}))
        self.run_model, self.mode = self.model, "eager"

    def compile(self):
        """Compiles the model, or says why not and goes on without."""
        if not hasattr(torch, "compile") or self.device.type != "cuda":
            return
        try:
            self.run_model, self.mode = torch.compile(self.model), "torch.compile"
            self.step()
        except Exception as error:  # whatever a compiler may throw
            print(f"torch.compile failed: {error}", file=sys.stderr)
            self.optimizer.zero_grad(set_to_none=True)
            self.run_model, self.mode = self.model, "eager (torch.compile failed)"

    def batch(self):
        length, rows = self.config["context"], self.config["batch"] // self.config["microbatches"]
        firsts = torch.randint(len(self.text) - length - 1, (rows, 1), device=self.device)
        sample = self.text[firsts + torch.arange(length + 1, device=self.device)].long()
        return sample[:, :-1].contiguous(), sample[:, 1:].contiguous()

    def step(self):
        """Returns the mean loss of the step, for which the host waits once."""
        total, count = torch.zeros((), device=self.device), self.config["microbatches"]
        for _ in range(count):
            ids, targets = self.batch()
            with torch.autocast(self.device.type, dtype=torch.bfloat16,
                                enabled=self.config["precision"] == "bf16"):
                loss = self.run_model(ids, targets) / count
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total.item()

    def measure(self):
        """Seconds of each step after the warm-up, and the last loss."""
        self.compile()
        seconds, loss = [], math.nan
        for number in range(self.config["warmup_steps"] + self.config["steps"]):
            start = time.perf_counter()
            loss = self.step()
            if number >= self.config["warmup_steps"]:
                seconds.append(time.perf_counter() - start)
        return seconds, loss


def median_seconds(device, work, repeats):
    """Of `repeats` calls of `work` after some that warm up."""
    times = []
    for number in range(repeats + 3):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        if number >= 3:
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def matmul_rate(device, size, precision):
    """Operations per second of a square product of random numbers."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty(size, size, device=device, dtype=dtype)
    # Several in a row, so that the host's call costs nothing beside them.
    calls = 10
    return 2 * size**3 * calls / median_seconds(
        device, lambda: [torch.matmul(a, b, out=out) for _ in range(calls)], 7)


def copy_rate(device, size_bytes):
    """Bytes per second, those read and those written, of a copy within the device."""
    source = torch.randint(255, (size_bytes,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size_bytes / median_seconds(device, lambda: target.copy_(source), 7)


def main():
    config = json.loads(sys.argv[1])
    torch.manual_seed(1)
    trainer = Trainer(config)
    device = trainer.device
    rates = {"matmul_operations_per_second": matmul_rate(device, config["matmul_size"], config["precision"]),
             "copy_bytes_per_second": copy_rate(device, config["copy_bytes"])}
    print(json.dumps(rates), file=sys.stderr, flush=True)
    seconds, loss = trainer.measure()
    cuda = device.type == "cuda"
    print(json.dumps({
        "torch": torch.__version__,
        "mode": trainer.mode,
        "step_seconds": seconds,
        "loss": loss,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "cpu_threads": torch.get_num_threads(),
        "inductor_cache": os.environ.get("TORCHINDUCTOR_CACHE_DIR"),
        **rates,
    }))


if __name__ == "__main__":
    main()
