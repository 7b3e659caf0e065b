"""GPT, LSTM language models, GNMT and S2VT in PyTorch, with the names of parameters that Penstock has, and no dropout.

Each is a module that takes a microbatch's ports by name and gives its mean loss.
"""

import torch
import torch.nn.functional as F
from torch import nn


def class_loss(logits, targets, **options):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), **options)


def lstm(inputs, hidden, **options):
    return nn.LSTM(inputs, hidden, batch_first=True, **options)


class Gpt(nn.Module):
    """GPT-2 with a tied head."""

    class Linear(nn.Module):
        """With a weight [inputs, outputs]."""

        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(inputs, outputs))
            self.bias = nn.Parameter(torch.empty(outputs))

        def forward(self, x):
            return F.linear(x, self.weight.t(), self.bias)

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn, self.mlp = nn.Module(), nn.Module()
            self.attn.c_attn, self.attn.c_proj = Gpt.Linear(width, 3 * width), Gpt.Linear(width, width)
            self.mlp.c_fc, self.mlp.c_proj = Gpt.Linear(width, 4 * width), Gpt.Linear(4 * width, width)

        def forward(self, x):
            query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                                 for part in self.attn.c_attn(self.ln_1(x)).chunk(3, dim=-1))
            y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.attn.c_proj(y.transpose(1, 2).flatten(2))
            return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))

    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList([Gpt.Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return class_loss(F.linear(self.ln_f(x), self.wte.weight), targets)


class LanguageModel(nn.Module):
    """An embedding, LSTMs of these widths, an output that has its table or one of its own."""

    def __init__(self, vocabulary, embedding, hidden, tied):
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, embedding)
        self.rnns = nn.ModuleList([lstm(i, o) for i, o in zip([embedding] + hidden, hidden)])
        self.decoder = nn.Linear(hidden[-1], vocabulary)
        if tied:
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens, targets):
        x = self.encoder(tokens)
        for rnn in self.rnns:
            x, _ = rnn(x)
        return class_loss(self.decoder(x), targets)


class Attention(nn.Module):
    """Bahdanau's, normalised, over the first steps of the memory, as many as there are words. Of no word it makes zeros."""

    def __init__(self, width):
        super().__init__()
        self.query, self.memory = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.v, self.bias = nn.Parameter(torch.empty(width)), nn.Parameter(torch.empty(width))
        self.g = nn.Parameter(torch.empty(1))

    def forward(self, queries, memory, lengths):
        sums = (self.query(queries) + self.bias)[:, :, None] + self.memory(memory)[:, None]
        scores = torch.tanh(sums) @ (self.v * self.g / self.v.norm())
        seen = torch.arange(memory.shape[1], device=memory.device) < lengths.to(memory.device)[:, None]
        weights = F.softmax(scores.masked_fill(~seen[:, None], -1e30), dim=-1) * seen[:, None]
        return weights @ memory


class Gnmt(nn.Module):
    """As NVIDIA's seq2seq/models/gnmt.py. Dropout stands before each LSTM; parity is without, as masks differ."""

    def __init__(self, layers, hidden, vocabulary, label_smoothing, dropout=0.0):
        super().__init__()
        each = layers // 2
        self.label_smoothing = label_smoothing
        self.dropout = nn.Dropout(dropout)
        self.encoder, self.decoder = nn.Module(), nn.Module()
        self.encoder.embedder = nn.Embedding(vocabulary, hidden)
        self.encoder.rnn_layers = nn.ModuleList(
            [lstm(hidden, hidden, bidirectional=True), lstm(2 * hidden, hidden)] +
            [lstm(hidden, hidden) for _ in range(each - 2)])
        self.decoder.embedder = nn.Embedding(vocabulary, hidden)
        self.decoder.att_rnn = nn.Module()
        self.decoder.att_rnn.rnn, self.decoder.att_rnn.attn = lstm(hidden, hidden), Attention(hidden)
        self.decoder.rnn_layers = nn.ModuleList([lstm(2 * hidden, hidden) for _ in range(each - 1)])
        self.decoder.classifier = nn.Module()
        self.decoder.classifier.classifier = nn.Linear(hidden, vocabulary)

    def encode_both_ways(self, x, lengths):
        both_ways = self.encoder.rnn_layers[0]
        # Sample by sample as long as each is, which may be nothing.
        samples = [F.pad(both_ways(x[s:s + 1, :length])[0], (0, 0, 0, x.shape[1] - length)) if length > 0 else
                   x.new_zeros(1, x.shape[1], 2 * x.shape[2]) for s, length in enumerate(lengths.tolist())]
        return torch.cat(samples)

    def encode(self, source, lengths):
        x = self.encode_both_ways(self.dropout(self.encoder.embedder(source)), lengths)
        x, _ = self.encoder.rnn_layers[1](self.dropout(x))
        for layer in self.encoder.rnn_layers[2:]:
            x = x + layer(self.dropout(x))[0]
        return x

    def decode(self, memory, source_lengths, inputs):
        """Logits [batch, target time, vocabulary]."""
        x, _ = self.decoder.att_rnn.rnn(self.dropout(self.decoder.embedder(inputs)))
        context = self.decoder.att_rnn.attn(x, memory, source_lengths)
        for i, layer in enumerate(self.decoder.rnn_layers):
            y, _ = layer(self.dropout(torch.cat([x, context], dim=-1)))
            x = y if i == 0 else x + y
        return self.decoder.classifier.classifier(x)

    def forward(self, source, source_lengths, inputs, targets):
        logits = self.decode(self.encode(source, source_lengths), source_lengths, inputs)
        return class_loss(logits, targets, ignore_index=0, label_smoothing=self.label_smoothing)


class S2vt(nn.Module):
    def __init__(self, vocabulary, features, hidden, embedding):
        super().__init__()
        self.frame_embedding, self.word_embedding = nn.Linear(features, embedding), nn.Embedding(vocabulary, embedding)
        self.lstm1, self.lstm2 = lstm(embedding, hidden), lstm(hidden + embedding, hidden)
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, frames, inputs, targets):
        x = F.pad(self.frame_embedding(frames), (0, 0, 0, inputs.shape[1]))
        words = F.pad(self.word_embedding(inputs), (0, 0, frames.shape[1], 0))
        x, _ = self.lstm1(x)
        x, _ = self.lstm2(torch.cat([x, words], dim=-1))
        return class_loss(self.output(x[:, frames.shape[1]:]), targets, ignore_index=0)
