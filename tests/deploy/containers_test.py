"""docker-compose.yml, docker-compose.etcd.yml and deploy/docker, checked without an engine.

scripts/compose_test.sh runs them; here is what can be known before. PENSTOCK_RELEASE in the environment: the folder of
the programs of a Release build, which go into the images.
"""

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import sbom  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
DOCKER = ROOT / "deploy/docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()


def loaded(path):
    return yaml.safe_load((ROOT / path).read_text())


def merged(base, override, key=""):
    """As docker compose puts an override over a file: mappings are merged and lists joined, but commands replaced."""
    if isinstance(base, dict) and isinstance(override, dict):
        return {name: merged(base[name], override[name], name) if name in base and name in override else
                (base | override)[name] for name in base | override}
    if isinstance(base, list) and key not in ("command", "entrypoint", "test"):
        return base + override
    return override


COMPOSE = loaded("docker-compose.yml")
SERVICES = COMPOSE["services"]
ETCD = merged(COMPOSE, loaded("docker-compose.etcd.yml"))
# By the files that `docker compose` is given.
CLUSTERS = {("docker-compose.yml",): COMPOSE, ("docker-compose.yml", "docker-compose.etcd.yml"): ETCD}
WORKERS = [name for name, service in SERVICES.items() if service["image"].startswith("penstock-worker")]
PROGRAMS = os.environ.get("PENSTOCK_RELEASE", "")


def run(*command, timeout=60):
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT)


def flags_of(service):
    return dict(argument.removeprefix("--").split("=", 1) for argument in service["command"])


class Compose(unittest.TestCase):
    def test_docker_compose_takes_it(self):
        command = shutil.which("docker-compose")
        if command is None:
            self.skipTest("no docker-compose here")
        for files in CLUSTERS:
            ran = run(command, *(f"--file={file}" for file in files), "config", "--quiet")
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))

    def services(self):
        for files, cluster in CLUSTERS.items():
            for name, service in cluster["services"].items():
                yield cluster, f"{files[-1]}: {name}", service

    def test_every_container_is_locked(self):
        for _, name, service in self.services():
            with self.subTest(service=name):
                self.assertIs(service["read_only"], True)
                self.assertEqual(service["cap_drop"], ["ALL"])
                self.assertEqual(service["security_opt"], ["no-new-privileges:true"])
                self.assertIn("mem_limit", service)
                self.assertIn("pids_limit", service)
                for key in ("privileged", "cap_add", "devices", "pid", "ipc"):
                    self.assertNotIn(key, service)
                self.assertNotEqual(service.get("network_mode"), "host")
                for volume in service.get("volumes", []):
                    self.assertNotIn("docker.sock", str(volume))

    def test_images_have_versions(self):
        for _, name, service in self.services():
            tag = re.sub(r"\$\{\w+:-(.*)\}", r"\1", service["image"]).rpartition(":")[2]
            self.assertRegex(tag, r"\d", name)

    def test_ports_are_this_machines_alone(self):
        for _, name, service in self.services():
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), f"{name}: {port}")

    def test_what_a_service_names_is_there(self):
        for cluster, name, service in self.services():
            for volume in service.get("volumes", []):
                source = volume["source"] if isinstance(volume, dict) else volume.rsplit(":/", 1)[0]
                source = re.sub(r"\$\{\w+:-(.*)\}", r"\1", source)
                if source.startswith("./"):
                    self.assertTrue((ROOT / source).exists(), f"{name}: {source}")
                else:
                    self.assertIn(source, cluster["volumes"], name)
            for network in service.get("networks", []):
                self.assertIn(network, cluster["networks"], name)
            for other in service.get("depends_on", {}):
                self.assertIn(other, cluster["services"], name)
            if "build" in service:
                self.assertIn(f"AS {service['build']['target']}\n", DOCKERFILE, name)

    def test_services_start_when_what_they_need_is_healthy(self):
        for name in WORKERS + ["client"]:
            self.assertEqual(SERVICES[name]["depends_on"], {"coordinator": {"condition": "service_healthy"}})
        self.assertEqual(SERVICES["coordinator"]["depends_on"],
                         {"setup": {"condition": "service_completed_successfully"}})
        self.assertEqual(SERVICES["grafana"]["depends_on"], {"prometheus": {"condition": "service_healthy"}})

    def test_four_workers_have_names_of_their_own(self):
        started = [name for name in WORKERS if "profiles" not in SERVICES[name]]
        self.assertEqual(len(started), 4)
        for name in WORKERS:
            flags = flags_of(SERVICES[name])
            port = flags["listen"].rpartition(":")[2]
            self.assertEqual((flags["name"], flags["advertise"]), (name, f"{name}:{port}"))

    def test_the_authoritys_key_is_the_setups_alone(self):
        having = [name for name, service in SERVICES.items() if "authority:" in str(service.get("volumes"))]
        self.assertEqual(having, ["setup"])
        self.assertEqual(SERVICES["setup"]["network_mode"], "none")

    def test_each_party_has_its_own_certificates_and_cannot_change_them(self):
        roles = {"coordinator": "coordinator", "client": "client", "prometheus": "monitor"}
        for name in WORKERS + list(roles):
            (certificates,) = [volume for volume in SERVICES[name]["volumes"] if "certificates" in str(volume)]
            source, _, mode = certificates.split(":")
            self.assertEqual((source, mode), (f"{roles.get(name, 'worker')}-certificates", "ro"))

    def test_workers_are_reached_from_inside_only(self):
        self.assertIs(COMPOSE["networks"]["cluster"]["internal"], True)
        for name in WORKERS:
            self.assertEqual(SERVICES[name]["networks"], {"cluster": {"aliases": ["workers"]}})
            self.assertNotIn("ports", SERVICES[name])

    def test_the_coordinator_is_given_time_to_drain(self):
        self.assertGreater(int(SERVICES["coordinator"]["stop_grace_period"].removesuffix("s")), 180)


