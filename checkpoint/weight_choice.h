// WeightChoice: which array of a checkpoint is a parameter's value: the weight of the step, or its moving average
// (training.ema).
//
// Code that reads a model to compute with it or to hand it over asks here; training that goes on takes both arrays as they are.
//
// Plain functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "model/graph.h"

namespace penstock {

enum class WeightChoice { kCurrent, kAverage };

// "current" or "ema", the words of validation.weights.
absl::string_view Name(WeightChoice choice);

// Puts the averages into the places of the weights of a layer that was loaded, if they are chosen. A frozen parameter has no
// average in a checkpoint and keeps its weight, which no step changed; buffers, such as running statistics, have none either.
// `directory` and `manifest`: of the checkpoint, for messages and for what was frozen. `layer`: of `model`.
//
// Errors: FailedPrecondition naming the checkpoint and the first trained parameter without an average; DataLoss (an average
// of another shape than its weight).
absl::Status ChooseWeights(WeightChoice choice, const std::string& directory,
                           const Manifest& manifest, const LayerSpec& layer, LayerState& state);

}  // namespace penstock
