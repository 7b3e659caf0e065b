"""deploy/kubernetes: every manifest fits the published schemas and keeps to the policy.

Each check is also shown a manifest that is wrong, so that a check that sees nothing fails.
"""

import copy
import functools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import kubernetes_policy as policy  # noqa: E402
import kubernetes_schema  # noqa: E402
import kustomize  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
CLUSTERS = ["base", "overlays/cpu", "overlays/gpu", "overlays/etcd"]
ALL = CLUSTERS + ["overlays/monitoring"]
EXAMPLES = sorted((FOLDER / "examples").glob("*.yaml"))


@functools.cache
def text_of(folder):
    return json.dumps(kustomize.build(FOLDER / folder))


def built(folder="overlays/gpu"):
    """The manifests of a folder, each time others, so that a test may break them."""
    return json.loads(text_of(folder))


def find(manifests, kind, name):
    (found,) = [manifest for manifest in manifests
                if manifest["kind"] == kind and manifest["metadata"]["name"] == name]
    return found


def worker_of(manifests):
    return kustomize.pod_of(find(manifests, "StatefulSet", "penstock-worker"))["containers"][0]


class Schemas(unittest.TestCase):
    def test_every_manifest_fits(self):
        groups = [built(folder) for folder in ALL] + [kustomize.documents(path) for path in EXAMPLES]
        for manifests in groups:
            self.assertTrue(manifests)
            for manifest in manifests:
                self.assertEqual(kubernetes_schema.errors_of(manifest), [])

    def test_a_wrong_manifest_is_told_with_its_path(self):
        def edit(path, value):
            def apply(manifest):
                *parents, key = path
                for parent in parents:
                    manifest = manifest[parent]
                if value is None:
                    del manifest[key]
                else:
                    manifest[key] = value
            return apply

        container = ["spec", "template", "spec", "containers", 0]
        cases = [
            # keys that do not exist
            (edit(["spec", "replica"], 3), ".spec.replica: no such key"),
            (edit(container + ["livenessProbe", "grpc", "host"], "a"), "grpc.host: no such key"),
            (edit(container + ["securityContext", "readOnlyRootFileSystem"], True), "FileSystem: no such key"),
            (edit(container + ["livenessProbe", "grcp"], {"port": 1}), "grcp: no such key"),
            # wrong types
            (edit(["spec", "replicas"], "3"), "int is expected, not '3'"),
            (edit(["spec", "replicas"], True), "int is expected, not True"),
            (edit(container + ["args"], "--listen"), "a list is expected"),
            (edit(container + ["env", 0, "value"], 1), "str is expected, not 1"),
            (edit(container + ["livenessProbe", "grpc", "port"], "health"), "int is expected, not 'health'"),
            (edit(container + ["securityContext", "readOnlyRootFilesystem"], "yes"), "bool is expected"),
            (edit(container + ["resources", "limits", "memory"], "4 GB"), "quantity is expected"),
            (edit(["metadata", "labels", "app.kubernetes.io/name"], 1), "str is expected, not 1"),
            (edit(["spec", "template"], []), "a mapping is expected"),
            # keys that must be there
            (edit(["spec", "selector"], None), ".spec: selector is missing"),
            (edit(["spec", "serviceName"], None), ".spec: serviceName is missing"),
            (edit(container + ["name"], None), "containers[0]: name is missing"),
            (edit(container + ["ports", 0, "containerPort"], None), "containerPort is missing"),
            (edit(container + ["livenessProbe", "grpc", "port"], None), "grpc: port is missing"),
            (edit(container + ["volumeMounts", 0, "mountPath"], None), "mountPath is missing"),
            # kinds and names
            (edit(["kind"], "StatefullSet"), "no such kind"),
            (edit(["apiVersion"], "apps/v1beta1"), "no such kind"),
            (edit(["metadata", "name"], "Penstock_Worker"), "is no DNS label"),
        ]
        for number, (change, told) in enumerate(cases):
            with self.subTest(number=number, told=told):
                manifest = copy.deepcopy(find(built(), "StatefulSet", "penstock-worker"))
                change(manifest)
                errors = kubernetes_schema.errors_of(manifest)
                self.assertEqual(len(errors), 1, errors)
                self.assertIn(told, errors[0])

    def test_a_wrong_monitor_is_told(self):
        for key, value in [("portt", "metrics"), ("interval", "5"), ("scheme", "tls"), ("honorLabels", "yes"),
                           ("tlsConfig", {"caFile": "/ca.crt"}), ("tlsConfig", {"keySecret": {"name": "a"}})]:
            with self.subTest(key=key, value=value):
                monitor = find(built("overlays/monitoring"), "ServiceMonitor", "penstock-worker")
                monitor["spec"]["endpoints"][0][key] = value
                self.assertEqual(len(kubernetes_schema.errors_of(monitor)), 1)

    def test_a_wrong_rule_is_told(self):
        for key, value in [("exprr", "up"), ("for", "5 minutes"), ("labels", {"severity": 1}), ("expr", None)]:
            with self.subTest(key=key, value=value):
                rules = find(built("overlays/monitoring"), "PrometheusRule", "penstock")
                rules["spec"]["groups"][-1]["rules"][0][key] = value
                self.assertTrue(kubernetes_schema.errors_of(rules))

    def test_a_key_of_kustomize_that_is_not_known_is_refused(self):
        with self.assertRaisesRegex(kustomize.Refused, "components"):
            kustomize._expect("here", {"components": []}, kustomize.KEYS, "kustomization.yaml")

    def test_kubectl_builds_the_same(self):
        kubectl = shutil.which("kubectl")
        told = kubectl and subprocess.run([kubectl, "version", "--client", "-o", "json"], capture_output=True,
                                          text=True, timeout=60, check=False).stdout
        version = re.search(r"v(\d+)\.", json.loads(told or "{}").get("kustomizeVersion", ""))
        if version is None or int(version[1]) < 5:
            self.skipTest("no kubectl with Kustomize 5 here; tests/deploy/kustomize.py built the manifests alone")
        for folder in ALL:
            ran = subprocess.run([kubectl, "kustomize", FOLDER / folder], capture_output=True, text=True,
                                 timeout=60, check=False)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))
            theirs = {self.key(manifest): manifest for manifest in kustomize.yaml.load_all(ran.stdout, kustomize.yaml.CSafeLoader)}
            ours = {self.key(manifest): manifest for manifest in built(folder)}
            self.assertEqual(theirs, ours)

    @staticmethod
    def key(manifest):
        return manifest["kind"], manifest["metadata"]["name"]


