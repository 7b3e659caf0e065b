#include "tests/worker/memory_transport.h"

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/status.h"
#include "worker/acquire.h"
#include "worker/mailbox.h"

namespace penstock {

namespace {

constexpr int kSendingEnd = 0;
constexpr int kReceivingEnd = 1;

// The way a worker left the run, in its own words and in those of its peers.
struct Ending {
  absl::Status own_reason;
  absl::Status peer_reason;
};

}  // namespace

struct MemoryNetwork::Edge {
  Edge(const EdgeId& id, std::array<int, 2> workers, int capacity, int64_t tensor_bytes_max)
      : id(id),
        workers(workers),
        capacity(capacity),
        tensor_bytes_max(tensor_bytes_max),
        mailbox(capacity) {}

  // Ends the edge because `worker`, at one of its ends, ended.
  void Fail(int worker, const Ending& ending) {
    {
      MutexLock lock(mutex);
      for (int end = 0; end < 2; ++end) {
        if (!end_reason[end].ok()) continue;
        end_reason[end] = workers[end] == worker ? ending.own_reason : ending.peer_reason;
      }
    }
    mailbox.Cancel(ending.peer_reason);
  }

  // Explains a failed call at `end`.
  absl::Status Explain(int end, const absl::Status& status) {
    MutexLock lock(mutex);
    return end_reason[end].ok() ? Annotate(status, absl::StrCat("edge ", id.ToString()))
                                : end_reason[end];
  }

  const EdgeId id;
  const std::array<int, 2> workers;  // sender, receiver
  const int capacity;
  const int64_t tensor_bytes_max;
  Mailbox mailbox;

  Mutex mutex;
  std::array<bool, 2> open = {};  // guarded by the network's mutex
  std::array<absl::Status, 2> end_reason ABSL_GUARDED_BY(mutex) = {};
};

struct MemoryNetwork::State {
  std::vector<std::string> worker_names;
  std::vector<int> worker_of_stage;
  Mutex mutex;
  // An edge lives as long as the network, since either end may open it first.
  std::vector<std::unique_ptr<Edge>> edges ABSL_GUARDED_BY(mutex);
  std::vector<Ending> endings ABSL_GUARDED_BY(mutex);  // by worker

  std::array<int, 2> WorkersOf(const EdgeId& id) const {
    if (id.kind == EdgeKind::kCollective) return {id.source, id.destination};
    const int stages = static_cast<int>(worker_of_stage.size());
    const auto worker = [&](int stage) {
      return stage >= 0 && stage < stages ? worker_of_stage[stage] : -1;
    };
    return {worker(id.source), worker(id.destination)};
  }

  // Ends all edges of `worker`, those opened later too. The first ending counts.
  void End(int worker, const Ending& ending) {
    MutexLock lock(mutex);
    if (!endings[worker].own_reason.ok()) return;
    endings[worker] = ending;
    for (const auto& edge : edges) {
      if (edge->workers[0] == worker || edge->workers[1] == worker) edge->Fail(worker, ending);
    }
  }

  Edge& FindOrCreate(const EdgeId& id, int capacity, int64_t tensor_bytes_max)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (const auto& edge : edges) {
      if (edge->id == id) return *edge;
    }
    Edge& edge =
        *edges.emplace_back(std::make_unique<Edge>(id, WorkersOf(id), capacity, tensor_bytes_max));
    for (int worker : edge.workers) {
      if (worker >= 0 && !endings[worker].own_reason.ok()) edge.Fail(worker, endings[worker]);
    }
    return edge;
  }
};

class MemoryTransport : public Transport {
 public:
  MemoryTransport(MemoryNetwork::State& network, int worker) : network_(network), worker_(worker) {}

  // The peers may still take what was sent.
  ~MemoryTransport() override {
    const absl::Status gone = absl::AbortedError(
        absl::StrCat("worker ", network_.worker_names[worker_], " ended the run"));
    MutexLock lock(network_.mutex);
    for (const auto& edge : network_.edges) {
      if (edge->workers[0] == worker_ || edge->workers[1] == worker_) edge->mailbox.Close(gone);
    }
  }

  absl::StatusOr<std::unique_ptr<Sender>> OpenSender(const EdgeId& id, int capacity,
                                                     int64_t tensor_bytes_max) override {
    PENSTOCK_ASSIGN_OR_RETURN(MemoryNetwork::Edge * edge,
                              Open(id, kSendingEnd, capacity, tensor_bytes_max));
    return std::make_unique<EdgeSender>(*edge);
  }

  absl::StatusOr<std::unique_ptr<Receiver>> OpenReceiver(const EdgeId& id, int capacity,
                                                         int64_t tensor_bytes_max,
                                                         BufferPool& pool) override {
    PENSTOCK_ASSIGN_OR_RETURN(MemoryNetwork::Edge * edge,
                              Open(id, kReceivingEnd, capacity, tensor_bytes_max));
    return std::make_unique<EdgeReceiver>(*edge, pool);
  }

  void Cancel(const absl::Status& reason) override {
    network_.End(worker_, {reason, absl::AbortedError(absl::StrCat(
                                       "worker ", network_.worker_names[worker_],
                                       " ended the run: ", std::string(reason.message())))});
  }

 private:
  class EdgeSender : public Sender {
   public:
    explicit EdgeSender(MemoryNetwork::Edge& edge) : edge_(edge) {}

