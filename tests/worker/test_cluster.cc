#include "tests/worker/test_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights_digest.h"
#include "job/fingerprint.h"
#include "job/model_graph.h"
#include "job/resolve.h"
#include "model/layer_order.h"
#include "tests/worker/slow_transport.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

int CountWorkers(const std::vector<int>& worker_of_stage) {
  return 1 + *std::max_element(worker_of_stage.begin(), worker_of_stage.end());
}

std::vector<std::string> WorkerNames(int count) {
  std::vector<std::string> names;
  names.reserve(count);
  for (int w = 0; w < count; ++w) names.push_back(absl::StrCat("worker-", w));
  return names;
}

}  // namespace

TestCluster::TestCluster(ClusterOptions options, Files& files)
    : options_(std::move(options)),
      files_(files),
      worker_of_stage_(WorkersOfStages(options_.spec, static_cast<int>(options_.layers.size()))),
      network_(WorkerNames(CountWorkers(worker_of_stage_)), worker_of_stage_) {
  const int count = CountWorkers(worker_of_stage_);
  for (int w = 0; w < count; ++w) workers_.push_back(std::make_unique<Worker>());
  for (int w = 0; w < count; ++w) workers_[w]->thread = std::thread([this, w] { Main(w); });
  MutexLock lock(mutex_);
  while (prepared_count_ < count) changed_.Wait(mutex_);
}

TestCluster::~TestCluster() {
  {
    MutexLock lock(mutex_);
    if (!started_) abandoned_ = true;
    changed_.NotifyAll();
  }
  Join();
}

void TestCluster::Main(int worker) {
  Worker& self = *workers_[worker];
  const std::unique_ptr<Backend> backend =
      options_.make_backend ? options_.make_backend() : *MakeCpuBackend(/*threads=*/1);
  std::unique_ptr<Transport> transport = MakeTransport(worker);
  v1::PrepareRunRequest request =
      MakeRequest(options_.spec, options_.layers, worker, options_.first_step, options_.extra_cuts);
  request.set_checkpoint(options_.checkpoint);
  if (options_.edit_request) options_.edit_request(request);
  const auto on_event = [this, worker](v1::RunEvent event) {
    if (options_.on_event) options_.on_event(worker, event);
    MutexLock lock(mutex_);
    workers_[worker]->events.push_back(std::move(event));
  };
  auto run =
      Run::Prepare(request, {.clock = RealClock(),
                             .files = files_,
                             .backend = *backend,
                             .transport = *transport,
                             .data_root = "/",
                             .limits = options_.limits,
                             .events = on_event,
                             .notice =
                                 [this, worker](const std::string& text) {
                                   if (options_.on_notice) options_.on_notice(worker, text);
                                 },
                             .snapshots = options_.snapshots ? options_.snapshots(worker) : nullptr,
                             .emulated_device = options_.emulated_device,
                             .offload_directory = options_.offload_directory,
                             .device_memory_bytes = options_.device_memory_bytes});
  bool abandoned = false;
  {
    MutexLock lock(mutex_);
    self.prepared = run.status();
    if (run.ok()) self.run = *std::move(run);
    ++prepared_count_;
    changed_.NotifyAll();
    while (!started_ && !abandoned_) changed_.Wait(mutex_);
    abandoned = abandoned_;
  }
  if (self.run != nullptr && !abandoned) {
    self.result = self.run->Execute();
    self.timeline = self.run->RecentTimeline();
  }
  {
    // Peers may still take what this worker sent, and the test may still use the run.
    MutexLock lock(mutex_);
    ++ended_count_;
    changed_.NotifyAll();
    while (!joining_ || ended_count_ < size()) changed_.Wait(mutex_);
  }
  self.run.reset();
}

std::unique_ptr<Transport> TestCluster::MakeTransport(int worker) {
  std::unique_ptr<Transport> transport =
      options_.make_transport ? options_.make_transport(worker) : network_.MakeTransport(worker);
  if (options_.delay_seed == 0) return transport;
  return std::make_unique<SlowTransport>(std::move(transport), options_.delay_seed * 1000 + worker,
                                         options_.delay_us_max);
}

absl::Status TestCluster::prepared() const {
  for (const auto& worker : workers_) {
    if (!worker->prepared.ok()) return worker->prepared;
  }
  return absl::OkStatus();
}

void TestCluster::Start() {
  MutexLock lock(mutex_);
  started_ = true;
  changed_.NotifyAll();
}

std::vector<absl::Status> TestCluster::Join() {
  {
    MutexLock lock(mutex_);
    joining_ = true;
    changed_.NotifyAll();
  }
  std::vector<absl::Status> results;
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
    results.push_back(worker->result);
  }
  return results;
}