class Policy(unittest.TestCase):
    def test_every_cluster_keeps_to_it(self):
        for folder in CLUSTERS:
            self.assertEqual(policy.violations(built(folder)), [])

    def test_what_is_applied_beside_a_cluster_keeps_to_it(self):
        for manifests in [built("overlays/monitoring")] + [kustomize.documents(path) for path in EXAMPLES]:
            cluster = built("overlays/cpu")
            self.assertEqual(policy.violations(cluster + manifests), [])

    def test_the_workloads_are_there(self):
        for folder in CLUSTERS:
            names = {manifest["metadata"]["name"] for manifest in built(folder)
                     if kustomize.pod_of(manifest) is not None}
            self.assertEqual(names, {"penstock-coordinator", "penstock-worker"})
        self.assertTrue(EXAMPLES)

    def test_each_rule_sees_what_breaks_it(self):
        def security(manifests):
            return worker_of(manifests)["securityContext"]

        def pod(manifests):
            return kustomize.pod_of(find(manifests, "StatefulSet", "penstock-worker"))

        def drop_policy(manifests):
            manifests.remove(find(manifests, "NetworkPolicy", "default-deny"))

        def rule_of_dns(manifests):
            return find(manifests, "NetworkPolicy", "allow-dns")["spec"]["egress"][0]

        breaks = {
            "runs_as_the_images_user": [
                lambda m: pod(m)["securityContext"].update(runAsNonRoot=False),
                lambda m: pod(m)["securityContext"].update(runAsUser=0),
                lambda m: security(m).update(runAsUser=0)],
            "has_a_read_only_root": [lambda m: security(m).pop("readOnlyRootFilesystem")],
            "cannot_gain_privileges": [lambda m: security(m).pop("allowPrivilegeEscalation"),
                                       lambda m: security(m).update(privileged=True)],
            "has_no_capabilities": [lambda m: security(m).pop("capabilities"),
                                    lambda m: security(m)["capabilities"].update(add=["SYS_PTRACE"])],
            "filters_system_calls": [lambda m: pod(m)["securityContext"].pop("seccompProfile"),
                                     lambda m: security(m).update(seccompProfile={"type": "Unconfined"})],
            "shares_nothing_with_the_node": [
                lambda m: pod(m).update(hostNetwork=True),
                lambda m: pod(m)["volumes"].append({"name": "n", "hostPath": {"path": "/"}}),
                lambda m: worker_of(m)["ports"][0].update(hostPort=7072)],
            "has_no_token": [
                lambda m: pod(m).pop("automountServiceAccountToken"),
                lambda m: find(m, "ServiceAccount", "penstock").pop("automountServiceAccountToken")],
            "is_bounded": [lambda m: worker_of(m)["resources"]["limits"].pop("memory"),
                           lambda m: worker_of(m)["resources"]["requests"].pop("cpu"),
                           lambda m: pod(m)["volumes"][3]["emptyDir"].pop("sizeLimit")],
            "is_probed": [lambda m: worker_of(m).pop("livenessProbe"),
                          lambda m: worker_of(m)["readinessProbe"]["grpc"].update(port=7072),
                          lambda m: worker_of(m)["args"].remove("--health=0.0.0.0:7079")],
            "may_end_in_peace": [lambda m: kustomize.pod_of(
                find(m, "StatefulSet", "penstock-coordinator")).update(terminationGracePeriodSeconds=30)],
            "is_not_reached_from_outside": [
                lambda m: find(m, "Service", "penstock-coordinator")["spec"].update(type="NodePort"),
                lambda m: find(m, "Service", "penstock-coordinator")["spec"].update(type="LoadBalancer"),
                lambda m: m.append({"kind": "Ingress", "metadata": {"name": "penstock"}, "spec": {}})],
            "has_certificates": [lambda m: worker_of(m)["args"].append("--insecure")],
            "forbids_by_default": [
                drop_policy,
                lambda m: find(m, "Namespace", "penstock")["metadata"]["labels"].pop(
                    "pod-security.kubernetes.io/enforce")],
            "allows_only_what_is_named": [
                lambda m: rule_of_dns(m).pop("ports"),
                lambda m: rule_of_dns(m).pop("to"),
                lambda m: rule_of_dns(m)["to"].append({"ipBlock": {"cidr": "0.0.0.0/0"}}),
                lambda m: rule_of_dns(m)["ports"].append({"protocol": "TCP", "port": 7079})],
        }
        self.assertEqual(set(breaks), {rule.__name__ for rule in policy.RULES})
        for rule in policy.RULES:
            for number, change in enumerate(breaks[rule.__name__]):
                with self.subTest(rule=rule.__name__, number=number):
                    manifests = built()
                    self.assertEqual(list(rule(manifests)), [])
                    change(manifests)
                    self.assertEqual(len(list(rule(manifests))), 1, list(rule(manifests)))


