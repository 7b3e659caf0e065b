"""The models of compare_torch.py in PyTorch, and their training loop: one thread, on the CPU or a GPU, eager or compiled."""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    """`is_fused`: by PyTorch's kernel for it. Compiled in bf16, the products written out can be faster."""

    def __init__(self, width, heads, context, is_fused):
        super().__init__()
        self.heads, self.is_fused = heads, is_fused
        self.register_buffer("hidden", torch.ones(context, context, dtype=torch.bool).triu(1), persistent=False)
        self.expansion = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.expansion(x).split(width, dim=2)
        )
        if self.is_fused:
            attention = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
            attention = F.softmax(scores.masked_fill(self.hidden, float("-inf")), dim=-1) @ value
        return self.projection(attention.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, context, is_fused):
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, context, is_fused)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary, is_fused):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, context, is_fused) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)  # tied


class LstmLm(nn.Module):
    def __init__(self, layers, width, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.head(self.lstm(self.tokens(ids))[0])


class CifarResNet(nn.Module):
    """He et al., arXiv 1512.03385, section 4.2, with the shortcut of option A."""

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.stride, self.more = stride, outputs - inputs

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            if self.stride > 1 or self.more > 0:
                x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
            return F.relu(y + x)

    def __init__(self, depth, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for part in range(3):
            blocks = []
            for i in range((depth - 2) // 6):
                blocks.append(self.Block(inputs, width << part, 2 if part > 0 and i == 0 else 1))
                inputs = width << part
            setattr(self, f"layer{part + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def adamw(model):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), fused=True)


def images(batch, size, classes):
    """Bytes as they come from data, channels last."""
    return (torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8), torch.randint(0, classes, (batch,)))


def tokens(batch, time_steps, vocabulary):
    ids = torch.randint(0, vocabulary, (batch, time_steps + 1))
    return ids[:, :-1], ids[:, 1:]


class Trainer:
    """Trains `make()` on the one batch that `data` is. `layout`: of images, torch.channels_last or another."""

    def __init__(self, make, data, optimizer, precision, layout, is_compiled, device):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        torch.backends.cudnn.benchmark = True  # fixed shapes: the fastest algorithms; and f32 means f32, as Penstock's does
        torch.backends.cudnn.allow_tf32 = False
        self.device, self.layout, self.bf16 = torch.device(device), layout, precision == "bf16"
        self.data = [values.pin_memory() for values in data] if self.device.type == "cuda" else data
        self.has_images = data[0].dim() == 4
        model = make().train().to(self.device)
        self.model = model.to(memory_format=layout) if self.has_images else model
        self.call = torch.compile(self.loss) if is_compiled else self.loss
        self.optimizer = optimizer(model)

    def loss(self, x, targets):
        if self.has_images:
            x = ((x.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25).contiguous(memory_format=self.layout)
        y = self.model(x)
        return F.cross_entropy(y.float().flatten(0, -2), targets.flatten())

    def run(self, steps):
        """Seconds for that many steps."""
        start = time.perf_counter()
        for _ in range(steps):
            data = [values.to(self.device, non_blocking=True) for values in self.data]
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16):
                loss = self.call(*data)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            value = loss.item()
        if not math.isfinite(value):
            raise ArithmeticError(f"the loss is {value}")
        return time.perf_counter() - start
