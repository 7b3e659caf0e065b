#include "services/metrics/catalog.h"

#include <algorithm>
#include <map>

#include "services/metrics/run_metrics.h"
#include "services/metrics/stage_metrics.h"

namespace penstock {
namespace {

using enum MetricKind;

MetricGroup Jobs() {
  return {
      "Jobs",
      "Jobs under way have these, and for five minutes after their end.",
      MetricProgram::kCoordinator,
      {
          {kGauge,
           "penstock_job_info",
           {"job", "name", "method"},
           "1; the job's name and method are labels."},
          {kGauge, "penstock_job_running", {"job"}, "1 while the job trains, else 0."},
          {kCounter, "penstock_job_steps_total", {"job"}, "Steps done, from the start of the job."},
          {kGauge, "penstock_job_target_steps", {"job"}, "Steps the job is to do."},
          {kCounter,
           "penstock_job_tokens_total",
           {"job"},
           "Tokens trained on since this run began."},
          {kGauge,
           "penstock_job_last_step_timestamp_seconds",
           {"job"},
           "Time when the coordinator heard of the last step, or of the start of training, in "
           "seconds since 1970."},
          {kGauge, "penstock_job_train_loss", {"job"}, "Mean training loss of the last 10 steps."},
          {kGauge, "penstock_job_validation_loss", {"job"}, "Loss of the last validation."},
          {kGauge,
           "penstock_job_loss_not_finite",
           {"job"},
           "1 if the job failed because a loss or gradient was not finite, else 0."},
          {kCounter,
           "penstock_job_recoveries_total",
           {"job"},
           "Times the job went on from a checkpoint after a worker, or the coordinator, had left."},
          {kGauge,
           "penstock_job_planning_seconds",
           {"job"},
           "Time it took to plan the job: to split its layers and to verify the schedule."},
      }};
}

MetricGroup Predictions() {
  return {"Predicted and measured",
          "The label source tells the two apart. Steps, memory and traffic are predicted for jobs "
          "with a prediction. Block delays are for asynchronous methods, in updates of all stages "
          "together; the predicted ones are those of the replay in slots, counted once when the job "
          "is planned.",
          MetricProgram::kCoordinator,
          {
              {kHistogram,
               "penstock_job_block_delay_updates",
               {"job", "stage", "source"},
               "Block updates between a forward on the stage and each update of its microbatch. "
               "Buckets are whole numbers up to 255 at most."},
              {kGauge,
               "penstock_job_block_delay_max_updates",
               {"job", "source"},
               "The most of them on any stage; 0 for methods without staleness."},
              {kGauge,
               "penstock_job_step_seconds",
               {"job", "source"},
               "Time of a step: predicted, and the median of the last ones."},
              {kGauge,
               "penstock_job_worker_memory_bytes",
               {"job", "worker", "source"},
               "Peak memory of a worker: predicted, and measured until the last cut."},
              {kGauge,
               "penstock_job_worker_step_sent_bytes",
               {"job", "worker", "source"},
               "Bytes that a worker sends the others in a step of training: predicted, and measured "
               "until the last cut."},
              {kGauge,
               "penstock_job_off_prediction",
               {"job"},
               "1 if steps or memory have left their prediction, else 0."},
              {kCounter,
               "penstock_job_drifts_total",
               {"job"},
               "Events that steps or memory left their prediction, or returned to it."},
              {kCounter,
               "penstock_job_replans_total",
               {"job"},
               "New splits that the job went on with."},
          }};
}

MetricGroup Cluster() {
  return {
      "The cluster",
      "",
      MetricProgram::kCoordinator,
      {
          {kGauge, "penstock_jobs", {"state"}, "Jobs the coordinator lists, by state."},
          {kGauge, "penstock_workers", {"state"}, "Workers the coordinator knows, by state."},
          {kGauge, "penstock_worker_info", {"worker", "device"}, "1; the worker's device is a label."},
          {kGauge,
           "penstock_worker_up",
           {"worker"},
           "1 while the worker's heartbeats come, 0 once it is lost."},
          {kGauge,
           "penstock_worker_heartbeat_age_seconds",
           {"worker"},
           "Time since the worker's last heartbeat."},
          {kGauge,
           "penstock_worker_device_memory_bytes",
           {"worker"},
           "Memory of the worker's device."},
          {kCounter,
           "penstock_otlp_exported_spans_total",
           {},
           "Spans that the collector of --otlp has taken."},
          {kCounter,
           "penstock_otlp_dropped_spans_total",
           {},
           "Spans that it never took: it refused them, or they were too many while it did not answer."},
          {kCounter,
           "penstock_otlp_failed_requests_total",
           {},
           "Requests to it that were refused or not answered."},
      }};
}

MetricGroup EveryProgram() {
  return {
      "Every program",
      "",
      MetricProgram::kBoth,
      {
          {kCounter,
           "penstock_rejected_messages_total",
           {"reason"},
           "Messages of others that were refused, by reason: frames of tensor streams, calls, "
           "reports and requests over HTTP."},
          {kGauge,
           "penstock_certificate_expiry_timestamp_seconds",
           {},
           "Until when the program's certificate is good, in seconds since 1970. Not without "
           "certificates."},
          {kGauge,
           "penstock_build_info",
           {"program", "version"},
           "1; the program and its version are labels."},
          {kCounter,
           "process_cpu_seconds_total",
           {},
           "CPU time of the process, in user and system mode."},
          {kGauge, "process_resident_memory_bytes", {}, "Memory of the process that is resident."},
          {kGauge, "process_open_fds", {}, "Open file descriptors of the process."},
          {kGauge,
           "process_start_time_seconds",
           {},
           "When the process started, in seconds since 1970."},
      }};
}

}  // namespace

const std::vector<MetricGroup>& MetricCatalog() {
  static const auto& catalog = *[] {
    auto* groups = new std::vector<MetricGroup>(StageMetricGroups());
    const auto add = [groups](const std::vector<MetricGroup>& more) {
      groups->insert(groups->end(), more.begin(), more.end());
    };
    add(RunMetricGroups());
    add({Jobs(), Predictions(), Cluster(), EveryProgram()});
    return groups;
  }();
  return catalog;
}

const MetricDescription* FindMetric(absl::string_view name) {
  static const auto& by_name = *[] {
    auto* index = new std::map<absl::string_view, const MetricDescription*>;
    for (const MetricGroup& group : MetricCatalog()) {
      for (const MetricDescription& metric : group.metrics) index->emplace(metric.name, &metric);
    }
    return index;
  }();
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : found->second;
}

const std::vector<LabelDescription>& MetricLabels() {
  static const auto& labels = *new std::vector<LabelDescription>{
      {"job", "the job's id, as `penstock list` shows it"},
      {"name", "the job's name in its file"},
      {"method", "the job's method"},
      {"worker", "the worker's name"},
      {"device", "the worker's device"},
      {"stage", "the stage's number, from 0"},
      {"cause", "cause of idle time: `input`, `credit`, `collective`, `data`, `checkpoint`"},
      {"part",
       "part of overhead: `send`, `receive` and `collective` (handing tensors over), `between` (from "
       "one "
       "action to the next)"},
      {"action",
       "`F`, `R`, `I`, `W`, `SEND_F`, `RECV_F`, `SEND_B`, `RECV_B`, `REDUCE`, `NORM`, "
       "`UPDATE`, ..."},
      {"direction", "copies: `to_device` or `to_host`; links: `sent` or `received`"},
      {"how", "passes: `replayed` from a CUDA graph, or `queued` call by call"},
      {"place", "`device`, or `host` for versions that wait there (`training.stash`)"},
      {"peer", "the name of the worker at the other end"},
      {"edge", "`activation`, `gradient`, `collective`, `checkpoint`, `sum`"},
      {"source",
       "of an edge the stage it comes from (of `collective` the worker's number); of a "
       "figure `predicted` or `measured`"},
      {"destination", "the stage that an edge goes to (of `collective` the worker's number)"},
      {"path", "how tensors travel: `host`, `cuda-ipc`, `peer`"},
      {"state",
       "of jobs `queued`, `preparing`, `running`, `draining`, `succeeded`, `failed`, "
       "`cancelled`; of workers `free`, `busy`, `leaving`, `lost`"},
      {"reason",
       "`stale_epoch`, `corrupt`, `malformed`, `duplicate`, `over_limit`, "
       "`unauthenticated`, `forbidden`, `other_version`, `other`"},
      {"program", "`penstock-coordinator`, `penstock-worker` or, of `train --metrics`, `penstock`"},
      {"version", "the version of the build"},
  };
  return labels;
}

}  // namespace penstock
