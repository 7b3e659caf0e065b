"""Steps `conformance`, `losses`, `memory` and `sanitizers`: whether the GPU computes what the CPU does."""

import json
import os
import pathlib
import re
import shutil

import report
from training import StepFailed, side_by_side, train

LOSS_DIFFERENCE_MAX = 0.01
MEMORY_DIFFERENCE_MAX = 0.05
SHAKESPEARE = "examples/shakespeare.yaml"

# Small sizes, and between them every kernel of a GPT and of the optimizers: sanitizers make programs up to a hundred times
# slower.
MEMCHECK_TESTS = ["Bf16_StaysWithin*", "Passes_RunTwice*", "AdamW_FirstStep*", "Sgd_WithMomentum*",
                  "Step_Mirror*", "ConvertToBf16*", "SliceNorms*", "AddInto*", "TensorsToTheHost*",
                  "TiedGradient_IsTheSum*", "Head_WithLargeLogits*", "Dropout_Mask*", "NextTokenLogits*"]
RACECHECK_TESTS = ["Passes_RunTwice*", "AdamW_FirstStep*", "Step_Mirror*", "SliceNorms*", "AddInto*",
                   "Head_WithLargeLogits*"]
# All passes of every op in f32 and bf16; of those whose threads share memory.
MEMCHECK_OPS = ["Passes_GiveTheNumbersOfPyTorch/*"]
RACECHECK_OPS = [f"Passes_GiveTheNumbersOfPyTorch/*{op}*"
                 for op in ("norm_", "attention_", "cross_entropy_", "mse_", "embedding_", "gpt_head_")]
# (tool, program, tests)
SANITIZED = [("memcheck", "cuda_conformance_test", MEMCHECK_TESTS), ("memcheck", "cuda_ops_test", MEMCHECK_OPS),
             ("racecheck", "cuda_conformance_test", RACECHECK_TESTS), ("racecheck", "cuda_ops_test", RACECHECK_OPS)]
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DRY_RUN_TESTS = ["ConvertToBf16*", "AddInto*", "AdamW_FirstStep*"]


def title(name):
    """What the table calls a test program."""
    return name.removesuffix("_test").replace("_", " ")


def gtest_filter(tests):
    return "--gtest_filter=" + ":".join(f"*.{test}" for test in tests)


def gtest_row(step, result, details):
    """The row of a test program that ran with --gtest_output=json:`details`. It fails also if tests were
    skipped, as they are where the back-end does not load."""
    target = "all pass, none skipped"
    if result.timed_out or not details.exists():
        return report.failed(step, result.complaint(), target)
    tests = [test for suite in json.loads(details.read_text())["testsuites"] for test in suite["testsuite"]
             if test["status"] == "RUN"]
    wrong = [f"{test['name']}" for test in tests if test.get("failures")]
    skipped = sum(test["result"] == "SKIPPED" for test in tests)
    figure = f"{len(tests) - len(wrong) - skipped} passed"
    if wrong:
        figure += f", {len(wrong)} failed ({wrong[0]})"
    if skipped:
        figure += f", {skipped} skipped"
    good = bool(tests) and not wrong and not skipped and result.code == 0
    return report.judged(step, figure, target, good, {"failed": wrong, "seconds": result.seconds})


def run_tests(context, step, program, tests, limit_s, before=(), env=None):
    """(the row, what the program said). `before`: a command that runs the program."""
    details = context.scratch / f"{re.sub('[^a-z]+', '-', step)}.json"
    command = [*before, program, f"--gtest_output=json:{details}"]
    if tests:
        command.append(gtest_filter(tests))
    # Where the numbers are that ops are compared with: the program may have been built elsewhere.
    result = context.run(command, limit_s, {"PENSTOCK_SOURCE_DIR": str(REPOSITORY), **(env or {})})
    return gtest_row(step, result, details), result


def conformance(context):
    if context.dry_run:
        program = context.programs.path("compute_conformance_test")
        return [run_tests(context, "conformance", program, DRY_RUN_TESTS, 60)[0]]
    return [run_tests(context, title(name), context.programs.path(name), [], 90)[0]
            for name in context.programs.gpu_tests]


def methods(context):
    result = context.run([context.programs.path("penstock"), "methods", "--json"], 20)
    if result.code != 0:
        raise StepFailed(f"penstock methods: {result.complaint()}")
    return [method["method"] for method in json.loads(result.output)]


def graphs_row(context, workers, plain, recorded):
    """CUDA graphs must give what the same calls give one by one."""
    step = f"loss, {plain['method']}, f32, CUDA graphs"
    counts = [stage["cuda_graphs"] for stage in recorded["per_stage"]]
    passes, replayed = (sum(count[key] for count in counts) for key in ("passes", "replayed"))
    share = 100 * replayed / passes if passes else 0.0
    same = plain["weights_sha256"] == recorded["weights_sha256"]
    return context.judged_speed(
        step, f"{'the same weights' if same else 'OTHER weights'}, {share:.0f} % of {passes} passes replayed",
        "the same weights, some replayed", same and replayed > 0, {"graphs": counts, "workers": workers})


