#include "results/recorded_order_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr int64_t kOrderBytesMax = int64_t{64} << 20;

absl::Status Incomplete(const MicrobatchRange& range) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the job ended before all workers told their order from microbatch ", range.first, " on"));
}

}  // namespace

absl::StatusOr<RecordedOrder> RecordedOrderOf(const v1::GetJobResponse& job) {
  const v1::PipelineSpec& pipeline = job.spec().pipeline();
  RecordedOrder order = {.method = pipeline.method(),
                         .weights = pipeline.weights(),
                         .microbatches = job.result().microbatches()};
  for (const v1::StageAssignment& stage : job.plan().stages()) {
    order.stages.push_back({WorkerId(stage.worker_index()), stage.first_layer(), stage.layers()});
  }
  const int32_t workers = order.workers();
  for (const v1::WorkerOrder& log : job.result().order()) {
    const MicrobatchRange range = {log.first_microbatch(), log.microbatches()};
    if (order.ranges.empty() || !(order.ranges.back().microbatches == range)) {
      order.ranges.push_back({.microbatches = range});
    }
    std::vector<OrderLog>& logs = order.ranges.back().workers;
    const WorkerId worker(log.worker_index());
    if (worker.value != static_cast<int32_t>(logs.size()) || worker.value >= workers) {
      return Incomplete(range);
    }
    absl::StatusOr<OrderLog> read =
        OrderLog::FromBytes(order.StagesOf(worker), range, log.blocks(), order.ReplicasOn(worker));
    if (!read.ok()) {
      return absl::InternalError(absl::StrCat("the log of worker ", worker.value,
                                              " from microbatch ", range.first, " on ",
                                              read.status().message()));
    }
    logs.push_back(*std::move(read));
  }
  for (const RecordedOrder::Range& range : order.ranges) {
    if (static_cast<int32_t>(range.workers.size()) < workers) return Incomplete(range.microbatches);
  }
  return order;
}

absl::StatusOr<RecordedOrder> ReadRecordedOrders(Files& files,
                                                 const std::vector<std::string>& paths) {
  RecordedOrder all;
  for (const std::string& path : paths) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files.Read(path, kOrderBytesMax));
    absl::StatusOr<RecordedOrder> order = ParseRecordedOrder(text);
    if (!order.ok()) return Annotate(order.status(), absl::string_view(path));
    if (&path == &paths.front()) {
      all = *std::move(order);
    } else {
      PENSTOCK_RETURN_IF_ERROR(Annotate(Continue(*order, all), absl::string_view(path)));
    }
  }
  return all;
}

}  // namespace penstock
