// TcpProxy: stands between a client and a server on loopback and plays the network's tricks.
#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace penstock {

class TcpProxy {
 public:
  // Listens on a port of its own and forwards every connection to `target_port`.
  explicit TcpProxy(int target_port);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  std::string address() const;

  // From now on:
  void Cut() { mode_ = Mode::kCut; }        // closes all connections, accepts none
  void Freeze() { mode_ = Mode::kFrozen; }  // nothing passes, nothing closes
  void Thaw() { mode_ = Mode::kForward; }   // what was held up passes
  // Flips one bit of every byte 'Z' towards the server.
  void Corrupt() { mode_ = Mode::kCorrupt; }

 private:
  enum class Mode { kForward, kCut, kFrozen, kCorrupt };
  void Serve();

  const int target_port_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<Mode> mode_ = Mode::kForward;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace penstock
