// The model of a job as a message, and as the graph that everybody computes with.
//
// Pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/manifest.h"
#include "model/families/gpt.h"
#include "model/graph.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// The graph that a job's model describes. REQUIRES: it has its defaults filled in.
// Errors: InvalidArgument starting with the key: "model.gpt.heads: is 5, which does not divide width (192)",
// "model.graph: fc1: ...".
absl::StatusOr<ModelGraph> BuildModel(const v1::ModelSpec& spec);

// The same with its layers in the job's order, and its parameters in the job's groups. Errors also: InvalidArgument starting
// with "pipeline.layer_order" or "training.groups".
absl::StatusOr<ModelGraph> BuildModel(const v1::JobSpec& spec);

// Errors: InvalidArgument starting with the name of the port, layer or node.
absl::StatusOr<ModelGraph> BuildGraph(const v1::ModelGraph& message);

// With all names and attributes said: BuildGraph makes the same graph of it, but for its `architecture`, and with
// weights shared that Untie gave copies of their own.
v1::ModelGraph ToProto(const ModelGraph& graph);

// REQUIRES: it has its defaults filled in.
GptConfig GptConfigOf(const v1::GptSpec& gpt);

// What the first weights of a job are known by where they are read: their digest, if the job has it. Empty: they are sampled.
std::string IdentityOfPretrained(const v1::ModelSpec& spec);

// What checkpoints of a job hold of its model, as it was described. REQUIRES: BuildModel(spec) is OK.
StoredModel StoredModelOf(const v1::ModelSpec& spec);

// The family of a model that Hugging Face's transformers has, and the directory that it came from if there is one, as the
// JSON of a ModelSpec without digests; of others, and of a GPT that came from nowhere, whose numbers say it all, empty.
std::string FamilyText(const v1::ModelSpec& spec);
// Errors: DataLoss (it is no such text).
absl::StatusOr<v1::ModelSpec> FamilyOfText(const std::string& text);

}  // namespace penstock
