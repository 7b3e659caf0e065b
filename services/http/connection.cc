#include "services/http/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/string_view.h"

namespace penstock {
namespace {

constexpr char kEndOfHead[] = "\r\n\r\n";

HttpConnection::Time Later(HttpConnection::Time now, absl::Duration wait) {
  return now + absl::ToChronoNanoseconds(wait);
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

HttpConnection::HttpConnection(int fd, std::unique_ptr<TlsSession> tls, const HttpLimits& limits,
                               Time now)
    : fd_(fd),
      tls_(std::move(tls)),
      limits_(limits),
      born_(now),
      deadline_(Later(now, limits.request_timeout)) {}

HttpConnection::~HttpConnection() { close(fd_); }

pollfd HttpConnection::Interest() const {
  if (state_ == State::kAnswering || state_ == State::kDone) return {.fd = -1};
  const bool sends = output_sent_ < output_.size();
  const bool receives = state_ != State::kWriting;
  return {.fd = fd_, .events = static_cast<short>((sends ? POLLOUT : 0) | (receives ? POLLIN : 0))};
}

std::optional<HttpConnection::Time> HttpConnection::idle_since() const {
  return state_ == State::kReading && input_.empty() ? idle_since_ : std::nullopt;
}

void HttpConnection::Advance(short events, Time now) {
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    Receive();
    if (idle_since_.has_value() && !input_.empty()) {  // a request has begun
      idle_since_.reset();
      deadline_ = Later(now, limits_.request_timeout);
    }
  }
  if (output_sent_ < output_.size()) Send();
  if (state_ == State::kWriting && output_sent_ == output_.size()) AfterSending(now);
  if (state_ != State::kAnswering && now >= deadline_) state_ = State::kDone;
}

std::optional<std::string> HttpConnection::TakeHead() {
  if (state_ != State::kReading) return std::nullopt;
  size_t end = input_.find(kEndOfHead);
  if (end != std::string::npos) {
    end += sizeof(kEndOfHead) - 1;
  } else if (input_.size() > limits_.head_bytes_max) {
    end = input_.size();
  } else {
    return std::nullopt;
  }
  std::string head = input_.substr(0, end);
  input_.erase(0, end);
  state_ = State::kAnswering;
  return head;
}

std::shared_ptr<X509> HttpConnection::peer_certificate() const {
  return tls_ == nullptr ? nullptr : tls_->peer_certificate();
}

void HttpConnection::Reply(const HttpAnswer& answer, Time now) {
  state_ = State::kWriting;
  deadline_ = Later(now, limits_.write_timeout);
  close_after_sending_ = answer.close || now >= Later(born_, limits_.connection_age);
  if (tls_ == nullptr) {
    output_.append(answer.bytes);
  } else if (!tls_->Send(answer.bytes, output_).ok()) {
    state_ = State::kDone;
    return;
  }
  Advance(/*events=*/0, now);
}

void HttpConnection::Receive() {
  char buffer[16 << 10];
  const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
  if (got < 0 && WouldBlock()) return;
  if (got <= 0) {
    state_ = State::kDone;
    return;
  }
  const absl::string_view bytes(buffer, static_cast<size_t>(got));
  if (state_ == State::kClosing) return;  // it will not be read
  if (tls_ == nullptr) {
    input_.append(bytes.data(), bytes.size());
  } else if (!tls_->Receive(bytes, input_, output_).ok()) {
    Send();  // the alert, as far as it goes at once
    state_ = State::kDone;
  }
}

void HttpConnection::Send() {
  const ssize_t sent =
      send(fd_, output_.data() + output_sent_, output_.size() - output_sent_, MSG_NOSIGNAL);
  if (sent < 0 && !WouldBlock()) state_ = State::kDone;
  if (sent > 0) output_sent_ += static_cast<size_t>(sent);
  if (output_sent_ == output_.size()) {
    output_.clear();
    output_sent_ = 0;
  }
}

// A closed connection whose client still sends would be reset, and the answer lost: so the client hangs
// up first, if it does so soon.
void HttpConnection::AfterSending(Time now) {
  if (!close_after_sending_) {
    state_ = State::kReading;
    idle_since_ = now;
    deadline_ = Later(now, input_.empty() ? limits_.idle_timeout : limits_.request_timeout);
    return;
  }
  if (tls_ != nullptr) {
    tls_->Close(output_);
    Send();
  }
  shutdown(fd_, SHUT_WR);
  state_ = State::kClosing;
  deadline_ = Later(now, limits_.close_timeout);
}

}  // namespace penstock
