#include "services/metrics/cluster_metrics.h"

#include "absl/strings/str_cat.h"
#include "services/metrics/metric_rows.h"

namespace penstock {
namespace {

using enum MetricKind;

using Job = v1::JobSummary;
using Result = v1::JobResult;
using Use = v1::WorkerUse;
using Worker = v1::WorkerSummary;

struct JobFigures {
  const Job* job;
  const Result* result;
};

using JobRows = std::vector<MetricRow<JobFigures>>;

const JobRows& RowsOfJobs() {
  static const auto& rows = *new JobRows{
      {kGauge, "penstock_job_info", "name method", "1; the job's name and method are labels.",
       [](const JobFigures& of, MetricSamples& samples) {
         samples.Add({of.job->name(), of.job->method()}, 1);
       }},
      {kGauge, "penstock_job_running", "", "1 while the job trains, else 0.",
       [](const JobFigures& of, MetricSamples& samples) {
         samples.Add(of.job->state() == v1::JOB_STATE_RUNNING);
       }},
      {kCounter, "penstock_job_steps_total", "", "Steps done, from the start of the job.",
       Value<&JobFigures::result, &Result::steps>},
      {kGauge, "penstock_job_target_steps", "", "Steps the job is to do.",
       Value<&JobFigures::job, &Job::steps>},
      {kCounter, "penstock_job_tokens_total", "",
       "Tokens trained on since this run began; 0 of a model without tokens, such as one of "
       "images.",
       Value<&JobFigures::result, &Result::tokens>},
      {kCounter, "penstock_job_samples_total", "", "Samples trained on since this run began.",
       Value<&JobFigures::result, &Result::samples>},
      {kGauge, "penstock_job_mfu_ratio", "",
       "Model FLOPs utilization until the last cut: the operations of the model's forward and "
       "backward in a second, as a part of those that its workers' devices did in large matrix "
       "products before their first run.",
       [](const JobFigures& of, MetricSamples& samples) {
         ValueIf<&Result::has_mfu, &Result::mfu>(*of.result, samples);
       }},
      {kGauge, "penstock_job_last_step_timestamp_seconds", "",
       "Time when the coordinator heard of the last step, or of the start of training, in seconds "
       "since 1970.",
       [](const JobFigures& of, MetricSamples& samples) {
         const int64_t time_ms = of.result->last_step_unix_ms();
         if (time_ms > 0) samples.Add(static_cast<double>(time_ms) * 1e-3);
       }},
      {kGauge, "penstock_job_train_loss", "", "Mean training loss of the last 10 steps.",
       [](const JobFigures& of, MetricSamples& samples) {
         if (of.result->samples() > 0) samples.Add(of.result->train_loss());
       }},
      {kGauge, "penstock_job_validation_loss", "", "Loss of the last validation.",
       [](const JobFigures& of, MetricSamples& samples) {
         ValueIf<&Result::has_validation_loss, &Result::validation_loss>(*of.result, samples);
       }},
      {kGauge, "penstock_job_validation_right_ratio", "metric",
       "Part of the targets that the model got right in the last validation: accuracy, top5.",
       [](const JobFigures& of, MetricSamples& samples) {
         for (const v1::MetricValue& metric : of.result->validation_metrics()) {
           samples.Add({metric.name()}, metric.value());
         }
       }},
      {kGauge, "penstock_job_loss_not_finite", "",
       "1 if the job failed because a loss or gradient was not finite, else 0.",
       Value<&JobFigures::result, &Result::not_finite>},
      {kCounter, "penstock_job_recoveries_total", "",
       "Times the job went on after a worker, or the coordinator, had left or failed.",
       Value<&JobFigures::result, &Result::recoveries>},
      {kCounter, "penstock_job_growths_total", "",
       "Times the job, which had lost workers, went on with as many as before.",
       Value<&JobFigures::result, &Result::growths>},
      {kCounter, "penstock_job_redone_steps_total", "",
       "Steps that were done again after an attempt at the job had failed.",
       Value<&JobFigures::result, &Result::steps_redone>},
      {kGauge, "penstock_job_planning_seconds", "",
       "Time it took to plan the job: to split its layers and to verify the schedule.",
       Value<&JobFigures::result, &Result::planning_seconds>},
  };
  return rows;
}

// Adds the delays of each stage, predicted or measured.
void AddDelays(const google::protobuf::RepeatedPtrField<v1::DelayCounts>& stages,
               const std::string& source, MetricSamples& samples) {
  for (int stage = 0; stage < stages.size(); ++stage) {
    samples.Add({absl::StrCat(stage), source}, stages[stage]);
  }
}

template <auto Has, auto Get>
void OfEachWorker(const JobFigures& figures, MetricSamples& samples) {
  const v1::Feedback& feedback = figures.result->feedback();
  const auto add = [&](const std::string& source, const v1::RunUse& use) {
    for (const Use& worker : use.workers()) {
      if (std::invoke(Has, worker)) {
        samples.Add({worker.worker(), source}, std::invoke(Get, worker));
      }
    }
  };
  add("predicted", feedback.predicted());
  add("measured", feedback.measured());
}

template <auto Get>
void IfPredicted(const JobFigures& figures, MetricSamples& samples) {
  const v1::Feedback& feedback = figures.result->feedback();
  if (feedback.has_predicted()) samples.Add(std::invoke(Get, feedback));
}

const JobRows& RowsOfPredictions() {
  static const auto& rows = *new JobRows{
      {kHistogram, "penstock_job_block_delay_updates", "stage source",
       "Block updates between a forward on the stage and each update of its microbatch. Buckets "
       "are whole numbers up to 255 at most.",
       [](const JobFigures& of, MetricSamples& samples) {
         if (of.result->has_block_delay()) {
           AddDelays(of.result->block_delays(), "predicted", samples);
         }
         if (of.result->has_block_delay_measured()) {
           AddDelays(of.result->block_delays_measured(), "measured", samples);
         }
       }},
      {kGauge, "penstock_job_block_delay_max_updates", "source",
       "The most of them on any stage; 0 for methods without staleness.",
       [](const JobFigures& of, MetricSamples& samples) {
         if (of.result->has_block_delay()) {
           samples.Add({"predicted"}, of.result->block_delay().max());
         }
         if (of.result->has_block_delay_measured()) {
           samples.Add({"measured"}, of.result->block_delay_measured().max());
         }
       }},
      {kGauge, "penstock_job_step_seconds", "source",
       "Time of a step: predicted, and the median of the last ones.",
       [](const JobFigures& of, MetricSamples& samples) {
         const v1::RunUse& predicted = of.result->feedback().predicted();
         const v1::RunUse& measured = of.result->feedback().measured();
         if (predicted.has_step_seconds()) samples.Add({"predicted"}, predicted.step_seconds());
         if (measured.has_step_seconds()) samples.Add({"measured"}, measured.step_seconds());
       }},
      {kGauge, "penstock_job_worker_memory_bytes", "worker source",
       "Peak memory of a worker: predicted, and measured until the last cut.",
       OfEachWorker<&Use::has_memory_bytes, &Use::memory_bytes>},
      {kGauge, "penstock_job_worker_step_sent_bytes", "worker source",
       "Bytes that a worker sends the others in a step of training: predicted, and measured until "
       "the last cut.",
       OfEachWorker<&Use::has_sent_bytes_per_step, &Use::sent_bytes_per_step>},
      {kGauge, "penstock_job_off_prediction", "",
       "1 if steps or memory have left their prediction, else 0.",
       IfPredicted<&v1::Feedback::drifts>},
      {kCounter, "penstock_job_drifts_total", "",
       "Events that steps or memory left their prediction, or returned to it.",
       IfPredicted<&v1::Feedback::drifts_told>},
      {kCounter, "penstock_job_replans_total", "", "New splits that the job went on with.",
       IfPredicted<&v1::Feedback::replans>},
  };
  return rows;
}

using SlowRatios = std::map<std::string, double>;

const std::vector<MetricRow<SlowRatios>>& RowsOfSlowRatios() {
  static const auto& rows = *new std::vector<MetricRow<SlowRatios>>{
      {kGauge, "penstock_job_worker_slow_ratio", "worker",
       "Times as long as before that the worker's passes take, without waiting: in its last 5 s or "
       "more, held against the median of the ten minutes before in which it was not slow. 1 until "
       "that is known. Only while the job is under way.",
       [](const SlowRatios& ratios, MetricSamples& samples) {
         for (const auto& [worker, ratio] : ratios) samples.Add({worker}, ratio);
       }},
  };
  return rows;
}

template <auto Counts>
void ByState(const ClusterCounts& counts, MetricSamples& samples) {
  for (const auto& [state, count] : counts.*Counts) samples.Add({state}, count);
}

const std::vector<MetricRow<ClusterCounts>>& RowsOfCluster() {
  static const auto& rows = *new std::vector<MetricRow<ClusterCounts>>{
      {kGauge, "penstock_jobs", "state", "Jobs the coordinator lists, by state.",
       ByState<&ClusterCounts::jobs>},
      {kGauge, "penstock_workers", "state", "Workers the coordinator knows, by state.",
       ByState<&ClusterCounts::workers>},
  };
  return rows;
}

const std::vector<MetricRow<Worker>>& RowsOfWorkers() {
  static const auto& rows = *new std::vector<MetricRow<Worker>>{
      {kGauge, "penstock_worker_info", "device", "1; the worker's device is a label.",
       [](const Worker& worker, MetricSamples& samples) { samples.Add({worker.device()}, 1); }},
      {kGauge, "penstock_worker_up", "", "1 while the worker's heartbeats come, 0 once it is lost.",
       Value<&Worker::alive>},
      {kGauge, "penstock_worker_heartbeat_age_seconds", "",
       "Time since the worker's last heartbeat.",
       [](const Worker& worker, MetricSamples& samples) {
         samples.Add(static_cast<double>(worker.last_heartbeat_ms_ago()) * 1e-3);
       }},
      {kGauge, "penstock_worker_device_memory_bytes", "", "Memory of the worker's device.",
       Value<&Worker::memory_bytes>},
  };
  return rows;
}

// With a zero for each cause that there was none of.
template <auto Get>
void ByCause(const LossCounts& losses, MetricSamples& samples) {
  for (int cause = 0; cause < kLossCauses; ++cause) {
    samples.Add({std::string(NameOf(static_cast<LossCause>(cause)))},
                std::invoke(Get, losses.by_cause[cause]));
  }
}

const std::vector<MetricRow<LossCounts>>& RowsOfLosses() {
  static const auto& rows = *new std::vector<MetricRow<LossCounts>>{
      {kCounter, "penstock_worker_losses_total", "cause",
       "Workers that were lost: gone, without an answer, silent, or restarted; and those that are "
       "stuck.",
       ByCause<&LossCounts::Loss::count>},
      {kCounter, "penstock_worker_loss_detection_seconds_total", "cause",
       "Time until that was known, of all of them together: since their connection closed, or else "
       "since the last sign of life.",
       ByCause<&LossCounts::Loss::detection_seconds>},
  };
  return rows;
}

const std::vector<MetricRow<bool>>& RowsOfRole() {
  static const auto& rows = *new std::vector<MetricRow<bool>>{
      {kGauge, "penstock_coordinator_leader", "",
       "1 while this coordinator leads its cluster, as one without others always does, else 0: "
       "then it refuses calls, and has no figures of jobs and workers.",
       [](const bool& leads, MetricSamples& samples) { samples.Add(leads ? 1 : 0); }},
  };
  return rows;
}

const std::vector<MetricRow<StateCounts>>& RowsOfState() {
  static const auto& rows = *new std::vector<MetricRow<StateCounts>>{
      {kGauge, "penstock_state_writable", "",
       "1 while the coordinator's state can be written, else 0: then it takes no jobs and no "
       "cancellations.",
       Value<&StateCounts::writable>},
      {kCounter, "penstock_state_failed_writes_total", "", "Writes to the state that failed.",
       Value<&StateCounts::failed_writes>},
      {kGauge, "penstock_state_pending_writes", "",
       "Records, timelines and events that wait in memory to be written to the state.",
       Value<&StateCounts::pending>},
      {kCounter, "penstock_state_dropped_events_total", "",
       "Events of jobs that were never written, because too many waited.",
       Value<&StateCounts::dropped_events>},
  };
  return rows;
}

const std::vector<MetricRow<SpanCounts>>& RowsOfSpans() {
  static const auto& rows = *new std::vector<MetricRow<SpanCounts>>{
      {kCounter, "penstock_otlp_exported_spans_total", "",
       "Spans that the collector of --otlp has taken.", Value<&SpanCounts::exported>},
      {kCounter, "penstock_otlp_dropped_spans_total", "",
       "Spans that it never took: it refused them, or they were too many while it did not answer.",
       Value<&SpanCounts::dropped>},
      {kCounter, "penstock_otlp_failed_requests_total", "",
       "Requests to it that were refused or not answered.", Value<&SpanCounts::failed_requests>},
  };
  return rows;
}

}  // namespace

std::vector<MetricGroup> ClusterMetricGroups() {
  return {{"Jobs", "Jobs under way have these, and for five minutes after their end.",
           MetricProgram::kCoordinator, Describe("job", RowsOfJobs())},
          {"Predicted and measured",
           "The label source tells the two apart. Steps, memory and traffic are predicted for jobs "
           "with a prediction. Block delays are for asynchronous methods, in updates of all stages "
           "together; the predicted ones are those of the replay in slots, counted once when the "
           "job is planned.",
           MetricProgram::kCoordinator,
           Joined({Describe("job", RowsOfPredictions()), Describe("job", RowsOfSlowRatios())})},
          {"The cluster", "", MetricProgram::kCoordinator,
           Joined({Describe("", RowsOfCluster()), Describe("worker", RowsOfWorkers()),
                   Describe("", RowsOfRole()), Describe("", RowsOfLosses()),
                   Describe("", RowsOfState()), Describe("", RowsOfSpans())})}};
}

void AddClusterMetrics(const ClusterCounts& counts, const v1::ListWorkersResponse& workers,
                       MetricSet& metrics) {
  AddRows(RowsOfCluster(), counts, {}, metrics);
  for (const Worker& worker : workers.workers()) {
    AddRows(RowsOfWorkers(), worker, {worker.name()}, metrics);
  }
}

void AddJobMetrics(const v1::JobSummary& job, const v1::JobResult& result, MetricSet& metrics) {
  const JobFigures figures{.job = &job, .result = &result};
  AddRows(RowsOfJobs(), figures, {job.job_id()}, metrics);
  AddRows(RowsOfPredictions(), figures, {job.job_id()}, metrics);
}

void AddSlowMetrics(const v1::JobSummary& job, const SlowRatios& ratios, MetricSet& metrics) {
  AddRows(RowsOfSlowRatios(), ratios, {job.job_id()}, metrics);
}

void AddLossMetrics(const LossCounts& losses, MetricSet& metrics) {
  AddRows(RowsOfLosses(), losses, {}, metrics);
}

void AddRoleMetrics(bool leads, MetricSet& metrics) { AddRows(RowsOfRole(), leads, {}, metrics); }

void AddStateMetrics(const StateCounts& counts, MetricSet& metrics) {
  AddRows(RowsOfState(), counts, {}, metrics);
}

void AddSpanMetrics(const SpanCounts& counts, MetricSet& metrics) {
  AddRows(RowsOfSpans(), counts, {}, metrics);
}

}  // namespace penstock
