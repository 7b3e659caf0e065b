// LeaderStub: calls to whichever of several coordinators leads, for workers and clients. With one coordinator it calls that
// one, once, as client.h does.
//
// A call that is refused because another leads, or not answered, is made again to the coordinator that leader_finder.h
// names, as long as there is time. While none leads, which an election makes last a few seconds, they are asked again
// with a growing pause. All calls of the services may be made twice.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <grpcpp/channel.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/leader_note.h"
#include "services/rpc/address.h"
#include "services/rpc/client.h"
#include "services/rpc/leader_finder.h"
#include "services/rpc/status.h"

namespace penstock {

// `Service`: generated, such as v1::JobService.
template <typename Service>
class LeaderStub {
 public:
  using Stub = typename Service::Stub;
  // Makes the channel to an address.
  using Dial = std::function<std::shared_ptr<grpc::Channel>(const std::string& address)>;

  // REQUIRES: there is an address.
  LeaderStub(const std::vector<HostPort>& addresses, const Dial& dial)
      : finder_(TextsOf(addresses)) {
    for (const std::string& address : TextsOf(addresses)) {
      peers_.push_back({absl::StrCat("coordinator ", address), Service::NewStub(dial(address))});
    }
  }

  // Returns the name of the coordinator that would be asked now: "coordinator 10.0.0.7:7070".
  const std::string& peer() const { return peers_[finder_.current()].name; }

  // Calls `method` and waits at most `timeout` for the answer. Errors: those of the call, of whom was asked last; one that does
  // not know whether it was done (status.h) counts for more than one that does not lead.
  template <typename Base, typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Base::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const std::type_identity_t<Request>& request,
                                absl::Duration timeout, const CallTrace& trace = {}) {
    absl::StatusOr<Response> response = absl::UnavailableError("no coordinator was asked");
    AskInTurn(timeout, [&](Peer& peer, absl::Duration time) {
      absl::StatusOr<Response> answer =
          penstock::Call(peer.name, *peer.stub, method, request, time, trace);
      const absl::Status status = answer.status();
      const bool says_less = LeaderOf(status).has_value() && IsPerhapsDone(response.status());
      if (!says_less) response = std::move(answer);
      return status;
    });
    return response;
  }

  // Reads a stream to its end, as ReadStream does, from the coordinator that leads. One that breaks after a message is not
  // taken up again, for only the caller knows where.
  template <typename Base, typename Request, typename Response>
  absl::Status Read(std::unique_ptr<grpc::ClientReader<Response>> (Base::*method)(
                        grpc::ClientContext*, const Request&),
                    const std::type_identity_t<Request>& request, absl::Duration timeout,
                    StreamCanceller& canceller,
                    const std::type_identity_t<std::function<bool(const Response&)>>& on_message,
                    const CallTrace& trace = {}) {
    absl::Status status;
    for (size_t attempt = 0; attempt < peers_.size(); ++attempt) {
      const size_t asked = finder_.current();
      bool has_begun = false;
      status = ReadStream(
          peers_[asked].name, *peers_[asked].stub, method, request, timeout, canceller,
          [&](const Response& message) {
            has_begun = true;
            return on_message(message);
          },
          trace);
      // A stream that was open for all its time is no sign of a coordinator that is away.
      if (absl::IsDeadlineExceeded(status)) return status;
      if (!finder_.OnAnswer(asked, status) || has_begun) return status;
    }
    return status;
  }

 private:
  struct Peer {
    std::string name;
    std::unique_ptr<Stub> stub;
  };
  static constexpr absl::Duration kPauseMin = absl::Milliseconds(100);
  static constexpr absl::Duration kPauseMax = absl::Seconds(1);

  static std::vector<std::string> TextsOf(const std::vector<HostPort>& addresses) {
    std::vector<std::string> texts;
    for (const HostPort& address : addresses) texts.push_back(address.ToString());
    return texts;
  }

  // Calls `ask` with one coordinator after the other, until one answers or `timeout` is over.
  void AskInTurn(absl::Duration timeout,
                 const std::function<absl::Status(Peer&, absl::Duration)>& ask) {
    const absl::Time deadline = absl::Now() + timeout;
    absl::Duration pause = kPauseMin;
    for (size_t attempt = 1;; ++attempt) {
      const size_t asked = finder_.current();
      const absl::Status status = ask(peers_[asked], deadline - absl::Now());
      const bool elsewhere = finder_.OnAnswer(asked, status);
      if (peers_.size() == 1) return;
      if (!elsewhere && !LeaderOf(status).has_value()) return;
      if (attempt % peers_.size() == 0) {
        // All were asked. If one is there and waits for a leader, that is worth waiting for, too.
        if (!LeaderOf(status).has_value() || absl::Now() + pause >= deadline) return;
        absl::SleepFor(pause);
        pause = std::min(2 * pause, kPauseMax);
      } else if (absl::Now() >= deadline) {
        return;
      }
    }
  }

  LeaderFinder finder_;
  std::vector<Peer> peers_;  // by index of the finder; constant after construction
};

}  // namespace penstock
