// Small jobs for tests: a GPT of a few thousand parameters on generated text.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "model/graph.h"
#include "penstock/v1/cluster.pb.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

inline constexpr char kTextPath[] = "/data/text.txt";
inline constexpr char kCheckpointRoot[] = "/checkpoints";

// Letters and spaces with some structure, the same every time.
std::string TestText(int64_t size_bytes = 8192);

// AdamW, 3 steps of 4 microbatches of 2 samples, 2 blocks of width 16: a model of 7 layers. The head is
// untied, dropout and clipping are off. Defaults are filled in.
v1::JobSpec SmallJob(const std::string& method);
inline constexpr int kLayers = 7;

// The rules about late gradients, each by itself.
struct StalenessCase {
  const char* name;
  const char* method;  // one that it changes
  void (*apply)(v1::JobSpec& spec);
};
absl::Span<const StalenessCase> StalenessCases();

ModelGraph ChainOf(const v1::JobSpec& spec);

// `counts` layers each, one after the other.
std::vector<LayerRange> SplitInto(absl::Span<const int> counts);
// As even as can be.
std::vector<LayerRange> EvenSplit(int layers, int stages);
std::vector<LayerRange> RandomSplit(int layers, int stages, std::mt19937& random);
// Every way to cut `layers` into `stages`.
std::vector<std::vector<LayerRange>> AllSplits(int layers, int stages);

// Who holds which of `stages` stages of a job, in all its pipelines; one worker each if the job cannot be run
// so.
std::vector<int> WorkersOfStages(const v1::JobSpec& spec, int stages);

// What the coordinator would send to worker `worker_index`. `layers`: of one pipeline.
v1::PrepareRunRequest MakeRequest(const v1::JobSpec& spec, absl::Span<const LayerRange> layers,
                                  int worker_index, int64_t first_step = 0,
                                  const std::vector<int64_t>& extra_cuts = {});

}  // namespace penstock
