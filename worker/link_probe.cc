#include "worker/link_probe.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "base/status.h"
#include "worker/acquire.h"

namespace penstock {
namespace {

constexpr int kWindow = 4;  // messages in flight, as of a stage's edges
const Shape kPing = {1};

// The two edges between this worker and another.
class Pair {
 public:
  static absl::StatusOr<std::unique_ptr<Pair>> Open(Transport& transport, BufferPool& pool,
                                                    Clock& clock, const LinkProbeOptions& options,
                                                    int peer);

  // One end measures, the other answers.
  absl::StatusOr<LinkMeasurement> Measure();
  absl::Status Answer();

  // This worker has no turn left; the other has none.
  absl::Status SayDone() { return Send(small_); }
  absl::Status AwaitDone() { return Receive(kPing); }

 private:
  Pair(Clock& clock, const LinkProbeOptions& options, int peer)
      : clock_(clock), options_(options), peer_(peer), burst_{options.message_bytes / 4} {}

  absl::Status Send(const Tensor& tensor) {
    return sender_->Send(sent_++, tensor, absl::Now() + options_.timeout);
  }
  absl::Status Receive(const Shape& shape) {
    return receiver_->Receive({received_++, DType::kF32, shape}, absl::Now() + options_.timeout)
        .status();
  }
  // Seconds from a message to its answer.
  absl::StatusOr<double> Ping();
  absl::StatusOr<double> Burst();

  Clock& clock_;
  const LinkProbeOptions& options_;
  const int peer_;
  const Shape burst_;
  std::unique_ptr<Sender> sender_;
  std::unique_ptr<Receiver> receiver_;
  Tensor small_, large_;
  int64_t sent_ = 0;
  int64_t received_ = 0;
};

absl::StatusOr<std::unique_ptr<Pair>> Pair::Open(Transport& transport, BufferPool& pool,
                                                 Clock& clock, const LinkProbeOptions& options,
                                                 int peer) {
  auto pair = absl::WrapUnique(new Pair(clock, options, peer));
  PENSTOCK_ASSIGN_OR_RETURN(
      pair->sender_, transport.OpenSender({EdgeKind::kCollective, options.self, peer}, kWindow,
                                          options.message_bytes));
  PENSTOCK_ASSIGN_OR_RETURN(
      pair->receiver_, transport.OpenReceiver({EdgeKind::kCollective, peer, options.self}, kWindow,
                                              options.message_bytes, pool));
  PENSTOCK_ASSIGN_OR_RETURN(pair->small_, AcquireTensor(pool, DType::kF32, kPing));
  PENSTOCK_ASSIGN_OR_RETURN(pair->large_, AcquireTensor(pool, DType::kF32, pair->burst_));
  for (const Tensor* tensor : {&pair->small_, &pair->large_}) {
    std::memset(tensor->buffer.data(), 0, tensor->size_bytes());
  }
  return pair;
}

absl::StatusOr<double> Pair::Ping() {
  const int64_t start_ns = clock_.MonotonicNs();
  PENSTOCK_RETURN_IF_ERROR(Send(small_));
  PENSTOCK_RETURN_IF_ERROR(Receive(kPing));
  return static_cast<double>(clock_.MonotonicNs() - start_ns) * 1e-9;
}

absl::StatusOr<double> Pair::Burst() {
  const int64_t start_ns = clock_.MonotonicNs();
  for (int i = 0; i < options_.burst; ++i) PENSTOCK_RETURN_IF_ERROR(Send(large_));
  PENSTOCK_RETURN_IF_ERROR(Receive(kPing));
  return static_cast<double>(clock_.MonotonicNs() - start_ns) * 1e-9;
}

absl::StatusOr<LinkMeasurement> Pair::Measure() {
  PENSTOCK_RETURN_IF_ERROR(Burst().status());  // connects, and widens the network's windows
  std::vector<double> pings;
  for (int i = 0; i < options_.pings; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const double seconds, Ping());
    pings.push_back(seconds);
  }
  std::nth_element(pings.begin(), pings.begin() + options_.pings / 2, pings.end());
  const double ping_s = pings[options_.pings / 2];
  PENSTOCK_ASSIGN_OR_RETURN(double burst_s, Burst());
  if (burst_s > 2.0 * ping_s) burst_s -= ping_s;
  const double bytes = static_cast<double>(options_.message_bytes) * options_.burst;
  return LinkMeasurement{.from = options_.self,
                         .to = peer_,
                         .latency_s = ping_s / 2.0,
                         .bytes_per_second = bytes / burst_s};
}

absl::Status Pair::Answer() {
  const auto take_burst = [&]() -> absl::Status {
    for (int i = 0; i < options_.burst; ++i) PENSTOCK_RETURN_IF_ERROR(Receive(burst_));
    return Send(small_);
  };
  PENSTOCK_RETURN_IF_ERROR(take_burst());
  for (int i = 0; i < options_.pings; ++i) {
    PENSTOCK_RETURN_IF_ERROR(Receive(kPing));
    PENSTOCK_RETURN_IF_ERROR(Send(small_));
  }
  return take_burst();
}

}  // namespace

absl::StatusOr<std::vector<LinkMeasurement>> ProbeLinks(Transport& transport, BufferPool& pool,
                                                        Clock& clock,
                                                        const LinkProbeOptions& options) {
  std::vector<std::unique_ptr<Pair>> pairs(options.workers);
  for (int peer = 0; peer < options.workers; ++peer) {
    if (peer == options.self) continue;
    options.on_peer(peer);
    PENSTOCK_ASSIGN_OR_RETURN(pairs[peer], Pair::Open(transport, pool, clock, options, peer));
  }
  // Of the turns (0, 1), (1, 0), (0, 2), (2, 0), ..., (1, 2), ... those that this worker is in.
  std::vector<LinkMeasurement> links(options.workers);
  for (int peer = 0; peer < options.workers; ++peer) {
    if (peer == options.self) continue;
    options.on_peer(peer);
    const bool first = options.self < peer;
    for (const bool measures : {first, !first}) {
      if (!measures) {
        PENSTOCK_RETURN_IF_ERROR(pairs[peer]->Answer());
        continue;
      }
      PENSTOCK_ASSIGN_OR_RETURN(links[peer], pairs[peer]->Measure());
    }
  }
  for (const auto& done : {&Pair::SayDone, &Pair::AwaitDone}) {
    for (int peer = 0; peer < options.workers; ++peer) {
      if (peer == options.self) continue;
      options.on_peer(peer);
      PENSTOCK_RETURN_IF_ERROR((pairs[peer].get()->*done)());
    }
  }
  links.erase(links.begin() + options.self);
  return links;
}

}  // namespace penstock
