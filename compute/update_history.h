// UpdateHistory: what a stage remembers of its updates beside the optimizer's state, for late gradients.
//
//   average      m = decay m + (1 - decay) (w_(t+1) - w_t), the momentum average of updates. Weights moved by n
//                updates are w + n m: a prediction, or for a negative n weights as they were.
//   last update  u_(t-1), the optimizer's change of the update before.
//   mean square  v = decay v + (1 - decay) g^2, of the gradients as they came.
//
// Weight prediction serves three methods. With decay 0 the momentum average is the last update, the rate times
// the optimizer's smoothed gradient, and w + n m is SpecTrain's prediction (Chen et al., arXiv 1809.02839),
// with Adam's direction XPipe's (Guan et al., arXiv 1911.04610). With decay D^(1/tau) and n = -tau it is
// PipeMare's discrepancy correction T2 (Yang et al., MLSys 2021, arXiv 1910.05124).
//
// The last update serves error feedback against a delay of one update (Zmushko et al., arXiv 2606.30634): the
// update u_(t-1) that a fresh gradient would have made is known one update later, when u_(t-2) has been made
// in its place, and the difference is made good:
//   w_(t+1) = w_t + u_t + (u_t - u_(t-1))    where u is what the optimizer does with the gradient it is given.
//
// The mean square serves delay compensation (Zheng et al., ICML 2017, arXiv 1609.08326), which replaces a gradient g that
// was taken at other weights by g + c g^2 (w - w_read): with it c is strength / sqrt(v + 1e-7), element by element
// (compute/elementwise/mean_square_compensation.h), without it the strength.
//
// All of it is elementwise, so it does not depend on the partition, and Create alone allocates.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/backend.h"
#include "compute/weight_versions.h"

namespace penstock {

struct HistoryOptions {
  bool momentum_average = false;
  double average_decay = 0.0;  // from 0, below 1
  // Number of versions whose averages are kept, the current one's included: a cluster predicts from the
  // current version only, the serial reference comes back to older ones.
  int64_t averages_max = 1;
  bool last_update = false;
  bool mean_square = false;
  double mean_square_decay = 0.0;  // from 0, below 1

  // Whether the change that an update makes is needed.
  bool updates() const { return momentum_average || last_update; }
  bool any() const { return updates() || mean_square; }
};

// Names of all the state that a history may keep, for checkpoints: {"motion", "last_update", "mean_square"}.
absl::Span<const absl::string_view> HistoryStateNames();

class UpdateHistory {
 public:
  UpdateHistory() = default;  // remembers nothing
  // For flat arrays of `weight_count` floats, of which updates change the first `count`; `with_mirror`: predicted weights
  // have a mirror in bf16, rounded to nearest. REQUIRES: `backend` outlives this. Errors: ResourceExhausted.
  static absl::StatusOr<UpdateHistory> Create(Backend& backend, const HistoryOptions& options,
                                              int64_t count, int64_t weight_count,
                                              bool with_mirror);

  // By state array, flat like the first part of the weights.
  absl::Span<const absl::string_view> state_names() const { return names_; }
  absl::Span<float* const> state() const { return arrays_; }
  bool has_average() const { return average_ != nullptr; }
  bool has_mean_square() const { return mean_square_ != nullptr; }

  // Before the optimizer's step: compensates gradients that were taken at the weights `read`. With a mean square it is
  // called for each update, and then `read` may be `now`.
  void CompensateDelay(float* gradients, double strength, const float* now, const float* read);
  // Around the optimizer's step from one version to the next.
  void BeforeStep(const WeightVersions::Transition& transition);
  // `feed_back`: this update's gradient was one update late. REQUIRES: then options.last_update.
  // Returns whether the next version's weights were changed, so that their mirror is to be made again.
  bool AfterStep(const WeightVersions::Transition& transition, bool feed_back);
  // The weights or the state were changed otherwise.
  void Forget();

  // Predicts `from` after `ahead` updates by the momentum average it had when current; good until the next
  // call or step. REQUIRES: has_average(), ahead != 0, `from` is among the newest options.averages_max.
  const WeightVersions::Version& Predicted(const WeightVersions::Version& from, int64_t ahead);

  int64_t state_bytes() const;
  // Bytes of the predicted weights, where a step also works.
  int64_t workspace_bytes() const;

 private:
  Backend* backend_ = nullptr;
  HistoryOptions options_;
  int64_t count_ = 0;
  int64_t weight_count_ = 0;
  std::vector<absl::string_view> names_;
  std::vector<Buffer> buffers_;  // of the state
  std::vector<float*> arrays_;
  float* average_ = nullptr;  // in `arrays_`, or null
  float* last_update_ = nullptr;
  float* mean_square_ = nullptr;
  std::vector<Buffer> older_averages_;  // by version modulo their number
  int64_t version_ = 0;                 // that the average is of, once there was a step
  int64_t steps_ = 0;                   // since the history began

  const float* AverageOf(int64_t version) const;
  // Makes what no update changes of the predicted weights that of `from`.
  void CopyFrozen(const WeightVersions::Version& from);

  WeightVersions::Version predicted_;
  int64_t predicted_from_ = 0;
  int64_t predicted_ahead_ = 0;  // 0: nothing is there
};

}  // namespace penstock