def loss_row(step, trained, reference):
    """A training's loss beside that of the same steps on the CPU, both as `penstock train` tells of them."""
    loss, expected = trained["train_loss"], reference["train_loss"]
    difference = abs(loss - expected) / expected
    return report.judged(
        step, f"{loss:.4f}, on the CPU {expected:.4f}: {100 * difference:.2f} %",
        f"within {100 * LOSS_DIFFERENCE_MAX:.0f} %", difference <= LOSS_DIFFERENCE_MAX,
        {"loss": loss, "cpu_loss": expected, "tokens_per_second": trained["tokens_per_second"]})


def losses(context):
    workers = context.sizes.loss_workers
    settings = {"validation.every_steps": 0, **context.sizes.loss}

    def training(method, device, precision, **more):
        # A measured split differs from run to run, and asynchronous methods compute other weights with another one.
        return train(context, SHAKESPEARE, workers, device,
                     {**settings, "planning.split": "estimated", "pipeline.method": method,
                      "training.precision": precision, **more})

    names = methods(context)
    cases = [(method, "f32") for method in names] + [(names[0], "bf16")]
    trained, rows = {}, []
    # The losses count here, not the times.
    with side_by_side(context, {method: training(method, "cpu", "f32") for method in names}, 100) as references:
        for case in cases:
            try:
                trained[case] = training(case[0], context.device, case[1]).run(context, 60)
            except StepFailed as failure:
                rows.append(report.failed(f"loss, {case[0]}, {case[1]}, {workers} workers", str(failure)))
        expected = {method: reference.result() for method, reference in references.items()}
    for (method, precision), result in trained.items():
        rows.append(loss_row(f"loss, {method}, {precision}, {workers} workers", result, expected[method]))
    if (names[0], "f32") in trained:
        try:
            recorded = training(names[0], context.device, "f32", **{"training.cuda_graphs": "on"})
            rows.append(graphs_row(context, workers, trained[names[0], "f32"], recorded.run(context, 60)))
        except StepFailed as failure:
            rows.append(report.failed(f"loss, {names[0]}, f32, CUDA graphs", str(failure)))
    context.results["losses"] = {method: result for (method, precision), result in trained.items()
                                 if precision == "f32"}
    return rows


def memory(context):
    trained = dict(context.results.get("losses", {}))
    if "one stage" in context.results:
        trained["gpt2"] = context.results["one stage"]
    if not trained:
        return [report.skipped("memory", "no step gave a training to look at")]
    rows = []
    for name, result in trained.items():
        step = f"memory, {name}"
        pairs = [(stage["peak_memory_bytes"], stage["predicted_memory_bytes"])
                 for stage in result["per_stage"]]
        if not all(measured and predicted for measured, predicted in pairs):
            rows.append(report.failed(step, "not reported"))
            continue
        measured, predicted = max(pairs, key=lambda pair: abs(pair[0] / pair[1] - 1))
        difference = measured / predicted - 1
        rows.append(context.judged_speed(
            step, f"peak {measured / 2**20:.1f} MiB, predicted {predicted / 2**20:.1f}: "
                  f"{100 * difference:+.1f} % (the worst stage)",
            f"within {100 * MEMORY_DIFFERENCE_MAX:.0f} %", abs(difference) <= MEMORY_DIFFERENCE_MAX,
            {"measured_and_predicted_bytes": pairs}))
    return rows


def find_sanitizer():
    places = ["/usr/local/cuda/bin/compute-sanitizer", "/usr/local/cuda/compute-sanitizer/compute-sanitizer"]
    return shutil.which("compute-sanitizer") or next(filter(os.path.exists, places), None)


def sanitizer_verdict(text):
    """(whether it found nothing, its summary). One that said nothing was not at work."""
    summaries = re.findall(r"^=+ (\w+ SUMMARY: (\d+).*)$", text, re.MULTILINE)
    if not summaries:
        return False, "no summary"
    worst = max(summaries, key=lambda summary: int(summary[1]))
    return int(worst[1]) == 0, worst[0]


def sanitizers(context):
    sanitizer = find_sanitizer()
    rows = []
    for tool, program, tests in SANITIZED:
        step = f"{tool}, {title(program)}"
        if sanitizer is None or context.dry_run:
            why = "no GPU" if context.dry_run else "compute-sanitizer is not here"
            rows.append(report.skipped(step, why))
            continue
        row, result = run_tests(
            context, step, context.programs.path(program), tests, 60,
            before=[sanitizer, "--tool", tool, "--target-processes", "all", "--error-exitcode", "99"])
        clean, said = sanitizer_verdict(result.output + result.errors)
        row.figure, row.target = f"{row.figure}; {said}", "clean, none skipped"
        if not clean:
            row.status = report.FAILED
        rows.append(row)
    return rows
