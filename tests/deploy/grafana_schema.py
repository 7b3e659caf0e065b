"""Checks what Grafana is provisioned with against its published formats.

Data sources and providers: the keys of Grafana's provisioning files, apiVersion 1. Dashboards: Grafana's schema of the
kind "Dashboard". Options of panels belong to the panels' plugins and are not described there; of queries the keys of
the data source Prometheus are.
"""

import re

import schema
from schema import Model

MODELS = {
    "Datasources": Model({"apiVersion": "one", "datasources": "list[Datasource]", "prune": "bool",
                          "deleteDatasources": "list[object]"}, ["apiVersion", "datasources"]),
    "Datasource": Model({"name": "str", "type": "str", "access": "access", "orgId": "int", "uid": "str", "url": "str",
                         "user": "str", "database": "str", "basicAuth": "bool", "basicAuthUser": "str",
                         "withCredentials": "bool", "isDefault": "bool", "jsonData": "dict(str, object)",
                         "secureJsonData": "dict(str, str)", "version": "int", "editable": "bool"},
                        ["name", "type"]),
    "Providers": Model({"apiVersion": "one", "providers": "list[Provider]"}, ["apiVersion", "providers"]),
    "Provider": Model({"name": "str", "type": "file", "orgId": "int", "folder": "str", "folderUid": "str",
                       "editable": "bool", "disableDeletion": "bool", "updateIntervalSeconds": "int",
                       "allowUiUpdates": "bool", "options": "ProviderOptions"}, ["name", "options"]),
    "ProviderOptions": Model({"path": "str", "foldersFromFilesStructure": "bool"}, ["path"]),

    "Dashboard": Model({"id": "null", "uid": "uid", "title": "str", "description": "str", "tags": "list[str]",
                        "style": "str", "timezone": "str", "editable": "bool", "graphTooltip": "cursor",
                        "time": "TimeRange", "timepicker": "TimePicker", "fiscalYearStartMonth": "int",
                        "liveNow": "bool", "weekStart": "str", "refresh": "refresh", "schemaVersion": "int",
                        "version": "int", "panels": "list[Panel]", "templating": "Templating",
                        "annotations": "Annotations", "links": "list[Link]"},
                       ["uid", "title", "schemaVersion", "panels"]),
    "TimeRange": Model({"from": "str", "to": "str"}, ["from", "to"]),
    "TimePicker": Model({"hidden": "bool", "refresh_intervals": "list[str]", "time_options": "list[str]"}),
    "Templating": Model({"list": "list[Variable]"}),
    "Variable": Model({"id": "str", "type": "variable-type", "name": "str", "label": "str", "hide": "cursor",
                       "skipUrlSync": "bool", "description": "str", "query": "object", "datasource": "DatasourceRef"},
                      ["type", "name"], is_open=True),
    "DatasourceRef": Model({"type": "str", "uid": "str"}, ["type", "uid"]),
    "Annotations": Model({"list": "list[Annotation]"}),
    "Annotation": Model({"name": "str", "datasource": "DatasourceRef", "enable": "bool", "hide": "bool",
                         "iconColor": "str", "expr": "str"}, ["name", "datasource", "iconColor"], is_open=True),
    "Link": Model({"title": "str", "type": "link-type", "icon": "str", "tooltip": "str", "url": "str",
                   "tags": "list[str]", "asDropdown": "bool", "targetBlank": "bool", "includeVars": "bool",
                   "keepTime": "bool"}, ["title"]),
    "Panel": Model({"type": "filled", "id": "id", "pluginVersion": "str", "tags": "list[str]",
                    "targets": "list[Target]", "title": "str", "description": "str", "transparent": "bool",
                    "datasource": "DatasourceRef", "gridPos": "GridPos", "links": "list[Link]", "repeat": "str",
                    "repeatDirection": "direction", "maxPerRow": "int", "maxDataPoints": "float",
                    "transformations": "list[Transformation]", "interval": "str", "timeFrom": "str",
                    "timeShift": "str", "options": "dict(str, object)", "fieldConfig": "FieldConfigSource",
                    "collapsed": "bool", "panels": "list[Panel]"}, ["type", "gridPos"]),
    "GridPos": Model({"h": "height", "w": "width", "x": "column", "y": "row", "static": "bool"}, ["h", "w", "x", "y"]),
    "Target": Model({"refId": "filled", "expr": "filled", "datasource": "DatasourceRef", "legendFormat": "str",
                     "format": "target-format", "instant": "bool", "range": "bool", "exemplar": "bool",
                     "interval": "str", "intervalFactor": "int", "hide": "bool", "editorMode": "str"},
                    ["refId", "expr"]),
    "Transformation": Model({"id": "filled", "disabled": "bool", "filter": "Matcher", "options": "object"},
                            ["id", "options"]),
    "Matcher": Model({"id": "str", "options": "object"}, ["id"]),
    "FieldConfigSource": Model({"defaults": "FieldConfig", "overrides": "list[Override]"}, ["defaults"]),
    "Override": Model({"matcher": "Matcher", "properties": "list[Property]"}, ["matcher", "properties"]),
    "Property": Model({"id": "str", "value": "object"}, ["id"]),
    "FieldConfig": Model({"displayName": "str", "displayNameFromDS": "str", "description": "str", "path": "str",
                          "writeable": "bool", "filterable": "bool", "unit": "str", "decimals": "float",
                          "min": "float", "max": "float", "mappings": "list[Mapping]", "thresholds": "Thresholds",
                          "color": "Color", "links": "list[object]", "noValue": "str",
                          "custom": "dict(str, object)"}),
    "Mapping": Model({"type": "mapping-type", "options": "dict(str, object)"}, ["type", "options"]),
    "Thresholds": Model({"mode": "threshold-mode", "steps": "list[Threshold]"}, ["mode", "steps"]),
    "Threshold": Model({"value": "number-or-null", "color": "str"}, ["color"]),
    "Color": Model({"mode": "str", "fixedColor": "str", "seriesBy": "series-by"}, ["mode"]),
}


