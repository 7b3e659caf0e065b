import math

import torch
import torch.nn.functional as F

from op_numbers import case, f32, i32


def lstm_parameters(width, hidden, bidirectional=False):
    names = {"weight_ih_l0": (4 * hidden, width), "weight_hh_l0": (4 * hidden, hidden),
             "bias_ih_l0": (4 * hidden,), "bias_hh_l0": (4 * hidden,)}
    if bidirectional:
        names |= {f"{name}_reverse": shape for name, shape in list(names.items())}
    return names


def lstm(c, x, lengths=None):
    """torch.nn.LSTM, sample by sample as long as each is, from zero or from the carried state."""
    return lstm_and_states(c, x, lengths)[0]


def lstm_and_states(c, x, lengths=None):
    """Also the states [samples, hidden] after the last step of the carried ones."""
    a = c.attributes
    hidden, bidirectional = a["hidden"], a.get("bidirectional", False)
    names = lstm_parameters(x.shape[2], hidden, bidirectional)
    masks = c.dropout(a.get("weight_drop", 0.0), 4 * hidden * (2 if bidirectional else 1), hidden)[0]
    tensors = {}
    for name in names:
        tensors[name] = c[name]
        if name.startswith("weight_hh"):
            first = 4 * hidden if name.endswith("reverse") else 0
            tensors[name] = c[name] * masks[first:first + 4 * hidden]
        if name.startswith("bias_ih"):
            forget = torch.zeros(4, hidden, dtype=torch.float64)
            forget[1] = a.get("forget_bias", 0.0)
            tensors[name] = c[name] + forget.reshape(-1)
    module = torch.nn.LSTM(x.shape[2], hidden, batch_first=True, bidirectional=bidirectional).double()
    outputs, states = [], []
    for s in range(x.shape[0]):
        before = ((c["hidden_state"][None, s:s + 1], c["cell_state"][None, s:s + 1]) if a.get("carried", False) else
                  (torch.zeros(2 if bidirectional else 1, 1, hidden, dtype=torch.float64),) * 2)
        length = x.shape[1] if lengths is None else int(lengths[s])
        seen = x[s:s + 1, :length]
        if a.get("reverse", False):
            seen = seen.flip(1)
        y, after = (torch.func.functional_call(module, tensors, (seen, before)) if length > 0 else
                    (torch.zeros(1, 0, hidden * (2 if bidirectional else 1), dtype=torch.float64), before))
        states.append(after)
        if a.get("reverse", False):
            y = y.flip(1)
        outputs.append(F.pad(y, (0, 0, 0, x.shape[1] - length)))
    return torch.cat(outputs), *(torch.cat([after[i][0] for after in states]) for i in (0, 1))


def add_lstm(name, time, width, hidden, samples=3, has_lengths=False, numbers=0, **attributes):
    inputs = [f32(time, width)] + ([i32(below=time + 1)] if has_lengths else [])
    states = {"hidden_state": ((hidden,), lambda *of: lstm_and_states(*of)[1]),
              "cell_state": ((hidden,), lambda *of: lstm_and_states(*of)[2])}
    case("lstm", name, {"hidden": hidden, **attributes}, inputs, lstm,
         parameters=lstm_parameters(width, hidden, attributes.get("bidirectional", False)),
         states=states if attributes.get("carried", False) else {}, samples=samples, numbers=numbers, library=True)


add_lstm("forward", 5, 7, 6)
add_lstm("one step", 1, 3, 4)
add_lstm("wider than vectors", 3, 18, 21, samples=2)
add_lstm("more samples than a thread takes", 4, 3, 2, samples=19)
add_lstm("reverse", 5, 7, 6, reverse=True)
add_lstm("both ways", 5, 7, 6, bidirectional=True)
add_lstm("lengths", 6, 4, 5, samples=9, has_lengths=True)
add_lstm("lengths in reverse", 6, 4, 5, samples=9, has_lengths=True, reverse=True)
add_lstm("lengths both ways", 6, 4, 5, samples=9, has_lengths=True, bidirectional=True)
add_lstm("forget bias", 5, 4, 5, forget_bias=1.5)
add_lstm("weight drop", 5, 4, 18, weight_drop=0.5)
add_lstm("weight drop both ways", 4, 4, 6, weight_drop=0.25, bidirectional=True)
add_lstm("carried", 5, 7, 6, samples=9, carried=True)
add_lstm("carried, one step", 1, 3, 4, carried=True)
add_lstm("carried, weight drop and forget bias", 3, 4, 18, carried=True, weight_drop=0.5, forget_bias=1.5)


def additive_attention(c, queries, memory, lengths=None):
    v = c["v"] * c["g"] / c["v"].norm()
    maps = (queries @ c["query.weight"].t() + c["bias"])[:, :, None] + (memory @ c["memory.weight"].t())[:, None]
    scores = torch.tanh(maps) @ v
    if lengths is None:
        return F.softmax(scores, dim=-1) @ memory
    samples = []
    for s, length in enumerate(lengths.tolist()):
        weights = F.softmax(scores[s, :, :length], dim=-1)
        samples.append(weights @ memory[s, :length])
    return torch.stack(samples)


