// DeepModel: a measured model with more blocks than were measured, as a chain of layers to cut into stages.
//
// A profile of a GPT has an embedding, blocks of equal layers, and a head. The blocks are the longest run of layers whose
// shapes repeat; the deeper model has the layers before the run, the block as many times as asked for, and the layers
// behind it. Every layer takes what the profile says of its shape, and every cut carries what the same cut of the measured
// model carries. Weights that layers share are not followed: each layer counts its own.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/profile.pb.h"
#include "schedule/simulate.h"

namespace penstock {

struct DeepLayer {
  StageCosts costs;         // of a microbatch
  double output_bytes = 0;  // of a microbatch, over the cut behind it; 0 behind the last

  double pass_s() const {
    return costs.forward_s + costs.backward_input_s + costs.backward_weight_s;
  }
};

struct DeepModel {
  std::vector<DeepLayer> layers;
  int block_layers = 0;
  int measured_blocks = 0;
  int blocks = 0;
  double parameter_bytes = 0;  // of all gradients
};

// Returns the model with `blocks` blocks and microbatches of `samples`, on a device `speed` times as fast. With 0 it has
// at least the measured ones, and enough for `stages` equal stages of which none is shorter than the longest layer.
// REQUIRES: CheckModelProfile is OK; blocks >= 0; stages > 0; speed > 0.
// Errors: InvalidArgument: those of DeviceTimesOf; no layers repeat; the cuts of equal blocks carry different bytes.
absl::StatusOr<DeepModel> DeepenModel(const v1::ModelProfile& profile, int64_t samples, int blocks,
                                      int stages, double speed);

// Returns the costs of the model's `stages` stages, and the bytes over the cut behind each, 0 behind the last. The
// slowest stage is as fast as can be. Errors: InvalidArgument where there are fewer layers than stages.
struct DeepStages {
  std::vector<StageCosts> costs;
  std::vector<double> output_bytes;
};
absl::StatusOr<DeepStages> CutDeepModel(const DeepModel& model, int stages);

}  // namespace penstock