class SeveralCoordinators(unittest.TestCase):
    """docker-compose.etcd.yml over docker-compose.yml."""

    SERVICES = ETCD["services"]
    MEMBERS = ["etcd1", "etcd2", "etcd3"]

    def test_the_second_coordinator_is_as_the_first(self):
        second = json.dumps(self.SERVICES["coordinator2"])
        for its, of_the_first in (("coordinator2", "coordinator"), ("state2:", "state:"), ("PORT2-71", "PORT-70")):
            self.assertIn(its, second)
            second = second.replace(its, of_the_first)
        self.assertEqual(json.loads(second), self.SERVICES["coordinator"])

    def test_workers_and_clients_know_both(self):
        told = [flags_of(self.SERVICES[name])["advertise"] for name in ("coordinator", "coordinator2")]
        self.assertEqual(told, ["coordinator:7070", "coordinator2:7070"])
        for name in WORKERS + ["client"]:
            self.assertEqual(self.SERVICES[name]["environment"]["PENSTOCK_COORDINATOR"].split(","), told)

    def test_prometheus_looks_at_both(self):
        (job,) = [job for job in loaded("deploy/prometheus/prometheus.yml")["scrape_configs"]
                  if job["job_name"] == "penstock-coordinator"]
        (path,) = job["file_sd_configs"][0]["files"]
        (mount,) = [volume for volume in self.SERVICES["prometheus"]["volumes"]
                    if ":" + str(pathlib.Path(path).parent) + ":" in str(volume)]
        targets = [target for file in (ROOT / mount.split(":")[0]).glob(pathlib.Path(path).name)
                   for entry in loaded(file) for target in entry["targets"]]
        self.assertEqual(targets, ["coordinator2:7071"])

    def test_a_coordinator_that_waits_counts_as_healthy(self):
        self.assertEqual(self.SERVICES["coordinator"]["healthcheck"]["test"],
                         ["CMD", "penstock", "health", "--part=penstock.member", "127.0.0.1:7079"])

    def test_members_of_etcd_know_one_another(self):
        flags = flags_of(self.SERVICES["coordinator"])
        self.assertEqual(flags["state"], f"etcd://{','.join(f'{name}:2379' for name in self.MEMBERS)}/penstock")
        cluster = ",".join(f"{name}=https://{name}:2380" for name in self.MEMBERS)
        for name in self.MEMBERS:
            settings = self.SERVICES[name]["environment"]
            self.assertEqual((settings["ETCD_NAME"], settings["ETCD_INITIAL_CLUSTER"]), (name, cluster))
            self.assertEqual(settings["ETCD_ADVERTISE_CLIENT_URLS"], f"https://{name}:2379")
            self.assertEqual(settings["ETCD_INITIAL_ADVERTISE_PEER_URLS"], f"https://{name}:2380")
            self.assertIn(f"--host {name}", self.SERVICES["etcd-setup"]["command"][0])
            self.assertIn(f"{name}:/", str(self.SERVICES["etcd-setup"]["volumes"]), "who owns its volume")

    def test_etcd_is_asked_by_coordinators_alone(self):
        self.assertIs(ETCD["networks"]["etcd"]["internal"], True)
        inside = [name for name, service in self.SERVICES.items() if "etcd" in service.get("networks", [])]
        self.assertEqual(sorted(inside), sorted(self.MEMBERS + ["coordinator", "coordinator2"]))
        for name in self.MEMBERS:
            service = self.SERVICES[name]
            self.assertNotIn("ports", service)
            self.assertEqual(service["networks"], ["etcd"])
            settings = service["environment"]
            for kind in ("", "PEER_"):
                self.assertEqual(settings[f"ETCD_{kind}CLIENT_CERT_AUTH"], "true")
                for file, what in (("TRUSTED_CA", "ca.crt"), ("CERT", "tls.crt"), ("KEY", "tls.key")):
                    self.assertEqual(settings[f"ETCD_{kind}{file}_FILE"], f"/certificates/{what}")

    def test_etcds_authority_is_its_setups_alone(self):
        having = [name for name, service in self.SERVICES.items() if "etcd-authority:" in str(service.get("volumes"))]
        self.assertEqual(having, ["etcd-setup"])
        self.assertEqual(self.SERVICES["etcd-setup"]["network_mode"], "none")


