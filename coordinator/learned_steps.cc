#include "coordinator/learned_steps.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/sha256.h"
#include "job/defaults.h"
#include "job/open_job.h"
#include "job/resolve.h"
#include "job/yaml/yaml_writer.h"

namespace penstock {
namespace {

// The first round of a race lasts this many warm-ups of the rate (planner/job/race.h).
constexpr int64_t kWarmUps = 3;

UpdatePattern FromMessage(const v1::UpdatePattern& message) {
  return {.method = message.method(),
          .synchronous = message.synchronous(),
          .delay = message.delay(),
          .updates_per_step = message.updates_per_step()};
}

LossCurve FromMessage(const google::protobuf::RepeatedPtrField<v1::LossPoint>& points) {
  LossCurve curve;
  for (const v1::LossPoint& point : points) {
    curve.points.push_back({.steps = point.step(), .loss = point.loss()});
  }
  return curve;
}

// Returns the run of a job's own training. Absent: it did not begin at its first step, or its delays are not known.
std::optional<ObservedRun> OwnRun(const v1::GetJobResponse& record) {
  const auto& points = record.result().losses();
  if (points.size() < 2 || points[0].step() != 1) return std::nullopt;
  const int64_t stride = points[1].step() - points[0].step();
  std::vector<double> losses;
  for (const v1::LossPoint& point : points) {
    if (point.step() != 1 + static_cast<int64_t>(losses.size()) * stride) break;  // the last one
    losses.push_back(point.loss());
  }
  const absl::StatusOr<ResolvedJob> job = ResolveJob(record.spec());
  if (!job.ok() || job->synchronous_steps > 0) return std::nullopt;
  // Counts each part of the model once, whatever its replicas.
  std::map<int32_t, int32_t> parts;
  for (const v1::StageAssignment& stage : record.plan().stages()) {
    parts[stage.first_layer()] = stage.layers();
  }
  std::vector<LayerRange> layers;
  layers.reserve(parts.size());
  for (const auto& [first, count] : parts) layers.push_back({first, count});
  if (layers.empty()) return std::nullopt;  // it ended before it was planned again
  absl::StatusOr<UpdatePattern> pattern = UpdatePatternOf(*job, layers);
  if (!pattern.ok()) return std::nullopt;
  return ObservedRun{.pattern = *std::move(pattern), .curve = CurveOf(losses, stride)};
}

}  // namespace

std::string SetupOf(const v1::JobSpec& spec) {
  v1::JobSpec counts = DraftOf(spec);
  // Settings that the method brings belong to it; those that the job changes belong to the setup.
  v1::JobSpec plain = counts;
  plain.mutable_training()->clear_staleness();
  FillDefaults(plain);
  const v1::StalenessSpec& staleness = counts.training().staleness();
  if (plain.training().staleness().SerializeAsString() == staleness.SerializeAsString()) {
    counts.mutable_training()->clear_staleness();
  }
  counts.clear_name();
  counts.clear_pipeline();
  counts.clear_planning();
  counts.clear_prediction();
  counts.clear_feedback();
  counts.clear_recovery();
  counts.clear_checkpoint();
  counts.clear_step_records();
  counts.clear_validation();
  v1::TrainingSpec& training = *counts.mutable_training();
  training.clear_seed();
  training.clear_microbatches();
  training.clear_threads();
  training.clear_deterministic();
  training.clear_stash();
  training.clear_cuda_graphs();
  return Sha256Hex(WriteYamlMessage(counts, ""));
}

void LearnedSteps::Learn(const v1::GetJobResponse& record) {
  const std::string& job_id = record.summary().job_id();
  std::erase_if(jobs_, [&](const OfJob& job) { return job.job_id == job_id; });
  if (record.has_profile_spec()) return;
  OfJob job = {.job_id = job_id};
  for (const v1::PlannedCandidate& candidate : record.planning().candidates()) {
    if (candidate.race().curve().empty() || !candidate.has_update_pattern()) continue;
    job.runs.push_back({.pattern = FromMessage(candidate.update_pattern()),
                        .curve = FromMessage(candidate.race().curve())});
  }
  if (std::optional<ObservedRun> own = OwnRun(record); own.has_value()) {
    job.runs.push_back(*std::move(own));
  }
  if (job.runs.empty()) return;
  const std::string& raced = record.planning().setup_sha256();
  const v1::TrainingSpec& training = record.spec().training();
  for (ObservedRun& run : job.runs) {
    run.setup = raced.empty() ? SetupOf(record.spec()) : raced;
    run.steps = training.steps();
    run.first = kWarmUps * training.learning_rate().warmup_steps();
  }
  jobs_.push_back(std::move(job));
  while (HasTooMany()) jobs_.pop_front();
}

bool LearnedSteps::HasTooMany() const {
  size_t runs = 0;
  std::set<std::string> setups;
  for (const OfJob& job : jobs_) {
    runs += job.runs.size();
    setups.insert(job.runs.front().setup);
  }
  return jobs_.size() > 1 && (runs > kRunsMax || setups.size() > kSetupsMax);
}

std::vector<ObservedRun> LearnedSteps::Runs() const {
  std::vector<ObservedRun> all;
  for (const OfJob& job : jobs_) all.insert(all.end(), job.runs.begin(), job.runs.end());
  return all;
}

v1::UpdatePattern ToMessage(const UpdatePattern& pattern) {
  v1::UpdatePattern message;
  message.set_method(pattern.method);
  message.set_synchronous(pattern.synchronous);
  message.set_delay(pattern.delay);
  message.set_updates_per_step(pattern.updates_per_step);
  return message;
}

v1::StepsFactor ToMessage(const StepsFactor& factor) {
  v1::StepsFactor message;
  message.set_median(factor.median());
  message.set_low(factor.low());
  message.set_high(factor.high());
  message.set_expected(factor.expected());
  return message;
}

void ToMessage(const LossCurve& curve, google::protobuf::RepeatedPtrField<v1::LossPoint>& points) {
  for (const LossCurve::Point& point : curve.points) {
    v1::LossPoint& message = *points.Add();
    message.set_step(point.steps);
    message.set_loss(point.loss);
  }
}

}  // namespace penstock
