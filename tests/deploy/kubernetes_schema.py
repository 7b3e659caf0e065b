"""Checks manifests against the published schemas of Kubernetes.

The schemas are the models of Debian's python3-kubernetes, which are generated from the OpenAPI document that
Kubernetes 1.22 publishes: every key of every object, its type, and which keys must be there. What Kubernetes
added later and we use stands in ADDED, with its reason. The kinds of the Prometheus operator are published as
custom resource definitions; TYPES has the keys of them that we use.
"""

import datetime
import re

import kubernetes.client
import kubernetes.client.models as models


class Model:
    """An object's keys: name -> type, in the notation of the generated models, and which are required."""

    def __init__(self, keys, required=()):
        self.keys = keys
        self.required = set(required)


# Model -> its keys that are newer than the package.
ADDED = {
    # grpc: probes of the health service (GA in 1.27); without them a probe would need a program in the pod.
    "V1Probe": {"grpc": "V1GRPCAction"},
}

TYPES = {
    "V1GRPCAction": Model({"port": "int", "service": "str"}, ["port"]),
    # monitoring.coreos.com/v1, the keys of it that we use.
    "ServiceMonitor": Model({"apiVersion": "str", "kind": "str", "metadata": "V1ObjectMeta",
                             "spec": "ServiceMonitorSpec"}, ["apiVersion", "kind", "metadata", "spec"]),
    "ServiceMonitorSpec": Model({"endpoints": "list[MonitorEndpoint]", "selector": "V1LabelSelector",
                                 "jobLabel": "str", "podTargetLabels": "list[str]"}, ["endpoints", "selector"]),
    "MonitorEndpoint": Model({"port": "str", "path": "str", "scheme": "scheme", "interval": "duration",
                              "scrapeTimeout": "duration", "honorLabels": "bool", "tlsConfig": "MonitorTls"}),
    "MonitorTls": Model({"ca": "SecretOrConfigMap", "cert": "SecretOrConfigMap", "keySecret": "V1SecretKeySelector",
                         "serverName": "str"}),
    "SecretOrConfigMap": Model({"secret": "V1SecretKeySelector", "configMap": "V1ConfigMapKeySelector"}),
}

CUSTOM_KINDS = {("monitoring.coreos.com/v1", "ServiceMonitor"): "ServiceMonitor"}

# Keys that OpenAPI leaves open ("object") and whose form is written down elsewhere.
INT_OR_STRING = {"V1ServicePort": {"target_port"}, "V1NetworkPolicyPort": {"port"},
                 "V1PodDisruptionBudgetSpec": {"max_unavailable", "min_available"}}

QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
PATTERNS = {"duration": re.compile(r"(\d+(ms|s|m|h))+"), "scheme": re.compile(r"https?")}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def errors_of(manifest):
    """What is wrong with a manifest, one line each, with the path to it; empty if nothing is."""
    if not isinstance(manifest, dict):
        return ["a manifest is no mapping"]
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    name = (manifest.get("metadata") or {}).get("name")
    model = _model_of_kind(version, kind)
    if model is None:
        return [f"{version} {kind}: no such kind"]
    where = f"{kind}/{name}"
    errors = _check(where, manifest, model)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        errors.append(f"{where}.metadata.name: {name!r} is no DNS label")
    return errors


def _model_of_kind(version, kind):
    if (version, kind) in CUSTOM_KINDS:
        return CUSTOM_KINDS[version, kind]
    if not isinstance(version, str) or not isinstance(kind, str):
        return None
    # The API class of a group and version knows which kinds can be made there.
    group, _, number = version.rpartition("/")
    group = group.removesuffix(".k8s.io") or "core"
    api = getattr(kubernetes.client, f"{group.title()}{number.title()}Api", None)
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
    if api is None or not any(hasattr(api, f"create_{scope}{snake}") for scope in ("", "namespaced_")):
        return None
    return f"{number.title()}{kind}"


def _described(name):
    """The Model of a name, or None if there is none."""
    if name in TYPES:
        return TYPES[name]
    generated = getattr(models, name, None)
    if generated is None:
        return None
    keys = {generated.attribute_map[attribute]: kind for attribute, kind in generated.openapi_types.items()}
    for attribute in INT_OR_STRING.get(name, ()):
        keys[generated.attribute_map[attribute]] = "int-or-string"
    keys.update(ADDED.get(name, {}))
    return Model(keys, [generated.attribute_map[attribute] for attribute in _required(generated)])


def _required(generated):
    """Attributes that a generated model does not take as None."""
    required = []
    blank = object.__new__(generated)
    blank.local_vars_configuration = kubernetes.client.Configuration()
    for attribute in generated.openapi_types:
        try:
            setattr(blank, attribute, None)
        except ValueError:
            required.append(attribute)
    return required


def _check(where, value, kind):
    items = re.fullmatch(r"list\[(.+)\]", kind)
    if items:
        if not isinstance(value, list):
            return [f"{where}: a list is expected, not {value!r}"]
        return [error for index, item in enumerate(value) for error in _check(f"{where}[{index}]", item, items[1])]
    entries = re.fullmatch(r"dict\(str, (.+)\)", kind)
    if entries:
        if not isinstance(value, dict):
            return [f"{where}: a mapping is expected, not {value!r}"]
        quantities = where.rsplit(".", 1)[-1] in ("requests", "limits")
        return [error for key, item in value.items()
                for error in _check(f"{where}.{key}", item, "quantity" if quantities else entries[1])]
    model = _described(kind)
    if model is None:
        return _check_plain(where, value, kind)
    if not isinstance(value, dict):
        return [f"{where}: a mapping is expected, not {value!r}"]
    errors = [f"{where}: {key} is missing" for key in sorted(model.required) if value.get(key) is None]
    for key, item in value.items():
        if key not in model.keys:
            errors.append(f"{where}.{key}: no such key in {kind}")
        else:
            errors += _check(f"{where}.{key}", item, model.keys[key])
    return errors


def _check_plain(where, value, kind):
    integer = isinstance(value, int) and not isinstance(value, bool)
    fits = {
        "str": lambda: isinstance(value, str),
        "int": lambda: integer,
        "bool": lambda: isinstance(value, bool),
        "float": lambda: integer or isinstance(value, float),
        "datetime": lambda: isinstance(value, (str, datetime.datetime)),
        "int-or-string": lambda: integer or isinstance(value, str),
        "quantity": lambda: integer or (isinstance(value, str) and QUANTITY.fullmatch(value) is not None),
        "object": lambda: True,
    }
    if kind in PATTERNS:
        right = isinstance(value, str) and PATTERNS[kind].fullmatch(value) is not None
    elif kind in fits:
        right = fits[kind]()
    else:
        return [f"{where}: tests/deploy/kubernetes_schema.py does not know the type {kind}"]
    return [] if right else [f"{where}: {kind} is expected, not {value!r}"]
