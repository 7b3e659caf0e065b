#!/usr/bin/env python3
"""Checks that every planted bug still applies, and tests planted.py, without a build."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bugs  # noqa: E402  (they are beside this file)
import checkout  # noqa: E402
import planted  # noqa: E402
import programs  # noqa: E402
import results  # noqa: E402

CHANGED_LINES_MAX = 12


def changed_lines(patch):
    return [line for line in patch.splitlines() if re.match(r"[+-](?![+-]{2} )", line)]


class Patches(unittest.TestCase):
    @unittest.skipUnless(checkout.is_checkout(bugs.SOURCE), "the source is no checkout of git")
    def test_all_apply(self):
        for bug in bugs.read():
            with self.subTest(bug.name):
                self.assertEqual(checkout.why_not_applied(bugs.SOURCE, bug.patch), "", "make it again for the code of today")

    def test_table_and_files_agree(self):
        listed = bugs.read()
        self.assertEqual([bug.patch.name for bug in listed], sorted(path.name for path in HERE.glob("*.patch")))
        self.assertEqual([bug.number for bug in listed], list(range(1, len(listed) + 1)))

    def test_each_is_a_few_lines_of_one_file_of_the_product(self):
        for bug in bugs.read():
            with self.subTest(bug.name):
                patch = bug.patch.read_text()
                self.assertEqual(re.findall(r"^(?:---|\+\+\+) [ab]/(.*)$", patch, re.MULTILINE), [bug.file, bug.file])
                self.assertRegex(bug.file, r"\.(cc|h)$")
                self.assertFalse(bug.file.startswith("tests/"))
                self.assertTrue(1 <= len(changed_lines(patch)) <= CHANGED_LINES_MAX)
                self.assertRegex(bug.wrong, r"^[A-Z].*\.$|^[a-z]+\.[a-z_]+ .*\.$")

    def test_tests_are_programs_of_the_build(self):
        text = "\n".join(path.read_text() for path in sorted((bugs.SOURCE / "tests").rglob("CMakeLists.txt")))
        known = set(re.findall(r"penstock_(?:services_)?test\((\w+)", text))
        for bug in bugs.read():
            with self.subTest(bug.name):
                self.assertTrue(bug.tests)
                self.assertEqual(set(bug.tests) - known, set())

    def test_choice_is_by_number_or_by_name(self):
        listed = bugs.read()
        self.assertEqual(bugs.select(listed, []), listed)
        self.assertEqual([bug.number for bug in bugs.select(listed, ["3", "07"])], [3, 7])
        self.assertEqual([bug.number for bug in bugs.select(listed, ["checksum"])],
                         [bug.number for bug in listed if "checksum" in bug.name])


class Output(unittest.TestCase):
    FAILED = "[ RUN      ] A.First\n[       OK ] A.First (1 ms)\n[ RUN      ] B/C.Second/2\nwrong\n" \
             "[  FAILED  ] B/C.Second/2, where GetParam() = 2 (0 ms)\n[  FAILED  ] 1 test, listed below:\n"

    def test_names_the_first_that_failed(self):
        ran = programs.judge(1, self.FAILED, 2.0)
        self.assertEqual((ran.how, ran.case, ran.seconds), ("failed", "B/C.Second/2", 2.0))

    def test_names_the_one_under_way(self):
        text = self.FAILED.split("wrong")[0]
        self.assertEqual((programs.judge(-6, text, 0).how, programs.judge(-6, text, 0).case), ("crashed", "B/C.Second/2"))
        self.assertEqual((programs.judge(None, text, 0).how, programs.judge(None, text, 0).case), ("hung", "B/C.Second/2"))
        self.assertEqual(programs.judge(127, "no such library", 0), programs.Ran("crashed", "", 0, "no such library"))

    def test_passes(self):
        self.assertEqual(programs.judge(0, "[  PASSED  ] 1 test.", 0).how, "passed")


class PlayedTree:
    """In place of a checkout: notes what is applied."""

    commit = "c0ffee"

    def __init__(self):
        self.steps = []

    def apply(self, patch):
        self.steps.append(patch.stem)

    def take_back(self):
        self.steps.append("back")


class PlayedBuild:
    """`runs`: by test, how it ends each time."""

    def __init__(self, runs, error=""):
        self.runs = {test: list(ends) for test, ends in runs.items()}
        self.error = error
        self.asked = []

    def make(self, _targets):
        return self.error

    def run(self, test, case=""):
        self.asked.append((test, case))
        how = self.runs[test].pop(0)
        return programs.Ran(how, "" if how == "passed" else "A.B", 1.0, "output")


class Deciding(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "01-bug.patch").write_text("a patch")
        self.bug = types.SimpleNamespace(name="01-bug", number=1, file="a.cc", wrong="It is wrong.", tests=("x_test", "y_test"),
                                         patch=self.folder / "01-bug.patch", digest=lambda: "digest")
        self.results = results.Results(self.folder / "results.json")

    def plant(self, build, all_tests=False):
        tree = PlayedTree()
        trials = planted.Trials(tree, build, self.results, self.folder / "logs", all_tests)
        say, planted.say = planted.say, lambda text: None
        self.addCleanup(setattr, planted, "say", say)
        trials.plant(self.bug)
        self.assertEqual(tree.steps, ["01-bug", "back"])
        return self.results.by_bug["01-bug"]

    def test_one_that_fails_again_has_caught_it(self):
        build = PlayedBuild({"x_test": ["failed", "failed"]})
        result = self.plant(build)
        self.assertEqual((result["outcome"], results.who(result)), ("caught", "x_test: A.B"))
        self.assertEqual(build.asked, [("x_test", ""), ("x_test", "A.B")])
        self.assertEqual((self.folder / "logs" / "01-bug-x_test.log").read_text(), "output")

    def test_one_that_fails_once_has_not(self):
        result = self.plant(PlayedBuild({"x_test": ["failed", "passed"], "y_test": ["passed"]}))
        self.assertEqual((result["outcome"], result["tests"]["x_test"]["how"]), ("slipped", "flaky"))

    def test_a_hang_has(self):
        result = self.plant(PlayedBuild({"x_test": ["passed"], "y_test": ["hung"]}))
        self.assertEqual((result["outcome"], results.who(result)), ("caught", "y_test hung in A.B"))

    def test_all_tests_are_run_if_asked_for(self):
        result = self.plant(PlayedBuild({"x_test": ["failed", "failed"], "y_test": ["crashed", "crashed"]}), all_tests=True)
        self.assertEqual(results.who(result), "x_test: A.B; y_test crashed in A.B")

    def test_what_does_not_compile_is_invalid_and_tried_again(self):
        self.assertEqual(self.plant(PlayedBuild({}, error="a.cc:1: error"))["outcome"], "invalid")
        self.assertIsNone(self.results.decided(self.bug))

    def test_what_was_decided_is_kept_until_the_patch_changes(self):
        self.plant(PlayedBuild({"x_test": ["passed"], "y_test": ["passed"]}))
        again = results.Results(self.folder / "results.json")
        self.assertEqual(again.decided(self.bug)["outcome"], "slipped")
        self.assertIn("| slipped |", results.table([self.bug], again))
        self.bug.digest = lambda: "another"
        self.assertIsNone(again.decided(self.bug))
        self.assertIn("| not tried |", results.table([self.bug], again))

    def test_tests_must_pass_without_a_bug(self):
        trials = planted.Trials(PlayedTree(), PlayedBuild({"x_test": ["passed"], "y_test": ["failed"]}), self.results,
                                self.folder / "logs", False)
        say, planted.say = planted.say, lambda text: None
        self.addCleanup(setattr, planted, "say", say)
        with self.assertRaisesRegex(checkout.Trouble, "y_test failed without a bug"):
            trials.check_without([self.bug])
        self.assertEqual(json.loads((self.folder / "results.json").read_text())["passed_without"], {"x_test": "c0ffee"})


def has_git():
    try:
        return subprocess.run(["git", "--version"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@unittest.skipUnless(has_git(), "there is no git on this machine")
class Checkouts(unittest.TestCase):
    PATCH = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-right\n+wrong\n"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = pathlib.Path(folder.name).resolve() / "source"
        self.source.mkdir()
        checkout.git(self.source, "init", "--quiet")
        self.commit("right\n")
        self.work = self.source.parent / "work"
        self.patch = self.source.parent / "bug.patch"
        self.patch.write_text(self.PATCH)

    def commit(self, text):
        (self.source / "a.txt").write_text(text)
        checkout.git(self.source, "add", "a.txt")
        checkout.git(self.source, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "a")

    def text(self):
        return (self.work / "a.txt").read_text()

    def test_a_bug_comes_and_goes(self):
        tree = checkout.Checkout(self.source, self.work)
        tree.apply(self.patch)
        self.assertEqual(self.text(), "wrong\n")
        tree.take_back()
        self.assertEqual(self.text(), "right\n")

    def test_the_bug_of_a_run_that_was_killed_is_taken_back(self):
        checkout.Checkout(self.source, self.work).apply(self.patch)
        self.assertEqual(self.text(), "wrong\n")
        checkout.Checkout(self.source, self.work)
        self.assertEqual(self.text(), "right\n")

    def test_it_follows_the_source(self):
        checkout.Checkout(self.source, self.work)
        self.commit("new\n")
        checkout.Checkout(self.source, self.work)
        self.assertEqual(self.text(), "new\n")
        self.assertIn("patch", checkout.why_not_applied(self.work, self.patch))

    def test_the_work_of_others_is_left_alone(self):
        checkout.Checkout(self.source, self.work)
        (self.work / "a.txt").write_text("mine\n")
        with self.assertRaisesRegex(checkout.Trouble, "not planted ones"):
            checkout.Checkout(self.source, self.work)
        self.assertEqual(self.text(), "mine\n")
        for folder, reason in ((self.source, "somebody works in"), (self.source.parent, "no checkout")):
            with self.assertRaisesRegex(checkout.Trouble, reason):
                checkout.Checkout(self.source, folder)


if __name__ == "__main__":
    unittest.main()
