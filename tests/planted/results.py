"""What became of each planted bug: kept in a JSON file, and shown as lines and as a table."""
import json
import os

CAUGHT = "caught"
SLIPPED = "slipped"
INVALID = "invalid"  # it does not compile


class Results:
    """`path`: None: nothing is kept."""

    def __init__(self, path):
        self.path = path
        self.passed_without = {}  # by test: the commit at which it passed without a bug
        self.by_bug = {}
        if path is not None and path.exists():
            kept = json.loads(path.read_text())
            self.passed_without, self.by_bug = kept["passed_without"], kept["bugs"]

    def decided(self, bug):
        """The result that counts, or None."""
        known = self.by_bug.get(bug.name)
        return known if known and known["digest"] == bug.digest() and known["outcome"] != INVALID else None

    def set(self, bug, result):
        self.by_bug[bug.name] = result
        self.save()

    def save(self):
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        written = self.path.with_suffix(".new")
        written.write_text(json.dumps({"passed_without": self.passed_without, "bugs": self.by_bug}, indent=1) + "\n")
        os.replace(written, self.path)


def who(result):
    """"base_test: Files.SyncFails", or what else became of it."""
    if result["outcome"] != CAUGHT:
        return result["outcome"]
    catchers = []
    for test, ran in result["tests"].items():
        if ran["how"] == "failed":
            catchers.append(f"{test}: {ran['case']}")
        elif ran["how"] in ("crashed", "hung"):
            catchers.append(f"{test} {ran['how']}" + (f" in {ran['case']}" if ran["case"] else ""))
    return "; ".join(catchers)


def line(name, result):
    seconds = sum(ran["seconds"] for ran in result["tests"].values())
    by = f"caught by {who(result)}" if result["outcome"] == CAUGHT else result["outcome"].upper()
    return f"{name:<36} {by} (built in {result['build_seconds']:.0f} s, ran {seconds:.0f} s)"


def table(bugs, results):
    """What README.md shows."""
    lines = ["| | bug | in | should be caught by | who caught it |", "|---|---|---|---|---|"]
    for bug in bugs:
        known = results.by_bug.get(bug.name)
        found = who(known).replace("|", "\\|") if known and known["digest"] == bug.digest() else "not tried"
        tests = ", ".join(f"`{test}`" for test in bug.tests)
        lines.append(f"| {bug.number:02} | {bug.wrong} | `{bug.file}` | {tests} | {found} |")
    return "\n".join(lines)
