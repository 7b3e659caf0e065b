// Which method is fastest where hosts are joined by the internet: `penstock study internet`.
//
// A measured model, made deeper (deep_model.h), is cut into one part for each host (two where a method has two stages on a
// worker) and simulated with every bandwidth, latency, number of microbatches and method. All messages of a host share its
// bandwidth, each way; every link has the same latency. Speed is tokens a second in a long run, computed from the time of
// a further microbatch. It says nothing of how many steps a method needs: next to each method stand how late its updates
// are, in updates, and what it keeps in memory. Faster by a few percent and late by many updates may be slower to a loss.
//
// Where methods are equally fast to 0.01 %, the one with the least staleness wins, and then the one that is named first.
//
// Plain values and pure functions but for the context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/profile.pb.h"
#include "studies/experiments/deep_model.h"
#include "studies/theory/study.h"

namespace penstock {

struct InternetStudy {
  int hosts = 100;
  int blocks = 0;  // of the deeper model; 0: as DeepenModel chooses for two stages on each host
  int64_t samples = 0;  // in a microbatch; 0: the most that were measured
  double speed = 1;     // of the hosts, as a multiple of the profile's device
  std::vector<double> gigabits = {1, 2, 5, 10};
  std::vector<double> latencies_ms = {5, 10, 20, 50};
  std::vector<int64_t> microbatches;  // in a step; empty: as many as hosts, and four times as many
  std::vector<std::string> methods = {"gpipe", "1f1b",     "interleaved-1f1b", "zb-h1",
                                      "zb-h2", "zb-v",     "local-sgd",        "pipedream-2bw",
                                      "paci",  "nesterov", "pipedream"};
};

// A method in one place of the grid.
struct InternetSpeed {
  double microbatch_s = 0;  // for one more in a long run
  double bubble_ratio = 0;
  int64_t staleness = 0;  // in updates, the greatest of all stages
  int64_t versions = 0;   // of weights, the most on a stage
  int64_t stashed = 0;    // microbatches, the most on a worker
};

// A network between the hosts.
struct InternetLinks {
  double gigabits = 0;  // infinity: no limit
  double latency_ms = 0;
};

// `model`: cut as the method has stages. `microbatches`: in a step. Errors: NotFound (no such method); InvalidArgument
// where the method does not run with these numbers; those of CutDeepModel and Simulate.
absl::StatusOr<InternetSpeed> SimulateOnInternet(const DeepModel& model, const std::string& method,
                                                 int hosts, int64_t microbatches,
                                                 const InternetLinks& links);

// Errors: InvalidArgument (numbers that are not positive or not finite, lists that are empty, those of DeepenModel);
// NotFound (no such method); FailedPrecondition if no method runs with some number of microbatches; Cancelled.
// Methods that do not run with some number of microbatches are left out there, which the settings say.
absl::StatusOr<StudyResult> RunInternetStudy(const InternetStudy& study,
                                             const v1::ModelProfile& profile,
                                             StudyContext& context);

}  // namespace penstock
