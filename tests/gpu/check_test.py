"""Tests the check of a GPU where there is none: check_test.py BUILD_DIR (of the programs to use)

The dry run goes through every step; what its rows are judged by is tested number by number.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

LOADER = "/lib64/ld-linux-x86-64.so.2"
C_LIBRARY = "/lib/x86_64-linux-gnu/libc.so.6"
FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import check as gpu_check  # noqa: E402
import context  # noqa: E402
import correctness  # noqa: E402
import device  # noqa: E402
import families  # noqa: E402
import kernels  # noqa: E402
import process  # noqa: E402
import programs  # noqa: E402
import report  # noqa: E402
import speed  # noqa: E402
import training  # noqa: E402

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else "build/release"


def check(*arguments):
    return subprocess.run([str(FOLDER.parent.parent / "scripts/gpu_check.sh"), *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=170, check=False)


class Check(unittest.TestCase):
    def test_dry_run_has_a_row_for_every_step(self):
        with tempfile.TemporaryDirectory() as folder:
            ran = check("--dry-run", "--programs", BUILD, "--json", f"{folder}/figures.json")
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            figures = json.loads(pathlib.Path(folder, "figures.json").read_text())
        rows = {row["step"]: row for row in figures["rows"]}
        for step in ("programs", "conformance", "memcheck, cuda conformance", "memcheck, cuda ops",
                     "racecheck, cuda conformance", "racecheck, cuda ops", "build without gRPC",
                     "gpt2, 2 stages against 1", "bytes between the stages",
                     "gpt2, CUDA graphs against none", "gpt2, fp8 against bf16", "gpt2, slow attention", "kernels"):
            self.assertIn(step, rows)
            self.assertIn(step, ran.stdout)
        for method in ("1f1b", "gpipe", "pipedream"):
            self.assertEqual(rows[f"loss, {method}, f32, 4 workers"]["status"], "pass")
            self.assertIn("predicted", rows[f"memory, {method}"]["figure"])
        for family in ("resnet", "awd_lm", "gnmt"):
            self.assertEqual(rows[f"loss, {family}, 2 workers"]["status"], "pass")
        for step in ("gpt2 against PyTorch", "gpt2, one stage"):
            self.assertIn(step, rows)
        crossed = rows["bytes between the stages"]["values"]
        self.assertGreater(crossed["bytes_per_microbatch"], 0)
        self.assertEqual(crossed["paths"], ["shared-memory"])
        self.assertEqual(figures["failures"], 0)

    def test_failing_step_fails_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "short.txt")
            text.write_text("too short to train on")
            ran = check("--dry-run", "--programs", BUILD, "--text", str(text), "--only", "losses,conformance")
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        self.assertRegex(ran.stdout, r"losses? .*FAILED|loss, .*FAILED")
        self.assertRegex(ran.stdout, r"conformance .* pass")

    def test_unknown_step_is_bad_usage(self):
        ran = check("--dry-run", "--only", "losses,spead")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("no step spead", ran.stderr)

    @unittest.skipIf(os.path.exists("/proc/driver/nvidia/version"), "there is a GPU")
    def test_without_a_gpu_says_so_and_succeeds(self):
        ran = check()
        self.assertEqual(ran.returncode, 0)
        self.assertRegex(ran.stdout, "^gpu-check: skipped, nothing was checked: .*NVIDIA")


class Rows(unittest.TestCase):
    def gtest_row(self, tests, code=0):
        with tempfile.TemporaryDirectory() as folder:
            details = pathlib.Path(folder, "details.json")
            details.write_text(json.dumps({"testsuites": [{"testsuite": [
                {"name": f"Test{number}", "status": "RUN", **test} for number, test in enumerate(tests)]}]}))
            return correctness.gtest_row("conformance", process.Result(code, "", "", 1.0, False), details)

    def test_conformance_passes_only_if_all_tests_ran_and_passed(self):
        passed, skipped = {"result": "COMPLETED"}, {"result": "SKIPPED"}
        wrong = {"result": "COMPLETED", "failures": [{"failure": "expected 1"}]}
        self.assertEqual(self.gtest_row([passed, passed]).status, report.PASSED)
        self.assertEqual(self.gtest_row([passed, skipped]).status, report.FAILED)
        self.assertEqual(self.gtest_row([passed, passed], code=99).status, report.FAILED)
        self.assertEqual(self.gtest_row([]).status, report.FAILED)
        row = self.gtest_row([passed, wrong], code=1)
        self.assertEqual(row.status, report.FAILED)
        self.assertEqual(row.figure, "1 passed, 1 failed (Test1)")

    def test_tests_that_passed_before_a_program_ended_count(self):
        output = "[ RUN      ] A.One\n[       OK ] A.One (1 ms)\n[ RUN      ] A.Two\n[  SKIPPED ] A.Two (0 ms)\n" \
                 "[ RUN      ] A.Three\nterminate called"
        row = correctness.gtest_row("conformance", process.Result(-6, output, "", 1.0, False), pathlib.Path("/nowhere"))
        self.assertEqual(row.status, report.FAILED)
        self.assertEqual((row.values["passed"], row.values["failed"]), (1, ["A.Three"]))
        self.assertIn("1 passed before, not A.Three", row.figure)

    def test_memcheck_takes_an_event_that_is_asked_for_early_for_no_error(self):
        self.assertIn("no", correctness.sanitizer_command("sanitizer", "memcheck"))
        self.assertNotIn("--report-api-errors", correctness.sanitizer_command("sanitizer", "racecheck"))

    def test_sanitizer_is_clean_only_if_it_says_so(self):
        memcheck, racecheck = "========= ERROR SUMMARY: {} errors\n", "========= RACECHECK SUMMARY: {} hazards\n"
        self.assertEqual(correctness.sanitizer_verdict("[  PASSED  ] 3 tests.\n" + memcheck.format(0)),
                         (True, "ERROR SUMMARY: 0 errors"))
        self.assertEqual(correctness.sanitizer_verdict(racecheck.format(12) + racecheck.format(0)),
                         (False, "RACECHECK SUMMARY: 12 hazards"))
        self.assertFalse(correctness.sanitizer_verdict("[  PASSED  ] 3 tests.\n")[0])

    def test_document_without_numbers_is_still_json(self):
        values = {"loss": float("nan"), "list": [float("inf"), 1.0]}
        text = report.document([report.judged("loss", "nan", "within 1 %", False, values)])
        self.assertEqual(json.loads(text)["rows"][0]["values"], {"loss": None, "list": [None, 1.0]})


class Parts(unittest.TestCase):
    def test_each_part_ends_within_nine_minutes_and_no_step_is_left_out(self):
        for part, steps in gpu_check.PARTS.items():
            self.assertLessEqual(sum(gpu_check.STEPS[step][1] for step in steps), gpu_check.PART_SECONDS, part)
        self.assertLess(gpu_check.PART_SECONDS, 9 * 60)
        self.assertEqual(set(sum(gpu_check.PARTS.values(), [])), set(gpu_check.STEPS))

    def run_part(self, steps, limit_s=525.0):
        """(rows, what the file of --json had when each step began)."""
        seen = []
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "figures.json")
            record = gpu_check.Record(path, commit="c")
            record.write()

            def watched(step):
                def run(shared):
                    seen.append([row["step"] for row in json.loads(path.read_text())["rows"]])
                    yield from step(shared)
                return run

            shared = context.Context(None, None, "text", folder, limit_s)
            known = {name: (watched(step), needs) for name, (step, needs) in steps.items()}
            with unittest.mock.patch.object(gpu_check, "STEPS", known):
                gpu_check.run_part(list(known), shared, record.take)
        return record, seen

    def test_rows_are_in_the_file_as_soon_as_they_are_known(self):
        def breaks(_):
            yield report.Row("first half", "1")
            raise training.StepFailed("the other half is missing")

        record, seen = self.run_part({"a": (lambda _: [report.Row("a", "2")], 1), "b": (breaks, 1),
                                      "c": (lambda _: [report.Row("c", "3")], 1)})
        self.assertEqual(seen, [[], ["a"], ["a", "first half", "b"]])
        self.assertEqual([row.step for row in record.rows], ["a", "first half", "b", "c"])
        self.assertEqual(record.failures(), 1)

    def test_a_step_leaves_later_ones_what_they_need(self):
        def limits(shared):
            yield report.Row("limit", f"{shared.limit(1000.0):.0f}")

        record, _ = self.run_part({"a": (limits, 100), "b": (limits, 200), "c": (limits, 50)}, limit_s=400.0)
        self.assertEqual([row.figure for row in record.rows], ["150", "350", "400"])

    def test_unknown_part_is_bad_usage(self):
        self.assertEqual(check("--dry-run", "--part", "everything").returncode, 2)
        self.assertEqual(check("--dry-run", "--part", "smoke", "--only", "losses").returncode, 2)


class References(unittest.TestCase):
    TRAINED = {"train_loss": 2.0, "tokens_per_second": 1.0}

    def row(self, reference, result=None):
        future = concurrent.futures.Future()
        if isinstance(reference, Exception):
            future.set_exception(reference)
        else:
            future.set_result(reference)
        return correctness.trained_row("loss, gpipe", lambda: result or self.TRAINED, future)

    def test_a_failed_reference_is_the_affair_of_one_row(self):
        row, result = self.row(training.StepFailed("not done after 200 s"))
        self.assertEqual((row.status, row.values["loss"], result), (report.FAILED, 2.0, self.TRAINED))
        self.assertIn("on the CPU: not done after 200 s", row.figure)

    def test_a_loss_is_judged_by_its_reference(self):
        self.assertEqual(self.row({"train_loss": 2.01})[0].status, report.PASSED)
        self.assertEqual(self.row({"train_loss": 2.1})[0].status, report.FAILED)


class Kernels(unittest.TestCase):
    HEADER = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'

    def test_times_of_the_second_step_are_summed_by_kernel(self):
        lines = [("void penstock::cuda::(anonymous namespace)::Sum<float>(int, float *)", "us", "1,000.5"),
                 ("ampere_gemm", "ns", "9"), ("ampere_gemm", "us", "250"),
                 ("void penstock::cuda::(anonymous namespace)::Sum<float>(int, float *)", "ms", "1"),
                 ("ampere_gemm", "us", "250"), ("other", "us", "1")]
        text = "==PROF== Connected\n" + self.HEADER + "".join(
            f'"{number}","1","{name}","gpu__time_duration.sum","{unit}","{value}"\n'
            for number, (name, unit, value) in enumerate(lines))
        times = kernels.seconds_by_kernel(text)
        self.assertEqual(list(times), ["penstock::cuda::anonymous::Sum", "ampere_gemm", "other"])
        self.assertEqual(times["ampere_gemm"][0], 1)
        self.assertAlmostEqual(times["penstock::cuda::anonymous::Sum"][1], 1e-3)

    def test_nothing_timed_is_no_kernel(self):
        self.assertEqual(kernels.seconds_by_kernel("==ERROR== no permission\n"), {})


class Coverage(unittest.TestCase):
    def test_every_family_of_a_job_is_trained(self):
        job_file = (FOLDER.parent.parent / "docs/job-file.md").read_text()
        described = set(re.findall(r"`model\.(\w+)\.\w+`", job_file))
        trained = {model.split(":")[0] for model in families.FAMILIES.values()}
        self.assertIn("gnmt", described)
        others = {"gpt", "lora", "hugging_face", "pretrained"}  # `losses` trains the GPT; the rest change what a family is
        self.assertEqual(described - others, trained - {"layers"})  # `losses` trains the GPT

    def test_a_build_folder_has_the_suites_of_layers_and_of_ops(self):
        self.assertLessEqual({program for _, program, _ in correctness.SANITIZED}, set(programs.gpu_tests(BUILD)))


class Speed(unittest.TestCase):
    def test_step_seconds_run_from_update_to_update(self):
        events = [{"ph": "X", "pid": 1, "name": "1UPDATE", "ts": 1e6 * at, "dur": 5e5} for at in (1, 3, 6, 8, 10)]
        others = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
                  for pid, name in enumerate(["measured: worker-0", "measured: worker-1", "predicted: worker-1"])]
        others += [{"ph": "X", "pid": 0, "name": "0UPDATE", "ts": 0.0, "dur": 1.0}, {"ph": "M", "pid": 1, "name": "thread_name"},
                   {"ph": "X", "pid": 2, "name": "1UPDATE", "ts": 2e6, "dur": 5e5}]
        with tempfile.TemporaryDirectory() as folder:
            trace = f"{folder}/run"
            pathlib.Path(f"{trace}.trace.json").write_text(json.dumps({"traceEvents": events[::-1] + others}))
            self.assertEqual(training.step_seconds(trace, 1, warmup_steps=1), [3.0, 2.0, 2.0])
            with self.assertRaisesRegex(training.StepFailed, "only 1 updates of stage 0"):
                training.step_seconds(trace, 0, warmup_steps=0)

    def test_summary_is_of_the_median_step(self):
        self.assertEqual(training.summary([1.0, 2.0, 4.0], 100),
                         {"steps": 3, "tokens_per_second": 50.0, "tokens_per_second_min": 25.0,
                          "tokens_per_second_max": 100.0})

    def test_operations_of_gpt2_are_those_of_its_weights_and_half_the_context(self):
        model = {"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50304}
        weights = 12 * 12 * 768**2 + 50304 * 768  # 123.6 million
        self.assertEqual(speed.operations_per_token(model), 6 * weights + 6 * 12 * 768 * 1024)


class Machine(unittest.TestCase):
    def test_libraries_of_the_search_path_come_first(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libcudnn.so.9").touch()
            with unittest.mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": f"/nowhere:{folder}"}):
                found, missing = device.find_libraries(["libcudnn.so.9", "libcudnn-of-nobody.so.1"])
        self.assertEqual(found, {"libcudnn.so.9": f"{folder}/libcudnn.so.9"})
        self.assertEqual(missing, ["libcudnn-of-nobody.so.1"])

    def test_the_folder_with_the_newest_cudnn_comes_first(self):
        versions = {"/old": 91400, "/new": 91900, "/as-new": 91900, "/broken": 0}
        with unittest.mock.patch.object(device, "_folders", lambda: ["/none", *versions]), \
             unittest.mock.patch.object(device, "_search_path", lambda: []), \
             unittest.mock.patch.object(device, "_cudnn_version", versions.get), \
             unittest.mock.patch.object(os.path, "exists", lambda path: os.path.dirname(path) in versions):
            self.assertEqual(device._candidates(), ["/new", "/none", "/old", "/as-new", "/broken"])

    @unittest.skipUnless(os.path.exists(LOADER) and os.path.exists(C_LIBRARY), "not Debian on x86-64")
    def test_launcher_uses_the_bundles_c_library_only_where_the_systems_is_older(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("bin", "glibc"):
                os.mkdir(f"{folder}/{name}")
            # A program that says what runs it.
            shutil.copy(shutil.which("readlink"), f"{folder}/bin/readlink.elf")
            shutil.copy(FOLDER / "launch.sh", f"{folder}/bin/readlink")
            shutil.copy(LOADER, f"{folder}/bin/{os.path.basename(LOADER)}")
            shutil.copy(C_LIBRARY, f"{folder}/glibc/libc.so.6")
            for needed, runner in (("2.2.5", "readlink.elf"), ("99.1", os.path.basename(LOADER))):
                pathlib.Path(folder, "glibc/version").write_text(needed + "\n")
                said = subprocess.run([f"{folder}/bin/readlink", "/proc/self/exe"], stdout=subprocess.PIPE,
                                      text=True, check=True).stdout.strip()
                self.assertEqual(said, f"{os.path.realpath(folder)}/bin/{runner}", needed)


class Process(unittest.TestCase):
    def test_past_its_limit_it_is_killed_with_what_it_started(self):
        # `set -m` gives the children groups of their own, as ninja does.
        result = process.run(["sh", "-c", "set -m; sleep 60 & echo $!; wait"], limit_s=0.5)
        self.assertTrue(result.timed_out)
        self.assertLess(result.seconds, 30)
        child = int(result.output)
        state = pathlib.Path(f"/proc/{child}/stat")
        self.assertTrue(not state.exists() or ") Z " in state.read_text())

    def test_complaint_prefers_the_line_that_tells_of_the_error(self):
        result = process.Result(1, "", "loading\nCMake Error: no compiler\nsee the log\n", 1.0, False)
        self.assertEqual(result.complaint(), "exit code 1: CMake Error: no compiler")


if __name__ == "__main__":
    unittest.main(verbosity=2)
