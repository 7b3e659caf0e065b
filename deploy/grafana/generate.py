#!/usr/bin/env python3
"""Writes the dashboards, deploy/grafana/dashboards/*.json, from the tables below.

usage: deploy/grafana/generate.py [--check]     --check: writes nothing, fails if a file is out of date

A panel is (title, kind, unit, [(PromQL, legend), ...]). $job and $stage are variables of the dashboard.
tests/monitoring/ runs every query against a real Prometheus.
"""
import json
import pathlib
import sys

DATASOURCE = {"type": "prometheus", "uid": "penstock-prometheus"}
FOLDER = pathlib.Path(__file__).parent / "dashboards"
WIDTH, HEIGHT = 12, 8  # of a panel, on a grid that is 24 wide

JOB = 'job=~"$job"'
STAGE = 'job=~"$job",stage=~"$stage"'
RATE = "[$__rate_interval]"


# Grafana's numbers of the order of a variable's values: the newest job first, stages as they follow each other.
DESCENDING, ASCENDING = 4, 3


def variable(name, query, multi, sort):
    return {"name": name, "label": name, "type": "query", "datasource": DATASOURCE, "query": query, "refresh": 2,
            "sort": sort, "multi": multi, "includeAll": multi, "allValue": ".*" if multi else None}


JOB_VARIABLE = variable("job", "label_values(penstock_job_info, job)", False, DESCENDING)
JOBS_VARIABLE = variable("job", "label_values(penstock_job_info, job)", True, DESCENDING)
STAGE_VARIABLE = variable("stage", 'label_values(penstock_stage_updates_total{job=~"$job"}, stage)', True, ASCENDING)

# The share of a rate in the stage's window.
WINDOW = f"on (job, stage) group_left () sum by (job, stage) (rate(penstock_stage_window_seconds_total{{{STAGE}}}{RATE}))"

