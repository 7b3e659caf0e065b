"""deploy/grafana: everything that Grafana is provisioned with fits its published formats and is wired together."""

import copy
import json
import pathlib
import sys
import unittest

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import grafana_schema  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "deploy/grafana"
DASHBOARD = {
    "uid": "a", "title": "A", "schemaVersion": 39, "time": {"from": "now-5m", "to": "now"}, "refresh": "5s",
    "templating": {"list": [{"type": "query", "name": "job", "query": "label_values(up, job)",
                             "datasource": {"type": "prometheus", "uid": "prometheus"}, "multi": True}]},
    "panels": [
        {"id": 1, "type": "timeseries", "title": "one", "gridPos": {"h": 8, "w": 12, "x": 0, "y": 0},
         "datasource": {"type": "prometheus", "uid": "prometheus"}, "options": {"legend": {"showLegend": True}},
         "targets": [{"refId": "A", "expr": "up", "legendFormat": "{{job}}"}],
         "fieldConfig": {"defaults": {"unit": "s", "thresholds": {"mode": "absolute", "steps": [
             {"color": "green", "value": None}, {"color": "red", "value": 0.5}]}}, "overrides": []}},
        {"id": 2, "type": "stat", "title": "two", "gridPos": {"h": 8, "w": 12, "x": 12, "y": 0}, "targets": []}],
}


def contents(pattern):
    """(path, content) of the files below deploy/grafana that match."""
    def load(path):
        return json.loads(path.read_text()) if path.suffix == ".json" else yaml.safe_load(path.read_text())
    return [(path.relative_to(ROOT), load(path)) for path in sorted(FOLDER.glob(pattern))]


class Formats(unittest.TestCase):
    def test_a_dashboard_that_is_right_has_no_errors(self):
        self.assertEqual(grafana_schema.errors_of("a", DASHBOARD, "Dashboard"), [])

    def test_a_wrong_dashboard_is_told(self):
        def panel(dashboard):
            return dashboard["panels"][0]

        cases = [
            (lambda d: d.pop("title"), "title is missing"),
            (lambda d: d.update(titel="A"), "titel: no such key"),
            (lambda d: d.update(uid="a b"), "uid is expected"),
            (lambda d: d.update(id=7), "null is expected"),
            (lambda d: d.update(refresh=5), "refresh is expected"),
            (lambda d: d["templating"]["list"][0].update(type="label"), "variable-type is expected"),
            (lambda d: panel(d).update(type=""), "filled is expected"),
            (lambda d: panel(d).update(target=[]), "target: no such key"),
            (lambda d: panel(d).update(datasource="prometheus"), "a mapping is expected"),
            (lambda d: panel(d)["gridPos"].update(w=25), "width is expected"),
            (lambda d: panel(d)["gridPos"].pop("h"), "h is missing"),
            (lambda d: panel(d)["targets"][0].update(expression="up"), "expression: no such key"),
            (lambda d: panel(d)["targets"][0].update(expr=""), "filled is expected"),
            (lambda d: panel(d)["fieldConfig"]["defaults"].update(units="s"), "units: no such key"),
            (lambda d: panel(d)["fieldConfig"]["defaults"]["thresholds"].update(mode="relative"), "threshold-mode"),
            (lambda d: panel(d).update(id=2), "is the id of two panels"),
            (lambda d: panel(d)["gridPos"].update(x=11), "overlap"),
            (lambda d: d["panels"][1]["gridPos"].update(x=13), "wider than the grid"),
        ]
        for number, (change, told) in enumerate(cases):
            with self.subTest(number=number, told=told):
                dashboard = copy.deepcopy(DASHBOARD)
                change(dashboard)
                errors = grafana_schema.errors_of("a", dashboard, "Dashboard")
                self.assertEqual(len(errors), 1, errors)
                self.assertIn(told, errors[0])

    def test_wrong_provisioning_is_told(self):
        source = {"apiVersion": 1, "datasources": [{"name": "P", "type": "prometheus", "access": "proxy"}]}
        provider = {"apiVersion": 1, "providers": [{"name": "P", "type": "file", "options": {"path": "/a"}}]}
        self.assertEqual(grafana_schema.errors_of("s", source, "Datasources"), [])
        self.assertEqual(grafana_schema.errors_of("p", provider, "Providers"), [])
        for content, kind in [
                ({**source, "apiVersion": 2}, "Datasources"),
                ({"apiVersion": 1, "datasources": [{"name": "P"}]}, "Datasources"),
                ({"apiVersion": 1, "datasources": [{"name": "P", "type": "p", "access": "server"}]}, "Datasources"),
                ({"apiVersion": 1, "datasources": [{"name": "P", "type": "p", "uri": "a"}]}, "Datasources"),
                ({"apiVersion": 1, "providers": [{"name": "P", "options": {"folder": "/a", "path": "/b"}}]},
                 "Providers"),
                ({"apiVersion": 1, "providers": [{"name": "P", "type": "file"}]}, "Providers")]:
            with self.subTest(content=content):
                self.assertEqual(len(grafana_schema.errors_of("x", content, kind)), 1)


class Provisioning(unittest.TestCase):
    def test_every_file_fits_its_format(self):
        checked = []
        for pattern, kind in (("provisioning/datasources/*.yaml", "Datasources"),
                              ("provisioning/dashboards/*.yaml", "Providers"), ("dashboards/*.json", "Dashboard")):
            files = contents(pattern)
            self.assertTrue(files, pattern)
            for path, content in files:
                with self.subTest(path=path):
                    self.assertEqual(grafana_schema.errors_of(str(path), content, kind), [])
                    checked.append(ROOT / path)
        others = [path for path in FOLDER.rglob("*") if path.is_file() and path not in checked and
                  path.suffix not in (".md", ".py")]
        self.assertEqual(others, [], "of no known format")

    def test_panels_ask_a_data_source_that_is_there(self):
        known = {(source["type"], source["uid"]) for _, content in contents("provisioning/datasources/*.yaml")
                 for source in content["datasources"]}
        for path, dashboard in contents("dashboards/*.json"):
            for panel in grafana_schema.panels_of(dashboard):
                for asked in [panel] + panel.get("targets", []):
                    if "datasource" in asked:
                        told = asked["datasource"]
                        self.assertIn((told["type"], told["uid"]), known, f"{path}: {panel.get('title')}")

    def test_dashboards_have_names_of_their_own(self):
        names = [dashboard[key] for _, dashboard in contents("dashboards/*.json") for key in ("uid", "title")]
        self.assertEqual(len(names), len(set(names)))

    def test_the_containers_have_the_files_where_they_are_looked_for(self):
        service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]
        mounted = {target: source for source, target, _ in (
            volume.split(":") for volume in service["volumes"])}
        self.assertEqual(mounted["/etc/grafana/provisioning"], "./deploy/grafana/provisioning")
        for _, content in contents("provisioning/dashboards/*.yaml"):
            for provider in content["providers"]:
                self.assertEqual(mounted[provider["options"]["path"]], "./deploy/grafana/dashboards")


if __name__ == "__main__":
    unittest.main()
