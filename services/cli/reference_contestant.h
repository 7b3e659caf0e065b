// ReferenceContestant: the serial training of a job that pauses between steps, for races between methods.
//
// Trains in a thread of its own, which waits whenever it has as many steps as were asked for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "planner/job/race.h"

namespace penstock {

class ReferenceContestant : public Contestant {
 public:
  // `spec`: complete, with the digest of its text, which lies under `data_root`; it is trained without
  // validations and checkpoints. Nothing is trained before the first TrainTo, which asks `may_go_on` now and then
  // and ends with its error.
  ReferenceContestant(v1::JobSpec spec, std::string data_root,
                      std::function<absl::Status()> may_go_on);
  // Ends the training within a microbatch.
  ~ReferenceContestant() override;

  // Errors: those of TrainReference and of `may_go_on`.
  absl::StatusOr<std::vector<double>> TrainTo(int64_t steps) override;
  // Ends the training within a microbatch, and with it frees the model.
  void Leave() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
