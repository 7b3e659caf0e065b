#include "services/http/server.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/deadline.h"
#include "base/mutex.h"
#include "base/status.h"
#include "services/http/connection.h"
#include "services/http/exchange.h"
#include "services/rpc/completion_poller.h"
#include "services/rpc/task_pool.h"

namespace penstock {

class HttpServer::Loop {
 public:
  Loop(HttpServerOptions options, int listener, HostPort address)
      : tls_(std::move(options.tls)),
        service_({.routes = std::move(options.routes),
                  .authorize = std::move(options.authorize),
                  .local_host_only = tls_ == nullptr && options.listen.IsLoopback(),
                  .limits = options.limits}),
        listener_(listener),
        address_(std::move(address)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        handlers_(std::in_place, options.limits.handler_threads, options.limits.connections_max,
                  "http-handler"),
        thread_([this] {
          NameThread("http");
          while (TakeTurn()) {
          }
        }) {}

  ~Loop() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    Wake();
    thread_.join();
    connections_.clear();
    handlers_.reset();  // those that run end, those that wait are not begun
    close(listener_);
    close(wake_);
  }

  HostPort address() const { return address_; }

 private:
  using Time = HttpConnection::Time;
  using Id = int64_t;

  // For how long nothing is accepted when the process has no more descriptors.
  static constexpr absl::Duration kAcceptPause = absl::Milliseconds(200);
  static constexpr absl::Duration kLongestPoll = absl::Seconds(60);

  // Waits until something can be done and does it. False when the server stops.
  bool TakeTurn() {
    std::vector<pollfd> polled = {{.fd = wake_, .events = POLLIN},
                                  {.fd = MayAccept() ? listener_ : -1, .events = POLLIN}};
    for (const auto& [id, connection] : connections_) polled.push_back(connection->Interest());
    poll(polled.data(), polled.size(), MillisecondsToWait());

    const Time now = CondVar::Clock::now();
    size_t next = 2;
    for (const auto& [id, connection] : connections_) {
      connection->Advance(polled[next++].revents, now);
    }
    if (!TakeAnswers(now)) return false;
    for (const auto& [id, connection] : connections_) Dispatch(id, *connection);
    std::erase_if(connections_, [](const auto& entry) { return entry.second->done(); });
    if ((polled[1].revents & POLLIN) != 0) Accept(now);
    return true;
  }

  bool MayAccept() const {
    return CondVar::Clock::now() >= accept_again_ &&
           (connections_.size() < ConnectionsMax() || LeastNeeded() != connections_.end());
  }

  size_t ConnectionsMax() const { return static_cast<size_t>(service_.limits.connections_max); }

  int MillisecondsToWait() const {
    const Time now = CondVar::Clock::now();
    Time until = After(kLongestPoll);
    if (accept_again_ > now) until = std::min(until, accept_again_);
    for (const auto& [id, connection] : connections_) {
      if (connection->Interest().fd >= 0) until = std::min(until, connection->deadline());
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    return static_cast<int>(std::max<int64_t>(0, wait));
  }

  // The one to give up for a new one: see HttpLimits::connections_max.
  std::map<Id, std::unique_ptr<HttpConnection>>::const_iterator LeastNeeded() const {
    auto found = connections_.end();
    auto oldest = connections_.end();  // ids go up
    for (auto i = connections_.begin(); i != connections_.end(); ++i) {
      if (oldest == connections_.end() && i->second->reading()) oldest = i;
      const std::optional<Time> since = i->second->idle_since();
      if (since.has_value() &&
          (found == connections_.end() || *since < *found->second->idle_since())) {
        found = i;
      }
    }
    return found == connections_.end() ? oldest : found;
  }

  void Accept(Time now) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      const bool exhausted =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (exhausted) accept_again_ = After(kAcceptPause);
      return;
    }
    if (connections_.size() >= ConnectionsMax()) {
      const auto given_up = LeastNeeded();
      if (given_up != connections_.end()) connections_.erase(given_up);
    }
    std::unique_ptr<TlsSession> session;
    if (tls_ != nullptr) {
      absl::StatusOr<std::shared_ptr<SSL_CTX>> context = tls_();
      if (context.ok()) {
        if (auto accepted = TlsSession::Accept(*std::move(context)); accepted.ok()) {
          session = *std::move(accepted);
        }
      }
      if (session == nullptr) {
        close(fd);
        return;
      }
    }
    connections_[++last_id_] =
        std::make_unique<HttpConnection>(fd, std::move(session), service_.limits, now);
  }

  // Hands a request that has come as a whole to a handler thread.
  void Dispatch(Id id, HttpConnection& connection) {
    std::optional<std::string> head = connection.TakeHead();
    if (!head.has_value()) return;
    if (head->size() > service_.limits.head_bytes_max) {
      connection.Reply(AnswerOversizedHead(service_), CondVar::Clock::now());
      return;
    }
    const bool taken = handlers_->Submit(
        [this, id, head = *std::move(head), peer = connection.peer_certificate()] {
          {
            MutexLock lock(mutex_);
            if (stopping_) return;
          }
          HttpAnswer answer = AnswerRequest(service_, head, peer);
          {
            MutexLock lock(mutex_);
            answers_.emplace_back(id, std::move(answer));
          }
          Wake();
        });
    PENSTOCK_CHECK(
        taken);  // there is room for a request of every connection, and each has one at most
  }

  // False when the server stops.
  bool TakeAnswers(Time now) {
    uint64_t count = 0;
    (void)!read(wake_, &count, sizeof(count));
    std::vector<std::pair<Id, HttpAnswer>> answers;
    {
      MutexLock lock(mutex_);
      if (stopping_) return false;
      answers.swap(answers_);
    }
    for (const auto& [id, answer] : answers) {
      const auto connection = connections_.find(id);
      if (connection != connections_.end()) connection->second->Reply(answer, now);
    }
    return true;
  }

  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof(one));
  }

  const std::function<absl::StatusOr<std::shared_ptr<SSL_CTX>>()> tls_;
  const HttpService service_;
  const int listener_;
  const HostPort address_;
  const int wake_;  // an eventfd

  // The loop's thread only.
  std::map<Id, std::unique_ptr<HttpConnection>> connections_;
  Id last_id_ = 0;
  Time accept_again_;

  Mutex mutex_;
  std::vector<std::pair<Id, HttpAnswer>> answers_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Last, for both use the members above.
  std::optional<TaskPool> handlers_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options) {
  HostPort address;
  PENSTOCK_ASSIGN_OR_RETURN(const int listener, OpenListener(options.listen, address));
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::make_unique<Loop>(std::move(options), listener, std::move(address))));
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
HttpServer::~HttpServer() = default;

HostPort HttpServer::address() const { return loop_->address(); }

}  // namespace penstock