class Images(unittest.TestCase):
    STAGES = re.findall(r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL)
    FINAL = ["client", "coordinator", "worker", "worker-cuda"]

    def test_final_images_run_as_a_user(self):
        stages = {name: body for _, name, body in self.STAGES}
        for name in self.FINAL:
            users = re.findall(r"^USER (\S+)", stages[name], re.MULTILINE)
            self.assertEqual(users[-1], "65532:65532", name)

    def test_every_base_can_be_pinned(self):
        names = {name for _, name, _ in self.STAGES}
        for base, name, _ in self.STAGES:
            self.assertTrue(base in names | {"scratch"} or re.fullmatch(r"\$\{[A-Z_]+\}", base), f"{name}: {base}")

    def test_servers_say_whether_they_are_well(self):
        stages = {name: body for _, name, body in self.STAGES}
        for name in ("coordinator", "worker"):
            self.assertIn('CMD ["penstock", "health", "127.0.0.1:7079"]', stages[name])
            self.assertIn('"--health=127.0.0.1:7079"', stages[name])

    def test_the_default_flags_are_those_of_compose(self):
        stages = {name: body for _, name, body in self.STAGES}
        for name, service in (("coordinator", "coordinator"), ("worker", "worker1")):
            told = json.loads(re.findall(r"^CMD (\[.*\])", stages[name], re.MULTILINE)[-1])
            if "command" in SERVICES[service]:
                missing = set(told) - set(SERVICES[service]["command"])
                self.assertEqual(missing, set())

    @unittest.skipUnless(PROGRAMS, "not a Release build")
    def test_lists_of_packages_are_what_the_programs_need(self):
        for image, program in (("client", "penstock"), ("coordinator", "penstock-coordinator"),
                               ("worker", "penstock-worker")):
            path = pathlib.Path(PROGRAMS) / program
            self.assertTrue(path.exists(), path)
            ran = run(str(DOCKER / "runtime_packages.sh"), str(path))
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertEqual((DOCKER / f"runtime-{image}.txt").read_text(), ran.stdout,
                             f"deploy/docker/runtime_packages.sh {path} > deploy/docker/runtime-{image}.txt")

    def test_what_is_no_program_has_no_list(self):
        ran = run(str(DOCKER / "runtime_packages.sh"), str(DOCKER / "Dockerfile"))
        self.assertEqual((ran.returncode, ran.stdout), (1, ""))
        self.assertIn("asks for no library", ran.stderr)


class Bill(unittest.TestCase):
    """deploy/docker/sbom.sh, with the packages of this machine."""

    @classmethod
    def setUpClass(cls):
        ran = run(str(DOCKER / "sbom.sh"), "penstock-worker", "0.1.0", "2026-01-02T03:04:05Z")
        assert ran.returncode == 0, ran.stderr
        cls.bill = json.loads(ran.stdout)

    def test_it_is_spdx(self):
        self.assertEqual(sbom.errors_of(self.bill), [])

    def test_it_lists_every_package(self):
        told = run("dpkg-query", "--show", "--showformat", "${Package} ${Version}\n").stdout.splitlines()
        listed = [f"{package['name']} {package['versionInfo']}" for package in self.bill["packages"]]
        self.assertEqual(sorted(listed), sorted(told + ["penstock-worker 0.1.0"]))

    def test_a_wrong_bill_is_told(self):
        cases = [
            lambda bill: bill.update(spdxVersion="SPDX-2.2"),
            lambda bill: bill.pop("documentNamespace"),
            lambda bill: bill.update(extra=1),
            lambda bill: bill["creationInfo"].update(created="yesterday"),
            lambda bill: bill["creationInfo"].update(creators=["penstock"]),
            lambda bill: bill["packages"][1].update(SPDXID="SPDXRef-a+b"),
            lambda bill: bill["packages"][1].update(supplier="Debian"),
            lambda bill: bill["packages"][1].update(filesAnalyzed=True),
            lambda bill: bill["packages"][1]["externalRefs"][0].update(referenceLocator="libc6"),
            lambda bill: bill["relationships"][1].update(relatedSpdxElement="SPDXRef-nothing"),
            lambda bill: bill["relationships"].pop(0),
        ]
        small = copy.deepcopy(self.bill)
        small["packages"] = small["packages"][:3]
        small["relationships"] = small["relationships"][:3]
        self.assertEqual(sbom.errors_of(small), [])
        for number, change in enumerate(cases):
            with self.subTest(number=number):
                bill = copy.deepcopy(small)
                change(bill)
                self.assertTrue(sbom.errors_of(bill))


if __name__ == "__main__":
    unittest.main()
