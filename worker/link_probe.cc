#include "worker/link_probe.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
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

  // Between worker 0 and another: that a round begins, or that the other is through with it.
  absl::Status Say() { return Send(small_); }
  absl::Status Await(absl::Duration timeout) { return Receive(kPing, timeout); }

 private:
  Pair(Clock& clock, const LinkProbeOptions& options, int peer)
      : clock_(clock), options_(options), peer_(peer), burst_{options.message_bytes / 4} {}

  absl::Status Send(const Tensor& tensor) {
    return sender_->Send(sent_++, tensor, absl::Now() + options_.timeout);
  }
  absl::Status Receive(const Shape& shape) { return Receive(shape, options_.timeout); }
  absl::Status Receive(const Shape& shape, absl::Duration timeout) {
    return receiver_->Receive({received_++, DType::kF32, shape}, absl::Now() + timeout).status();
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

std::optional<int> PeerIn(const ProbeRound& round, int worker) {
  for (const auto& [first, second] : round) {
    if (first == worker) return second;
    if (second == worker) return first;
  }
  return std::nullopt;
}

// One worker's part in a probe.
class Probe {
 public:
  explicit Probe(const LinkProbeOptions& options) : options_(options) {}

  absl::Status Open(Transport& transport, BufferPool& pool, Clock& clock);
  absl::StatusOr<std::vector<LinkMeasurement>> Run();

 private:
  static constexpr int kConductor = 0;

  // The pair with `peer`; errors that follow are about it.
  Pair& With(int peer) {
    options_.on_peer(peer);
    return *pairs_[peer];
  }
  absl::Status MeasureWith(int peer);
  absl::Status Conduct(const ProbeRound& round);
  absl::Status Follow(const ProbeRound& round, absl::Duration timeout);

  const LinkProbeOptions& options_;
  std::vector<std::unique_ptr<Pair>> pairs_;  // by worker; null of this one
  std::vector<LinkMeasurement> links_;        // by worker
};

absl::Status Probe::Open(Transport& transport, BufferPool& pool, Clock& clock) {
  pairs_.resize(options_.workers);
  links_.resize(options_.workers);
  for (int peer = 0; peer < options_.workers; ++peer) {
    if (peer == options_.self) continue;
    options_.on_peer(peer);
    PENSTOCK_ASSIGN_OR_RETURN(pairs_[peer], Pair::Open(transport, pool, clock, options_, peer));
  }
  return absl::OkStatus();
}

absl::Status Probe::MeasureWith(int peer) {
  Pair& pair = With(peer);
  options_.on_pair(peer);
  if (options_.self > peer) PENSTOCK_RETURN_IF_ERROR(pair.Answer());
  PENSTOCK_ASSIGN_OR_RETURN(links_[peer], pair.Measure());
  return options_.self < peer ? pair.Answer() : absl::OkStatus();
}

absl::Status Probe::Conduct(const ProbeRound& round) {
  const auto for_others = [&](auto&& what) -> absl::Status {
    for (int peer = 0; peer < options_.workers; ++peer) {
      if (peer == kConductor || !PeerIn(round, peer).has_value()) continue;
      PENSTOCK_RETURN_IF_ERROR(what(With(peer)));
    }
    return absl::OkStatus();
  };
  PENSTOCK_RETURN_IF_ERROR(for_others([](Pair& pair) { return pair.Say(); }));
  if (const std::optional<int> peer = PeerIn(round, kConductor); peer.has_value()) {
    PENSTOCK_RETURN_IF_ERROR(MeasureWith(*peer));
  }
  return for_others([&](Pair& pair) { return pair.Await(options_.timeout); });
}

absl::Status Probe::Follow(const ProbeRound& round, absl::Duration timeout) {
  const std::optional<int> peer = PeerIn(round, options_.self);
  if (!peer.has_value()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(With(kConductor).Await(timeout));
  PENSTOCK_RETURN_IF_ERROR(MeasureWith(*peer));
  return With(kConductor).Say();
}

absl::StatusOr<std::vector<LinkMeasurement>> Probe::Run() {
  const std::vector<ProbeRound> rounds = ProbeRounds(options_);
  const absl::Duration timeout = (static_cast<int>(rounds.size()) + 1) * options_.timeout;
  const bool conducts = options_.self == kConductor;
  for (const ProbeRound& round : rounds) {
    PENSTOCK_RETURN_IF_ERROR(conducts ? Conduct(round) : Follow(round, timeout));
  }
  if (conducts) {
    for (int peer = 1; peer < options_.workers; ++peer) {
      PENSTOCK_RETURN_IF_ERROR(With(peer).Say());
    }
  } else {
    PENSTOCK_RETURN_IF_ERROR(With(kConductor).Await(timeout));
  }
  links_.erase(links_.begin() + options_.self);
  return std::move(links_);
}

}  // namespace

std::vector<ProbeRound> ProbeRounds(const LinkProbeOptions& options) {
  const auto host_of = [&](int worker) {
    return options.hosts.empty() ? worker : options.hosts[worker];
  };
  ProbeRound left;
  for (int first = 0; first < options.workers; ++first) {
    for (int second = first + 1; second < options.workers; ++second) {
      left.emplace_back(first, second);
    }
  }
  std::vector<ProbeRound> rounds;
  while (!left.empty()) {
    std::set<int> busy;  // hosts
    ProbeRound& round = rounds.emplace_back();
    std::erase_if(left, [&](const auto& pair) {
      const int first = host_of(pair.first), second = host_of(pair.second);
      if (busy.count(first) > 0 || busy.count(second) > 0) return false;
      busy.insert({first, second});
      round.push_back(pair);
      return true;
    });
  }
  return rounds;
}

absl::StatusOr<std::vector<LinkMeasurement>> ProbeLinks(Transport& transport, BufferPool& pool,
                                                        Clock& clock,
                                                        const LinkProbeOptions& options) {
  Probe probe(options);
  PENSTOCK_RETURN_IF_ERROR(probe.Open(transport, pool, clock));
  return probe.Run();
}

}  // namespace penstock