class Wiring(unittest.TestCase):
    """What one manifest says of another holds."""

    def test_services_lead_to_ports_of_their_pods(self):
        manifests = built()
        for service in (m for m in manifests if m["kind"] == "Service"):
            labels = service["spec"]["selector"].items()
            pods = [m for m in manifests if m["kind"] == "StatefulSet"
                    and labels <= m["spec"]["template"]["metadata"]["labels"].items()]
            self.assertEqual(len(pods), 1, service["metadata"]["name"])
            ports = {port["name"]: port["containerPort"]
                     for port in kustomize.pod_of(pods[0])["containers"][0]["ports"]}
            for port in service["spec"]["ports"]:
                self.assertEqual(ports[port["targetPort"]], port["port"])

    def test_programs_listen_where_the_ports_say(self):
        for folder in CLUSTERS:
            for manifest in built(folder):
                for container in (kustomize.pod_of(manifest) or {}).get("containers", []):
                    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
                    for flag, port in (("listen", "grpc"), ("metrics", "metrics"), ("health", "health")):
                        self.assertIn(f"--{flag}=0.0.0.0:{ports[port]}", container["args"])

    def test_the_coordinator_is_where_the_others_look(self):
        manifests = built()
        address = find(manifests, "ConfigMap", "penstock")["data"]["PENSTOCK_COORDINATOR"]
        name, port = address.split(":")
        self.assertIn(int(port), [p["port"] for p in find(manifests, "Service", name)["spec"]["ports"]])

    def test_several_coordinators_are_where_the_others_look(self):
        manifests = built("overlays/etcd")
        coordinators = find(manifests, "StatefulSet", "penstock-coordinator")
        service = find(manifests, "Service", coordinators["spec"]["serviceName"])
        self.assertEqual(service["spec"]["clusterIP"], "None")
        name = service["metadata"]["name"]
        self.assertEqual(find(manifests, "ConfigMap", "penstock")["data"]["PENSTOCK_COORDINATOR"].split(","),
                         [f"penstock-coordinator-{number}.{name}:7070"
                          for number in range(coordinators["spec"]["replicas"])])
        container = kustomize.pod_of(coordinators)["containers"][0]
        self.assertIn(f"--advertise=$(POD_NAME).{name}:7070", container["args"])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(container[probe]["grpc"]["service"], "penstock.member")

    def test_workers_tell_a_name_of_their_headless_service(self):
        manifests = built()
        workers = find(manifests, "StatefulSet", "penstock-worker")
        service = find(manifests, "Service", workers["spec"]["serviceName"])
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertIn(f"--advertise=$(POD_NAME).{service['metadata']['name']}:7072", worker_of(manifests)["args"])

    def test_mounted_volumes_and_claims_exist(self):
        for manifests in [built(folder) for folder in CLUSTERS] + [
                built() + kustomize.documents(path) for path in EXAMPLES]:
            claims = {m["metadata"]["name"] for m in manifests if m["kind"] == "PersistentVolumeClaim"}
            maps = {m["metadata"]["name"] for m in manifests if m["kind"] == "ConfigMap"}
            for manifest in manifests:
                pod = kustomize.pod_of(manifest)
                if pod is None:
                    continue
                templates = manifest["spec"].get("volumeClaimTemplates", [])
                volumes = {v["name"] for v in pod["volumes"]} | {t["metadata"]["name"] for t in templates}
                for volume in pod["volumes"]:
                    if "persistentVolumeClaim" in volume:
                        self.assertIn(volume["persistentVolumeClaim"]["claimName"], claims)
                    if "configMap" in volume:
                        self.assertIn(volume["configMap"]["name"], maps)
                for container in pod.get("initContainers", []) + pod["containers"]:
                    for mount in container["volumeMounts"]:
                        self.assertIn(mount["name"], volumes)
                    for source in container.get("envFrom", []):
                        self.assertIn(source["configMapRef"]["name"], maps)

    def test_the_job_is_that_of_the_examples(self):
        manifests = kustomize.documents(FOLDER / "examples/train.yaml")
        embedded = find(manifests, "ConfigMap", "train-licences")["data"]["job.yaml"]
        self.assertEqual(kustomize.yaml.safe_load(embedded),
                         kustomize.yaml.safe_load((ROOT / "examples/licences.yaml").read_text()))

    def test_disruption_budgets_select_a_workload(self):
        manifests = built()
        budgets = [m for m in manifests if m["kind"] == "PodDisruptionBudget"]
        self.assertEqual(len(budgets), 2)
        for budget in budgets:
            name = budget["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]
            find(manifests, "StatefulSet", name)

    def test_a_worker_with_a_gpu_asks_for_one(self):
        worker = worker_of(built("overlays/gpu"))
        self.assertEqual(worker["resources"]["limits"]["nvidia.com/gpu"], 1)
        self.assertEqual(worker["image"].partition(":")[0], "penstock-worker-cuda")
        pod = kustomize.pod_of(find(built("overlays/gpu"), "StatefulSet", "penstock-worker"))
        self.assertIn({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, pod["tolerations"])

    def test_rules_are_those_of_prometheus(self):
        rules = find(built("overlays/monitoring"), "PrometheusRule", "penstock")
        (theirs,) = kustomize.documents(ROOT / "deploy/prometheus/rules/penstock.yml")
        self.assertEqual(rules["spec"], theirs)

    def test_monitors_find_the_metrics_ports(self):
        services = {m["metadata"]["labels"]["app.kubernetes.io/name"]: m
                    for m in built() if m["kind"] == "Service"}
        monitors = [m for m in built("overlays/monitoring") if m["kind"] == "ServiceMonitor"]
        self.assertEqual(len(monitors), len(services))
        for monitor in monitors:
            service = services[monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]]
            names = [port["name"] for port in service["spec"]["ports"]]
            for endpoint in monitor["spec"]["endpoints"]:
                self.assertIn(endpoint["port"], names)


if __name__ == "__main__":
    unittest.main()
