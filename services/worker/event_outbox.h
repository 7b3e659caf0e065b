// EventOutbox: what a worker still has to tell the coordinator about its run, in order, each event once.
//
// Events are numbered from 0 in each run and kept until the coordinator says that it has them, so a batch whose answer was
// lost is sent again. When more events wait than kEventsWaitingMax, or the coordinator calls the run over, the run is given
// up, and later events of it are dropped.
//
// A state machine without clock or I/O; thread-compatible. EventReporter (event_reporter.h) sends what it hands out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/trace_context.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

class EventOutbox {
 public:
  static constexpr size_t kEventsWaitingMax = 1 << 16;
  // Bound on one batch; far below the limit of a control message.
  static constexpr int64_t kBatchBytesMax = 256 << 10;
  static constexpr absl::Duration kBackoffMin = absl::Milliseconds(50);
  static constexpr absl::Duration kBackoffMax = absl::Seconds(1);

  // The run cannot go on.
  struct GivenUp {
    std::string job_id;
    int64_t epoch = 0;
    absl::Status reason;
  };

  EventOutbox(std::string worker, uint64_t incarnation)
      : worker_(std::move(worker)), incarnation_(incarnation) {}

  // Events from now on belong to this run. Waiting events of another attempt are dropped.
  void Begin(const std::string& job_id, int64_t epoch, const std::optional<TraceContext>& trace);
  // Returns the run if it is given up for this event, which has no room.
  std::optional<GivenUp> Add(v1::RunEvent event);

  bool empty() const { return waiting_.empty(); }
  // Returns the first events that wait, as many as fit. REQUIRES: !empty().
  v1::ReportRunRequest NextBatch() const;
  // Of the job that the waiting events belong to, if it has one.
  const std::optional<TraceContext>& trace() const { return trace_; }

  struct AfterAnswer {
    absl::Duration wait;  // before the next batch is sent
    std::optional<GivenUp> given_up = std::nullopt;
  };
  // Takes the answer to `request`, a batch. `wait`: before that batch.
  AfterAnswer OnAnswer(const v1::ReportRunRequest& request,
                       const absl::StatusOr<v1::ReportRunResponse>& answer, absl::Duration wait);

  // Figures for metrics: the last step, and all tokens and samples so far, of the run.
  const v1::StepDone& last_step() const { return last_step_; }
  int64_t tokens() const { return tokens_; }
  int64_t samples() const { return samples_; }

 private:
  const std::string worker_;
  const uint64_t incarnation_;
  std::string job_id_;
  int64_t epoch_ = 0;
  std::optional<TraceContext> trace_;
  int64_t first_sequence_ = 0;  // of waiting_.front()
  std::deque<v1::RunEvent> waiting_;
  bool given_up_ = false;  // later events of the run are dropped
  v1::StepDone last_step_;
  int64_t tokens_ = 0;
  int64_t samples_ = 0;
};

}  // namespace penstock
