"""The planted bugs: patches of product code, and what bugs.json says of each."""
import dataclasses
import hashlib
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]


@dataclasses.dataclass(frozen=True)
class Bug:
    name: str  # "07-gap-between-events-taken"
    file: str  # that it is in
    wrong: str  # what a user suffers
    tests: tuple  # programs that should catch it, the likeliest or quickest first

    @property
    def number(self):
        return int(self.name.split("-")[0])

    @property
    def patch(self):
        return HERE / f"{self.name}.patch"

    def digest(self):
        """Changes when the patch or its tests do, and what was decided counts no more."""
        return hashlib.sha256(self.patch.read_bytes() + " ".join(self.tests).encode()).hexdigest()[:16]


def read():
    rows = json.loads((HERE / "bugs.json").read_text())
    return [Bug(row["patch"], row["file"], row["wrong"], tuple(row["tests"])) for row in rows]


def select(bugs, only):
    """Those that have one of the numbers of `only`, or a text of it in their names; all if it is empty."""
    def is_meant(bug):
        return any(bug.number == int(text) if text.isdigit() else text in bug.name for text in only)

    return [bug for bug in bugs if not only or is_meant(bug)]
