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
    if len(inputs) < 3:
        inputs = [*inputs[0].chunk(3, dim=-1), *inputs[1:]]
    query, key, value = (x.unflatten(-1, (a["heads"], -1)).transpose(1, 2) for x in inputs[:3])
    lengths = inputs[3].tolist() if len(inputs) > 3 else [key.shape[2]] * key.shape[0]
    samples = []
    for s, length in enumerate(lengths):
        seen = torch.ones(query.shape[2], length, dtype=torch.bool)
        if length == 0:
            samples.append(torch.zeros_like(query[s]))
            continue
        if a.get("causal", False):
            seen = seen.tril()
        samples.append(F.scaled_dot_product_attention(query[s], key[s, :, :length], value[s, :, :length],
                                                      attn_mask=seen))
    return torch.stack(samples).transpose(1, 2).flatten(2)


def add_attention(name, inputs, samples=3, has_lengths=False, **attributes):
    keys = inputs[min(1, len(inputs) - 1)].dims[0]
    case("attention", name, attributes, inputs + ([i32(below=keys + 1)] if has_lengths else []), attention,
         samples=samples)


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
