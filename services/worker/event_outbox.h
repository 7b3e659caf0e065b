// EventOutbox: what a worker still has to tell the coordinator about its run, in order, each event once.
//
// Events are numbered from 0 in each run and wait until the coordinator says that it has them, so a batch whose answer was
// lost is sent again. When more events wait than kEventsWaitingMax, or the coordinator calls the run over, the run is given
// up, and later events of it are dropped.
//
// Those that the coordinator has, but has not stored, are kept as well, for it may be restarted and lose them: then they wait
// again. The oldest of them go when they are many, and with them the chance that the run outlives a restart.
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
  // Bounds on those that are kept although the coordinator has them.
  static constexpr size_t kEventsKeptMax = 1 << 16;
  static constexpr int64_t kKeptBytesMax = 16 << 20;
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

  // Events from now on belong to this run. Those of another attempt are dropped.
  void Begin(const std::string& job_id, int64_t epoch, const std::optional<TraceContext>& trace);
  // The coordinator may be another process, and is asked which events it has.
  void AskAgain() {
    if (!job_id_.empty() && !given_up_) ++asks_;
  }
  // Returns the run if it is given up for this event, which has no room.
  std::optional<GivenUp> Add(v1::RunEvent event);

  // Returns whether nothing is to be sent.
  bool empty() const { return waiting() == 0 && asks_ == answered_; }
  // Returns the first events that wait, as many as fit; perhaps none. REQUIRES: !empty().
  v1::ReportRunRequest NextBatch();
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
  size_t waiting() const { return events_.size() - had_; }
  int64_t next_sequence() const { return kept_from_ + static_cast<int64_t>(had_); }
  // The coordinator has the events before this one.
  void SetHad(int64_t sequence);
  // Drops events that nobody will ask for, and the oldest of those that are too many.
  void DropStored(int64_t stored_sequence);

  std::deque<v1::RunEvent> events_;  // kept, then waiting
  int64_t kept_from_ = 0;            // the number of the first
  size_t had_ = 0;                   // how many of them the coordinator has
  int64_t had_bytes_ = 0;
  int64_t reported_ = 0;  // the first that no coordinator has had
  // How often it was to be asked what the coordinator has: so far, before the last batch, and before a batch that was
  // answered.
  int64_t asks_ = 0;
  int64_t batch_asks_ = 0;
  int64_t answered_ = 0;
  bool ended_ = false;     // its last event was added
  bool given_up_ = false;  // later events of the run are dropped
  v1::StepDone last_step_;
  int64_t tokens_ = 0;
  int64_t samples_ = 0;
};

}  // namespace penstock
