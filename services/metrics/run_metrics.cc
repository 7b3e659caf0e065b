#include "services/metrics/run_metrics.h"

#include "absl/strings/str_cat.h"
#include "services/metrics/metric_rows.h"
#include "services/metrics/stage_metrics.h"

namespace penstock {
namespace {

using enum MetricKind;

using LinkRows = std::vector<MetricRow<LinkCount>>;
using RunRows = std::vector<MetricRow<RunSnapshot>>;

const LinkRows& RowsOfLinks() {
  static const auto& rows = *new LinkRows{
      {kCounter, "penstock_link_bytes_total", "", "Tensor bytes that travelled over an edge.",
       Value<&LinkCount::bytes>},
      {kCounter, "penstock_link_messages_total", "", "Tensors that travelled over an edge.",
       Value<&LinkCount::messages>},
      {kGauge, "penstock_link_queue_messages", "",
       "Messages in the edge's window now: at the sender without credit from the receiver, at the "
       "receiver not taken yet.",
       Value<&LinkCount::waiting>},
      {kCounter, "penstock_link_wait_seconds_total", "",
       "Time the worker stood still: the sender for credit, the receiver for a message.",
       Value<&LinkCount::wait_seconds>},
      {kCounter, "penstock_link_transfer_seconds_total", "",
       "Time tensors were on their way: at the sender from the hand-over until the last chunk was "
       "written, at the receiver from the first chunk until the tensor was whole. Tensors of one "
       "edge overlap in the window.",
       Value<&LinkCount::transfer_seconds>},
      {kGauge, "penstock_link_round_trip_seconds", "",
       "Shortest time from the last chunk of a message to its credit, of the last 64 to 128 "
       "messages sent: the network's round trip if the receiver waited for any of them, longer if "
       "it never did.",
       [](const LinkCount& link, MetricSamples& samples) {
         if (link.round_trip_seconds > 0) samples.Add(link.round_trip_seconds);
       }},
      {kCounter, "penstock_link_redials_total", "",
       "Streams of the edge after one that broke: the sender counts each that it dialled, the "
       "receiver each that came.",
       Value<&LinkCount::redials>},
      {kCounter, "penstock_link_resent_messages_total", "",
       "Tensors that the sender sent once more, after its stream broke or as they came damaged.",
       Value<&LinkCount::resent>},
      {kCounter, "penstock_link_duplicate_messages_total", "",
       "Tensors that the receiver had already, and dropped.", Value<&LinkCount::duplicates>},
      {kCounter, "penstock_link_checksum_errors_total", "",
       "Frames that came damaged, and tensors before which others were missing. What is missing is "
       "sent again.",
       Value<&LinkCount::damaged>},
  };
  return rows;
}

// Metrics that the worker with the last stage shows.
template <auto... Path>
void OfSteps(const RunSnapshot& run, MetricSamples& samples) {
  if (run.last_step.step() > 0) Value<Path...>(run, samples);
}

const RunRows& RowsOfRunningWorkers() {
  static const auto& rows = *new RunRows{
      {kGauge, "penstock_worker_running", "", "1 while the worker executes a run.",
       Value<&RunSnapshot::running>},
      {kGauge, "penstock_worker_snapshot_bytes", "",
       "Host memory that snapshots have on the worker, of its own layers and of its peers'.",
       Value<&RunSnapshot::snapshot_bytes>}};
  return rows;
}

const RunRows& RowsOfRuns() {
  static const auto& rows = *new RunRows{
      {kCounter, "penstock_run_actions_total", "",
       "Actions of its program that the worker has done.", Value<&RunSnapshot::actions_done>},
      {kCounter, "penstock_run_steps_total", "", "Steps done, from the start of the job.",
       OfSteps<&RunSnapshot::last_step, &v1::StepDone::step>},
      {kCounter, "penstock_run_tokens_total", "",
       "Tokens trained on in this run; 0 of a model without tokens, such as one of images.",
       OfSteps<&RunSnapshot::tokens>},
      {kCounter, "penstock_run_samples_total", "", "Samples trained on in this run.",
       OfSteps<&RunSnapshot::samples>},
      {kGauge, "penstock_run_loss", "", "Mean training loss over the samples of the last step.",
       OfSteps<&RunSnapshot::last_step, &v1::StepDone::loss>},
      {kGauge, "penstock_run_learning_rate", "", "Learning rate of the last step.",
       OfSteps<&RunSnapshot::last_step, &v1::StepDone::learning_rate>},
      {kGauge, "penstock_run_gradient_norm", "",
       "Norm of the last step's gradient before clipping; 0 where the method has none.",
       OfSteps<&RunSnapshot::last_step, &v1::StepDone::gradient_norm>},
      {kGauge, "penstock_run_last_step_timestamp_seconds", "",
       "Time of the last step, in seconds since 1970.",
       OfSteps<&RunSnapshot::last_step_unix_seconds>},
  };
  return rows;
}

}  // namespace

std::vector<MetricGroup> RunMetricGroups() {
  return {
      {"Links between workers", "They count one end of an edge; the peer shows the other end.",
       MetricProgram::kWorker,
       Describe("job worker peer edge source destination direction path", RowsOfLinks())},
      {"A worker and its run", "The worker with the last stage shows the figures of a step.",
       MetricProgram::kWorker,
       Joined({Describe("worker", RowsOfRunningWorkers()), Describe("job worker", RowsOfRuns())})}};
}

void AddRunMetrics(const RunSnapshot& snapshot, MetricSet& metrics) {
  if (snapshot.job_id.empty()) return;
  AddRows(RowsOfRuns(), snapshot, {snapshot.job_id, snapshot.worker}, metrics);
  for (const v1::StageReport& stage : snapshot.stages) {
    AddStageMetrics(snapshot.job_id, snapshot.worker, stage, metrics);
  }
  for (const LinkCount& link : snapshot.links) {
    AddRows(RowsOfLinks(), link,
            {snapshot.job_id, snapshot.worker, link.peer, link.kind, absl::StrCat(link.source),
             absl::StrCat(link.destination), link.sent ? "sent" : "received", link.path},
            metrics);
  }
}

void AddWorkerMetrics(const RunSnapshot& snapshot, MetricSet& metrics) {
  AddRows(RowsOfRunningWorkers(), snapshot, {snapshot.worker}, metrics);
}

}  // namespace penstock
