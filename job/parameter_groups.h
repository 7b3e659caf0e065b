// The parameter groups of a job (training.groups): which parameters of its model are trained, and how.
//
// A pure function.
#pragma once

#include "absl/status/status.h"
#include "model/graph.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// Gives the model's parameters what the job's groups say of them; with adapters (model.lora), those that no group says
// something of are frozen, but for the adapters.
// Errors: InvalidArgument naming the key: a pattern that matches no parameter, with the names that are nearest to it, or
// nothing that is left to train.
absl::Status ApplyGroupsOf(const v1::JobSpec& spec, ModelGraph& model);

}  // namespace penstock
