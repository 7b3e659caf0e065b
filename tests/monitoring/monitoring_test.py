"""A real Prometheus watches real runs: monitoring_test.py BUILD_DIR

What is read through PromQL must be what the job itself prints, every described metric must be there and no other,
and every query of dashboards and rules must return data.
"""
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

import names  # noqa: E402
from cluster import Cluster, eventually, scrape  # noqa: E402
from prometheus import RULES, Prometheus, promtool  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release")
WORKERS = 4
METHODS = ("pipedream", "1f1b")
TEXT = "".join(f"Line {i * 7919 % 600} of a text to learn from.\n" for i in range(600))


class World:
    """The cluster, its Prometheus, and the jobs that were run; made once."""
    folder = None
    cluster = None
    prometheus = None
    began = ended = 0.0
    results = {}  # by method
    firing = set()  # when all jobs had ended well


def submit(*settings, may_fail=False):
    arguments = [part for setting in settings for part in ("--set", setting)]
    return World.cluster.run("submit", str(pathlib.Path(World.folder.name) / "job.yaml"), *arguments,
                             may_fail=may_fail)


def await_scrapes(job):
    """Until everything has been scraped after the job's end."""
    ended = time.time()
    query = f'timestamp({{__name__=~"penstock_stage_busy_seconds_total|penstock_job_running",job="{job}"}})'

    def scraped():
        times = World.prometheus.query(query).values()
        return len(times) == WORKERS + 1 and min(times) > ended
    eventually(scraped, f"coordinator and workers were scraped after the end of {job}")


def enter(context):
    """Enters it until all tests are over, or the set-up has failed."""
    unittest.addModuleCleanup(context.__exit__, None, None, None)
    return context.__enter__()


def setUpModule():
    World.folder = tempfile.TemporaryDirectory(prefix="penstock-monitoring-")
    unittest.addModuleCleanup(World.folder.cleanup)
    folder = pathlib.Path(World.folder.name)
    (folder / "input.txt").write_text(TEXT)
    (folder / "job.yaml").write_text((FOLDER / "job.yaml").read_text())
    World.cluster = enter(Cluster(BUILD / "bin", folder, WORKERS))
    World.prometheus = enter(Prometheus(folder, {"coordinator": [World.cluster.coordinator_metrics],
                                                 "worker": list(World.cluster.worker_metrics().values())},
                                        World.cluster.certificates / "monitor"))
    World.began = time.time()
    for method in METHODS:
        World.results[method] = submit(f"pipeline.method={method}")
        await_scrapes(World.results[method]["job_id"])
    World.ended = time.time()
    World.firing = World.prometheus.firing()


def read_object(stream):
    """The text of the JSON object that a stream begins with, before the stream's end."""
    text = ""
    for line in stream:
        text += line
        if line == "}\n":
            break
    return text


def in_words(query):
    """A panel's query with its variables filled in."""
    return (query.replace("$__rate_interval", "20s").replace("$job", ".*").replace("$stage", ".*"))


