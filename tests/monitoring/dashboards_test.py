"""Dashboards and rules name metrics that there are. Needs no Prometheus."""
import json
import pathlib
import re
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

import names  # noqa: E402

MONITORING = names.ROOT / "docs/monitoring.md"


def unknown(expression):
    return names.asked_for(expression) - names.series() - names.recorded()


class Dashboards(unittest.TestCase):
    def test_files_are_those_of_the_generator(self):
        checked = subprocess.run([sys.executable, names.ROOT / "deploy/grafana/generate.py", "--check"],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_every_panel_asks_for_metrics_that_there_are(self):
        asked = 0
        for dashboard, panel, query in names.panels():
            self.assertEqual(unknown(query), set(), f"{dashboard}: {panel}")
            self.assertTrue(names.asked_for(query), f"{dashboard}: {panel}: {query}")
            asked += 1
        self.assertGreater(asked, 50)

    def test_a_metric_that_there_is_not_is_noticed(self):
        self.assertEqual(unknown('rate(penstock_stage_busy_seconds{job="a"}[1m]) + process_open_fds'),
                         {"penstock_stage_busy_seconds"})
        self.assertEqual(unknown("job_stage:penstock_stage_bubble:ratio_rate5m"),
                         {"job_stage:penstock_stage_bubble:ratio_rate5m"})
        self.assertEqual(unknown("penstock_stage_staleness_updates"), {"penstock_stage_staleness_updates"},
                         "a histogram has no series of its own name")

    def test_variables_ask_for_metrics_that_there_are(self):
        for path in names.DASHBOARDS:
            board = json.loads(path.read_text())
            variables = {variable["name"] for variable in board["templating"]["list"]}
            for variable in board["templating"]["list"]:
                self.assertEqual(unknown(variable["query"]), set(), path.name)
            used = set(re.findall(r"\$(job|stage)\b", path.read_text()))
            self.assertEqual(used, variables, f"{path.name}: variables used and declared")

    def test_every_panel_has_its_own_place(self):
        for path in names.DASHBOARDS:
            places = [(panel["gridPos"]["x"], panel["gridPos"]["y"])
                      for panel in json.loads(path.read_text())["panels"]]
            self.assertEqual(len(places), len(set(places)), path.name)


class Rules(unittest.TestCase):
    def test_rules_ask_for_metrics_that_there_are(self):
        for line in names.RULES.read_text().splitlines():
            if not line.lstrip().startswith("#"):
                self.assertEqual(unknown(line), set())

    def test_every_alert_has_its_runbook(self):
        headings = re.findall(r"^### (\w+)$", MONITORING.read_text(), re.MULTILINE)
        self.assertEqual(headings, names.alerts(), "docs/monitoring.md has a section for each alert, in order")
        anchors = re.findall(r"runbook: docs/monitoring.md#(\w+)", names.RULES.read_text())
        self.assertEqual(anchors, [alert.lower() for alert in names.alerts()])


if __name__ == "__main__":
    unittest.main()
