// Measuring a sender and a receiver process against each other.
//
// Each is a process in a session of its own, so that the kernel's autogroup scheduling gives each its
// share of a busy machine, and each measures its own CPU time. The first messages warm up caches,
// connections and pools and are not measured.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace penstock {

// One direction of a stream: `messages` messages of `message_bytes` each, `window` of them in flight.
struct Load {
  int64_t message_bytes = 0;
  int window = 0;
  int64_t warmup_messages = 0;
  int64_t messages = 0;  // measured ones

  int64_t total_messages() const { return warmup_messages + messages; }
};

class StopWatch;

// One way to move messages; its two halves run in different processes.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual const char* name() const = 0;

  // Makes ready to receive and calls `listening` with the port; then receives all of `load`, each
  // message contiguous in memory and checked, and tells the watch of each.
  virtual void Receive(const Load& load, const std::function<void(int)>& listening,
                       StopWatch& watch) = 0;
  // Sends all of `load`, telling the watch of each message, and calls `finish` before it cleans up:
  // it returns when the receiver has everything.
  virtual void Send(const Load& load, int port, StopWatch& watch,
                    const std::function<void()>& finish) = 0;
};

// Measures from the end of the warm-up to the last message.
class StopWatch {
 public:
  explicit StopWatch(const Load& load) : load_(load) {}

  void OnMessage() {
    if (++count_ == load_.warmup_messages) Start();
    if (count_ == load_.total_messages()) Stop();
  }
  // Takes the CPU time again, for work that follows the last message.
  void Stop();

  double seconds() const { return seconds_; }
  double cpu_seconds() const { return cpu_seconds_; }

 private:
  void Start();

  const Load load_;
  int64_t count_ = 0;
  double start_seconds_ = 0;
  double start_cpu_seconds_ = 0;
  double seconds_ = 0;
  double cpu_seconds_ = 0;
};

struct Measurement {
  double bytes_per_second = 0;
  double cpu_seconds_per_gb = 0;  // both processes together, 1e9 bytes
};

Measurement Measure(Mover& mover, const Load& load);

// The ways there are.
std::unique_ptr<Mover> MakeRawTcp();  // one connection, send and recv: the yardstick
// worker/transport.h over gRPC.
struct TensorStreamOptions {
  std::string credentials;  // a directory with a worker's, for TLS; plain text if it is empty
  bool shared = false;      // the bytes go through shared memory
};
std::unique_ptr<Mover> MakeTensorStream(const TensorStreamOptions& options);
std::unique_ptr<Mover> MakeProtobufStream();  // a gRPC stream of messages with a bytes field

}  // namespace penstock
