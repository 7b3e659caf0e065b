// TcpProxy: stands between a client and a server on loopback and plays the network's tricks.
#pragma once

#include <atomic>
#include <cstdint>
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
  void Cut() { mode_ = Mode::kCut; }  // closes all connections, accepts none
  void Interrupt();  // closes all connections, before it returns, and new ones at once
  void Freeze() { mode_ = Mode::kFrozen; }  // nothing passes, nothing closes
  // Nothing passes over the connections that are open now, which stay open; new ones are as before. Returns once that is so.
  void StallOpen();
  // What was held up passes, and new connections stay.
  void Thaw() { mode_ = Mode::kForward; }
  // Closes all connections after each such number of bytes towards the server, and this often; new ones stay.
  void CutEvery(int64_t bytes, int times) {
    left_bytes_ = cut_bytes_ = bytes;
    cuts_left_ = times;
  }
  int cuts_left() const { return cuts_left_; }
  // Flips one bit of every byte 'Z' towards the server.
  void Corrupt() { mode_ = Mode::kCorrupt; }

  // Once, in the next piece towards the server that is large enough to be of a tensor:
  enum class Trick {
    kNone,
    kFlip,       // flips a bit in its middle
    kDrop,       // leaves bytes out
    kDuplicate,  // brings bytes twice
    kLose,       // does not bring it at all
  };
  void Play(Trick trick) { trick_ = trick; }
  bool has_played() const { return trick_ == Trick::kNone; }

 private:
  enum class Mode { kForward, kCut, kInterrupted, kFrozen, kCorrupt };
  void Serve();

  const int target_port_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<Mode> mode_ = Mode::kForward;
  std::atomic<Trick> trick_ = Trick::kNone;
  std::atomic<int64_t> cut_bytes_ = 0;
  std::atomic<int64_t> left_bytes_ = 0;
  std::atomic<int> cuts_left_ = 0;
  std::atomic<bool> all_closed_ = false;
  std::atomic<bool> stalls_open_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace penstock