    absl::Status Reserve(int64_t sequence, const Tensor& tensor, absl::Time deadline) override {
      PENSTOCK_RETURN_IF_ERROR(
          CheckMessageSize(edge_.id, sequence, tensor, edge_.tensor_bytes_max));
      return Explained(edge_.mailbox.Reserve(deadline));
    }

    absl::Status Put(int64_t sequence, const Tensor& tensor) override {
      PENSTOCK_RETURN_IF_ERROR(Explained(edge_.mailbox.Push({sequence, tensor, {}})));
      bytes_sent_.fetch_add(tensor.size_bytes(), std::memory_order_relaxed);
      messages_sent_.fetch_add(1, std::memory_order_relaxed);
      return absl::OkStatus();
    }

    bool Ready() const override { return edge_.mailbox.HasRoom(); }
    int64_t bytes_sent() const override { return bytes_sent_.load(std::memory_order_relaxed); }
    int64_t messages_sent() const override {
      return messages_sent_.load(std::memory_order_relaxed);
    }

   private:
    absl::Status Explained(const absl::Status& status) {
      return status.ok() ? status : edge_.Explain(kSendingEnd, status);
    }

    MemoryNetwork::Edge& edge_;
    std::atomic<int64_t> bytes_sent_ = 0;
    std::atomic<int64_t> messages_sent_ = 0;
  };

  class EdgeReceiver : public Receiver {
   public:
    EdgeReceiver(MemoryNetwork::Edge& edge, BufferPool& pool) : edge_(edge), pool_(pool) {}
    ~EdgeReceiver() override { edge_.mailbox.SetDoorbell(nullptr); }

    absl::StatusOr<Arrival> Take(const TensorExpectation& expected, absl::Time deadline) override {
      absl::StatusOr<Message> message = edge_.mailbox.Pop(deadline);
      if (!message.ok()) return edge_.Explain(kReceivingEnd, message.status());
      const Tensor& sent = message->tensor;
      PENSTOCK_RETURN_IF_ERROR(CheckExpectation(
          edge_.id, expected, TensorExpectation{message->sequence, sent.dtype, sent.shape}));
      PENSTOCK_ASSIGN_OR_RETURN(Tensor received, AcquireTensor(pool_, sent.dtype, sent.shape));
      std::memcpy(received.data<void>(), sent.data<void>(), sent.size_bytes());
      return Arrival{.sequence = expected.sequence, .tensor = std::move(received)};
    }

    bool Ready() const override { return edge_.mailbox.Ready(); }
    std::optional<Waiting> FirstWaiting() const override { return edge_.mailbox.FirstWaiting(); }
    void RingOnArrival(Doorbell* bell) override { edge_.mailbox.SetDoorbell(bell); }

   private:
    MemoryNetwork::Edge& edge_;
    BufferPool& pool_;
  };

  absl::StatusOr<MemoryNetwork::Edge*> Open(const EdgeId& id, int end, int capacity,
                                            int64_t tensor_bytes_max);

  MemoryNetwork::State& network_;
  const int worker_;
};

absl::StatusOr<MemoryNetwork::Edge*> MemoryTransport::Open(const EdgeId& id, int end, int capacity,
                                                           int64_t tensor_bytes_max) {
  PENSTOCK_RETURN_IF_ERROR(CheckEdgeLimits(id, capacity, tensor_bytes_max));
  const std::array<int, 2> workers = network_.WorkersOf(id);
  if (workers[end] != worker_) {
    return absl::FailedPreconditionError(
        absl::StrCat("edge ", id.ToString(), ": worker ", network_.worker_names[worker_],
                     " is not its ", end == kSendingEnd ? "source" : "destination"));
  }
  MutexLock lock(network_.mutex);
  MemoryNetwork::Edge& edge = network_.FindOrCreate(id, capacity, tensor_bytes_max);
  if (edge.open[end]) {
    return absl::AlreadyExistsError(absl::StrCat("edge ", id.ToString(), " is open at this end"));
  }
  if (edge.capacity != capacity || edge.tensor_bytes_max != tensor_bytes_max) {
    return absl::FailedPreconditionError(absl::StrCat(
        "edge ", id.ToString(), ": the other end has capacity ", edge.capacity, " and ",
        edge.tensor_bytes_max, " bytes, this end ", capacity, " and ", tensor_bytes_max));
  }
  edge.open[end] = true;
  return &edge;
}

MemoryNetwork::MemoryNetwork(std::vector<std::string> worker_names,
                             std::vector<int> worker_of_stage)
    : state_(std::make_unique<State>()) {
  state_->endings.resize(worker_names.size());
  state_->worker_names = std::move(worker_names);
  state_->worker_of_stage = std::move(worker_of_stage);
}

MemoryNetwork::~MemoryNetwork() = default;

std::unique_ptr<Transport> MemoryNetwork::MakeTransport(int worker) {
  PENSTOCK_CHECK(worker >= 0 && worker < static_cast<int>(state_->worker_names.size()));
  return std::make_unique<MemoryTransport>(*state_, worker);
}

void MemoryNetwork::Disconnect(int worker) {
  const absl::Status gone =
      absl::UnavailableError(absl::StrCat("worker ", state_->worker_names[worker], " is gone"));
  state_->End(worker, {gone, gone});
}

}  // namespace penstock
