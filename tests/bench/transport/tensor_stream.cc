// What Penstock does: a worker's transport, with its server, hub, credits and checksums.
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
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
  std::unique_ptr<Transport> transport;
};

class TensorStream final : public Mover {
 public:
  explicit TensorStream(std::string credentials) : credentials_(std::move(credentials)) {}

  const char* name() const override {
    return credentials_.empty() ? "tensor stream" : "... with TLS";
  }

  void Receive(const Load& load, const std::function<void(int)>& listening,
               StopWatch& watch) override {
    KeepFreedMemory();  // as the worker program does
    Worker worker(Security());
    worker.Join(1, worker.server.address().port);
    auto receiver =
        worker.transport->OpenReceiver(kEdge, load.window, load.message_bytes, worker.pool);
    PENSTOCK_CHECK(receiver.ok());
    listening(worker.server.address().port);
    for (int64_t message = 0; message < load.total_messages(); ++message) {
      const auto tensor =
          (*receiver)->Receive({message, DType::kI32, {load.message_bytes / 4}}, Deadline());
      PENSTOCK_CHECK(tensor.ok() && *tensor->data<int64_t>() == message);
      watch.OnMessage();
    }
  }

  void Send(const Load& load, int port, StopWatch& watch,
            const std::function<void()>& finish) override {
    KeepFreedMemory();
    Worker worker(Security());
    worker.Join(0, port);
    auto sender = worker.transport->OpenSender(kEdge, load.window, load.message_bytes);
    PENSTOCK_CHECK(sender.ok());
    for (int64_t message = 0; message < load.total_messages(); ++message) {
      // A block comes back to the pool when the network has read it.
      const Tensor tensor = worker.pool.AcquireTensor(DType::kI32, {load.message_bytes / 4});
      *tensor.data<int64_t>() = message;
      PENSTOCK_CHECK((*sender)->Send(message, tensor, Deadline()).ok());
      watch.OnMessage();
    }
    finish();
    watch.Stop();
  }

 private:
  // Made in the process that uses it, for it has a thread.
  TransportSecurity Security() const {
    if (credentials_.empty()) return TransportSecurity::Plaintext();
    const auto security = TransportSecurity::Tls(credentials_, absl::Now());
    PENSTOCK_CHECK(security.ok());
    return *security;
  }

  const std::string credentials_;
};

}  // namespace

std::unique_ptr<Mover> MakeTensorStream(const std::string& credentials) {
  return std::make_unique<TensorStream>(credentials);
}

}  // namespace penstock
