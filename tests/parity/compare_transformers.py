#!/usr/bin/env python3
"""Compares models of Hugging Face's transformers, with random weights made here, with the same models in Penstock.

    tests/parity/compare_transformers.py BUILD [MODEL...]

For each model of a few million parameters: logits, 20 steps of fine-tuning, a round trip, and an export.

* Logits of one microbatch differ by at most 1e-4 of the largest.
* PyTorch in float64 is the truth for the steps. What passes: gradients of the first step (the largest distance of a
  tensor, of the largest norm), losses and final weights (of the distance that they travelled) within twice the distance of
  PyTorch in float32, or what nobody could tell from rounding (1e-6, losses 1e-7).
* Exported from a checkpoint of 2 workers whose step changed nothing, all tensors have the bits that they were read with.
* Exported after 3 steps of 3 workers, transformers loads the directory without a missing or unexpected tensor, and its
  logits are those of Penstock from the same directory.
* Exported with a vocabulary that Penstock learned, the directory has a tokenizer that AutoTokenizer loads: it gives the ids that the
  model was trained on, and knows the token that ends a text.

BUILD has `tests/parity/model_dump` and the programs in `bin`. Needs `pip install torch transformers safetensors numpy`.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open

from dumps import Data, read_arrays

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"))
from write_records import write_records

transformers.utils.logging.disable_progress_bar()

CONTEXT, VOCABULARY, CLASSES = 48, 4000, 5
STEPS, BATCH, MICROBATCHES = 20, 4, 2
UNMASKED = -100
LEAST = {"gradients": 1e-6, "losses": 1e-7, "weights": 1e-6}
LOGITS_MAX = 1e-4

JOB = """name: parity
model:
  hugging_face: {{directory: {directory}, context: {context}{options}}}
data: {{records: {{path: records, order: sequential, validation_fraction: 0}}}}
training:
  steps: {steps}
  batch: {batch}
  microbatches: {microbatches}
  optimizer: {{sgd: {{learning_rate: {rate}, momentum: {momentum}}}}}
  seed: 5
