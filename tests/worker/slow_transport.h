// SlowTransport: another transport with random delays, so that every run has another timing.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "base/random.h"
#include "worker/transport.h"

namespace penstock {

class SlowTransport : public Transport {
 public:
  // Before each message is sent or taken it waits up to `delay_us_max`, drawn from `seed`.
  SlowTransport(std::unique_ptr<Transport> inner, uint64_t seed, int64_t delay_us_max)
      : inner_(std::move(inner)), seed_(seed), delay_us_max_(delay_us_max) {}

  absl::StatusOr<std::unique_ptr<Sender>> OpenSender(const EdgeId& edge, int capacity,
                                                     int64_t tensor_bytes_max) override {
    auto sender = inner_->OpenSender(edge, capacity, tensor_bytes_max);
    if (!sender.ok()) return sender;
    return std::make_unique<SlowSender>(*std::move(sender), NextDelay());
  }

  absl::StatusOr<std::unique_ptr<Receiver>> OpenReceiver(const EdgeId& edge, int capacity,
                                                         int64_t tensor_bytes_max,
                                                         BufferPool& pool) override {
    auto receiver = inner_->OpenReceiver(edge, capacity, tensor_bytes_max, pool);
    if (!receiver.ok()) return receiver;
    return std::make_unique<SlowReceiver>(*std::move(receiver), NextDelay());
  }

  void UseShare(DeviceShare* share) override { inner_->UseShare(share); }
  void Cancel(const absl::Status& reason) override { inner_->Cancel(reason); }

 private:
  struct Delay {
    RandomStream random;
    int64_t max_us;
    // Mostly nothing, now and then long: the shape of real jitter.
    void Pass() {
      const uint64_t draw = random.Below(8);
      if (draw < 5) return;
      const uint64_t bound = draw == 7 ? max_us : max_us / 8 + 1;
      std::this_thread::sleep_for(std::chrono::microseconds(random.Below(bound)));
    }
  };

  class SlowSender : public Sender {
   public:
    SlowSender(std::unique_ptr<Sender> inner, Delay delay)
        : inner_(std::move(inner)), delay_(delay) {}
    absl::Status Reserve(int64_t sequence, const Tensor& tensor, absl::Time deadline) override {
      delay_.Pass();
      return inner_->Reserve(sequence, tensor, deadline);
    }
    absl::Status Put(int64_t sequence, const Tensor& tensor) override {
      return inner_->Put(sequence, tensor);
    }
    bool Ready() const override { return inner_->Ready(); }
    int64_t bytes_sent() const override { return inner_->bytes_sent(); }
    int64_t messages_sent() const override { return inner_->messages_sent(); }

   private:
    std::unique_ptr<Sender> inner_;
    Delay delay_;
  };

  class SlowReceiver : public Receiver {
   public:
    SlowReceiver(std::unique_ptr<Receiver> inner, Delay delay)
        : inner_(std::move(inner)), delay_(delay) {}
    absl::StatusOr<Arrival> Take(const TensorExpectation& expected, absl::Time deadline) override {
      delay_.Pass();
      return inner_->Take(expected, deadline);
    }
    bool Ready() const override { return inner_->Ready(); }
    std::optional<Waiting> FirstWaiting() const override { return inner_->FirstWaiting(); }
    void RingOnArrival(Doorbell* bell) override { inner_->RingOnArrival(bell); }

   private:
    std::unique_ptr<Receiver> inner_;
    Delay delay_;
  };

  Delay NextDelay() { return {RandomStream(seed_, edges_++), delay_us_max_}; }

  std::unique_ptr<Transport> inner_;
  const uint64_t seed_;
  const int64_t delay_us_max_;
  uint64_t edges_ = 0;
};

}  // namespace penstock