class Figures(unittest.TestCase):
    """Through PromQL as in the job's own JSON."""

    def by_stage(self, expression, method):
        job = World.results[method]["job_id"]
        return World.prometheus.by_label(expression.replace("{}", f'{{job="{job}"}}'), "stage")

    def expected(self, method, figure):
        return {str(stage["stage"]): figure(stage) for stage in World.results[method]["per_stage"]}

    def test_staleness_is_exactly_that_of_the_job(self):
        for method in METHODS:
            with self.subTest(method):
                self.assertEqual(self.by_stage("penstock_stage_staleness_max_updates{}", method),
                                 self.expected(method, lambda stage: stage["staleness"]["max"]))
                self.assertEqual(
                    self.by_stage("penstock_stage_staleness_updates_sum{} / penstock_stage_staleness_updates_count{}",
                                  method),
                    self.expected(method, lambda stage: stage["staleness"]["mean"]))

    def test_histogram_has_the_most_and_all_microbatches(self):
        microbatches = 240 * 8
        for method in METHODS:
            for stage in World.results[method]["per_stage"]:
                job, number, most = World.results[method]["job_id"], stage["stage"], int(stage["staleness"]["max"])
                buckets = World.prometheus.by_label(
                    f'penstock_stage_staleness_updates_bucket{{job="{job}",stage="{number}"}}', "le")
                self.assertEqual(buckets[str(most)], microbatches, f"{method}, stage {number}")
                self.assertEqual(buckets["+Inf"], microbatches)
                if most > 0:
                    self.assertLess(buckets[str(most - 1)], microbatches)

    def test_bubble_is_that_of_the_job(self):
        for method in METHODS:
            expected = self.expected(method, lambda stage: stage["bubble_ratio"])
            for expression in ("penstock_stage_bubble_ratio{}",
                               "1 - penstock_stage_busy_seconds_total{} / penstock_stage_window_seconds_total{}"):
                bubble = self.by_stage(expression, method)
                self.assertEqual(bubble.keys(), expected.keys())
                for stage, ratio in expected.items():
                    self.assertAlmostEqual(bubble[stage] / ratio, 1, delta=0.01, msg=f"{method}, stage {stage}")

    def test_block_delay_is_that_of_the_job(self):
        result = World.results["pipedream"]
        job = result["job_id"]
        for source, expected in (("predicted", result["block_delay"]), ("measured", result["block_delay_measured"])):
            figures = f'{{job="{job}",source="{source}"}}'
            mean = World.prometheus.query(f"sum(penstock_job_block_delay_updates_sum{figures})"
                                          f" / sum(penstock_job_block_delay_updates_count{figures})")
            self.assertEqual(len(mean), 1, source)
            self.assertAlmostEqual(list(mean.values())[0], expected["mean"], msg=source)
            most = World.prometheus.query(f"penstock_job_block_delay_max_updates{figures}")
            self.assertEqual(list(most.values()), [expected["max"]], source)

    def test_parts_of_the_window_add_up(self):
        """Busy, idle and overhead are all of a worker's time, on a worker with one stage."""
        for method in METHODS:
            shares = self.by_stage(
                "(penstock_stage_busy_seconds_total{} + ignoring (cause) sum without (cause) "
                "(penstock_stage_idle_seconds_total{}) + ignoring (part) sum without (part) "
                "(penstock_stage_overhead_seconds_total{})) / penstock_stage_window_seconds_total{}", method)
            self.assertEqual(len(shares), WORKERS)
            for stage, share in shares.items():
                self.assertAlmostEqual(share, 1, delta=0.02, msg=f"{method}, stage {stage}")

    def test_links_agree_at_both_ends(self):
        for method in METHODS:
            job = World.results[method]["job_id"]
            for figure in ("bytes", "messages"):
                ends = {}
                for labels, value in World.prometheus.query(f'penstock_link_{figure}_total{{job="{job}"}}').items():
                    edge = dict(labels)
                    ends.setdefault((edge["edge"], edge["source"], edge["destination"]), {})[edge["direction"]] = value
                self.assertGreaterEqual(len(ends), 2 * (WORKERS - 1))
                for edge, values in ends.items():
                    self.assertEqual(values["sent"], values["received"], edge)


class Catalogue(unittest.TestCase):
    """What is exported is what docs/metrics.md describes."""

    def exported(self):
        """{name: {labels of each series}}, Prometheus' own left out."""
        found = {}
        for series in World.prometheus.get("series", **{"match[]": '{instance=~".+"}', "start": World.began - 5,
                                                        "end": World.ended}):
            name = series["__name__"]
            # Of Prometheus itself, and of its rules.
            if name == "up" or name.startswith(("scrape_", "ALERTS")) or ":" in name:
                continue
            found.setdefault(name, []).append(frozenset(series) - {"__name__", "instance", "le"})
        return found

    def test_every_described_series_is_exported_and_no_other(self):
        exported = set(self.exported())
        self.assertEqual(names.series() - exported, set(), "described, but not exported by these runs")
        self.assertEqual(exported - names.series(), set(), "exported, but not described")

    def test_types_and_labels_are_those_described(self):
        metadata = World.prometheus.get("metadata")
        exported = self.exported()
        for name, (kind, labels) in names.described().items():
            self.assertEqual({entry["type"] for entry in metadata[name]}, {kind}, name)
            for found in exported[f"{name}_bucket" if kind == "histogram" else name]:
                # `job` is also the name of a scrape job, where a metric has none of its own.
                self.assertEqual(found | {"job"}, labels | {"job"}, name)

    def test_scrapes_are_as_prometheus_wants_them(self):
        for content_type, text in World.cluster.scrape():
            self.assertIn("version=0.0.4", content_type)
            checked = promtool("check", "metrics", stdin=text)
            self.assertEqual((checked.returncode, checked.stdout), (0, ""))


