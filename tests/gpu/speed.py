"""Steps `speed`, `nets`, `pipelining` and `graphs`: GPT-2 and other nets on one stage against PyTorch, GPT-2 on two stages
against one."""

import importlib.util
import json
import os
import statistics
import sys

import report
from training import StepFailed, step_seconds, summary, train

GPT2 = "examples/gpt2-124m.yaml"
BASELINE = os.path.join(os.path.dirname(__file__), "torch_gpt2.py")
NETS = os.path.join(os.path.dirname(__file__), "../bench/compare_torch.py")
RATIO_TO_TORCH_MIN = 1.0
RATIO_OF_TWO_STAGES_MIN = 0.95


def tokens_per_step(sizes):
    return sizes.load["batch"] * sizes.model["context"]


def operations_per_token(model):
    """Of training: two for each weight in a product and its two gradients; attention looks back at half
    of the context on average. Nothing is counted that is computed twice."""
    weights = 12 * model["layers"] * model["width"] ** 2 + model["vocabulary"] * model["width"]
    return 6 * weights + 6 * model["layers"] * model["width"] * model["context"]


def run_torch(context):
    sizes = context.sizes
    config = {**sizes.model, **sizes.load, "text": str(context.text), "device": context.device.split(":")[0],
              "precision": sizes.precision, "steps": sizes.steps, "warmup_steps": sizes.warmup_steps,
              "matmul_size": sizes.matmul_size, "copy_bytes": sizes.copy_bytes}
    # Safe path: PyTorch must not find modules of this folder.
    result = context.run([sys.executable, BASELINE, json.dumps(config)], 150, {"PYTHONSAFEPATH": "1"})
    if result.code != 0 or result.timed_out:
        raise StepFailed(f"PyTorch: {result.complaint()}")
    return json.loads(result.output)


def run_penstock(context, workers, **more):
    """The result of a training of GPT-2, with `speed` added."""
    sizes = context.sizes
    settings = {"training.steps": sizes.warmup_steps + sizes.steps, "training.precision": sizes.precision,
                "training.deterministic": "false",  # as PyTorch's is not
                "training.learning_rate.warmup_steps": sizes.warmup_steps, "validation.every_steps": 0,
                **{f"model.gpt.{key}": value for key, value in sizes.model.items()},
                **{f"training.{key}": value for key, value in sizes.load.items()}, **more}
    trace = context.scratch / "-".join(["gpt2", str(workers), *more])
    training = train(context, GPT2, workers, context.device, settings, trace)
    result = training.run(context, 80)
    seconds = step_seconds(training.trace, workers - 1, sizes.warmup_steps)
    result["speed"] = summary(seconds, tokens_per_step(sizes))
    return result


def one_stage(context):
    if "one stage" not in context.results:
        context.results["one stage"] = run_penstock(context, 1)
    return context.results["one stage"]


def rate(speed):
    return f"{speed['tokens_per_second'] / 1e3:.1f} k tokens/s"


AGAINST_TORCH = "gpt2 against PyTorch"


def baseline_rows(context):
    """(what PyTorch gave or None, rows about it)."""
    if not importlib.util.find_spec("torch"):
        return None, [report.skipped(AGAINST_TORCH, "no PyTorch here")]
    try:
        baseline = run_torch(context)
    except StepFailed as failure:
        return None, [report.failed(AGAINST_TORCH, str(failure), f"at least {RATIO_TO_TORCH_MIN}")]
    baseline["speed"] = summary(baseline["step_seconds"], tokens_per_step(context.sizes))
    product, copied = baseline["matmul_operations_per_second"], baseline["copy_bytes_per_second"]
    return baseline, [
        report.Row("PyTorch, gpt2", f"{rate(baseline['speed'])} ({baseline['mode']})", values=baseline),
        report.Row("PyTorch, matmul and copy", f"{product / 1e12:.3g} TFLOP/s in {context.sizes.precision}, "
                   f"{copied / 1e12:.3g} TB/s read and written")]


