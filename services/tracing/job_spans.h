// JobSpans: what a job's events tell, as spans.
//
//   job                            submitted .. ended
//     queued                       waits for workers
//     preparing                    an attempt, from the choice of its workers
//     training  (measuring)        RUNNING, until it leaves that state; of a profile it measures
//       steps 1-10                 up to a cut, or the end of the state
//       validation, checkpoint     from their cut on
//     draining                     with what is trained until it stops
//
// Times are the coordinator's: of the moments when it heard. Ids follow from the job and the number of the event
// that a span begins or ends with (job/job_trace.h), so every reader of these events makes the same spans.
//
// A value without clock or I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/v1/cluster.pb.h"
#include "services/tracing/span.h"

namespace penstock {

class JobSpans {
 public:
  // Log lines of one state that become events of its span; more are counted.
  static constexpr size_t kEventsMax = 32;

  // `record`: the job's, of any time; what changes in it is taken from the events.
  explicit JobSpans(const v1::GetJobResponse& record);

  // Takes the next event and returns the spans that ended with it.
  // REQUIRES: events come in order, from the job's first on.
  std::vector<TraceSpan> Add(const v1::JobEvent& event);

  // Returns whether its spans are wanted at all (TraceContext::sampled).
  bool sampled() const { return context_.sampled; }
  // The number of the last event that was taken; 0 before the first.
  int64_t last_sequence() const { return last_sequence_; }
  // The job has ended: there is nothing to come.
  bool ended() const { return ended_; }

 private:
  // A moment between steps where the pipeline is empty.
  struct Cut {
    int64_t unix_ns = 0;
    SpanId parent = {};  // the state in which it was reached
  };
  // Steps since the last cut.
  struct Steps {
    int64_t first = 0;
    int64_t last = 0;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };
  // Cuts whose validation or checkpoint may still be told of.
  static constexpr size_t kCutsMax = 64;

  TraceSpan Begin(const std::string& what, int64_t ordinal, std::optional<SpanId> parent,
                  int64_t start_ns) const;
  void BeginState(v1::JobState state, int64_t ordinal, int64_t now_ns);
  void OnState(const v1::JobEvent& event, int64_t now_ns, std::vector<TraceSpan>& done);
  void OnStep(const v1::StepDone& step, int64_t sequence, int64_t now_ns,
              std::vector<TraceSpan>& done);
  void OnLog(const std::string& line, int64_t now_ns);
  // Ends the range of steps, if there is one.
  void EndSteps(int64_t sequence, std::vector<TraceSpan>& done);
  void EndState(int64_t now_ns, std::vector<TraceSpan>& done);
  void EndJob(const v1::JobSummary& summary, int64_t now_ns, std::vector<TraceSpan>& done);
  // Adds a span that began at the cut after `step` and ends now.
  void AddSinceCut(const std::string& what, int64_t step, int64_t sequence, int64_t now_ns,
                   std::vector<TraceSpan>& done);
  // Returns whether the pipeline drains after `step`, as its spec says.
  bool IsCut(int64_t step) const;

  const std::string job_id_;
  const TraceContext context_;
  const bool profile_;
  const std::vector<int64_t> cut_every_;  // steps between cuts
  const int64_t synchronous_steps_;       // and one after these
  TraceSpan root_;
  TraceSpan state_span_;
  v1::JobState state_ = v1::JOB_STATE_QUEUED;
  int64_t attempts_ = 0;
  std::optional<Steps> steps_;
  int64_t trained_ns_ = 0;       // when training was last at a cut, or began
  std::map<int64_t, Cut> cuts_;  // by step
  int64_t stages_ = 0;           // of the last plan
  std::optional<double> loss_;   // of the last step
  int64_t last_step_ = 0;
  int64_t last_sequence_ = 0;
  bool ended_ = false;
};

}  // namespace penstock
