"""Checks a bill of materials against what SPDX 2.3 requires of its JSON form."""

import re

IDENTIFIER = re.compile(r"SPDXRef-[A-Za-z0-9.-]+")
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
CREATOR = re.compile(r"(Tool|Organization|Person): .+")
SUPPLIER = re.compile(r"(Organization|Person): .+|NOASSERTION")
LOCATOR = re.compile(r"pkg:[a-z]+/\S+@\S+")
PATTERNS = {
    "spdxVersion": re.compile(r"SPDX-2\.3"), "dataLicense": re.compile(r"CC0-1\.0"),
    "SPDXID": re.compile(r"SPDXRef-DOCUMENT"), "name": re.compile(r".+"),
    "documentNamespace": re.compile(r"https?://[^#\s]+"),
}
PACKAGE = {"SPDXID": IDENTIFIER, "name": re.compile(r".+"), "versionInfo": re.compile(r".+"), "supplier": SUPPLIER,
           "downloadLocation": re.compile(r"NOASSERTION|NONE|\S+://\S+"), "copyrightText": re.compile(r".+")}
REFERENCE = {"referenceCategory": re.compile(r"PACKAGE-MANAGER"), "referenceType": re.compile(r"purl"),
             "referenceLocator": LOCATOR}
RELATIONSHIPS = {"DESCRIBES", "DEPENDS_ON"}


def errors_of(document):
    """What is wrong with a document, one line each; empty if nothing is."""
    errors = list(_mismatches("document", document, PATTERNS))
    known = set(PATTERNS) | {"creationInfo", "packages", "relationships"}
    errors += [f"document: unknown key {key}" for key in sorted(set(document) - known)]
    creation = document.get("creationInfo", {})
    errors += list(_mismatches("creationInfo", creation, {"created": TIME}))
    if not creation.get("creators") or not all(CREATOR.fullmatch(creator) for creator in creation["creators"]):
        errors.append(f"creationInfo: creators {creation.get('creators')}")

    identifiers = ["SPDXRef-DOCUMENT"]
    for package in document.get("packages", []):
        where = f"package {package.get('name')}"
        errors += list(_mismatches(where, package, PACKAGE))
        errors += [f"{where}: unknown key {key}"
                   for key in sorted(set(package) - set(PACKAGE) - {"filesAnalyzed", "externalRefs"})]
        if package.get("filesAnalyzed") is not False:
            errors.append(f"{where}: no files were analyzed, and it does not say so")
        for reference in package.get("externalRefs", []):
            errors += list(_mismatches(where, reference, REFERENCE))
        identifiers.append(package.get("SPDXID"))
    errors += [f"{identifier} is not unique" for identifier in sorted({
        identifier for identifier in identifiers if identifiers.count(identifier) > 1})]

    for relationship in document.get("relationships", []):
        if relationship.get("relationshipType") not in RELATIONSHIPS:
            errors.append(f"relationship {relationship}")
        for end in ("spdxElementId", "relatedSpdxElement"):
            if relationship.get(end) not in identifiers:
                errors.append(f"relationship of {relationship.get(end)}, which is not there")
    if not any(relationship.get("relationshipType") == "DESCRIBES" for relationship in document.get(
            "relationships", [])):
        errors.append("document: describes nothing")
    return errors


def _mismatches(where, mapping, patterns):
    for key, pattern in patterns.items():
        value = mapping.get(key)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            yield f"{where}: {key} is {value!r}"
