"""Steps `speed` and `pipelining`: GPT-2 on one stage against PyTorch, and on two against one."""

import importlib.util
import json
import os
import statistics
import sys

import report
from training import StepFailed, step_seconds, summary, train

GPT2 = "examples/gpt2-124m.yaml"
BASELINE = os.path.join(os.path.dirname(__file__), "torch_gpt2.py")
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
    result = context.run([sys.executable, BASELINE, json.dumps(config)], 170, {"PYTHONSAFEPATH": "1"})
    if result.code != 0 or result.timed_out:
        raise StepFailed(f"PyTorch: {result.complaint()}")
    return json.loads(result.output)


def run_penstock(context, workers):
    """The result of a training of GPT-2, with `speed` added."""
    sizes = context.sizes
    settings = {"training.steps": sizes.warmup_steps + sizes.steps, "training.precision": sizes.precision,
                "training.learning_rate.warmup_steps": sizes.warmup_steps, "validation.every_steps": 0,
                **{f"model.gpt.{key}": value for key, value in sizes.model.items()},
                **{f"training.{key}": value for key, value in sizes.load.items()}}
    training = train(context, GPT2, workers, context.device, settings, context.scratch / f"gpt2-{workers}")
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


def speed(context):
    baseline, rows = None, []
    try:
        if importlib.util.find_spec("torch"):
            baseline = run_torch(context)
        else:
            rows.append(report.skipped("gpt2 against PyTorch", "no PyTorch here"))
    except StepFailed as failure:
        rows.append(report.failed("gpt2 against PyTorch", str(failure), f"at least {RATIO_TO_TORCH_MIN}"))
    ours = one_stage(context)["speed"]
    if baseline is None:
        return rows + [report.Row("gpt2, one stage", rate(ours), values=ours)]
    theirs = summary(baseline["step_seconds"], tokens_per_step(context.sizes))
    ratio = ours["tokens_per_second"] / theirs["tokens_per_second"]
    rows.append(context.judged_speed(
        "gpt2 against PyTorch", f"{ratio:.3f}: {rate(ours)}, PyTorch {rate(theirs)} ({baseline['mode']})",
        f"at least {RATIO_TO_TORCH_MIN}", ratio >= RATIO_TO_TORCH_MIN,
        {"penstock": ours, "pytorch": {**theirs, **baseline}}))
    operations = ours["tokens_per_second"] * operations_per_token(context.sizes.model)
    of_product = baseline["matmul_operations_per_second"]
    rows.append(report.Row(
        "gpt2, of the matmul rate", f"{operations / of_product:.3f}: {operations / 1e12:.3g} of "
        f"{of_product / 1e12:.3g} TFLOP/s ({context.sizes.precision})",
        values={"operations_per_second": operations, "matmul_operations_per_second": of_product}))
    copied = baseline["copy_bytes_per_second"]
    rows.append(report.Row("copies on the device", f"{copied / 1e12:.3g} TB/s, read and written",
                           values={"bytes_per_second": copied}))
    return rows


def pipelining(context):
    one, two = one_stage(context)["speed"], run_penstock(context, 2)
    ratio = two["speed"]["tokens_per_second"] / one["tokens_per_second"]
    microbatches = two["steps"] * two["microbatches"]
    stages = two["per_stage"]
    crossed = sum(stage["bytes_sent"] for stage in stages) / microbatches
    bubbles = statistics.mean(stage["bubble_ratio"] for stage in stages)
    edges = sorted({edge for stage in stages for edge in stage.get("edges", [])})
    return [
        context.judged_speed(
            "gpt2, 2 stages against 1", f"{ratio:.3f}: {rate(two['speed'])}, one stage {rate(one)}",
            f"at least {RATIO_OF_TWO_STAGES_MIN}", ratio >= RATIO_OF_TWO_STAGES_MIN,
            {"two_stages": two["speed"], "one_stage": one, "bubble_ratio": bubbles}),
        report.Row("bytes between the stages", f"{crossed / 2**20:.2f} MiB per microbatch, edges: "
                   f"{', '.join(edges) or 'not reported'}",
                   values={"bytes_per_microbatch": crossed, "edges": edges})]
