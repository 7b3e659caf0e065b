// Fingerprint: the parts of a job that must match between a checkpoint and the job that loads it.
//
// These are what gives stored numbers their meaning: the model, the kind of optimizer, and what says
// which samples a step sees. Rates, clipping, the method, the number of stages and which of
// them recompute may change.
//
// Plain values.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compute/optimizer.h"
#include "model/graph.h"

namespace penstock {

// (field, value), most telling fields first.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

struct FingerprintInputs {
  const ModelGraph& model;
  const OptimizerConfig& optimizer;
  int64_t batch = 0;  // samples per step
  uint64_t seed = 0;
  std::string pretrained = {};  // what the first weights are known by; empty: they are sampled
  Fingerprint data = {};        // the fields that say which samples there are, and their order
};
Fingerprint MakeFingerprint(const FingerprintInputs& inputs);

// The parameters that the job did not train.
std::set<std::string> FrozenParameters(const Fingerprint& fingerprint);

// Errors: InvalidArgument naming the first field that differs, its value there and here.
absl::Status CompareFingerprints(const Fingerprint& checkpoint, const Fingerprint& job);

}  // namespace penstock
