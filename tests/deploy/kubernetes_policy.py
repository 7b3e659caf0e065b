"""What every workload of deploy/kubernetes must keep to, whatever overlay it is built from.

A rule is a function from the manifests to complaints; RULES is all of them. kubernetes_test.py breaks each.
"""

import kustomize

# The user of the images (deploy/docker/Dockerfile).
USER = 65532

# The programs' own ends, which a pod has to be given the time for: seconds after SIGTERM.
DRAIN_SECONDS = {"penstock-coordinator": 180, "penstock-worker": 160}


def violations(manifests):
    return [complaint for rule in RULES for complaint in rule(manifests)]


def _pods(manifests):
    for manifest in manifests:
        pod = kustomize.pod_of(manifest)
        if pod is not None:
            yield f"{manifest['kind']}/{manifest['metadata']['name']}", pod


def _containers(manifests):
    for where, pod in _pods(manifests):
        for key in ("initContainers", "containers"):
            for container in pod.get(key, []):
                yield f"{where}, container {container['name']}", container


def _of_kind(manifests, kind):
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def runs_as_the_images_user(manifests):
    for where, pod in _pods(manifests):
        security = pod.get("securityContext", {})
        if security.get("runAsNonRoot") is not True:
            yield f"{where}: may run as root"
        for key in ("runAsUser", "runAsGroup"):
            if security.get(key) != USER:
                yield f"{where}: {key} is not {USER}"
    for where, container in _containers(manifests):
        for key in ("runAsUser", "runAsGroup", "runAsNonRoot"):
            if key in container.get("securityContext", {}):
                yield f"{where}: has a {key} of its own"


def has_a_read_only_root(manifests):
    for where, container in _containers(manifests):
        if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
            yield f"{where}: writes to its root file system"


def cannot_gain_privileges(manifests):
    for where, container in _containers(manifests):
        security = container.get("securityContext", {})
        if security.get("allowPrivilegeEscalation") is not False:
            yield f"{where}: may gain privileges"
        if security.get("privileged"):
            yield f"{where}: is privileged"


def has_no_capabilities(manifests):
    for where, container in _containers(manifests):
        if container.get("securityContext", {}).get("capabilities") != {"drop": ["ALL"]}:
            yield f"{where}: keeps capabilities"


def filters_system_calls(manifests):
    for where, pod in _pods(manifests):
        if pod.get("securityContext", {}).get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{where}: has no seccomp profile"
    for where, container in _containers(manifests):
        if "seccompProfile" in container.get("securityContext", {}):
            yield f"{where}: has a seccomp profile of its own"


def shares_nothing_with_the_node(manifests):
    for where, pod in _pods(manifests):
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.get(key):
                yield f"{where}: {key}"
        for volume in pod.get("volumes", []):
            if "hostPath" in volume:
                yield f"{where}: mounts {volume['name']} of the node"
    for where, container in _containers(manifests):
        for port in container.get("ports", []):
            if "hostPort" in port:
                yield f"{where}: takes a port of the node"


def has_no_token(manifests):
    for where, pod in _pods(manifests):
        if pod.get("automountServiceAccountToken") is not False:
            yield f"{where}: is given a token of the API server"
    for account in _of_kind(manifests, "ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield f"ServiceAccount/{account['metadata']['name']}: hands out tokens"


def is_bounded(manifests):
    for where, container in _containers(manifests):
        for kind in ("requests", "limits"):
            for resource in ("cpu", "memory"):
                if resource not in container.get("resources", {}).get(kind, {}):
                    yield f"{where}: {kind} no {resource}"
    for where, pod in _pods(manifests):
        for volume in pod.get("volumes", []):
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                yield f"{where}: {volume['name']} may fill the node's disk"


def is_probed(manifests):
    """What serves is probed on the health port; what runs to its end (a Job) is not."""
    for manifest in _of_kind(manifests, "StatefulSet") + _of_kind(manifests, "Deployment"):
        for container in kustomize.pod_of(manifest)["containers"]:
            where = f"{manifest['kind']}/{manifest['metadata']['name']}, container {container['name']}"
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                port = container.get(probe, {}).get("grpc", {}).get("port")
                if port is None or port != ports.get("health"):
                    yield f"{where}: no {probe} on the health port"
            if f"--health=0.0.0.0:{ports.get('health')}" not in container.get("args", []):
                yield f"{where}: does not serve its health port"


def may_end_in_peace(manifests):
    for manifest in _of_kind(manifests, "StatefulSet"):
        name = manifest["metadata"]["name"]
        grace = kustomize.pod_of(manifest).get("terminationGracePeriodSeconds", 30)
        if grace <= DRAIN_SECONDS[name]:
            yield f"StatefulSet/{name}: is killed after {grace} s, its drain may take {DRAIN_SECONDS[name]} s"


def is_not_reached_from_outside(manifests):
    for service in _of_kind(manifests, "Service"):
        if service["spec"].get("type", "ClusterIP") != "ClusterIP" or service["spec"].get("externalIPs"):
            yield f"Service/{service['metadata']['name']}: is reached from outside the cluster"
    for kind in ("Ingress", "Gateway"):
        for manifest in _of_kind(manifests, kind):
            yield f"{kind}/{manifest['metadata']['name']}: is reached from outside the cluster"


def has_certificates(manifests):
    for where, container in _containers(manifests):
        for argument in container.get("args", []):
            if argument.startswith("--insecure"):
                yield f"{where}: runs with {argument}"


def forbids_by_default(manifests):
    denies = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    if not any(policy["spec"] == denies for policy in _of_kind(manifests, "NetworkPolicy")):
        yield "no NetworkPolicy denies what no other one allows"
    for namespace in _of_kind(manifests, "Namespace"):
        if namespace["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce") != "restricted":
            yield f"Namespace/{namespace['metadata']['name']}: does not enforce the restricted profile"


def allows_only_what_is_named(manifests):
    """No rule opens all ports, all peers, or the health port."""
    health = {port["containerPort"] for _, container in _containers(manifests)
              for port in container.get("ports", []) if port["name"] == "health"}
    for policy in _of_kind(manifests, "NetworkPolicy"):
        where = f"NetworkPolicy/{policy['metadata']['name']}"
        for rules, peers in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(rules, []):
                if not rule.get(peers) or {} in rule[peers] or any("ipBlock" in peer for peer in rule[peers]):
                    yield f"{where}: {rules} of anybody"
                if not rule.get("ports"):
                    yield f"{where}: {rules} on all ports"
                for port in rule.get("ports", []):
                    if port.get("port") is None or port["port"] in health:
                        yield f"{where}: {rules} on port {port.get('port')}"


WORKLOAD_RULES = [runs_as_the_images_user, has_a_read_only_root, cannot_gain_privileges, has_no_capabilities,
                  filters_system_calls, shares_nothing_with_the_node, has_no_token, is_bounded, is_probed,
                  may_end_in_peace, is_not_reached_from_outside, has_certificates, allows_only_what_is_named]
RULES = WORKLOAD_RULES + [forbids_by_default]
