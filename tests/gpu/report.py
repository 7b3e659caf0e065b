"""The table of a check: one row a figure."""

import dataclasses
import json
import math

PASSED, FAILED, NOTED, SKIPPED = "pass", "FAILED", "-", "skipped"


@dataclasses.dataclass
class Row:
    step: str
    figure: str
    target: str = "-"
    # PASSED and FAILED are judged against the target; NOTED has none; SKIPPED could not be had here.
    status: str = NOTED
    values: dict = dataclasses.field(default_factory=dict)


def judged(step, figure, target, good, values=None):
    return Row(step, figure, target, PASSED if good else FAILED, values or {})


def failed(step, why, target="-"):
    return Row(step, why, target, FAILED)


def skipped(step, why):
    return Row(step, why, status=SKIPPED)


FIGURE_WIDTH_MAX = 110


def _clipped(text):
    return text if len(text) <= FIGURE_WIDTH_MAX else text[:FIGURE_WIDTH_MAX - 3] + "..."


def table(rows):
    """Lines of text. The document has the figures in full."""
    cells = [("step", "figure", "target", "")]
    cells += [(row.step, _clipped(row.figure), row.target, row.status) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = ["  ".join([*(text.ljust(width) for text, width in zip(row, widths)), row[3]]).rstrip()
             for row in cells]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _without_nan(value):
    """JSON has no NaN and no infinity."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def document(rows, **facts):
    steps = [dataclasses.asdict(row) for row in rows]
    return json.dumps(_without_nan({**facts, "rows": steps}), indent=2, allow_nan=False) + "\n"
