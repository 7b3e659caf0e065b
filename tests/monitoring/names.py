"""Which metrics there are (docs/metrics.md, generated from the programs' own catalogue), and which are asked for."""
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DASHBOARDS = sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))
RULES = ROOT / "deploy/prometheus/rules/penstock.yml"


def described():
    """{name: (type, {labels})} of every metric in docs/metrics.md."""
    metrics = {}
    for row in re.findall(r"^\| `((?:penstock|process)_\w+)` \| (\w+) \| (.*?) \|",
                          (ROOT / "docs/metrics.md").read_text(), re.MULTILINE):
        metrics[row[0]] = (row[1], set(re.findall(r"`(\w+)`", row[2])))
    return metrics


def series():
    """Names of the series that the metrics make."""
    names = set()
    for name, (kind, _) in described().items():
        names |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return names


def recorded():
    """Names that the recording rules add."""
    return set(re.findall(r"- record: (\S+)", RULES.read_text()))


def alerts():
    return re.findall(r"- alert: (\S+)", RULES.read_text())


def asked_for(expression):
    """Names of series in a query."""
    return set(re.findall(r"\b(?:[a-z_]+:)?(?:penstock|process)_\w+(?::\w+)?", expression))


def panels():
    """(dashboard, panel, query) of every query of every panel."""
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield path.stem, panel["title"], target["expr"]