absl::StatusOr<int64_t> TestCluster::Drain() {
  int64_t step = 0;
  for (const auto& worker : workers_) {
    const absl::StatusOr<int64_t> held = worker->run->Hold();
    if (!held.ok()) return held;
    step = std::max(step, *held);
  }
  for (const auto& worker : workers_) {
    const absl::Status status = worker->run->CutAt(step);
    if (!status.ok()) return status;
  }
  return step;
}

std::vector<StepResult> TestCluster::Steps() const {
  std::vector<StepResult> steps;  // of the one worker that reports them
  for (const auto& worker : workers_) {
    for (const v1::RunEvent& event : worker->events) {
      if (!event.has_step_done()) continue;
      const v1::StepDone& done = event.step_done();
      steps.push_back({done.step(), done.loss(), done.learning_rate(), done.gradient_norm()});
    }
  }
  return steps;
}

std::vector<ReferenceResult::Validation> TestCluster::Validations() const {
  std::vector<ReferenceResult::Validation> validations;
  for (const auto& worker : workers_) {
    for (const v1::RunEvent& event : worker->events) {
      if (!event.has_validation_done()) continue;
      const v1::ValidationDone& done = event.validation_done();
      Evaluation evaluation = {.loss = done.loss()};
      for (const v1::MetricValue& metric : done.metrics()) {
        evaluation.metrics.push_back({metric.name(), metric.value()});
      }
      validations.push_back({done.step(), std::move(evaluation)});
    }
  }
  return validations;
}

std::string TestCluster::WeightsSha256() const {
  std::map<int, std::string> by_layer;
  for (const auto& worker : workers_) {
    for (const v1::LayerDigest& digest : worker->events.back().run_done().layers()) {
      EXPECT_TRUE(by_layer.emplace(digest.layer(), digest.sha256()).second)
          << "layer " << digest.layer() << " comes from two workers";
    }
  }
  std::vector<std::string> layers;
  layers.reserve(by_layer.size());
  for (const auto& [layer, sha256] : by_layer) layers.push_back(sha256);
  return CombineLayerDigests(layers);
}

int64_t TestCluster::LastStep() const { return loss_worker().events.back().run_done().step(); }

RecordedOrder TestCluster::Order() const {
  const auto job = ResolveJob(options_.spec);
  RecordedOrder order = {.method = std::string(job->method->name),
                         .weights = options_.spec.pipeline().weights(),
                         .microbatches = job->microbatches};
  const Topology topology = TopologyOf(*job, static_cast<int64_t>(options_.layers.size()));
  for (const StageWiring& stage : topology.table) {
    const LayerRange& layers = options_.layers[stage.part];
    order.stages.push_back({stage.worker, layers.first, layers.count});
  }
  std::map<int64_t, RecordedOrder::Range> ranges;
  for (int w = 0; w < size(); ++w) {
    for (const v1::RunEvent& event : workers_[w]->events) {
      if (!event.has_cut_reached() || !event.cut_reached().has_order()) continue;
      const v1::WorkerOrder& log = event.cut_reached().order();
      RecordedOrder::Range& range = ranges[log.first_microbatch()];
      range.microbatches = {log.first_microbatch(), log.microbatches()};
      auto read = OrderLog::FromBytes(order.StagesOf(WorkerId(w)), range.microbatches, log.blocks(),
                                      order.ReplicasOn(WorkerId(w)));
      EXPECT_TRUE(read.ok()) << read.status();
      if (read.ok()) range.workers.push_back(*std::move(read));
    }
  }
  for (auto& [first, range] : ranges) order.ranges.push_back(std::move(range));
  return order;
}

std::vector<v1::StageReport> TestCluster::Reports() const {
  std::vector<v1::StageReport> reports;
  for (const auto& worker : workers_) {
    const auto& stages = worker->events.back().run_done().stages();
    reports.insert(reports.end(), stages.begin(), stages.end());
  }
  std::sort(reports.begin(), reports.end(),
            [](const auto& a, const auto& b) { return a.stage() < b.stage(); });
  return reports;
}

Timeline TestCluster::MeasuredTimeline() const {
  Timeline all = {.workers = size()};
  for (const auto& worker : workers_) {
    const std::vector<Span>& spans = worker->timeline.spans;
    all.spans.insert(all.spans.end(), spans.begin(), spans.end());
  }
  return all;
}

