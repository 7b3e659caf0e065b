// ValidTargets: how many targets of a microbatch are valid, which is how much its mean loss weighs in that of an update, a
// step or a validation.
//
// A mean of means would weigh microbatches alike whatever they hold, and a loss would depend on how a batch is cut into
// microbatches. So everybody that needs counts counts for itself, those of other replicas too: what a microbatch holds is
// a function of the job's seed and the sample. Where the loss ignores no targets, all microbatches weigh 1 and nothing
// is read.
//
// Thread-compatible. Allocates nothing once it has seen a microbatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "job/resolve.h"
#include "schedule/schedule.h"
#include "worker/data_source.h"

namespace penstock {

class ValidTargets {
 public:
  // `data`: may be null where nothing will be asked. REQUIRES: both outlive this.
  ValidTargets(const ResolvedJob& job, const DataSource* data);

  bool all_count() const { return !ignored_.has_value(); }

  // 1, or where targets are ignored the number of those that are valid.
  // Errors: those of `data`.
  absl::StatusOr<double> Weight(Split split, int64_t microbatch);
  absl::StatusOr<double> Weight(Split split, MicrobatchRange microbatches);

  // The factor of one microbatch's mean loss in the mean over several, of training: 0 if none of those has a valid
  // target. REQUIRES: it is one of them.
  absl::StatusOr<float> Part(int64_t microbatch, MicrobatchRange microbatches);
  // That in its update.
  absl::StatusOr<float> LossScale(int64_t microbatch);

 private:
  struct Counted {
    Split split = Split::kTraining;
    int64_t microbatch = -1;
    int64_t valid = 0;
  };

  const ResolvedJob& job_;
  const DataSource* const data_;
  const std::optional<int32_t> ignored_;
  const int port_;                // of the targets, where some are ignored
  std::vector<Counted> counted_;  // recently; microbatch m at m modulo the size
  std::vector<int32_t> targets_;  // room for those of a microbatch
};

// Returns whether a worker with this stage counts targets although it may read no port: its replicas make a mean of
// microbatches' gradients, one of each (ReduceGroup::Operation::kMean).
bool WeighsReplicas(const ResolvedJob& job, const StageWiring& stage);

}  // namespace penstock
