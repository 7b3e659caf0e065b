// PipeDream's experiment on this runtime's schedules, in simulated time: `penstock theory pipedream`.
//
// Models that PipeDream's authors profiled are planned for several workers and links, and trained in four ways
// (parallel_training.h): data parallelism, model parallelism (a straight pipeline that holds one minibatch), GPipe (the
// same pipeline, which drains after 4 minibatches for each stage), and PipeDream on Penstock's plan with replicas. What
// the authors published stands beside it (published_pipedream.h), at their minibatch where it is said.
//
// The profiles do not say on which GPU they were taken, and the clusters of the papers have another network than one
// of equal cards. Nothing is fitted: a claim that is not met is a result.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "planner/graph/layer_graph.h"
#include "studies/theory/study.h"

namespace penstock {

struct ProfiledModel {
  std::string name;     // "VGG-16"
  std::string profile;  // the file's name without .txt: "vgg16"
  int samples = 0;      // of the profiled minibatch, as its tensors show
  bool in_grid = true;  // else only where there is something published
  LayerGraph graph;     // without the nodes that load data
};

// Reads the profiles of VGG-16, ResNet-50, AlexNet, GNMT-8 and GNMT-16 in a directory: vgg16.txt, resnet50.txt,
// alexnet.txt, gnmt.txt and gnmt_large.txt of PipeDream's repository. Errors: those of the file system, and of
// ParsePipeDreamProfile, naming the file.
absl::StatusOr<std::vector<ProfiledModel>> ReadPipeDreamModels(Files& files,
                                                               const std::string& directory);

struct PipeDreamStudy {
  std::vector<ProfiledModel> models;
  std::vector<int> workers = {4, 8, 16};
  std::vector<double> gigabits_per_second = {1, 10, 25};
  double chart_gigabits = 10;
};

// A row for each model, minibatch, number of workers and link; speeds are multiples of one worker's. A claim agrees if the
// plan, where it is said, is the same, and the figures are within kPublishedNear of it either way.
inline constexpr double kPublishedNear = 1.25;

// Errors: Cancelled if the context says to stop; those of PlanStages and SimulatePipeline, naming the model.
absl::StatusOr<StudyResult> RunPipeDreamStudy(const PipeDreamStudy& study, StudyContext& context);

}  // namespace penstock