"""

OWN_JOB = """name: own
model: {{llama: {{layers: 1, width: 32, heads: 2, hidden: 64, context: 16, vocabulary: 320}}}}
data: {{tokens: {{path: tokens, tokenizer: tokens}}}}
training: {{steps: 1, batch: 2, microbatches: 2, optimizer: {{sgd: {{learning_rate: 0.1}}}}}}
checkpoint: {{directory: {directory}/own_checkpoints}}
"""
SHARD_HEADER_BYTES = 1024

SIZES = dict(vocab_size=VOCABULARY, hidden_size=192, intermediate_size=512, num_hidden_layers=5, num_attention_heads=6,
             max_position_embeddings=64)
SPECIAL = dict(bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)

# name: (class, configuration, more of model.hugging_face, rate, arguments of save_pretrained)
MODELS = {
    "gpt2": ("GPT2LMHeadModel",
             lambda: transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=192, n_layer=5, n_head=6,
                                             **SPECIAL), ", dropout: 0", 0.02, {}),
    "llama": ("LlamaForCausalLM",
              lambda: transformers.LlamaConfig(**SIZES, **SPECIAL, num_key_value_heads=2, rope_parameters=LLAMA3), "", 0.05,
              {"max_shard_size": "2MB"}),
    "mistral": ("MistralForCausalLM",
                lambda: transformers.MistralConfig(**SIZES, **SPECIAL, num_key_value_heads=3, sliding_window=9), "", 0.05,
                {}),
    "qwen2": ("Qwen2ForCausalLM",
              lambda: transformers.Qwen2Config(**SIZES, **SPECIAL, num_key_value_heads=2, tie_word_embeddings=True), "", 0.02,
              {}),
    "qwen3": ("Qwen3ForCausalLM",
              lambda: transformers.Qwen3Config(**SIZES, **SPECIAL, num_key_value_heads=2, head_dim=48,
                                               tie_word_embeddings=True), "", 0.02, {}),
    "bert": ("BertForMaskedLM", lambda: transformers.BertConfig(**SIZES), ", dropout: 0", 0.02, {}),
    "bert_classifier": ("BertForSequenceClassification",
                        lambda: transformers.BertConfig(**SIZES, num_labels=CLASSES), ", dropout: 0", 0.02, {}),
}


def make(name, directory):
    """A model whose norms and biases are random, too: ones and zeros would hide what is mistaken for another."""
    kind, configuration, _, _, options = MODELS[name]
    torch.manual_seed(3)
    model = getattr(transformers, kind)(configuration())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.mul_(2.0)
    model.save_pretrained(directory, **options)


def records(directory, name):
    random = np.random.default_rng(4)
    count = (STEPS + 1) * BATCH
    ids = lambda *shape: random.integers(0, VOCABULARY, shape, dtype=np.int32)
    arrays = {"tokens": ids(count, CONTEXT), "targets": ids(count, CONTEXT)}
    if name.startswith("bert"):
        arrays["segments"] = random.integers(0, 2, (count, CONTEXT), dtype=np.int32)
        arrays["lengths"] = random.integers(CONTEXT // 3, CONTEXT + 1, count, dtype=np.int32)
        arrays["targets"][random.random((count, CONTEXT)) > 0.3] = UNMASKED
        arrays["label"] = random.integers(0, CLASSES, count, dtype=np.int32)
    write_records(directory, arrays)


def norm_in_own_type(self, x):
    """As the class, which computes in float32 whatever comes."""
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def load(name, directory, dtype=torch.float32):
    model, info = getattr(transformers, MODELS[name][0]).from_pretrained(directory, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[key], f"{name}: {key} {info[key]}"
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm_in_own_type.__get__(module)
    return model.to(dtype).eval()  # nothing is dropped


def logits_of(model, ports):
    more = {}
    if "lengths" in ports:
        time = torch.arange(ports["tokens"].shape[1])
        more = {"attention_mask": (time < ports["lengths"][:, None]).long(), "token_type_ids": ports["segments"]}
    return model(input_ids=ports["tokens"], **more).logits


def loss_of(model, ports):
    logits = logits_of(model, ports)
    targets = ports["label"] if "label" in ports else ports["targets"]
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=UNMASKED)


def train(model, data):
    """The losses of all steps, the gradients of the first and the last weights."""
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), lr=1.0, momentum=float(data.config["momentum"]))
    losses, gradients = [], {}
    for step in range(data.steps):
        optimizer.zero_grad()
        total = 0.0
        for m in range(data.microbatches):
            loss = loss_of(model, data.microbatch(step, m, torch.float64)) / data.microbatches
            loss.backward()
            total += loss.item()
        losses.append(total)
        if step == 0:
            gradients = {name: p.grad.double().clone() for name, p in parameters.items()}
        optimizer.param_groups[0]["lr"] = float(data.config[f"rate_{step + 1}"])
        optimizer.step()
    return {"losses": np.array(losses), "gradients": gradients,
            "weights": {name: p.detach().double().clone() for name, p in parameters.items()}}


def dump(build, directory, name, model_directory, out, **values):
    _, _, options, rate, _ = MODELS[name]
    settings = dict(directory=model_directory, context=CONTEXT, options=options, rate=rate, momentum=0.9, steps=STEPS,
                    batch=BATCH, microbatches=MICROBATCHES, **values)
    job = directory / f"{out}.yaml"
    job.write_text(JOB.format(**settings))
    (directory / out).mkdir()
    subprocess.run([build / "tests/parity/model_dump", job, directory / out], check=True)
    return Data(directory / out)


def renamed(name, arrays):
    """With the names of transformers' parameters."""
    if name != "gpt2":
        return arrays
    return {key if key == "lm_head.weight" else f"transformer.{key}": value for key, value in arrays.items()}


def distances(ours, true, start):
    """Of gradients and weights the largest of a tensor; of weights, as a part of the way that they went."""
    def largest(a, b, scale):
        return max((a[key].double() - b[key]).norm().item() for key in b) / scale

    longest = max(g.norm().item() for g in true["gradients"].values())
    way = max((true["weights"][key] - start[key]).norm().item() for key in start)
    return {"gradients": largest(ours["gradients"], true["gradients"], longest),
            "losses": float(np.abs(ours["losses"] - true["losses"]).max()),
            "weights": largest(ours["weights"], true["weights"], way)}


def relative_logits(directory, data, model):
    expected = logits_of(model, data.microbatch(0, 0, torch.float64)).double()
    ours = torch.from_numpy(np.fromfile(directory / "logits.bin", dtype=np.float32)).reshape(expected.shape)
    return ((ours - expected).abs().max() / expected.abs().max()).item()