DASHBOARDS = {
    "overview": ("Penstock: overview", [JOBS_VARIABLE], [
        ("Jobs by state", "timeseries", "short", [("penstock_jobs", "{{state}}")]),
        ("Workers by state", "timeseries", "short", [("penstock_workers", "{{state}}")]),
        ("Jobs", "table", "short", [(f"penstock_job_info{{{JOB}}}", "")]),
        ("Progress", "bargauge", "percentunit",
         [(f"penstock_job_steps_total{{{JOB}}} / penstock_job_target_steps", "{{job}}")]),
        ("Training loss", "timeseries", "none", [(f"penstock_job_train_loss{{{JOB}}}", "{{job}}")]),
        ("Validation loss", "timeseries", "none", [(f"penstock_job_validation_loss{{{JOB}}}", "{{job}}")]),
        ("Validation, part of the targets that is right", "timeseries", "percentunit",
         [(f"penstock_job_validation_right_ratio{{{JOB}}}", "{{job}}: {{metric}}")]),
        ("Samples per second", "timeseries", "short",
         [(f"sum by (job) (rate(penstock_run_samples_total{{{JOB}}}{RATE}))", "{{job}}")]),
        # A model without tokens has no line.
        ("Tokens per second", "timeseries", "short",
         [(f"sum by (job) (rate(penstock_run_tokens_total{{{JOB}}}{RATE}) and penstock_run_tokens_total > 0)", "{{job}}")]),
        ("Bubble, mean over workers", "timeseries", "percentunit",
         [(f"avg by (job) (job_worker:penstock_worker_bubble:ratio_rate1m{{{JOB}}})", "{{job}}")]),
        ("Time since the last step", "stat", "s",
         [(f"(time() - penstock_job_last_step_timestamp_seconds{{{JOB}}}) and penstock_job_running == 1", "{{job}}")]),
        ("Time to plan", "stat", "s", [(f"penstock_job_planning_seconds{{{JOB}}}", "{{job}}")]),
    ]),
    "pipeline": ("Penstock: pipeline", [JOB_VARIABLE, STAGE_VARIABLE], [
        ("Bubble, stage by time", "heatmap", "percentunit",
         [(f"sum by (stage) (penstock_stage_recent_bubble_ratio{{{STAGE}}})", "stage {{stage}}")]),
        ("Bubble", "timeseries", "percentunit",
         [(f"job_stage:penstock_stage_bubble:ratio_rate1m{{{STAGE}}}", "stage {{stage}}")]),
        ("Where idle time goes", "stacked", "percentunit",
         [(f"sum by (job, stage, cause) (rate(penstock_stage_idle_seconds_total{{{STAGE}}}{RATE})) / {WINDOW}",
           "stage {{stage}}: {{cause}}")]),
        ("Overhead", "stacked", "percentunit",
         [(f"sum by (job, stage, part) (rate(penstock_stage_overhead_seconds_total{{{STAGE}}}{RATE})) / {WINDOW}",
           "stage {{stage}}: {{part}}")]),
        ("Busy time by action", "stacked", "percentunit",
         [(f"sum by (job, stage, action) (rate(penstock_stage_action_seconds_total{{{STAGE},action=~\"F|R|I|W|UPDATE\"}}"
           f"{RATE})) / {WINDOW}", "stage {{stage}}: {{action}}")]),
        ("Overhead of an action", "timeseries", "s",
         [(f"sum by (stage) (rate(penstock_stage_overhead_seconds_total{{{STAGE}}}{RATE}))"
           f" / sum by (stage) (rate(penstock_stage_actions_total{{{STAGE}}}{RATE}))", "stage {{stage}}")]),
        ("Staleness, mean, most and bound", "timeseries", "short",
         [(f"job_stage:penstock_stage_staleness_updates:mean{{{STAGE}}}", "stage {{stage}}: mean"),
          (f"penstock_stage_staleness_max_updates{{{STAGE}}}", "stage {{stage}}: most"),
          (f"penstock_stage_staleness_bound_updates{{{STAGE}}}", "stage {{stage}}: bound")]),
        ("Staleness in updates, microbatches", "histogram", "short",
         [(f"sum by (le) (penstock_stage_staleness_updates_bucket{{{STAGE}}})", "{{le}}")]),
        ("Version drift in updates, microbatches", "histogram", "short",
         [(f"sum by (le) (penstock_stage_version_drift_updates_bucket{{{STAGE}}})", "{{le}}")]),
        ("Block delay in block updates, measured", "histogram", "short",
         [(f"sum by (le) (penstock_job_block_delay_updates_bucket{{{STAGE},source=\"measured\"}})", "{{le}}")]),
        ("Block delay, mean and most, predicted and measured", "timeseries", "short",
         [(f"sum by (source) (penstock_job_block_delay_updates_sum{{{STAGE}}})"
           f" / sum by (source) (penstock_job_block_delay_updates_count{{{STAGE}}})", "{{source}}: mean"),
          (f"penstock_job_block_delay_max_updates{{{JOB}}}", "{{source}}: most")]),
        ("Time of a step, predicted and measured", "timeseries", "s",
         [(f"penstock_job_step_seconds{{{JOB}}}", "{{source}}")]),
        ("Passes of a worker, times as long as before", "timeseries", "short",
         [(f"penstock_job_worker_slow_ratio{{{JOB}}}", "{{worker}}")]),
        ("Peak memory, predicted and measured", "timeseries", "bytes",
         [(f"penstock_job_worker_memory_bytes{{{JOB}}}", "{{worker}}: {{source}}")]),
        ("Weight versions and activations now", "timeseries", "short",
         [(f"penstock_stage_weight_versions{{{STAGE}}}", "stage {{stage}}: versions"),
          (f"penstock_stage_activations{{{STAGE}}}", "stage {{stage}}: activations")]),
        ("Memory", "timeseries", "bytes",
         [(f"penstock_stage_memory_bytes{{{STAGE}}}", "stage {{stage}}: in use"),
          (f"penstock_stage_activation_bytes{{{STAGE}}}", "stage {{stage}}: activations"),
          (f"sum by (stage) (penstock_stage_weight_stash_bytes{{{STAGE}}})", "stage {{stage}}: weight stash")]),
    ]),
    "network": ("Penstock: network", [JOB_VARIABLE], [
        ("Bytes sent", "timeseries", "Bps",
         [(f"sum by (worker, peer) (rate(penstock_link_bytes_total{{{JOB},direction=\"sent\"}}{RATE}))",
           "{{worker}} to {{peer}}")]),
        ("Messages sent", "timeseries", "short",
         [(f"sum by (worker, peer) (rate(penstock_link_messages_total{{{JOB},direction=\"sent\"}}{RATE}))",
           "{{worker}} to {{peer}}")]),
        ("Messages in the window", "timeseries", "short",
         [(f"penstock_link_queue_messages{{{JOB}}}", "{{edge}} {{source}} to {{destination}}, {{direction}}")]),
        ("Waiting for credit or messages", "timeseries", "percentunit",
         [(f"rate(penstock_link_wait_seconds_total{{{JOB}}}{RATE})",
           "{{edge}} {{source}} to {{destination}}, {{direction}}")]),
        ("Time of a message on its way", "timeseries", "s",
         [(f"rate(penstock_link_transfer_seconds_total{{{JOB}}}{RATE})"
           f" / (rate(penstock_link_messages_total{{{JOB}}}{RATE}) > 0)",
           "{{edge}} {{source}} to {{destination}}, {{direction}}")]),
        ("Round trip", "timeseries", "s",
         [(f"min by (worker, peer) (penstock_link_round_trip_seconds{{{JOB}}})", "{{worker}} to {{peer}}")]),
        ("Sent in a step, predicted and measured", "timeseries", "bytes",
         [(f"penstock_job_worker_step_sent_bytes{{{JOB}}}", "{{worker}}: {{source}}")]),
        ("Broken streams and damaged messages", "timeseries", "short",
         [(f"sum by (worker, peer) (rate(penstock_link_redials_total{{{JOB},direction=\"sent\"}}{RATE}))",
           "{{worker}} to {{peer}}: dialled again"),
          (f"sum by (worker, peer) (rate(penstock_link_resent_messages_total{{{JOB}}}{RATE}))",
           "{{worker}} to {{peer}}: sent again"),
          (f"sum by (worker, peer) (rate(penstock_link_checksum_errors_total{{{JOB}}}{RATE}))",
           "{{worker}} from {{peer}}: damaged")]),
        ("Messages refused", "timeseries", "short",
         [(f"sum by (instance, reason) (rate(penstock_rejected_messages_total{RATE}))", "{{instance}}: {{reason}}")]),
    ]),
    "jobs": ("Penstock: job comparison", [JOBS_VARIABLE], [
        ("Methods", "table", "short", [(f"penstock_job_info{{{JOB}}}", "")]),
        ("Training loss", "timeseries", "none", [(f"penstock_run_loss{{{JOB}}}", "{{job}}")]),
        ("Gradient norm", "timeseries", "none", [(f"penstock_run_gradient_norm{{{JOB}}}", "{{job}}")]),
        ("Learning rate", "timeseries", "none", [(f"penstock_run_learning_rate{{{JOB}}}", "{{job}}")]),
        ("Validation, part of the targets that is right", "timeseries", "percentunit",
         [(f"penstock_job_validation_right_ratio{{{JOB}}}", "{{job}}: {{metric}}")]),
        ("Samples per second", "timeseries", "short", [(f"job:penstock_run_samples:rate1m{{{JOB}}}", "{{job}}")]),
        ("Tokens per second", "timeseries", "short", [(f"job:penstock_run_tokens:rate1m{{{JOB}}}", "{{job}}")]),
        ("Steps per second", "timeseries", "short", [(f"job:penstock_run_steps:rate1m{{{JOB}}}", "{{job}}")]),
        # Counts like the job's own figure: stages of one worker fill each other's bubbles.
        ("Bubble of the whole run, mean over workers", "bargauge", "percentunit",
         [(f"avg by (job) (clamp_min(1 - sum by (job, worker) (penstock_stage_busy_seconds_total{{{JOB}}})"
           f" / max by (job, worker) (penstock_stage_window_seconds_total{{{JOB}}}), 0))", "{{job}}")]),
        ("Staleness, mean over microbatches", "bargauge", "short",
         [(f"sum by (job) (penstock_stage_staleness_updates_sum{{{JOB}}})"
           f" / sum by (job) (penstock_stage_staleness_updates_count{{{JOB}}})", "{{job}}")]),
        ("Most weight versions of a stage", "bargauge", "short",
         [(f"max by (job) (penstock_stage_peak_weight_versions{{{JOB}}})", "{{job}}")]),
        ("Peak memory of a worker", "bargauge", "bytes",
         [(f"max by (job) (penstock_stage_memory_peak_bytes{{{JOB}}})", "{{job}}")]),
        ("Step measured to predicted", "timeseries", "none",
         [(f"job:penstock_job_step_seconds:measured_to_predicted{{{JOB}}}", "{{job}}")]),
    ]),
    "fleet": ("Penstock: fleet", [], [
        ("Workers", "table", "short", [("penstock_worker_info", "")]),
        ("Up", "history", "short", [("penstock_worker_up", "{{worker}}")]),
        ("Running", "history", "short", [("penstock_worker_running", "{{worker}}")]),
        ("Time since the last heartbeat", "timeseries", "s",
         [("penstock_worker_heartbeat_age_seconds", "{{worker}}")]),
        ("CPU", "timeseries", "percentunit", [(f"rate(process_cpu_seconds_total{{job=~\"penstock-.+\"}}{RATE})",
                                               "{{instance}}")]),
        ("Resident memory", "timeseries", "bytes",
         [("process_resident_memory_bytes{job=~\"penstock-.+\"}", "{{instance}}")]),
        ("Open files", "timeseries", "short", [("process_open_fds{job=~\"penstock-.+\"}", "{{instance}}")]),
        ("Running since", "table", "dateTimeFromNow",
         [("process_start_time_seconds{job=~\"penstock-.+\"} * 1000", "{{instance}}")]),
        ("Builds", "table", "short", [("penstock_build_info", "")]),
        ("Device memory", "timeseries", "bytes", [("penstock_worker_device_memory_bytes", "{{worker}}")]),
    ]),
}