def add_additive(name, time_q, width_q, time_m, width_m, units, samples=3, has_lengths=False, numbers=0):
    inputs = [f32(time_q, width_q), f32(time_m, width_m)] + ([i32(below=time_m + 1)] if has_lengths else [])
    case("additive_attention", name, {"units": units}, inputs, additive_attention,
         parameters={"query.weight": (units, width_q), "memory.weight": (units, width_m), "v": (units,), "g": (1,),
                     "bias": (units,)}, samples=samples, numbers=numbers, library=True)


add_additive("small", 4, 5, 6, 3, 7)
add_additive("one step each", 1, 4, 1, 5, 3)
# Numbers 0 make terms of the gradient of g, a single number, that cancel to 1/80 of what they add up to: too little for bf16.
add_additive("wider than vectors", 3, 19, 20, 33, 18, samples=2, numbers=1)
add_additive("more rows than a block has", 35, 2, 5, 3, 4, samples=2)
add_additive("lengths", 4, 5, 6, 3, 7, samples=9, has_lengths=True)


def attention(c, *inputs):
    a = c.attributes
    heads = a["heads"]
    key_heads = a.get("key_value_heads", 0) or heads
    if len(inputs) < 3:
        size = inputs[0].shape[-1] // (heads + 2 * key_heads)
        inputs = [*inputs[0].split([heads * size, key_heads * size, key_heads * size], dim=-1), *inputs[1:]]
    query, key, value = (x.unflatten(-1, (n, -1)).transpose(1, 2)
                         for x, n in zip(inputs[:3], (heads, key_heads, key_heads)))
    # As transformers' repeat_kv: each head of keys is read by as many heads of queries in a row.
    key, value = (x.repeat_interleave(heads // key_heads, dim=1) for x in (key, value))
    last = inputs[3] if len(inputs) > 3 else None
    lengths = last.tolist() if last is not None and last.dim() == 1 else [key.shape[2]] * key.shape[0]
    samples = []
    for s, length in enumerate(lengths):
        seen = torch.ones(query.shape[2], length, dtype=torch.bool)
        if a.get("causal", False):
            seen = seen.tril()
        # As transformers' sliding_window_overlay: key > query - window.
        if a.get("window", 0) > 0:
            seen = seen.triu(1 - a["window"])
        if last is not None and last.dim() == 2:
            document = (last[s] == 0).cumsum(0)
            seen &= document[:, None] == document[None, :]
        output = torch.zeros_like(query[s])
        rows = seen.any(dim=1)  # the others see nothing, and give zeros
        if rows.any():
            attended = F.scaled_dot_product_attention(query[s][:, rows], key[s, :, :length], value[s, :, :length],
                                                      attn_mask=seen[rows])
            output = output.index_copy(1, rows.nonzero()[:, 0], attended)
        samples.append(output)
    return torch.stack(samples).transpose(1, 2).flatten(2)


def add_attention(name, inputs, samples=3, has_lengths=False, documents_of=0, **attributes):
    """`documents_of`: how many time steps a document has about, the first of them at the position 0."""
    keys = inputs[min(1, len(inputs) - 1)].dims[0]
    last = [i32(below=keys + 1)] if has_lengths else [i32(keys, below=documents_of)] if documents_of else []
    case("attention", name, attributes, inputs + last, attention, samples=samples)


for causal in (False, True):
    prefix = "causal, " if causal else ""
    add_attention(prefix + "side by side", [f32(5, 18)], heads=2, causal=causal)
    add_attention(prefix + "three inputs", [f32(4, 6), f32(7, 6), f32(7, 6)], heads=3, causal=causal)
    add_attention(prefix + "side by side with lengths", [f32(5, 12)], samples=9, heads=1, causal=causal,
                  has_lengths=True)
    add_attention(prefix + "three inputs with lengths", [f32(6, 4), f32(5, 4), f32(5, 4)], samples=9, heads=2,
                  causal=causal, has_lengths=True)
    add_attention(prefix + "several blocks", [f32(67, 12)], samples=1, heads=2, causal=causal)
    # What cuDNN's fused attention takes in bf16: heads of a multiple of 8.
    add_attention(prefix + "side by side, heads of 8", [f32(20, 48)], samples=2, heads=2, causal=causal)
    add_attention(prefix + "three inputs, heads of 8", [f32(12, 16), f32(20, 16), f32(20, 16)], samples=2, heads=2,
                  causal=causal)
add_attention("a wide head", [f32(3, 34), f32(2, 34), f32(2, 34)], heads=1)

for causal in (False, True):
    prefix = "causal, " if causal else ""
    add_attention(prefix + "one head of keys, side by side", [f32(5, 18)], heads=4, key_value_heads=1, causal=causal)
    add_attention(prefix + "two heads of keys, side by side with lengths", [f32(5, 24)], samples=9, heads=4,
                  key_value_heads=2, causal=causal, has_lengths=True)
    add_attention(prefix + "two heads of keys, three inputs", [f32(4, 18), f32(7, 6), f32(7, 6)], heads=6,
                  key_value_heads=2, causal=causal)
    add_attention(prefix + "one head of keys, three inputs with lengths", [f32(6, 6), f32(5, 2), f32(5, 2)], samples=9,
                  heads=3, key_value_heads=1, causal=causal, has_lengths=True)
    add_attention(prefix + "as many heads of keys", [f32(5, 18)], heads=2, key_value_heads=2, causal=causal)
    add_attention(prefix + "heads of keys, several blocks", [f32(67, 12)], samples=1, heads=2, key_value_heads=1,
                  causal=causal)
    add_attention(prefix + "heads of keys of 8", [f32(12, 32)], samples=2, heads=2, key_value_heads=1, causal=causal)
for window in (1, 3, 30):
    prefix = f"window of {window}, "
    add_attention(prefix + "side by side", [f32(9, 18)], heads=2, causal=True, window=window)
    add_attention(prefix + "three inputs", [f32(7, 6), f32(4, 6), f32(4, 6)], heads=3, causal=True, window=window)
    add_attention(prefix + "side by side with lengths", [f32(7, 12)], samples=9, heads=2, causal=True, window=window,
                  has_lengths=True)
    add_attention(prefix + "heads of keys, three inputs with lengths", [f32(6, 8), f32(8, 4), f32(8, 4)], samples=9,
                  heads=4, key_value_heads=2, causal=True, window=window, has_lengths=True)
    add_attention(prefix + "heads of keys of 8", [f32(12, 32)], samples=2, heads=2, key_value_heads=1, causal=True,
                  window=window)
for documents_of in (1, 3):
    prefix = f"documents of {documents_of}, "
    add_attention(prefix + "side by side", [f32(9, 18)], heads=2, causal=True, documents_of=documents_of)
    add_attention(prefix + "heads of keys, three inputs", [f32(10, 8), f32(10, 4), f32(10, 4)], heads=4,
                  key_value_heads=2, causal=True, documents_of=documents_of)
add_attention("documents of 30, several blocks", [f32(150, 6)], samples=1, heads=1, causal=True, documents_of=30)
add_attention("documents of 30 and a window, several blocks", [f32(140, 6)], samples=1, heads=1, causal=True, window=9,
              documents_of=30)
add_attention("window of 40, several blocks", [f32(140, 8)], samples=1, heads=2, key_value_heads=1, causal=True,
              window=40)


def frequencies(a):
    """Of Hugging Face's transformers 5.24, modeling_rope_utils.py: in float32, as models were trained."""
    size = a["head_size"]
    result = 1.0 / (float(a.get("base", 10000.0)) ** (torch.arange(0, size, 2, dtype=torch.float32) / size))
    if a.get("scaling") == "linear":
        result /= a["factor"]
    if a.get("scaling") == "llama3":
        factor, low, high = a["factor"], a["low_frequency_factor"], a["high_frequency_factor"]
        context = a["original_context"]
        length = 2 * math.pi / result
        scaled = torch.where(length > context / low, result / factor, result)
        smooth = (context / length - low) / (high - low)
        smoothed = (1 - smooth) * scaled / factor + smooth * scaled
        is_medium = ~(length < context / high) * ~(length > context / low)
        result = torch.where(is_medium, smoothed, scaled)
    return result


def rope(c, x, positions=None):
    """LlamaRotaryEmbedding and apply_rotary_pos_emb: angles in float32, the turn in float64."""
    size = c.attributes["head_size"]
    if positions is None:
        positions = torch.arange(x.shape[1])[None]
    angles = positions[..., None].float() * frequencies(c.attributes)
    angles = torch.cat((angles, angles), dim=-1)[:, :, None]
    heads = x.unflatten(-1, (-1, size))
    halves = torch.cat((-heads[..., size // 2:], heads[..., :size // 2]), dim=-1)
    return (heads * angles.cos().double() + halves * angles.sin().double()).flatten(2)


def add_rope(name, time, width, below=0, samples=2, **attributes):
    case("rope", name, attributes, [f32(time, width)] + ([i32(time, below=below)] if below else []), rope,
         samples=samples)


LLAMA3 = {"scaling": "llama3", "factor": 8.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0}
add_rope("one head", 5, 6, head_size=6)
add_rope("several heads", 7, 24, head_size=8, samples=3)
add_rope("pairs alone", 4, 6, head_size=2)
add_rope("wider than vectors", 2, 140, head_size=70)
add_rope("more rows than a block has", 70, 4, head_size=4)
add_rope("another base", 6, 16, head_size=16, base=500000.0)
add_rope("linear", 6, 16, head_size=8, scaling="linear", factor=4.0)
add_rope("llama3", 9, 32, head_size=32, original_context=64, **LLAMA3)
add_rope("llama3 as of 3.1", 4, 128, head_size=128, base=500000.0, original_context=8192, **LLAMA3)
add_rope("positions", 6, 16, below=40, head_size=8, samples=3)
add_rope("far positions", 12, 64, below=9000, head_size=64)
add_rope("far positions, linear", 12, 16, below=9000, head_size=16, scaling="linear", factor=2.5)
add_rope("far positions, llama3", 16, 64, below=130000, head_size=64, base=500000.0, original_context=8192, **LLAMA3)