def compare_steps(build, directory, name):
    data = dump(build, directory, name, "model", "dump")
    out = directory / "dump"
    with torch.no_grad():
        logits = relative_logits(out, data, load(name, directory / "model"))
    ours = {"losses": np.loadtxt(out / "losses.txt"),
            "gradients": renamed(name, read_arrays(out, "gradients.bin", "parameters.txt")),
            "weights": renamed(name, read_arrays(out, "final.bin", "tensors.txt"))}
    model = load(name, directory / "model", torch.float64)
    start = {key: p.detach().clone() for key, p in model.named_parameters()}
    read = renamed(name, read_arrays(out, "initial.bin", "tensors.txt"))
    assert all(torch.equal(read[key].double(), value) for key, value in start.items()), "weights were read wrong"
    true = train(model, data)
    d_ours = distances(ours, true, start)
    d_other = distances(train(load(name, directory / "model"), data), true, start)
    good = logits <= LOGITS_MAX and all(d_ours[key] <= max(LEAST[key], 2 * d_other[key]) for key in LEAST)
    columns = [f"{logits:.1e}"]
    for key in ("gradients", "losses", "weights"):
        columns += [f"{d_ours[key]:.1e}", f"{d_other[key]:.1e}"]
    return good, columns + [f"{true['losses'][0]:.4f} -> {true['losses'][-1]:.4f}"]


def penstock(build, *arguments):
    result = subprocess.run([build / "bin/penstock", *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def export(build, directory, name, out, workers, steps, rate):
    """Trains through `workers` workers and writes the directory `out`."""
    job = directory / f"{out}.yaml"
    job.write_text(JOB.format(directory="model", context=CONTEXT, options=MODELS[name][2], rate=rate, momentum=0,
                              steps=steps, batch=BATCH, microbatches=MICROBATCHES)
                   + f"checkpoint: {{directory: {directory / out}_checkpoints}}\npipeline: {{method: 1f1b}}\n")
    penstock(build, "train", job, "--workers", str(workers))
    penstock(build, "export", f"{directory / out}_checkpoints", "-o", directory / out)


def tensors_of(directory):
    tensors = {}
    for path in directory.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            tensors.update({key: file.get_tensor(key) for key in file.keys()})
    return tensors


def compare_exports(build, directory, name):
    # A rate that changes no number.
    export(build, directory, name, "same", workers=2, steps=1, rate="1.0e-45")
    before, after = tensors_of(directory / "model"), tensors_of(directory / "same")
    same = before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
    export(build, directory, name, "tuned", workers=3, steps=3, rate=MODELS[name][3])
    moved = not all(torch.equal(before[key], value) for key, value in tensors_of(directory / "tuned").items())
    data = dump(build, directory, name, "tuned", "tuned_dump")
    with torch.no_grad():
        logits = relative_logits(directory / "tuned_dump", data, load(name, directory / "tuned"))
    return same and moved and logits <= LOGITS_MAX, ["equal bits" if same else "OTHER BITS", f"{logits:.1e}"]


def compare_tokenizer(build, directory):
    text = "".join(f"The water of day {day} isn't cold: {day * day % 97} degrees.\n" for day in range(200))
    (directory / "text.txt").write_text(text)
    (directory / "own.yaml").write_text(OWN_JOB.format(directory=directory))
    penstock(build, "data", "prepare", "tokens", directory / "text.txt", "-o", directory / "tokens", "--vocabulary", "320")
    penstock(build, "train", directory / "own.yaml", "--workers", "1")
    penstock(build, "export", directory / "own_checkpoints", "-o", directory / "own")
    trained_on = np.fromfile(directory / "tokens/000000.bin", dtype="<u2", offset=SHARD_HEADER_BYTES).tolist()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory / "own")
    config = transformers.AutoConfig.from_pretrained(directory / "own")
    return (tokenizer(text).input_ids + [tokenizer.eos_token_id] == trained_on and tokenizer.decode(trained_on[:-1]) == text
            and config.eos_token_id == tokenizer.eos_token_id and len(tokenizer) <= config.vocab_size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | logits | gradients, Penstock | PyTorch | losses, Penstock | PyTorch | weights, Penstock | PyTorch | loss "
          "| round trip | logits of the export | |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    all_good = True
    for name in arguments.models or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            directory = pathlib.Path(folder)
            make(name, directory / "model")
            records(directory / "records", name)
            good, steps = compare_steps(arguments.build, directory, name)
            exported, exports = compare_exports(arguments.build, directory, name)
            all_good &= good and exported
            print(f"| `{name}` | {' | '.join(steps + exports)} | {'ok' if good and exported else 'FAILED'} |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        good = compare_tokenizer(arguments.build, pathlib.Path(folder))
        all_good &= good
        print(f"\nAutoTokenizer of a model with a vocabulary of its own: {'ok' if good else 'FAILED'}")
    sys.exit(0 if all_good else 1)


if __name__ == "__main__":
    main()