Manifest TestCluster::ManifestOf(
    int64_t step, const std::function<const v1::LayersSaved*(const v1::RunEvent&)>& saved_by) {
  const auto job = ResolveJob(options_.spec);
  Manifest manifest = {
      .job_id = "job",
      .method = std::string(job->method->name),
      .epoch = 1,
      .step = step,
      .updates = job->UpdatesBetween(0, step, static_cast<int64_t>(options_.layers.size()))};
  manifest.layer_updates.resize(job->model.size());
  for (size_t s = options_.layers.size(); s-- > 0;) {  // of replicas the first one's
    const int64_t updates = job->UpdatesBetween(
        0, step, static_cast<int64_t>(options_.layers.size()), static_cast<int64_t>(s));
    for (int layer = options_.layers[s].first; layer < options_.layers[s].end(); ++layer) {
      manifest.layer_updates[job->model.layers[layer].number] = updates;
    }
  }
  if (std::set(manifest.layer_updates.begin(), manifest.layer_updates.end()).size() == 1) {
    manifest.layer_updates.clear();
  }
  manifest.layer_order = LayerOrderOf(job->model);
  manifest.model = StoredModelOf(options_.spec.model());
  manifest.family = FamilyText(options_.spec.model());
  manifest.fingerprint = FingerprintOf(options_.spec, *job);
  std::map<int, std::string> digests;
  MutexLock lock(mutex_);
  for (const auto& worker : workers_) {
    for (const v1::RunEvent& event : worker->events) {
      const v1::LayersSaved* const saved = saved_by(event);
      if (saved == nullptr) continue;
      for (const v1::SavedFile& file : saved->files()) {
        manifest.files.push_back({file.name(), file.size_bytes(), file.sha256(), file.layer()});
      }
      for (const v1::LayerDigest& digest : saved->layers()) {
        digests[digest.layer()] = digest.sha256();
      }
    }
  }
  std::vector<std::string> layers;
  layers.reserve(digests.size());
  for (const auto& [layer, sha256] : digests) layers.push_back(sha256);
  manifest.weights_sha256 = CombineLayerDigests(layers);
  return manifest;
}

absl::StatusOr<std::string> TestCluster::CommitCheckpoint(int64_t step) {
  const Manifest manifest = ManifestOf(step, [step](const v1::RunEvent& event) {
    const v1::LayersSaved& saved = event.layers_saved();
    return event.has_layers_saved() && saved.step() == step ? &saved : nullptr;
  });
  const absl::StatusOr<CommittedCheckpoint> committed =
      penstock::CommitCheckpoint(files_,
                                 {.root = kCheckpointRoot,
                                  .tag = "job-1",
                                  .layers = ResolveJob(options_.spec)->model.size(),
                                  .keep = 100},
                                 manifest);
  if (!committed.ok()) return committed.status();
  return committed->directory;
}

void AddTestText(MemoryFiles& files) {
  const std::string text = TestText();
  EXPECT_TRUE(files.WriteDurably(kTextPath, {absl::string_view(text)}).ok());
}

absl::StatusOr<Trained> TrainCluster(const ClusterOptions& options, Files& files) {
  TestCluster cluster(options, files);
  if (!cluster.prepared().ok()) return cluster.prepared();
  cluster.Start();
  for (const absl::Status& status : cluster.Join()) {
    if (!status.ok()) return status;
  }
  return Trained{cluster.Steps(),   cluster.Validations(), cluster.WeightsSha256(),
                 cluster.Reports(), cluster.Order(),       cluster.MeasuredTimeline()};
}

absl::StatusOr<Trained> TrainSerially(const v1::JobSpec& spec, std::vector<LayerRange> layers,
                                      const std::vector<int64_t>& extra_cuts, Files& files,
                                      std::optional<RecordedOrder> recorded) {
  auto backend = MakeCpuBackend(/*threads=*/1);
  auto result = TrainReference({.spec = spec,
                                .stages = std::move(layers),
                                .extra_cuts = extra_cuts,
                                .recorded = std::move(recorded),
                                .data_root = "/"},
                               files, **backend);
  if (!result.ok()) return result.status();
  return Trained{.steps = result->steps,
                 .validations = result->validations,
                 .weights_sha256 = result->weights_sha256,
                 .reports = {},
                 .reads = result->reads};
}

void ExpectSameTraining(const Trained& actual, const Trained& expected) {
  ASSERT_EQ(actual.steps.size(), expected.steps.size());
  for (size_t i = 0; i < actual.steps.size(); ++i) {
    EXPECT_EQ(actual.steps[i].step, expected.steps[i].step);
    EXPECT_EQ(actual.steps[i].loss, expected.steps[i].loss) << "step " << actual.steps[i].step;
    EXPECT_EQ(actual.steps[i].learning_rate, expected.steps[i].learning_rate);
    EXPECT_EQ(actual.steps[i].gradient_norm, expected.steps[i].gradient_norm);
  }
  EXPECT_EQ(actual.validations, expected.validations);
  EXPECT_EQ(actual.weights_sha256, expected.weights_sha256);
}

}  // namespace penstock
