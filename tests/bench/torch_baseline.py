"""The training loop of compute_train.cc in eager PyTorch, one thread: the same model, data and AdamW."""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY = 256
PEAK_RATE = 1e-3
WARMUP_STEPS = 50


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.expansion = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        hidden = torch.triu(torch.ones(context, context, dtype=torch.bool), diagonal=1)
        self.register_buffer("hidden", hidden)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.expansion(x).split(width, dim=2)
        )
        scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(width // self.heads))
        attention = F.softmax(scores.masked_fill(self.hidden, float("-inf")), dim=-1)
        return self.projection((attention @ value).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, context)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, context) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)  # tied
        return F.cross_entropy(logits.view(-1, VOCABULARY).float(), targets.view(-1))


class Trainer:
    def __init__(self, text, layers, width, heads, length, batch, precision):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self.length, self.batch, self.bf16 = length, batch, precision == "bf16"
        self.model = Gpt(layers, width, heads, length)
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        others = [p for p in self.model.parameters() if p.dim() != 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            lr=PEAK_RATE, betas=(0.9, 0.95))
        self.step = 0

    def run(self, steps):
        """Seconds for that many steps, and the loss of the last one."""
        start = time.perf_counter()
        for _ in range(steps):
            positions = len(self.text) - self.length
            firsts = [(self.step * self.batch + row) * 7919 % positions for row in range(self.batch)]
            ids = torch.stack([self.text[f : f + self.length] for f in firsts])
            targets = torch.stack([self.text[f + 1 : f + 1 + self.length] for f in firsts])
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
                loss = self.model(ids, targets)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.step += 1
            for group in self.optimizer.param_groups:
                group["lr"] = PEAK_RATE * min(1.0, self.step / WARMUP_STEPS)
            self.optimizer.step()
            last = loss.item()
        return time.perf_counter() - start, last
