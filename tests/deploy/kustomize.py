"""Builds a Kustomize folder: the part of Kustomize that deploy/kubernetes uses, and nothing else.

Resources (files and folders), the namespace, images, and JSON patches. What it does not know it refuses, so
that it cannot build something else than Kustomize would; kubernetes_test.py compares the two where kubectl is
installed.
"""

import json
import pathlib

import jsonpatch
import yaml

# Kinds that belong to no namespace.
CLUSTER_KINDS = {"Namespace"}
KEYS = {"apiVersion", "kind", "namespace", "resources", "images", "patches"}


class Refused(Exception):
    """Says which folder, and what in it is not known or not right."""


def documents(path):
    """The manifests of one file, in their order. What an alias of YAML repeats is a copy."""
    return [json.loads(json.dumps(document))
            for document in yaml.load_all(pathlib.Path(path).read_text(), yaml.CSafeLoader) if document is not None]


def build(folder):
    """All manifests of `folder`, a list of dicts."""
    folder = pathlib.Path(folder)
    (rules,) = documents(folder / "kustomization.yaml")
    _expect(folder, rules, KEYS, "kustomization.yaml")
    manifests = []
    for resource in rules["resources"]:
        path = folder / resource
        manifests += build(path) if path.is_dir() else documents(path)
    for patch in rules.get("patches", []):
        _patch(folder, manifests, patch)
    for image in rules.get("images", []):
        _rename_image(folder, manifests, image)
    if "namespace" in rules:
        for manifest in manifests:
            if manifest["kind"] not in CLUSTER_KINDS:
                manifest["metadata"]["namespace"] = rules["namespace"]
            elif manifest["kind"] == "Namespace":
                manifest["metadata"]["name"] = rules["namespace"]
    return manifests


def _expect(folder, mapping, keys, where):
    unknown = set(mapping) - keys
    if unknown:
        raise Refused(f"{folder}: {where} has {sorted(unknown)}, which tests/deploy/kustomize.py does not know")


def _patch(folder, manifests, patch):
    _expect(folder, patch, {"path", "target"}, "a patch")
    target = patch["target"]
    _expect(folder, target, {"kind", "name"}, "the target of a patch")
    hits = [index for index, manifest in enumerate(manifests)
            if manifest["kind"] == target["kind"] and manifest["metadata"]["name"] == target["name"]]
    if not hits:
        raise Refused(f"{folder}: the patch {patch['path']} has no target: {target}")
    (operations,) = documents(folder / patch["path"])
    for index in hits:
        manifests[index] = jsonpatch.apply_patch(manifests[index], operations)


def _rename_image(folder, manifests, image):
    _expect(folder, image, {"name", "newName"}, "an image")
    for manifest in manifests:
        pod = pod_of(manifest)
        for container in (pod or {}).get("initContainers", []) + (pod or {}).get("containers", []):
            name, _, tag = container["image"].partition(":")
            if name == image["name"]:
                container["image"] = f"{image['newName']}:{tag}"


def pod_of(manifest):
    """The specification of the pods that a manifest makes, or None."""
    if manifest["kind"] == "Pod":
        return manifest["spec"]
    if manifest["kind"] == "CronJob":
        return manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return manifest.get("spec", {}).get("template", {}).get("spec")