class Queries(unittest.TestCase):
    """Dashboards and rules."""

    def test_every_panel_has_data(self):
        for dashboard, panel, query in names.panels():
            with self.subTest(f"{dashboard}: {panel}: {query}"):
                self.assertTrue(World.prometheus.has_data(in_words(query), World.began, World.ended))

    def test_every_recording_rule_has_data(self):
        self.assertGreater(len(names.recorded()), 4)
        for name in names.recorded():
            with self.subTest(name):
                self.assertTrue(World.prometheus.has_data(name, World.began, World.ended))

    def test_every_rule_is_healthy(self):
        rules = [rule for group in World.prometheus.get("rules")["groups"] for rule in group["rules"]]
        self.assertEqual(len(rules), len(names.recorded()) + len(names.alerts()))
        for rule in rules:
            self.assertEqual((rule["health"], rule.get("lastError", "")), ("ok", ""), rule["name"])

    def test_no_alert_fires_when_all_is_well(self):
        self.assertEqual(World.firing, set())

    def test_rules_and_configuration_are_valid(self):
        for arguments in (("check", "rules", str(RULES)),
                          ("check", "config", "--syntax-only", str(names.ROOT / "deploy/prometheus/prometheus.yml"))):
            checked = promtool(*arguments)
            self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_every_alert_fires_once(self):
        cases = FOLDER / "alerts_test.yml"
        fired = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", cases.read_text()))
        self.assertEqual(fired, set(names.alerts()), "alerts with a case in which they fire")
        checked = promtool("test", "rules", str(cases))
        self.assertEqual(checked.returncode, 0, checked.stdout)


class Train(unittest.TestCase):
    """`penstock train --metrics`, a cluster that ends with its job."""

    def test_series_are_there_until_each_program_was_scraped_after_the_end(self):
        folder = pathlib.Path(World.folder.name)
        with open(folder / "train.log", "w+", encoding="utf-8") as log, subprocess.Popen(
                [BUILD / "bin/penstock", "train", folder / "job.yaml", "--workers", str(WORKERS), "--device", "cpu",
                 "--set", "training.steps=10", "--metrics", "127.0.0.1:0", "--json"], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, text=True) as train:
            self.addCleanup(train.kill)
            # The result comes first, then the command waits.
            result = json.JSONDecoder().raw_decode(read_object(train.stdout))[0]
            told = (folder / "train.log").read_text()
            monitor = re.search(r"metrics: certificate for scrapes in (\S+)", told)[1]
            addresses = re.findall(r"metrics: (\S+) https://(\S+)/metrics", told)
            self.assertEqual(len(addresses), WORKERS + 1, told)
            for name, address in addresses:
                role = "coordinator" if name == "coordinator" else "worker"
                series = "penstock_job_steps_total" if role == "coordinator" else "penstock_stage_updates_total"
                self.assertIn(f'{series}{{job="{result["job_id"]}"', scrape(address, monitor, role)[1], name)
            self.assertEqual(train.wait(timeout=60), 0)
            self.assertFalse(pathlib.Path(monitor).exists(), "the authority ends with its cluster")


class RealAlerts(unittest.TestCase):
    """Alerts that what happens to a real cluster makes fire; runs last."""

    def await_alert(self, name):
        eventually(lambda: name in World.prometheus.firing(), f"{name} fires", seconds=90)

    def test_1_loss_that_is_not_finite(self):
        result = submit("training.optimizer.adamw.learning_rate=1e30", "training.steps=50", may_fail=True)
        self.assertEqual(result["state"], "failed")
        self.await_alert("PenstockLossNotFinite")

    def test_2_lost_worker(self):
        World.cluster.processes["worker-2"].kill()
        self.await_alert("PenstockWorkerLost")
        alerts = [alert["labels"] for alert in World.prometheus.get("alerts")["alerts"]]
        self.assertIn("worker-2", [labels.get("worker") for labels in alerts
                                   if labels["alertname"] == "PenstockWorkerLost"])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the cluster ends with this test
    unittest.main(verbosity=2)
