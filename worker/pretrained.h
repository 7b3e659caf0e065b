// The first weights of a model: sampled, or read from a directory of Hugging Face's or from a checkpoint of another job
// (checkpoint/weight_files.h).
//
// Workers and the serial reference load with one function, each the layers that it has, tensor by tensor. A parameter is
// found by its name or one that transformers' files have for it: with "transformer." before it (GPT-2), without "model."
// or "bert." (saved without a head), or with the norms' older names. Of a GPT with a shorter context than the file's the
// first rows of the positions count. Parameters that the job lets be sampled (PretrainedSpec.sampled), and that the files
// lack, are as without a directory, and so are those of adapters (model/lora.h). Running statistics are read like parameters;
// what training carries from step to step starts from zero.
//
// Plain functions; the thread that owns the stage's back-end.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "compute/stage.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

struct FirstWeights {
  Files& files;
  const std::string& root;  // relative paths start here
  const v1::ModelSpec& model;
  const ResolvedJob& job;  // of this model, resolved
};

// Fills all layers of `stage`, which holds `layers` of the job's model: with the weights of model.pretrained if it is
// there, or with sampled ones. `may_go_on` is asked before each layer that is read.
// Errors: those of WeightFiles; NotFound (a tensor is missing), InvalidArgument (of another shape), which name the file,
// the layer, the tensor and what was expected; DataLoss (another digest than the job's), that of `may_go_on`.
absl::Status LoadFirstWeights(const FirstWeights& request, LayerRange layers,
                              absl::FunctionRef<absl::Status()> may_go_on, Stage& stage);

// The names, of which files have one for each, of all that a layer's first weights are read from.
std::set<std::string> NamesOfFirstWeights(const ModelGraph& model, int layer);

// Checks the whole directory, as above, that it has no tensors which belong to another model, and the files of a checkpoint
// against its manifest. Returns the digest of each layer, in the order of the model as it was described: SHA-256 over the
// tensors that were read for its parameters and then its statistics, in their order, as f32 little endian. `stop` is looked at before each tensor.
// REQUIRES: model.pretrained is there. Errors: as above; InvalidArgument (a tensor that nothing reads), Cancelled.
absl::StatusOr<std::vector<std::string>> DigestPretrained(const FirstWeights& request,
                                                          const std::function<bool()>& stop);

}  // namespace penstock
