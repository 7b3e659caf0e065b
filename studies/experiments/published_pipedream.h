// What PipeDream's authors published of its speed, for studies to stand beside.
//
//   2018  Harlap et al., "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", arXiv 1806.03377: table 1, and of
//         AlexNet and ResNet-50 the text (section 5.2). Cluster A: Titan X, 25 Gb/s; cluster B: V100, 10 Gb/s;
//         one GPU in a machine; 32 images a minibatch of VGG-16.
//   2019  Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP'19: table 1. Cluster A:
//         hosts of 4 V100 on PCIe, 10 Gb/s between them; cluster B: hosts of 8 V100 on NVLink, 25 Gb/s. Minibatches
//         are those of the configurations that are published with the code.
//
// Of the second only what is quoted elsewhere could be had: nothing of GNMT-8, and of GNMT-16 on cluster A the time to an
// accuracy instead of that of an epoch.
#pragma once

#include <optional>
#include <string>

#include "absl/types/span.h"

namespace penstock {

struct PublishedSpeed {
  const char* source;   // "arXiv 1806.03377, table 1"
  const char* cluster;  // "A, Titan X"
  const char* profile;  // the name of the model's profile: "vgg16"
  int workers = 0;
  double gigabits_per_second = 0;  // of a machine
  std::optional<int> samples;      // of a worker's minibatch; absent: not said
  const char* plan;                // "7-1"; empty: not said
  std::optional<double> data_parallel_over_one;
  std::optional<double> pipedream_over_one;
  double pipedream_over_data_parallel = 0;
  std::optional<double> bytes_saved;  // of those of data parallelism; a share
};

absl::Span<const PublishedSpeed> PublishedSpeeds();

}  // namespace penstock
