"""Figures of a run of chaos, by fault."""
import dataclasses


def percentile(values, percent):
    """The smallest of the values that at least `percent` of them do not exceed; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


@dataclasses.dataclass
class Figures:
    """Of one fault: how often it was done, and seconds until the job had come further than before it."""
    count: int = 0
    recovery_seconds: list = dataclasses.field(default_factory=list)
    over_first: int = 0  # the job had ended before it came further

    def as_json(self):
        return {"count": self.count, "over_first": self.over_first, "recovery_p50_seconds": percentile(self.recovery_seconds, 50),
                "recovery_p99_seconds": percentile(self.recovery_seconds, 99),
                "recovery_max_seconds": max(self.recovery_seconds, default=None)}


def text_of(figures):
    """A table of {fault: Figures}."""
    def seconds(value):
        return "" if value is None else f"{value:.2f}"
    lines = [f"{'':20} {'done':>6} {'p50, s':>8} {'p99, s':>8} {'most, s':>8}"]
    for name, of in figures.items():
        row = of.as_json()
        lines.append(f"{name:20} {of.count:6} {seconds(row['recovery_p50_seconds']):>8} "
                     f"{seconds(row['recovery_p99_seconds']):>8} {seconds(row['recovery_max_seconds']):>8}")
    return "\n".join(lines)
