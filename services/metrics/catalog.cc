#include "services/metrics/catalog.h"

#include <algorithm>
#include <map>

namespace penstock {
namespace {

constexpr MetricKind kCounter = MetricKind::kCounter;
constexpr MetricKind kGauge = MetricKind::kGauge;
constexpr MetricKind kHistogram = MetricKind::kHistogram;

MetricGroup StageTime() {
  return {"Where the time of a stage goes",
          "Cuts and validation are left out. On a GPU busy time is the GPU's.",
          MetricProgram::kWorker,
          {
              {kCounter,
               "penstock_stage_busy_seconds_total",
               {"job", "worker", "stage"},
               "Time the stage's worker computed for it."},
              {kCounter,
               "penstock_stage_window_seconds_total",
               {"job", "worker", "stage"},
               "Time of training; busy and idle time are shares of it."},
              {kGauge,
               "penstock_stage_bubble_ratio",
               {"job", "worker", "stage"},
               "1 - busy time / window, of the whole run: the share of time lost to waiting and "
               "overhead."},
              {kGauge,
               "penstock_stage_recent_bubble_ratio",
               {"job", "worker", "stage"},
               "The same over the last 16 steps, or those there are."},
              {kCounter,
               "penstock_stage_idle_seconds_total",
               {"job", "worker", "stage", "cause"},
               "Time the stage's worker waited, by cause."},
              {kCounter,
               "penstock_stage_overhead_seconds_total",
               {"job", "worker", "stage", "part"},
               "Time of the worker's thread that is neither waiting nor work on an action of "
               "computing. Divided by penstock_stage_actions_total: the overhead of an action."},
              {kCounter,
               "penstock_stage_actions_total",
               {"job", "worker", "stage", "action"},
               "Actions of the stage, by kind."},
              {kCounter,
               "penstock_stage_action_seconds_total",
               {"job", "worker", "stage", "action"},
               "Time at work on the stage's actions, by kind: on a GPU the GPU's time of F, R, I, "
               "W and STEP."},
              {kCounter,
               "penstock_stage_copies_total",
               {"job", "worker", "stage", "direction"},
               "Copies of the stage's tensors between host and device that did not wait first."},
              {kCounter,
               "penstock_stage_copy_seconds_total",
               {"job", "worker", "stage", "direction"},
               "Time of these copies, which run beside the computation."},
              {kCounter,
               "penstock_stage_graph_passes_total",
               {"job", "worker", "stage", "how"},
               "Passes of the stage's layers where the device may record them "
               "(training.device_graphs)."},
          }};
}

MetricGroup StageStaleness() {
  return {"Staleness and weight versions of a stage",
          "Delays are counted in updates, exactly, for every microbatch whose update is done. "
          "Buckets are whole numbers up to 15.",
          MetricProgram::kWorker,
          {
              {kHistogram,
               "penstock_stage_staleness_updates",
               {"job", "worker", "stage"},
               "Updates of the stage between the forward that read the weights and the update its "
               "gradient made."},
              {kGauge,
               "penstock_stage_staleness_max_updates",
               {"job", "worker", "stage"},
               "The most of them so far."},
              {kGauge,
               "penstock_stage_staleness_bound_updates",
               {"job", "worker", "stage"},
               "The most that the verified schedule of the method allows; none with "
               "`pipeline.order: recorded`."},
              {kHistogram,
               "penstock_stage_version_drift_updates",
               {"job", "worker", "stage"},
               "Updates of the stage between forward and backward of one microbatch."},
              {kGauge,
               "penstock_stage_version_drift_max_updates",
               {"job", "worker", "stage"},
               "The most of them so far."},
              {kGauge,
               "penstock_stage_version_drift_bound_updates",
               {"job", "worker", "stage"},
               "The most that the verified schedule of the method allows; none with "
               "`pipeline.order: recorded`."},
              {kGauge,
               "penstock_stage_weight_versions",
               {"job", "worker", "stage"},
               "Weight versions the stage keeps now."},
              {kGauge,
               "penstock_stage_peak_weight_versions",
               {"job", "worker", "stage"},
               "Most weight versions the stage kept at one time."},
              {kCounter,
               "penstock_stage_updates_total",
               {"job", "worker", "stage"},
               "Updates of the stage's weights."},
          }};
}

MetricGroup StageMemory() {
  return {"Memory of a stage",
          "",
          MetricProgram::kWorker,
          {
              {kGauge,
               "penstock_stage_activations",
               {"job", "worker", "stage"},
               "Microbatches whose activations the stage keeps now."},
              {kGauge,
               "penstock_stage_peak_activations",
               {"job", "worker", "stage"},
               "Most microbatches whose activations the stage kept at one time."},
              {kGauge,
               "penstock_stage_activation_bytes",
               {"job", "worker", "stage"},
               "What these microbatches left between their F and I, now."},
              {kGauge,
               "penstock_stage_weight_stash_bytes",
               {"job", "worker", "stage", "place"},
               "Memory of weight versions beside the current one, as of the last update."},
              {kGauge,
               "penstock_stage_weight_stash_peak_bytes",
               {"job", "worker", "stage", "place"},
               "The most of it so far."},
              {kGauge,
               "penstock_stage_memory_bytes",
               {"job", "worker", "stage"},
               "Device memory that the stage's worker uses now, for all its stages."},
              {kGauge,
               "penstock_stage_memory_peak_bytes",
               {"job", "worker", "stage"},
               "Most device memory that the stage's worker used at one time."},
              {kGauge,
               "penstock_stage_memory_predicted_bytes",
               {"job", "worker", "stage"},
               "What the peak must be, by the verified schedule."},
          }};
}

MetricGroup Links() {
  const std::vector<const char*> labels = {"job",    "worker",      "peer",      "edge",
                                           "source", "destination", "direction", "path"};
  return {"Links between workers",
          "Of one end of an edge; the other end is shown by the peer.",
          MetricProgram::kWorker,
          {
              {kCounter, "penstock_link_bytes_total", labels,
               "Tensor bytes that travelled over an edge."},
              {kCounter, "penstock_link_messages_total", labels,
               "Tensors that travelled over an edge."},
              {kGauge, "penstock_link_queue_messages", labels,
               "Messages in the edge's window now: at the sender without credit from the receiver, "
               "at the receiver not taken yet."},
              {kCounter, "penstock_link_wait_seconds_total", labels,
               "Time the worker stood still: the sender for credit, the receiver for a message."},
              {kCounter, "penstock_link_transfer_seconds_total", labels,
               "Time tensors were on their way: at the sender from the hand-over until the last "
               "chunk was written, at the receiver from the first chunk until the tensor was "
               "whole. Tensors of one edge overlap in the window."},
              {kGauge, "penstock_link_round_trip_seconds", labels,
               "Shortest time from the last chunk of a message to its credit, of the last 64 to "
               "128 messages sent: the network's round trip if the receiver waited for any of "
               "them, longer if it never did."},
          }};
}

MetricGroup Runs() {
  return {"A worker and its run",
          "What is of a step is shown by the worker with the last stage.",
          MetricProgram::kWorker,
          {
              {kGauge, "penstock_worker_running", {"worker"}, "1 while the worker executes a run."},
              {kCounter,
               "penstock_run_actions_total",
               {"job", "worker"},
               "Actions of its program that the worker has done."},
              {kCounter,
               "penstock_run_steps_total",
               {"job", "worker"},
               "Steps done, from the start of the job."},
              {kCounter,
               "penstock_run_tokens_total",
               {"job", "worker"},
               "Tokens trained on in this run."},
              {kGauge,
               "penstock_run_loss",
               {"job", "worker"},
               "Mean training loss over the samples of the last step."},
              {kGauge,
               "penstock_run_learning_rate",
               {"job", "worker"},
               "Learning rate of the last step."},
              {kGauge,
               "penstock_run_gradient_norm",
               {"job", "worker"},
               "Norm of the last step's gradient before clipping; 0 where the method has none."},
              {kGauge,
               "penstock_run_last_step_timestamp_seconds",
               {"job", "worker"},
               "When the last step was done, in seconds since 1970."},
          }};
}

MetricGroup Jobs() {
  return {
      "Jobs",
      "Of jobs under way, and for five minutes after their end.",
      MetricProgram::kCoordinator,
      {
          {kGauge,
           "penstock_job_info",
           {"job", "name", "method"},
           "1; what the job is called and which method it runs."},
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
           "When the coordinator heard of the last step, or of the start of training, in "
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
          "With the label source both, side by side. Steps, memory and traffic are predicted of jobs that were planned "
          "with a prediction. Block delays are of asynchronous methods, in updates of all stages together; the predicted "
          "ones are those of the replay in slots, counted once when the job is planned.",
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
               "The most of them on any stage; 0 of methods without staleness."},
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
               "What a worker sends the others in a step of training: predicted, and measured "
               "until the last cut."},
              {kGauge,
               "penstock_job_off_prediction",
               {"job"},
               "1 if steps or memory have left what was predicted, else 0."},
              {kCounter,
               "penstock_job_drifts_total",
               {"job"},
               "How often it was told that steps or memory left what was predicted, or returned."},
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
          {kGauge, "penstock_worker_info", {"worker", "device"}, "1; what the worker computes on."},
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
           "Spans that it never will: refused, or too many while it did not answer."},
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
           "1; which program of which version this is."},
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
  static const auto& catalog = *new std::vector<MetricGroup>{
      StageTime(), StageStaleness(), StageMemory(), Links(),       Runs(),
      Jobs(),      Predictions(),    Cluster(),     EveryProgram()};
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
      {"device", "what the worker computes on, as it introduces itself"},
      {"stage", "the stage's number, from 0"},
      {"cause", "of idle time: `input`, `credit`, `collective`, `data`, `checkpoint`"},
      {"part",
       "of overhead: `send`, `receive` and `collective` (handing tensors over), `between` (from "
       "one "
       "action to the next)"},
      {"action",
       "`F`, `R`, `I`, `W`, `SEND_F`, `RECV_F`, `SEND_B`, `RECV_B`, `REDUCE`, `NORM`, "
       "`STEP`, ..."},
      {"direction", "of a copy `to_device` or `to_host`; of a link `sent` or `received`"},
      {"how", "of a pass: `replayed` from a recording, or `queued` call by call"},
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
       "`unauthenticated`, `forbidden`, `other`"},
      {"program", "`penstock-coordinator`, `penstock-worker` or, of `train --metrics`, `penstock`"},
      {"version", "the version of the build"},
  };
  return labels;
}

}  // namespace penstock
