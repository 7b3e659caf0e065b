#include "services/tracing/job_spans.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/effects.h"
#include "coordinator/job_state.h"
#include "job/job_trace.h"

namespace penstock {
namespace {

std::string StateSpanName(v1::JobState state, bool profile) {
  if (state == v1::JOB_STATE_RUNNING) return profile ? "measuring" : "training";
  return JobStateName(state);
}

}  // namespace

JobSpans::JobSpans(const v1::GetJobResponse& record)
    : job_id_(record.summary().job_id()),
      context_(JobTraceOf(record)),
      profile_(record.has_profile_spec()),
      cut_every_(
          {record.spec().validation().every_steps(), record.spec().checkpoint().every_steps()}),
      synchronous_steps_(record.spec().pipeline().synchronous_steps()) {
  const v1::JobSummary& summary = record.summary();
  std::optional<SpanId> parent;
  if (const auto submission = ParseTraceparent(record.traceparent()); submission.ok()) {
    parent = submission->span_id;
  }
  const int64_t submitted_ns = summary.submitted_unix_ms() * kNsPerMs;
  root_ = {.trace_id = context_.trace_id,
           .id = context_.span_id,
           .parent = parent,
           .name = "job",
           .start_unix_ns = submitted_ns,
           .attributes = {{"penstock.job", job_id_},
                          {"penstock.job.name", summary.name()},
                          {"penstock.method", summary.method()}}};
  BeginState(v1::JOB_STATE_QUEUED, 0, submitted_ns);
}

std::vector<TraceSpan> JobSpans::Add(const v1::JobEvent& event) {
  std::vector<TraceSpan> done;
  if (ended_ || event.sequence() <= last_sequence_) return done;
  last_sequence_ = event.sequence();
  // A clock that is set back makes no span end before it began.
  const int64_t now_ns = std::max(event.unix_ms() * kNsPerMs, state_span_.start_unix_ns);
  switch (event.kind_case()) {
    case v1::JobEvent::kStateChanged:
      OnState(event, now_ns, done);
      break;
    case v1::JobEvent::kPlanned:
      stages_ = event.planned().stages_size();
      break;
    case v1::JobEvent::kStepDone:
      OnStep(event.step_done(), event.sequence(), now_ns, done);
      break;
    case v1::JobEvent::kValidationDone:
      AddSinceCut("validation", event.validation_done().step(), event.sequence(), now_ns, done);
      done.back().attributes.push_back({"penstock.loss", event.validation_done().loss()});
      for (const v1::MetricValue& metric : event.validation_done().metrics()) {
        done.back().attributes.push_back({"penstock." + metric.name(), metric.value()});
      }
      if (!steps_.has_value()) trained_ns_ = now_ns;
      break;
    case v1::JobEvent::kCheckpointDone:
      AddSinceCut("checkpoint", event.checkpoint_done().step(), event.sequence(), now_ns, done);
      done.back().attributes.push_back(
          {"penstock.checkpoint", event.checkpoint_done().directory()});
      break;
    case v1::JobEvent::kLog:
      OnLog(event.log(), now_ns);
      break;
    case v1::JobEvent::kPlanChosen:       // a line of the log says the same
    case v1::JobEvent::kProfileProgress:  // thousands, and none of them takes long
    case v1::JobEvent::KIND_NOT_SET:      // of a newer version
      break;
  }
  return done;
}

TraceSpan JobSpans::Begin(const std::string& what, int64_t ordinal, std::optional<SpanId> parent,
                          int64_t start_ns) const {
  return {.trace_id = context_.trace_id,
          .id = JobSpanId(context_.trace_id, job_id_, what, ordinal),
          .parent = parent,
          .name = what,
          .start_unix_ns = start_ns,
          .attributes = {{"penstock.job", job_id_}}};
}

void JobSpans::BeginState(v1::JobState state, int64_t ordinal, int64_t now_ns) {
  state_ = state;
  state_span_ = Begin(StateSpanName(state, profile_), ordinal, root_.id, now_ns);
  trained_ns_ = now_ns;
  if (state == v1::JOB_STATE_PREPARING || state == v1::JOB_STATE_RECOVERING) {
    state_span_.attributes.push_back({"penstock.attempt", ++attempts_});
  }
}

void JobSpans::OnState(const v1::JobEvent& event, int64_t now_ns, std::vector<TraceSpan>& done) {
  const v1::JobSummary& summary = event.state_changed();
  if (summary.state() == state_) return OnLog(summary.reason(), now_ns);
  EndSteps(event.sequence(), done);
  EndState(now_ns, done);
  if (IsTerminal(summary.state())) return EndJob(summary, now_ns, done);
  BeginState(summary.state(), event.sequence(), now_ns);
  OnLog(summary.reason(), now_ns);
}

void JobSpans::OnStep(const v1::StepDone& step, int64_t sequence, int64_t now_ns,
                      std::vector<TraceSpan>& done) {
  if (!steps_.has_value()) steps_ = Steps{.first = step.step(), .start_ns = trained_ns_};
  steps_->last = step.step();
  steps_->end_ns = std::max(steps_->start_ns, now_ns);
  last_step_ = step.step();
  loss_ = step.loss();
  if (IsCut(step.step())) EndSteps(sequence, done);
}

void JobSpans::OnLog(const std::string& line, int64_t now_ns) {
  if (line.empty()) return;
  if (state_span_.events.size() < kEventsMax) {
    state_span_.events.push_back({.unix_ns = now_ns, .name = line});
  } else {
    ++state_span_.dropped_events;
  }
}

void JobSpans::EndSteps(int64_t sequence, std::vector<TraceSpan>& done) {
  if (!steps_.has_value()) return;
  TraceSpan span = Begin("steps", sequence, state_span_.id, steps_->start_ns);
  span.name = absl::StrCat("steps ", steps_->first, "-", steps_->last);
  span.end_unix_ns = steps_->end_ns;
  span.attributes.push_back({"penstock.step.first", steps_->first});
  span.attributes.push_back({"penstock.step.last", steps_->last});
  if (loss_.has_value()) span.attributes.push_back({"penstock.loss", *loss_});
  cuts_[steps_->last] = {.unix_ns = steps_->end_ns, .parent = state_span_.id};
  if (cuts_.size() > kCutsMax) cuts_.erase(cuts_.begin());
  trained_ns_ = steps_->end_ns;
  steps_.reset();
  done.push_back(std::move(span));
}

void JobSpans::AddSinceCut(const std::string& what, int64_t step, int64_t sequence, int64_t now_ns,
                           std::vector<TraceSpan>& done) {
  // A drain makes a cut that the spec does not have.
  if (steps_.has_value() && steps_->last == step) EndSteps(sequence, done);
  const auto cut = cuts_.find(step);
  // Told by another worker than the steps are, and so perhaps before the step itself.
  const int64_t heard_ns = steps_.has_value() ? steps_->end_ns : trained_ns_;
  TraceSpan span = cut == cuts_.end()
                       ? Begin(what, sequence, state_span_.id, heard_ns)
                       : Begin(what, sequence, cut->second.parent, cut->second.unix_ns);
  span.end_unix_ns = std::max(now_ns, span.start_unix_ns);
  span.attributes.push_back({"penstock.step", step});
  done.push_back(std::move(span));
}

void JobSpans::EndState(int64_t now_ns, std::vector<TraceSpan>& done) {
  state_span_.end_unix_ns = now_ns;
  done.push_back(std::move(state_span_));
}

void JobSpans::EndJob(const v1::JobSummary& summary, int64_t now_ns, std::vector<TraceSpan>& done) {
  ended_ = true;
  root_.end_unix_ns = now_ns;
  const auto add = [this](const char* key, SpanValue value) {
    root_.attributes.push_back({key, std::move(value)});
  };
  add("penstock.state", JobStateName(summary.state()));
  if (!summary.reason().empty()) add("penstock.reason", summary.reason());
  add("penstock.steps", summary.steps());
  if (stages_ > 0) add("penstock.stages", stages_);
  if (!profile_) add("penstock.step", last_step_);
  if (loss_.has_value()) add("penstock.loss", *loss_);
  if (summary.state() == v1::JOB_STATE_FAILED) root_.error = summary.error();
  done.push_back(std::move(root_));
}

bool JobSpans::IsCut(int64_t step) const {
  return step == synchronous_steps_ ||
         std::any_of(cut_every_.begin(), cut_every_.end(),
                     [step](int64_t every) { return every > 0 && step % every == 0; });
}

}  // namespace penstock
