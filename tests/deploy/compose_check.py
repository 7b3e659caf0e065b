"""Checks a cluster that docker-compose.yml has brought up: scripts/compose_test.sh runs it.

compose_check.py --project NAME --services "A B C" -- COMPOSE-COMMAND...
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import sbom  # noqa: E402

WORKERS = ["worker1", "worker2", "worker3", "worker4"]
# Long enough for Prometheus to see the job run several times.
STEPS = 60
STEPS_MAX_SECONDS = 300

options = None


def run(*command, timeout=60, check=True):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if check and ran.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran


def compose(*arguments, timeout=60, check=True):
    return run(*options.compose, "--project-name", options.project, *arguments, timeout=timeout, check=check)


def client(*arguments, timeout=60, check=True):
    return compose("run", "--rm", "-T", "client", *arguments, timeout=timeout, check=check)


def container_of(service):
    return compose("ps", "-q", service).stdout.strip()


def inspect(service):
    return json.loads(run("docker", "inspect", container_of(service)).stdout)[0]


def eventually(condition, seconds, what):
    """Asks again and again until `condition` gives something true, and returns that."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.5)


def query(expression):
    """The samples that Prometheus gives for an expression: a list of (labels, value)."""
    told = compose("exec", "-T", "prometheus", "promtool", "query", "instant", "-o", "json",
                   "http://127.0.0.1:9090", expression).stdout
    return [(sample["metric"], float(sample["value"][1])) for sample in json.loads(told)]


