// ExportingPair: two workers whose edges export what they can, used as if they carried bytes.
#pragma once

#include <memory>
#include <utility>

#include "tests/services/transport/cluster.h"
#include "tests/services/transport/fake_share.h"
#include "tests/worker/transport_suite.h"

namespace penstock {

// As the executor's courier does with a device that is always done: exports where it can, releases at once.
class ExportingSender final : public Sender {
 public:
  explicit ExportingSender(std::unique_ptr<Sender> inner) : inner_(std::move(inner)) {}
  absl::Status Reserve(int64_t sequence, const Tensor& tensor, absl::Time deadline) override {
    return inner_->Reserve(sequence, tensor, deadline);
  }
  absl::Status Put(int64_t sequence, const Tensor& tensor) override {
    if (!inner_->exports()) return inner_->Put(sequence, tensor);
    const auto descriptor = inner_->Describe(tensor);
    return descriptor.ok() ? inner_->Export(sequence, tensor, *descriptor) : descriptor.status();
  }
  bool Ready() const override { return inner_->Ready(); }
  int64_t bytes_sent() const override { return inner_->bytes_sent(); }
  int64_t messages_sent() const override { return inner_->messages_sent(); }

 private:
  const std::unique_ptr<Sender> inner_;
};

class ReleasingReceiver final : public Receiver {
 public:
  explicit ReleasingReceiver(std::unique_ptr<Receiver> inner) : inner_(std::move(inner)) {}
  absl::StatusOr<Arrival> Take(const TensorExpectation& expected, absl::Time deadline) override {
    auto arrival = inner_->Take(expected, deadline);
    if (!arrival.ok()) return arrival;
    EXPECT_TRUE(arrival->is_exported());
    auto fetched = inner_->Fetch(*arrival);
    if (!fetched.ok()) return fetched.status();
    inner_->Release();
    return Arrival{.sequence = arrival->sequence, .tensor = std::move(fetched->tensor)};
  }
  bool Ready() const override { return inner_->Ready(); }
  std::optional<Waiting> FirstWaiting() const override { return inner_->FirstWaiting(); }
  void RingOnArrival(Doorbell* bell) override { inner_->RingOnArrival(bell); }

 private:
  const std::unique_ptr<Receiver> inner_;
};

class ExportingTransport final : public Transport {
 public:
  explicit ExportingTransport(Transport& inner) : inner_(inner) {}
  absl::StatusOr<std::unique_ptr<Sender>> OpenSender(const EdgeId& edge, int capacity,
                                                     int64_t tensor_bytes_max) override {
    auto sender = inner_.OpenSender(edge, capacity, tensor_bytes_max);
    if (!sender.ok()) return sender;
    return std::make_unique<ExportingSender>(*std::move(sender));
  }
  absl::StatusOr<std::unique_ptr<Receiver>> OpenReceiver(const EdgeId& edge, int capacity,
                                                         int64_t tensor_bytes_max,
                                                         BufferPool& pool) override {
    auto receiver = inner_.OpenReceiver(edge, capacity, tensor_bytes_max, pool);
    if (!receiver.ok()) return receiver;
    return std::make_unique<ReleasingReceiver>(*std::move(receiver));
  }
  void Cancel(const absl::Status& reason) override { inner_.Cancel(reason); }

 private:
  Transport& inner_;
};

class ExportingPair : public TransportPair {
 public:
  ExportingPair() {
    for (int worker : {0, 1}) cluster_.workers[worker].transport->UseShare(&shares_[worker]);
  }
  Transport& transport(int worker) override { return exporting_[worker]; }
  BufferPool& pool(int worker) override { return cluster_.workers[worker].pool; }
  void Kill(int) override {
    for (TestWorker& worker : cluster_.workers) worker.proxy->Cut();
  }
  void Interrupt() override { cluster_.Interrupt(); }

 private:
  FakeHost host_{1};
  TestCluster cluster_;
  FakeShare shares_[2] = {{host_, cluster_.workers[0].pool}, {host_, cluster_.workers[1].pool}};
  ExportingTransport exporting_[2] = {ExportingTransport(cluster_.left()),
                                      ExportingTransport(cluster_.right())};
};

}  // namespace penstock