def _among(*values):
    return lambda value: not isinstance(value, bool) and value in values


def _integer(least, greatest):
    return lambda value: schema.PLAIN["int"](value) and least <= value <= greatest


PLAIN = {
    "one": _among(1), "null": lambda value: value is None, "access": _among("proxy", "direct"), "file": _among("file"),
    "uid": lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,40}", value) is not None,
    "filled": lambda value: isinstance(value, str) and value != "",
    "cursor": _among(0, 1, 2), "direction": _among("h", "v"), "link-type": _among("link", "dashboards"),
    "variable-type": _among("query", "adhoc", "constant", "datasource", "interval", "textbox", "custom", "system"),
    "refresh": lambda value: value is False or isinstance(value, str),
    "id": _integer(0, 2**32 - 1), "height": _integer(1, 2**32 - 1), "width": _integer(1, 24),
    "column": _integer(0, 23), "row": _integer(0, 2**32 - 1),
    "target-format": _among("time_series", "table", "heatmap"),
    "mapping-type": _among("value", "range", "regex", "special"),
    "threshold-mode": _among("absolute", "percentage"), "series-by": _among("min", "max", "last"),
    "number-or-null": lambda value: value is None or schema.PLAIN["float"](value),
}


def errors_of(where, value, kind):
    """What is wrong with a file's content; `kind` is Datasources, Providers or Dashboard."""
    errors = schema.Checker(MODELS.get, PLAIN).errors_of(where, value, kind)
    if kind == "Dashboard" and not errors:
        errors += _errors_of_layout(where, value)
    return errors


def panels_of(dashboard):
    """All panels, those in collapsed rows too."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def _errors_of_layout(where, dashboard):
    """What a schema cannot say: numbers of panels are unique, and panels lie beside each other."""
    errors = []
    numbers = [panel["id"] for panel in panels_of(dashboard) if "id" in panel]
    errors += [f"{where}: {number} is the id of two panels" for number in sorted(set(numbers))
               if numbers.count(number) > 1]
    taken = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            errors.append(f"{where}: panel {panel.get('title')!r} is wider than the grid")
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel)
                if other is not panel:
                    errors.append(f"{where}: panels {other.get('title')!r} and {panel.get('title')!r} overlap")
                    break
            else:
                continue
            break
    return errors
