#include "worker/emulated_links.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/deadline.h"
#include "base/status.h"

namespace penstock {
namespace {

using TimePoint = CondVar::Clock::time_point;

CondVar::Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<CondVar::Clock::duration>(
      std::chrono::duration<double>(seconds));
}

class HeldBackReceiver : public Receiver {
 public:
  HeldBackReceiver(std::unique_ptr<Receiver> below, const LinkSpeed& link)
      : below_(std::move(below)), link_(link) {
    below_->RingOnArrival(&bell_);
  }
  ~HeldBackReceiver() override { below_->RingOnArrival(nullptr); }

  absl::StatusOr<Arrival> Take(const TensorExpectation& expected, absl::Time deadline) override {
    const TimePoint until = Monotonic(deadline);
    while (true) {
      const int64_t heard = bell_.rings();
      const std::optional<Waiting> first = below_->FirstWaiting();
      const TimePoint due = first ? DueOf(*first) : until;
      // Also at the end of the edge, and in the end at the deadline.
      const bool over = !first.has_value() && below_->Ready();
      if (over || due <= CondVar::Clock::now()) {
        if (first.has_value()) free_ = CarriedAt(*first);
        return below_->Take(expected, deadline);
      }
      bell_.WaitBeyond(heard, std::min(due, until));
      if (CondVar::Clock::now() >= until && due > until) {
        return absl::DeadlineExceededError("the emulated link did not bring a message in time");
      }
    }
  }

  absl::StatusOr<Importer::Fetched> Fetch(const Arrival& exported) override {
    return below_->Fetch(exported);
  }
  void Release() override { below_->Release(); }

  bool Ready() const override {
    const std::optional<Waiting> first = below_->FirstWaiting();
    return first.has_value() ? DueOf(*first) <= CondVar::Clock::now() : below_->Ready();
  }
  std::optional<Waiting> FirstWaiting() const override { return below_->FirstWaiting(); }
  // Nothing rings: see the class.
  void RingOnArrival(Doorbell*) override {}

 private:
  // When the link has carried it.
  TimePoint CarriedAt(const Waiting& message) const {
    const double bytes = static_cast<double>(message.size_bytes);
    return std::max(message.since, free_) + Seconds(bytes / link_.bytes_per_second);
  }
  TimePoint DueOf(const Waiting& message) const {
    return CarriedAt(message) + Seconds(link_.latency_s);
  }

  const std::unique_ptr<Receiver> below_;
  const LinkSpeed link_;
  Doorbell bell_;
  TimePoint free_ = TimePoint::min();  // since when the link carries nothing
};

}  // namespace

absl::StatusOr<std::unique_ptr<Receiver>> EmulatedLinks::OpenReceiver(const EdgeId& edge,
                                                                      int capacity,
                                                                      int64_t tensor_bytes_max,
                                                                      BufferPool& pool) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Receiver> below,
                            below_.OpenReceiver(edge, capacity, tensor_bytes_max, pool));
  return std::make_unique<HeldBackReceiver>(std::move(below), LinkOf(edge));
}

const LinkSpeed& EmulatedLinks::LinkOf(const EdgeId& edge) const {
  if (edge.kind == EdgeKind::kCollective) {
    return links_.Between(WorkerId(edge.source), WorkerId(edge.destination));
  }
  return links_.Between(worker_of_[edge.source], worker_of_[edge.destination]);
}

}  // namespace penstock