# kind -> (Grafana's panel type, its options, its field configuration, whether one moment is enough)
KINDS = {
    "timeseries": ("timeseries", {"legend": {"displayMode": "table", "calcs": ["lastNotNull"]}}, {}, False),
    "stacked": ("timeseries", {"legend": {"displayMode": "list"}},
                {"custom": {"stacking": {"mode": "normal"}, "fillOpacity": 40}}, False),
    # A row for every stage, the colour says how much.
    "heatmap": ("status-history", {"showValue": "never", "legend": {"showLegend": False}},
                {"min": 0, "max": 1, "color": {"mode": "continuous-GrYlRd"}}, False),
    "history": ("status-history", {"showValue": "never"},
                {"thresholds": {"mode": "absolute", "steps": [{"color": "red", "value": None},
                                                              {"color": "green", "value": 1}]}}, False),
    "histogram": ("bargauge", {"orientation": "vertical", "displayMode": "basic"}, {"min": 0}, True),
    "bargauge": ("bargauge", {"orientation": "horizontal", "displayMode": "basic"}, {"min": 0}, True),
    "stat": ("stat", {"colorMode": "none"}, {}, True),
    "table": ("table", {}, {}, True),
}


def target(index, expression, legend, kind):
    moment = KINDS[kind][3]
    # Cumulative buckets become counts.
    form = {"table": "table", "histogram": "heatmap"}.get(kind, "time_series")
    return {"refId": chr(ord("A") + index), "datasource": DATASOURCE, "expr": expression, "legendFormat": legend,
            "format": form, "instant": moment, "range": not moment}


