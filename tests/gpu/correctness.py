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


def _told(output):
    """(tests that passed, names of those that failed or were under way at the end) as a test program says while it runs."""
    began = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
    passed = set(re.findall(r"^\[       OK \] (\S+)", output, re.MULTILINE))
    skipped = set(re.findall(r"^\[  SKIPPED \] (\S+)", output, re.MULTILINE))
    return len(passed), [name for name in began if name not in passed | skipped]


def gtest_row(step, result, details):
    """The row of a test program that ran with --gtest_output=json:`details`. It fails also if tests were
    skipped, as they are where the back-end does not load. One that did not come to its end wrote no details: what it
    said until then counts."""
    target = "all pass, none skipped"
    if result.timed_out or not details.exists():
        passed, others = _told(result.output)
        row = report.failed(step, f"{result.complaint()}; {passed} passed before"
                            + (f", not {others[-1]}" if others else ""), target)
        row.values = {"passed": passed, "failed": others, "seconds": result.seconds}
        return row
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
        yield run_tests(context, "conformance", program, DRY_RUN_TESTS, 60)[0]
        return
    for name in context.programs.gpu_tests:
        yield run_tests(context, title(name), context.programs.path(name), [], 150)[0]


def methods(context):
    result = context.run([context.programs.path("penstock"), "methods", "--json"], 20)
    if result.code != 0:
        raise StepFailed(f"penstock methods: {result.complaint()}")
    return [method["method"] for method in json.loads(result.output)]


def trained_row(step, train_here, reference):
    """(the row of a training's loss beside that of its reference, a future; what the training gave or None). A reference
    that failed is the row's affair alone."""
    try:
        result = train_here()
    except StepFailed as failure:
        return report.failed(step, str(failure)), None
    try:
        return loss_row(step, result, reference.result()), result
    except (StepFailed, OSError, ValueError, KeyError) as failure:
        row = report.failed(step, f"{result['train_loss']:.4f}; the same on the CPU: {failure or type(failure).__name__}")
        row.values = {"loss": result["train_loss"]}
        return row, result


def captured_row(context, workers, precision, plain, captured):
    """CUDA graphs must give what the same calls give one by one."""
    step = f"loss, {plain['method']}, {precision}, CUDA graphs"
    try:
        recorded = captured.run(context, 60)
    except StepFailed as failure:
        return report.failed(step, str(failure))
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
    trained = context.results.setdefault("losses", {})
    # The losses count here, not the times.
    with side_by_side(context, {method: training(method, "cpu", "f32") for method in names}, 200) as references:
        for method in names:
            row, result = trained_row(f"loss, {method}, f32, {workers} workers",
                                      lambda method=method: training(method, context.device, "f32").run(context, 60),
                                      references[method])
            if result:
                trained[method] = result
            yield row
        # Once more in bf16, where heads of 32 numbers are cuDNN's; and both as CUDA graphs.
        row, in_bf16 = trained_row(f"loss, {names[0]}, bf16, {workers} workers",
                                   lambda: training(names[0], context.device, "bf16").run(context, 60),
                                   references[names[0]])
        yield row
        for precision, plain in (("f32", trained.get(names[0])), ("bf16", in_bf16)):
            if plain:
                yield captured_row(context, workers, precision, plain,
                                   training(names[0], context.device, precision, **{"training.cuda_graphs": "on"}))


def memory(context):
    trained = dict(context.results.get("losses", {}))
    if "one stage" in context.results:
        trained["gpt2"] = context.results["one stage"]
    if not trained:
        yield report.skipped("memory", "no step gave a training to look at")
        return
    told = context.results.setdefault("memory", set())  # by an earlier part
    for name, result in trained.items():
        if name in told:
            continue
        told.add(name)
        step = f"memory, {name}"
        pairs = [(stage["peak_memory_bytes"], stage["predicted_memory_bytes"])
                 for stage in result["per_stage"]]
        if not all(measured and predicted for measured, predicted in pairs):
            yield report.failed(step, "not reported")
            continue
        measured, predicted = max(pairs, key=lambda pair: abs(pair[0] / pair[1] - 1))
        difference = measured / predicted - 1
        yield context.judged_speed(
            step, f"peak {measured / 2**20:.1f} MiB, predicted {predicted / 2**20:.1f}: "
                  f"{100 * difference:+.1f} % (the worst stage)",
            f"within {100 * MEMORY_DIFFERENCE_MAX:.0f} %", abs(difference) <= MEMORY_DIFFERENCE_MAX,
            {"measured_and_predicted_bytes": pairs})


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


def sanitizer_command(sanitizer, tool):
    command = [sanitizer, "--tool", tool, "--target-processes", "all", "--error-exitcode", "99"]
    if tool == "memcheck":
        # An event that is asked for before it has happened is an error to memcheck. What calls return, the tests look at.
        command += ["--report-api-errors", "no"]
    return command


def sanitizers(context):
    sanitizer = find_sanitizer()
    for tool, program, tests in SANITIZED:
        step = f"{tool}, {title(program)}"
        if sanitizer is None or context.dry_run:
            why = "no GPU" if context.dry_run else "compute-sanitizer is not here"
            yield report.skipped(step, why)
            continue
        row, result = run_tests(context, step, context.programs.path(program), tests, 150,
                                before=sanitizer_command(sanitizer, tool))
        clean, said = sanitizer_verdict(result.output + result.errors)
        row.figure, row.target = f"{row.figure}; {said}", "clean, none skipped"
        if not clean:
            row.status = report.FAILED
        yield row