def speed(context):
    baseline, rows = baseline_rows(context)
    yield from rows
    try:
        trained = one_stage(context)
    except StepFailed as failure:
        yield report.failed("gpt2, one stage", str(failure))
        return
    ours = trained["speed"]
    operations = ours["tokens_per_second"] * operations_per_token(context.sizes.model)
    yield report.Row("gpt2, one stage", f"{rate(ours)}, {operations / 1e12:.3g} TFLOP/s", values=ours)
    fallbacks = sum(stage["attention_fallbacks"] for stage in trained["per_stage"])
    yield report.judged("gpt2, slow attention", f"{fallbacks} nodes", "none", fallbacks == 0)
    if baseline is None:
        return
    ratio = ours["tokens_per_second"] / baseline["speed"]["tokens_per_second"]
    of_product = operations / baseline["matmul_operations_per_second"]
    yield context.judged_speed(AGAINST_TORCH, f"{ratio:.3f}", f"at least {RATIO_TO_TORCH_MIN}",
                               ratio >= RATIO_TO_TORCH_MIN, {"ratio": ratio})
    yield report.Row("gpt2, of the matmul rate", f"{of_product:.3f}", values={"ratio": of_product})


def nets(context):
    """Nets of images and an LSTM in bf16, each against PyTorch's fastest way."""
    if context.dry_run or not importlib.util.find_spec("torchvision"):
        return [report.skipped("nets", "no GPU" if context.dry_run else "no torchvision here")]
    figures = context.scratch / "nets.json"
    result = context.run([sys.executable, NETS, context.programs.path("compute_train"), "--device", context.device,
                          "--precision", context.sizes.precision, "--text", context.text, "--json", figures], 240,
                         {"PYTHONDONTWRITEBYTECODE": "1"})
    rows = []
    for net in json.loads(figures.read_text()) if figures.exists() else []:
        ratio = net["ratios"][net["fastest"]]
        rows.append(report.judged(
            f"{net['model']} against PyTorch", f"{ratio:.3f}: {net['samples_per_second']:.0f} samples/s ({net['fastest']})",
            f"at least {RATIO_TO_TORCH_MIN}", ratio >= RATIO_TO_TORCH_MIN, net))
    if result.code != 0 or result.timed_out:
        rows.append(report.failed("nets", result.complaint()))
    return rows


def graphs(context):
    """Measures what CUDA graphs gain: there is no target, the figure decides what is the default."""
    one = one_stage(context)["speed"]
    recorded = run_penstock(context, 1, **{"training.cuda_graphs": "on"})
    counts = recorded["per_stage"][0]["cuda_graphs"]
    ratio = recorded["speed"]["tokens_per_second"] / one["tokens_per_second"]
    share = 100 * counts["replayed"] / counts["passes"] if counts["passes"] else 0.0
    return [report.Row("gpt2, CUDA graphs against none",
                       f"{ratio:.3f}: {rate(recorded['speed'])}, {share:.0f} % replayed",
                       values={"speed": recorded["speed"], "graphs": counts})]


def fp8(context):
    """Measures what products of fp8 gain over bf16, and how far the loss is from that of bf16: there is no target yet."""
    step = "gpt2, fp8 against bf16"
    if context.dry_run:
        return [report.skipped(step, "no GPU")]
    one = one_stage(context)
    try:
        eight = run_penstock(context, 1, **{"training.precision": "fp8"})
    except StepFailed as failure:
        if "it has no fp8 products" in str(failure):
            return [report.skipped(step, "this GPU has no fp8 products")]
        raise
    ratio = eight["speed"]["tokens_per_second"] / one["speed"]["tokens_per_second"]
    difference = eight["train_loss"] / one["train_loss"] - 1
    return [report.Row(step, f"{ratio:.3f}: {rate(eight['speed'])}, last loss {100 * difference:+.2f} %",
                       values={"speed": eight["speed"], "ratio": ratio, "loss_difference": difference})]


def pipelining(context):
    one, two = one_stage(context)["speed"], run_penstock(context, 2)
    ratio = two["speed"]["tokens_per_second"] / one["tokens_per_second"]
    microbatches = two["steps"] * two["microbatches"]
    stages = two["per_stage"]
    crossed = sum(stage["bytes_sent"] for stage in stages) / microbatches
    bubbles = statistics.mean(stage["bubble_ratio"] for stage in stages)
    paths = sorted({edge["path"] for stage in stages for edge in stage["edges"]})
    return [
        context.judged_speed(
            "gpt2, 2 stages against 1", f"{ratio:.3f}: {rate(two['speed'])}, one stage {rate(one)}",
            f"at least {RATIO_OF_TWO_STAGES_MIN}", ratio >= RATIO_OF_TWO_STAGES_MIN,
            {"two_stages": two["speed"], "one_stage": one, "bubble_ratio": bubbles}),
        report.Row("bytes between the stages", f"{crossed / 2**20:.2f} MiB per microbatch by {', '.join(paths)}",
                   values={"bytes_per_microbatch": crossed, "paths": paths})]
