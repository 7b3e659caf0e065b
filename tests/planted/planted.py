#!/usr/bin/env python3
"""Plants known bugs into a checkout of its own, one after the other, and wants the tests to catch each.

usage: planted.py BUILD [--work DIR] [--only NN...] [--all-tests] [--json FILE] [--again] [--jobs N] [--limit SECONDS]
       planted.py --markdown FILE

BUILD: a folder for the checkout, which is a worktree of git at the commit that is checked out here (--work puts it
elsewhere), and for the output of tests. The tests of bugs.json are built once without a bug and must pass. Then for each
bug its patch is applied, and its tests are built and run in their order until one fails; --all-tests runs the others,
too. A test that fails is run again, that case alone, and counts if it fails again; one that takes longer than --limit
(300 s) counts as well.

Prints a line for each bug as it is decided. With --json results are kept there, and a bug that was decided is left out
next time unless its patch or its tests have changed, or with --again. Exits with 1 if a bug was not caught or does not
compile, and with 2 if it cannot go on. --markdown prints the table of README.md from a file of --json.
"""
import argparse
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bugs  # noqa: E402  (they are beside this file)
import checkout  # noqa: E402
import programs  # noqa: E402
import results as kept  # noqa: E402


def say(text):
    print(text, flush=True)


class Trials:
    """Bugs in a checkout that builds."""

    def __init__(self, tree, build, results, logs, all_tests):
        self.tree = tree
        self.build = build
        self.results = results
        self.logs = logs
        self.all_tests = all_tests

    def check_without(self, chosen):
        """Builds the tests, and raises Trouble if one does not pass without a bug."""
        tests = sorted({test for bug in chosen for test in bug.tests})
        tests = [test for test in tests if self.results.passed_without.get(test) != self.tree.commit]
        if not tests:
            return
        say(f"building without a bug: {' '.join(tests)}")
        error = self.build.make(tests)
        if error:
            raise checkout.Trouble(f"the tests do not build without a bug:\n{error}")
        for test in tests:
            ran = self.build.run(test)
            if ran.how != "passed":
                log = self.keep(f"without-{test}", ran.output)
                raise checkout.Trouble(f"{test} {ran.how} without a bug ({ran.case or 'no case'}); see {log}")
            say(f"{test} passes without a bug ({ran.seconds:.0f} s)")
            self.results.passed_without[test] = self.tree.commit
            self.results.save()

    def keep(self, name, output):
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{name}.log"
        log.write_text(output)
        return log

    def run_twice(self, bug, test):
        """How the test ends; "flaky" if it fails once only."""
        ran = self.build.run(test)
        if ran.how == "passed":
            return ran
        self.keep(f"{bug.name}-{test}", ran.output)
        if ran.how == "hung" or not ran.case:
            return ran
        again = self.build.run(test, ran.case)
        how = "flaky" if again.how == "passed" else ran.how
        return programs.Ran(how, ran.case, ran.seconds + again.seconds)

    def decide(self, bug):
        result = {"digest": bug.digest(), "commit": self.tree.commit, "outcome": kept.SLIPPED, "build_seconds": 0.0, "tests": {}}
        for test in bug.tests:
            began = time.monotonic()
            error = self.build.make([test])
            result["build_seconds"] = round(result["build_seconds"] + time.monotonic() - began, 1)
            if error:
                result["outcome"] = kept.INVALID
                self.keep(f"{bug.name}-{test}", error)
                break
            ran = self.run_twice(bug, test)
            result["tests"][test] = {"how": ran.how, "case": ran.case, "seconds": round(ran.seconds, 1)}
            if ran.how in ("failed", "crashed", "hung"):
                result["outcome"] = kept.CAUGHT
                if not self.all_tests:
                    break
        return result

    def plant(self, bug):
        """Decides a bug, and leaves the checkout as it was."""
        self.tree.apply(bug.patch)
        try:
            result = self.decide(bug)
        finally:
            self.tree.take_back()
        self.results.set(bug, result)
        say(kept.line(bug.name, result))


def check_patches(folder, chosen):
    wrong = [f"{bug.name}: {why}" for bug in chosen if (why := checkout.why_not_applied(folder, bug.patch))]
    if wrong:
        raise checkout.Trouble("these patches apply no longer; make them again for the code of today:\n" + "\n".join(wrong))


def run(flags):
    """Returns the exit code."""
    results = kept.Results(flags.json)
    chosen = bugs.select(bugs.read(), flags.only)
    if not chosen:
        raise checkout.Trouble(f"no bug is named {' '.join(flags.only)}; bugs.json has their names")
    left = [bug for bug in chosen if flags.again or results.decided(bug) is None]
    for bug in chosen:
        if bug not in left:
            say(kept.line(bug.name, results.decided(bug)) + ", decided before")
    if left:
        tree = checkout.Checkout(bugs.SOURCE, flags.work or flags.build / "checkout")
        check_patches(tree.folder, left)
        build = programs.Build(tree.folder, flags.jobs, flags.limit)
        build.configure()
        trials = Trials(tree, build, results, flags.build / "logs", flags.all_tests)
        trials.check_without(left)
        for bug in left:
            trials.plant(bug)
    missed = [bug.name for bug in chosen if results.by_bug[bug.name]["outcome"] != kept.CAUGHT]
    say(f"{len(chosen) - len(missed)} of {len(chosen)} planted bugs were caught" +
        (f"; not caught: {' '.join(missed)}" if missed else ""))
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", type=pathlib.Path, help="a folder for the checkout and the output of tests")
    parser.add_argument("--work", type=pathlib.Path, help="where the checkout is instead (BUILD/checkout)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NN", help="numbers of bugs, or parts of their names")
    parser.add_argument("--all-tests", action="store_true", help="run all tests of a bug, also when one has caught it")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="where results are kept")
    parser.add_argument("--again", action="store_true", help="also those that were decided before")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (%(default)s)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that a test program may take (%(default)s)")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="print the table of a file of --json, and end")
    flags = parser.parse_args()
    if flags.markdown is not None:
        if not flags.markdown.exists():
            parser.error(f"there is no file {flags.markdown}")
        print(kept.table(bugs.read(), kept.Results(flags.markdown)))
        return 0
    if flags.build is None:
        parser.error("BUILD is missing: a folder for the checkout, such as build/planted")
    flags.build = flags.build.resolve()
    try:
        return run(flags)
    except checkout.Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
