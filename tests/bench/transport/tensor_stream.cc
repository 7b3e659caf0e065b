// What Penstock does: a worker's transport, with its server, hub, credits and checksums.
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compute/cpu/shared_memory.h"
#include "services/rpc/memory.h"
#include "services/rpc/server.h"
#include "services/rpc/transport_security.h"
#include "services/transport/tensor_hub.h"
#include "tests/bench/transport/pair.h"

namespace penstock {
namespace {

constexpr EdgeId kEdge = {EdgeKind::kActivation, 0, 1};

absl::Time Deadline() { return absl::Now() + absl::Seconds(60); }

// One worker process.
struct Worker {
  explicit Worker(const TransportSecurity& security)
      : hub{{.refused = [](const absl::Status&) {},
             .opened = [](const std::string&) {},
             .disturbed = [](const std::string&) {}},
            security.ForChannel(Role::kWorker)},
        server{{.listen = {"127.0.0.1", 0}, .security = security}} {
    server.AddExtension(hub);
    PENSTOCK_CHECK(server.Start().ok());
  }
  void Join(int self, int receiver_port) {
    auto joined = hub.Join({.job_id = "bench",
                            .self = self,
                            .workers = {{"sender", "127.0.0.1:1", 1},
                                        {"receiver", absl::StrCat("127.0.0.1:", receiver_port), 2}},
                            .worker_of_stage = {0, 1}});
    PENSTOCK_CHECK(joined.ok());
    transport = *std::move(joined);
  }
  ~Worker() {
    transport.reset();
    server.Shutdown(absl::Milliseconds(100));
  }

  TensorHub hub;
  RpcServer server;
  BufferPool pool{HostMemory()};
  std::unique_ptr<DeviceShare> share = MakeSharedMemory(pool);
  std::unique_ptr<Transport> transport;
};

class TensorStream final : public Mover {
 public:
  explicit TensorStream(const TensorStreamOptions& options) : options_(options) {}

  const char* name() const override {
    return options_.shared                ? "shared memory"
           : options_.credentials.empty() ? "tensor stream"
                                          : "... with TLS";
  }

  void Receive(const Load& load, const std::function<void(int)>& listening,
               StopWatch& watch) override {
    KeepFreedMemory();  // as the worker program does
    Worker worker(Security());
    worker.Join(1, worker.server.address().port);
    if (options_.shared) worker.transport->UseShare(worker.share.get());
    auto receiver =
        worker.transport->OpenReceiver(kEdge, load.window, load.message_bytes, worker.pool);
    PENSTOCK_CHECK(receiver.ok());
    listening(worker.server.address().port);
    for (int64_t message = 0; message < load.total_messages(); ++message) {
      const TensorExpectation expected = {message, DType::kI32, {load.message_bytes / 4}};
      const Tensor tensor = Take(**receiver, expected);
      PENSTOCK_CHECK(*tensor.data<int64_t>() == message);
      watch.OnMessage();
    }
    // Which waits for its copies, before the share goes.
    receiver->reset();
  }

  void Send(const Load& load, int port, StopWatch& watch,
            const std::function<void()>& finish) override {
    KeepFreedMemory();
    Worker worker(Security());
    worker.Join(0, port);
    if (options_.shared) worker.transport->UseShare(worker.share.get());
    auto sender = worker.transport->OpenSender(kEdge, load.window, load.message_bytes);
    PENSTOCK_CHECK(sender.ok());
    for (int64_t message = 0; message < load.total_messages(); ++message) {
      // A block comes back to the pool when the network has read it.
      const Tensor tensor = worker.pool.AcquireTensor(DType::kI32, {load.message_bytes / 4});
      *tensor.data<int64_t>() = message;
      Send(**sender, worker, message, tensor);
      watch.OnMessage();
    }
    finish();
    watch.Stop();
  }

 private:
  // As the executor does (worker/courier.h).
  static Tensor Take(Receiver& receiver, const TensorExpectation& expected) {
    const auto arrival = receiver.Take(expected, Deadline());
    PENSTOCK_CHECK(arrival.ok());
    if (!arrival->is_exported()) return arrival->tensor;
    auto fetched = receiver.Fetch(*arrival);
    PENSTOCK_CHECK(fetched.ok());
    receiver.Release();
    return std::move(fetched->tensor);
  }

  void Send(Sender& sender, Worker& worker, int64_t message, const Tensor& tensor) const {
    PENSTOCK_CHECK(sender.Reserve(message, tensor, Deadline()).ok());
    PENSTOCK_CHECK(message == 0 || sender.exports() == options_.shared);
    if (!sender.exports()) {
      PENSTOCK_CHECK(sender.Put(message, tensor).ok());
      return;
    }
    const auto outgoing = worker.share->StartExporting(tensor);
    PENSTOCK_CHECK(outgoing.ok());
    const auto descriptor = sender.Describe(outgoing->device);
    PENSTOCK_CHECK(descriptor.ok() && sender.Export(message, outgoing->device, *descriptor).ok());
  }

  // Made in the process that uses it, for it has a thread.
  TransportSecurity Security() const {
    if (options_.credentials.empty()) return TransportSecurity::Plaintext();
    const auto security = TransportSecurity::Tls(options_.credentials, absl::Now());
    PENSTOCK_CHECK(security.ok());
    return *security;
  }

  const TensorStreamOptions options_;
};

}  // namespace

std::unique_ptr<Mover> MakeTensorStream(const TensorStreamOptions& options) {
  return std::make_unique<TensorStream>(options);
}

}  // namespace penstock
