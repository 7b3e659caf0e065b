// PausedReference: the serial training of a job that pauses between steps, for races between methods.
//
// Trains in a thread of its own, which waits whenever it has as many steps as were asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/reference.h"

namespace penstock {

class PausedReference {
 public:
  // `options`: of a job with the digest of its text, without callbacks; it is trained without validations and
  // checkpoints. Nothing is trained before the first TrainTo, which asks `may_go_on` now and then and ends with its
  // error.
  PausedReference(ReferenceOptions options, std::function<absl::Status()> may_go_on);
  // Ends the training within a microbatch.
  ~PausedReference();

  // The losses of all steps from the first up to `steps`; fewer if the job is done before.
  // Errors: those of TrainReference and of `may_go_on`.
  absl::StatusOr<std::vector<double>> TrainTo(int64_t steps);
  // Ends the training within a microbatch, and with it frees the model.
  void Leave();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