def panel(index, title, kind, unit, queries):
    grafana_type, options, defaults, _ = KINDS[kind]
    # A history with more points than half its pixels shows an error instead.
    bounds = {"maxDataPoints": 100} if grafana_type == "status-history" else {}
    return {"id": index + 1, "title": title, "type": grafana_type, "datasource": DATASOURCE, **bounds,
            "gridPos": {"x": index % 2 * WIDTH, "y": index // 2 * HEIGHT, "w": WIDTH, "h": HEIGHT},
            "options": options, "fieldConfig": {"defaults": {"unit": unit, **defaults}, "overrides": []},
            "targets": [target(i, expression, legend, kind) for i, (expression, legend) in enumerate(queries)]}


def dashboard(name):
    title, variables, panels = DASHBOARDS[name]
    return {"uid": f"penstock-{name}", "title": title, "tags": ["penstock"], "schemaVersion": 38, "version": 1,
            "editable": False, "refresh": "5s", "time": {"from": "now-15m", "to": "now"}, "timezone": "browser",
            "links": [{"type": "dashboards", "tags": ["penstock"], "title": "Penstock", "asDropdown": True,
                       "includeVars": True, "keepTime": True}],
            "templating": {"list": variables},
            "panels": [panel(i, *each) for i, each in enumerate(panels)]}


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = {path.name for path in FOLDER.glob("*.json")} ^ {f"{name}.json" for name in DASHBOARDS}
    for name in DASHBOARDS:
        path = FOLDER / f"{name}.json"
        text = json.dumps(dashboard(name), indent=2) + "\n"
        if not check:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text)
        elif path.exists() and path.read_text() != text:
            stale.add(path.name)
    if check and stale:
        sys.exit(f"out of date, run deploy/grafana/generate.py: {', '.join(sorted(stale))}")


if __name__ == "__main__":
    main()
