// GreedyDecoder: target sequences of source sequences, with the model's likeliest piece at each step.
//
// The model reads ports as data.pairs fills them (worker/pairs_data.h): `source`, `inputs` and, if it has one,
// `source_lengths`; its loss is over logits [target time, pieces] and must let step t of the logits depend on no input
// behind t. A step is a forward pass over a batch's prefixes, padded; what the model makes of the source alone is
// computed once for a batch. For this, layers are grouped in runs of those in which something depends on `inputs` and of
// those in which nothing does: the latter are not repeated. So an encoder runs once, also where the embedding of the
// prefixes shares a layer with that of the source.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "compute/backend.h"
#include "compute/stage.h"
#include "inference/checkpoint_model.h"
#include "model/bundle.h"

namespace penstock {

struct DecoderOptions {
  int64_t batch = 32;
  int threads = 1;
  int32_t padding = 0;
  int32_t bos = 0;  // what a target begins with
  int32_t eos = 0;  // what ends both
};

class GreedyDecoder {
 public:
  // Checks that the model is one to decode with. Errors: Unimplemented (other ports, or no logits for each step of the
  // target).
  static absl::Status CheckDecodes(const ModelGraph& model);

  // Loads the weights. Errors: those of CheckDecodes and LoadWeights; ResourceExhausted.
  static absl::StatusOr<GreedyDecoder> Create(Files& files, const CheckpointModel& model,
                                              const DecoderOptions& options);

  // The most pieces of a source, without the end.
  int64_t source_pieces_max() const { return source_time_ - 1; }

  // The targets of at most a batch of sources, without ends: at most as many pieces as the model has time steps. Of
  // equally likely pieces the first counts. REQUIRES: there are 1 to options.batch sources, none is too long.
  // Errors: InvalidArgument (a piece that the model cannot look up), those of the back-end.
  absl::StatusOr<std::vector<std::vector<int32_t>>> Decode(
      absl::Span<const std::vector<int32_t>> sources);

 private:
  // Consecutive layers that are repeated together, or not at all.
  struct Run {
    std::unique_ptr<Stage> stage;
    bool repeats = true;
    Bundle output;  // what it hands on; empty of the last
    Tensor handed;  // of a batch: what a run that is not repeated made
  };
  // Of a value that passes through a run which is not repeated: where it is in the run's input and output.
  struct Passing {
    size_t run = 0;
    int64_t from = 0, to = 0, elements = 0;
  };

  GreedyDecoder(const CheckpointModel& model, const DecoderOptions& options);
  void FindPorts();
  absl::Status MakeRuns(Files& files);
  // Whether a node reads `inputs`, itself or through others; by node.
  std::vector<bool> NodesThatDepend() const;
  // Of a whole batch; null where the run does not read the port.
  absl::StatusOr<std::vector<Tensor>> PortsOf(const Run& run);
  // The logits of the prefixes in inputs_. `first`: whether all runs have to run.
  absl::StatusOr<std::vector<float>> Logits(bool first);

  CheckpointModel model_;
  DecoderOptions options_;
  std::unique_ptr<Backend> backend_;
  std::vector<Run> runs_;  // after the back-end they live on
  std::vector<Passing> passing_;
  int source_ = -1, source_lengths_ = -1, inputs_port_ = -1;  // ports
  int64_t source_time_ = 0, target_time_ = 0, pieces_ = 0;
  std::vector<int32_t> sources_, lengths_, inputs_;  // of a batch
};

}  // namespace penstock
