"""Checks manifests against the published schemas of Kubernetes.

The schemas are the models of Debian's python3-kubernetes, which are generated from the OpenAPI document that
Kubernetes 1.22 publishes: every key of every object, its type, and which keys must be there. What Kubernetes
added later and we use stands in ADDED, with its reason. The kinds of the Prometheus operator are published as
custom resource definitions; TYPES has the keys of them that we use.
"""

import functools
import re

import kubernetes.client
import kubernetes.client.models as models

import schema
from schema import Model


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
    "PrometheusRule": Model({"apiVersion": "str", "kind": "str", "metadata": "V1ObjectMeta",
                             "spec": "PrometheusRuleSpec"}, ["apiVersion", "kind", "metadata", "spec"]),
    "PrometheusRuleSpec": Model({"groups": "list[RuleGroup]"}),
    "RuleGroup": Model({"name": "str", "interval": "duration", "rules": "list[Rule]"}, ["name"]),
    "Rule": Model({"alert": "str", "record": "str", "expr": "int-or-string", "for": "duration",
                   "labels": "dict(str, str)", "annotations": "dict(str, str)"}, ["expr"]),
}

CUSTOM_KINDS = {("monitoring.coreos.com/v1", kind): kind for kind in ("ServiceMonitor", "PrometheusRule")}

# Keys whose form OpenAPI leaves open, or calls a string, and which is written down elsewhere.
FORMS = {"V1ServicePort": {"targetPort": "int-or-string"},
         "V1NetworkPolicyPort": {"port": "int-or-string"},
         "V1PodDisruptionBudgetSpec": {"maxUnavailable": "int-or-string", "minAvailable": "int-or-string"},
         "V1ResourceRequirements": {"limits": "dict(str, quantity)", "requests": "dict(str, quantity)"},
         "V1EmptyDirVolumeSource": {"sizeLimit": "quantity"}}

QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
DURATION = re.compile(r"(\d+(ms|s|m|h))+")
PLAIN = {
    "quantity": lambda value: isinstance(value, (int, str)) and QUANTITY.fullmatch(str(value)) is not None,
    "duration": lambda value: isinstance(value, str) and DURATION.fullmatch(value) is not None,
    "scheme": lambda value: value in ("http", "https"),
}
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
    errors = schema.Checker(_described, PLAIN).errors_of(where, manifest, model)
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


@functools.cache
def _described(name):
    """The Model of a name, or None if there is none."""
    if name in TYPES:
        return TYPES[name]
    generated = getattr(models, name, None)
    if generated is None:
        return None
    keys = {generated.attribute_map[attribute]: kind for attribute, kind in generated.openapi_types.items()}
    keys.update(FORMS.get(name, {}))
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
