"""Tests the check of a GPU where there is none: check_test.py BUILD_DIR (of the programs to use)

The dry run goes through every step; what its rows are judged by is tested number by number.
"""

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

import correctness  # noqa: E402
import device  # noqa: E402
import families  # noqa: E402
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
                     "gpt2, CUDA graphs against none"):
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
        self.assertEqual(crossed["paths"], ["host"])
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
