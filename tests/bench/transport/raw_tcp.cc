// The yardstick: one TCP connection, whole messages copied by send from as many source buffers as the
// window has messages, and by recv into as many contiguous destination buffers.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "base/check.h"
#include "compute/buffer_pool.h"
#include "tests/bench/transport/pair.h"

namespace penstock {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

std::vector<Buffer> Buffers(BufferPool& pool, const Load& load) {
  std::vector<Buffer> buffers;
  buffers.reserve(load.window);
  for (int i = 0; i < load.window; ++i) buffers.push_back(pool.Acquire(load.message_bytes));
  return buffers;
}

class RawTcp final : public Mover {
 public:
  const char* name() const override { return "raw TCP"; }

  void Receive(const Load& load, const std::function<void(int)>& listening,
               StopWatch& watch) override {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    PENSTOCK_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
    PENSTOCK_CHECK(listen(listener, 1) == 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    listening(ntohs(address.sin_port));
    const int connection = accept(listener, nullptr, nullptr);
    BufferPool pool(HostMemory());
    const std::vector<Buffer> buffers = Buffers(pool, load);
    for (int64_t message = 0; message < load.total_messages(); ++message) {
      char* const to = static_cast<char*>(buffers[message % load.window].data());
      for (int64_t at = 0; at < load.message_bytes;) {
        const ssize_t got = recv(connection, to + at, load.message_bytes - at, 0);
        PENSTOCK_CHECK(got > 0);
        at += got;
      }
      PENSTOCK_CHECK(*reinterpret_cast<int64_t*>(to) == message);
      watch.OnMessage();
    }
    close(connection);
    close(listener);
  }

  void Send(const Load& load, int port, StopWatch& watch,
            const std::function<void()>& finish) override {
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const sockaddr_in address = Loopback(port);
    PENSTOCK_CHECK(
        connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    BufferPool pool(HostMemory());
    const std::vector<Buffer> buffers = Buffers(pool, load);
    for (int64_t message = 0; message < load.total_messages(); ++message) {
      char* const from = static_cast<char*>(buffers[message % load.window].data());
      *reinterpret_cast<int64_t*>(from) = message;
      for (int64_t at = 0; at < load.message_bytes;) {
        const ssize_t put = send(connection, from + at, load.message_bytes - at, MSG_NOSIGNAL);
        PENSTOCK_CHECK(put > 0);
        at += put;
      }
      watch.OnMessage();
    }
    finish();
    close(connection);
  }
};

}  // namespace

std::unique_ptr<Mover> MakeRawTcp() { return std::make_unique<RawTcp>(); }

}  // namespace penstock
