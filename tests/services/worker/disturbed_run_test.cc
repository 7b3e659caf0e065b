// Two workers train over real tensor streams while their network is played with. The job must go on, with the same bits.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/services/transport/test_worker.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

struct Disturbance {
  const char* name;
  // Of the connections to one worker, in the middle of the training.
  void (*begin)(TcpProxy& proxy);
  absl::Duration lasts;
};

constexpr Disturbance kDisturbances[] = {
    {"cut", [](TcpProxy& proxy) { proxy.Interrupt(); }, absl::Milliseconds(50)},
    {"down_for_a_second", [](TcpProxy& proxy) { proxy.Interrupt(); }, absl::Seconds(1)},
    {"frozen_for_a_second", [](TcpProxy& proxy) { proxy.Freeze(); }, absl::Seconds(1)},
    {"bit_flipped", [](TcpProxy& proxy) { proxy.Play(TcpProxy::Trick::kFlip); },
     absl::ZeroDuration()},
    {"bytes_dropped", [](TcpProxy& proxy) { proxy.Play(TcpProxy::Trick::kDrop); },
     absl::ZeroDuration()},
    {"bytes_twice", [](TcpProxy& proxy) { proxy.Play(TcpProxy::Trick::kDuplicate); },
     absl::ZeroDuration()},
};

// Workers of one process would share memory, and leave a network little to disturb.
class NetworkAlone : public Transport {
 public:
  explicit NetworkAlone(std::unique_ptr<Transport> below) : below_(std::move(below)) {}

  absl::StatusOr<std::unique_ptr<Sender>> OpenSender(const EdgeId& edge, int capacity,
                                                     int64_t tensor_bytes_max) override {
    return below_->OpenSender(edge, capacity, tensor_bytes_max);
  }
  absl::StatusOr<std::unique_ptr<Receiver>> OpenReceiver(const EdgeId& edge, int capacity,
                                                         int64_t tensor_bytes_max,
                                                         BufferPool& pool) override {
    return below_->OpenReceiver(edge, capacity, tensor_bytes_max, pool);
  }
  void Cancel(const absl::Status& reason) override { below_->Cancel(reason); }

 private:
  const std::unique_ptr<Transport> below_;
};

class DisturbedRun : public ::testing::TestWithParam<Disturbance> {
 protected:
  DisturbedRun() { AddTestText(files_); }

  // With activations, gradients, norms that are exchanged for the clipping, and a weight that both stages share.
  static ClusterOptions Options(const std::string& method) {
    v1::JobSpec spec = SmallJob(method);
    spec.mutable_training()->set_steps(12);
    if (method == "1f1b") {
      spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
      spec.mutable_model()->mutable_gpt()->set_tied_head(true);
    }
    return {.spec = spec, .layers = EvenSplit(ChainOf(spec).size(), kWorkers)};
  }

  // The attempt of worker `self`, as its coordinator would describe it.
  RunPeers Peers(int self) {
    RunPeers peers = {.job_id = "job", .epoch = 1, .self = self, .worker_of_stage = {0, 1}};
    for (int w = 0; w < kWorkers; ++w) {
      peers.workers.push_back(
          {absl::StrCat("worker-", w), workers_[w].proxy->address(), static_cast<uint64_t>(w) + 1});
    }
    return peers;
  }
  std::unique_ptr<Transport> Join(int worker) {
    absl::StatusOr<std::unique_ptr<Transport>> joined = workers_[worker].hub.Join(Peers(worker));
    EXPECT_THAT(joined, IsOk());
    return joined.ok() ? std::make_unique<NetworkAlone>(*std::move(joined)) : nullptr;
  }
  void Disturb() {
    const absl::Time began = absl::Now();
    for (TestWorker& worker : workers_) GetParam().begin(*worker.proxy);
    if (GetParam().lasts == absl::ZeroDuration()) return;
    absl::SleepFor(GetParam().lasts);
    for (TestWorker& worker : workers_) worker.proxy->Thaw();
    longest_ = std::max(longest_, absl::Now() - began);
  }
  std::vector<std::string> LinesLogged() {
    std::vector<std::string> lines;
    for (TestWorker& worker : workers_) {
      MutexLock lock(worker.mutex);
      lines.insert(lines.end(), worker.disturbed.begin(), worker.disturbed.end());
    }
    return lines;
  }

  void ExpectSameBits(const std::string& method) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained undisturbed, TrainCluster(Options(method), files_));
    ClusterOptions options = Options(method);
    options.make_transport = [this](int worker) { return Join(worker); };
    options.on_event = [this](int, const v1::RunEvent& event) {
      if (event.has_step_done() && event.step_done().step() % 5 == 3) Disturb();
    };
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained disturbed, TrainCluster(options, files_));
    ExpectSameTraining(disturbed, undisturbed);
    if (absl::string_view(GetParam().name) != "frozen_for_a_second") {
      EXPECT_THAT(LinesLogged(), Not(IsEmpty()));
    } else if (longest_ <
               GetParam().lasts + absl::Milliseconds(rpc_limits::kKeepaliveTimeoutMs / 2)) {
      EXPECT_THAT(LinesLogged(),
                  IsEmpty());  // A busy machine may make a second longer than streams hold.
    }
  }

  static constexpr int kWorkers = 2;
  absl::Duration longest_;  // that a disturbance lasted
  MemoryFiles files_;
  TestWorker workers_[kWorkers] = {TestWorker(rpc_limits::kConnectionAge, StreamLimits{}),
                                   TestWorker(rpc_limits::kConnectionAge, StreamLimits{})};
};

TEST_P(DisturbedRun, OfASynchronousMethod_HasTheSameBits) { ExpectSameBits("1f1b"); }

TEST_P(DisturbedRun, OfAnAsynchronousMethod_HasTheSameBits) { ExpectSameBits("pipedream"); }

INSTANTIATE_TEST_SUITE_P(Network, DisturbedRun, ::testing::ValuesIn(kDisturbances),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace penstock
