#include "tests/services/transport/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"

namespace penstock {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// One direction of one connection.
struct Pipe {
  int from = -1;
  int to = -1;
  bool to_server = false;
  bool stalls = false;
};

// A piece of this size is more than headers.
constexpr ssize_t kTensorBytesMin = 512;
constexpr ssize_t kTrickBytes = 100;

// Plays a trick within the first `size` bytes, behind which there is room. Returns their number then.
ssize_t PlayTrick(TcpProxy::Trick trick, char* data, ssize_t size) {
  // In a tensor, also where there are two or three of one size.
  char* const middle = data + size * 2 / 5;
  const ssize_t rest = data + size - middle;
  switch (trick) {
    case TcpProxy::Trick::kNone:
      return size;
    case TcpProxy::Trick::kFlip:
      *middle ^= 1;
      return size;
    case TcpProxy::Trick::kDrop:
      std::memmove(middle, middle + kTrickBytes, rest - kTrickBytes);
      return size - kTrickBytes;
    case TcpProxy::Trick::kDuplicate:
      std::memmove(middle + kTrickBytes, middle, rest);
      return size + kTrickBytes;
    case TcpProxy::Trick::kLose:
      return 0;
  }
  return size;
}

bool WriteAll(int fd, const char* data, ssize_t size) {
  while (size > 0) {
    const ssize_t written = send(fd, data, size, MSG_NOSIGNAL);
    if (written <= 0) return false;
    data += written;
    size -= written;
  }
  return true;
}

}  // namespace

TcpProxy::TcpProxy(int target_port) : target_port_(target_port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  PENSTOCK_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  PENSTOCK_CHECK(listen(listener_, 16) == 0);
  socklen_t size = sizeof(address);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

TcpProxy::~TcpProxy() {
  stopping_ = true;
  thread_.join();
  if (listener_ >= 0) close(listener_);
}

std::string TcpProxy::address() const { return absl::StrCat("127.0.0.1:", port_); }

void TcpProxy::Interrupt() {
  all_closed_ = false;
  mode_ = Mode::kInterrupted;
  while (!all_closed_) absl::SleepFor(absl::Milliseconds(1));
}

void TcpProxy::StallOpen() {
  stalls_open_ = true;
  while (stalls_open_) absl::SleepFor(absl::Milliseconds(1));
}

void TcpProxy::Serve() {
  std::vector<Pipe> pipes;
  const auto close_all = [&] {
    for (size_t i = 0; i < pipes.size(); i += 2) {  // pairs: there and back
      if (pipes[i].from >= 0) close(pipes[i].from);
      if (pipes[i].to >= 0) close(pipes[i].to);
    }
    pipes.clear();
  };
  std::vector<char> buffer(1 << 16);
  while (!stopping_) {
    if (mode_ == Mode::kCut) {
      close_all();
      if (listener_ >= 0) close(std::exchange(listener_, -1));
    }
    const bool interrupted = mode_ == Mode::kInterrupted;
    if (interrupted) {
      close_all();
      all_closed_ = true;
    }
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
    if (stalls_open_.exchange(false)) {
      for (Pipe& pipe : pipes) pipe.stalls = true;
    }
    for (const Pipe& pipe : pipes) polled.push_back({pipe.stalls ? -1 : pipe.from, POLLIN, 0});
    const bool frozen = mode_ == Mode::kFrozen;
    poll(frozen ? nullptr : polled.data(), frozen ? 0 : polled.size(), 5);
    if (frozen) continue;
    for (size_t i = 0; i < pipes.size(); ++i) {
      if (polled[i + 1].revents == 0 || pipes[i].from < 0) continue;
      ssize_t got = recv(pipes[i].from, buffer.data(), buffer.size() - kTrickBytes, 0);
      if (got > 0 && pipes[i].to_server && cuts_left_ > 0 && (left_bytes_ -= got) <= 0) {
        left_bytes_ = cut_bytes_.load();
        --cuts_left_;
        close_all();
        break;
      }
      if (got >= kTensorBytesMin && pipes[i].to_server) {
        got = PlayTrick(trick_.exchange(Trick::kNone), buffer.data(), got);
        if (got == 0) continue;
      }
      if (got > 0 && pipes[i].to_server && mode_ == Mode::kCorrupt) {
        for (ssize_t j = 0; j < got; ++j) buffer[j] ^= buffer[j] == 'Z' ? 1 : 0;
      }
      if (got <= 0 || !WriteAll(pipes[i].to, buffer.data(), got)) {
        Pipe& other = pipes[i ^ 1];
        close(pipes[i].from);
        close(pipes[i].to);
        pipes[i] = other = Pipe();
      }
    }
    if (polled[0].revents != 0) {
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (interrupted) {
        close(client);
        continue;
      }
      const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = Loopback(target_port_);
      if (client >= 0 &&
          connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
        const int on = 1;  // small frames at once
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        pipes.push_back({client, server, true});
        pipes.push_back({server, client, false});
      } else {
        close(client);
        close(server);
      }
    }
  }
  close_all();
}

}  // namespace penstock