class Cluster(unittest.TestCase):
    """In the order of their names: first what stands, then what it does."""

    def test_1_every_service_is_healthy(self):
        for service in options.services:
            eventually(lambda: inspect(service)["State"].get("Health", {}).get("Status") == "healthy", 120,
                       f"{service} healthy")

    def test_2_containers_are_locked(self):
        for service in options.services:
            with self.subTest(service=service):
                told = inspect(service)
                host = told["HostConfig"]
                self.assertTrue(host["ReadonlyRootfs"])
                self.assertEqual(host["CapDrop"], ["ALL"])
                self.assertFalse(host["Privileged"])
                self.assertIn("no-new-privileges:true", host["SecurityOpt"])
                self.assertGreater(host["Memory"], 0)
                self.assertGreater(host["PidsLimit"], 0)
                self.assertNotIn(told["Config"]["User"].split(":")[0], ("", "0", "root"))
                for bindings in (told["NetworkSettings"]["Ports"] or {}).values():
                    for binding in bindings or []:
                        self.assertEqual(binding["HostIp"], "127.0.0.1")

    def test_2_a_worker_is_no_root_and_writes_nothing_but_its_volumes(self):
        def shell(command):
            return compose("exec", "-T", "worker1", "sh", "-c", command, check=False)
        self.assertEqual(shell("id -u").stdout.strip(), "65532")
        for folder in ("/", "/usr/local/bin", "/etc", "/data", "/certificates"):
            self.assertNotEqual(shell(f"touch {folder}/x").returncode, 0, folder)
        self.assertEqual(shell("touch /checkpoints/x && rm /checkpoints/x").returncode, 0)
        self.assertEqual(shell("grep CapEff /proc/self/status").stdout.split()[1].strip("0"), "")

    def test_2_no_container_of_the_cluster_has_the_authoritys_key(self):
        for service in options.services:
            mounts = {mount.get("Name", "") for mount in inspect(service)["Mounts"]}
            self.assertFalse([name for name in mounts if name.endswith("_authority")], service)

    def test_3_all_workers_are_there(self):
        def alive():
            workers = json.loads(client("workers", "--json").stdout)
            return sorted(worker["name"] for worker in workers if worker["alive"])
        eventually(lambda: alive() == WORKERS, 60, "four workers alive")

    def test_4_a_job_trains_and_prometheus_sees_it(self):
        submitted = time.monotonic()
        job = json.loads(client("submit", "examples/licences.yaml", "--no-wait", "--json", "--set",
                                f"training.steps={STEPS}").stdout)["job_id"]

        def status():
            return json.loads(client("status", job, "--json").stdout)

        def going(expression):
            """What Prometheus has of a job that has not failed."""
            found = query(expression)
            if not found:
                self.assertIsNone(status()["error"])
            return found
        bubble = eventually(lambda: going(f'penstock_stage_bubble_ratio{{job="{job}"}}'), 120, "bubbles")
        print(f"Prometheus has the job's bubbles {time.monotonic() - submitted:.0f} s after it was submitted", flush=True)
        self.assertLessEqual({labels["worker"] for labels, _ in bubble}, set(WORKERS))
        for expression in (f'penstock_job_steps_total{{job="{job}"}} > 0',
                           f'penstock_stage_busy_seconds_total{{job="{job}"}} > 0'):
            eventually(lambda: going(expression), 60, expression)
        up = {labels["instance"]: value for labels, value in query('up{job=~"penstock.*"}')}
        self.assertEqual(len(up), 5, up)
        self.assertEqual(set(up.values()), {1.0}, up)
        eventually(lambda: status()["state"] not in ("queued", "preparing", "running"), STEPS_MAX_SECONDS, "its end")
        told = status()
        self.assertEqual((told["state"], told["error"]), ("succeeded", None))
        self.assertEqual(sorted(stage["worker"] for stage in told["plan"]["stages"]), WORKERS)
        self.assertEqual(told["result"]["steps"], STEPS)
        losses = [entry["loss"] for entry in told["result"]["losses"]]
        self.assertLess(losses[-1], losses[0])
        checkpoint = told["result"]["checkpoint"]
        self.assertTrue(checkpoint.startswith("/checkpoints/licences"))
        self.assertIn("MANIFEST.json", compose("exec", "-T", "coordinator", "ls", checkpoint).stdout)

    def test_5_the_submitting_client_waits_and_ends_with_the_jobs_code(self):
        ran = client("submit", "examples/licences.yaml", "--set", "training.steps=10", "--set",
                     "checkpoint.directory=/checkpoints/second", timeout=180)
        self.assertIn("penstock status", ran.stdout + ran.stderr)
        ran = client("submit", "examples/licences.yaml", "--set", "data.text.path=/data/none.txt", timeout=180,
                     check=False)
        self.assertNotEqual(ran.returncode, 0)

    def test_6_a_worker_that_is_restarted_and_a_coordinator_that_stops_cost_no_step(self):
        job = json.loads(client("submit", "examples/licences.yaml", "--no-wait", "--json", "--set",
                                "training.steps=100000", "--set", "checkpoint.directory=/checkpoints/third").stdout)
        job = job["job_id"]

        def status():
            return json.loads(client("status", job, "--json").stdout)

        def await_recovery(number):
            told = eventually(lambda: [s for s in [status()] if s["ended_unix_ms"] or (
                s["state"] == "running" and s["result"]["recoveries"] == number)], 120, f"recovery {number}")[0]
            self.assertEqual((told["state"], told["error"]), ("running", None))
            return told

        eventually(lambda: query(f'penstock_job_steps_total{{job="{job}"}} > 0'), 120, "first steps")
        compose("restart", "worker2", timeout=240)
        told = await_recovery(1)
        self.assertEqual(sorted(stage["worker"] for stage in told["plan"]["stages"]), WORKERS)

        container = container_of("coordinator")
        compose("stop", "coordinator", timeout=240)
        stopped = json.loads(run("docker", "inspect", container).stdout)[0]
        self.assertEqual(stopped["State"]["ExitCode"], 0)
        self.assertIn("MANIFEST.json", compose("exec", "-T", "worker1", "sh", "-c",
                                               "ls /checkpoints/third/*").stdout)
        compose("start", "coordinator")
        eventually(lambda: inspect("coordinator")["State"]["Health"]["Status"] == "healthy", 60, "a new coordinator")
        await_recovery(2)
        client("cancel", job)
        eventually(lambda: status()["state"] == "cancelled", 120, "the job's end")
        workers = json.loads(client("workers", "--json").stdout)
        self.assertEqual(sorted(worker["name"] for worker in workers), WORKERS)
        for worker in workers:  # where others can reach it, not "all interfaces"
            self.assertEqual(worker["metrics_address"], f"{worker['name']}:7073")

    def test_7_images_say_what_they_are_and_what_is_in_them(self):
        for service, name in (("coordinator", "penstock-coordinator"), ("worker1", "penstock-worker")):
            labels = inspect(service)["Config"]["Labels"]
            self.assertEqual(labels["org.opencontainers.image.title"], name)
            self.assertEqual(labels["org.opencontainers.image.licenses"], "Apache-2.0")
            text = compose("exec", "-T", service, "cat", "/usr/share/doc/penstock/sbom.spdx.json").stdout
            self.assertEqual(sbom.errors_of(json.loads(text)), [])
            names = {package["name"] for package in json.loads(text)["packages"]}
            self.assertLessEqual({name, "libc6", "libgrpc++1.51"}, names)



def main():
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("--project", required=True)
    parser.add_argument("--services", required=True, type=str.split)
    parser.add_argument("compose", nargs="+")
    options = parser.parse_args()
    result = unittest.TextTestRunner(verbosity=2, failfast=True).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(Cluster))
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
