// HttpConnection: one client's connection, never waiting: it says what it wants to be polled for, and
// goes on when that is there.
//
//   reading ── a whole head ──▶ answering ── Reply ──▶ writing ──▶ reading, or closing ──▶ done
//
// Every state but answering has a deadline. Thread-compatible: the server's loop.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "services/http/exchange.h"
#include "services/http/limits.h"
#include "services/http/tls_session.h"

namespace penstock {

class HttpConnection {
 public:
  using Time = CondVar::Clock::time_point;

  // Takes `fd`, a connected non-blocking socket, and closes it at its end. `tls`: null for plaintext.
  // REQUIRES: `limits` outlives it.
  HttpConnection(int fd, std::unique_ptr<TlsSession> tls, const HttpLimits& limits, Time now);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Returns what to poll for; nothing (fd -1) while answering.
  pollfd Interest() const;
  // When it ends if nothing happens.
  Time deadline() const { return deadline_; }
  bool done() const { return state_ == State::kDone; }
  // Since when it waits for a request after its first, none of which has come; nothing if it does not.
  std::optional<Time> idle_since() const;
  // Returns whether nothing is being answered: ending it then costs its client a request at most.
  bool reading() const { return state_ == State::kReading; }

  // Goes on with what poll found, and ends what is late.
  void Advance(short events, Time now);

  // The head of a request, once it is there as a whole, or larger than allowed (then what there is).
  // The connection is answering from then on.
  std::optional<std::string> TakeHead();
  // REQUIRES: done reading its head.
  std::shared_ptr<X509> peer_certificate() const;
  // REQUIRES: it is answering.
  void Reply(const HttpAnswer& answer, Time now);

 private:
  enum class State { kReading, kAnswering, kWriting, kClosing, kDone };

  void Receive();
  void Send();
  // Where it goes when all is sent.
  void AfterSending(Time now);

  const int fd_;
  const std::unique_ptr<TlsSession> tls_;
  const HttpLimits& limits_;
  const Time born_;
  State state_ = State::kReading;
  Time deadline_;
  std::optional<Time> idle_since_;
  std::string input_;   // received, not yet taken
  std::string output_;  // to be sent from output_sent_ on
  size_t output_sent_ = 0;
  bool close_after_sending_ = false;
};

}  // namespace penstock
