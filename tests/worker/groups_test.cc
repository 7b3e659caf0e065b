// Parameter groups, frozen parameters and low-rank adapters in a cluster: the bits of the serial reference with every method.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "compute/initial_weights.h"
#include "job/defaults.h"
#include "job/fingerprint.h"
#include "job/resolve.h"
#include "model/lora.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/reference.h"
#include "worker/update_rule.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

using Apply = void (*)(v1::JobSpec& spec);

void Freeze(const char* pattern, v1::JobSpec& spec) {
  v1::ParameterGroupSpec& group = *spec.mutable_training()->add_groups();
  group.set_parameters(pattern);
  group.set_frozen(true);
}

void AdaptWith(const std::vector<const char*>& targets, v1::JobSpec& spec) {
  v1::LoraSpec& lora = *spec.mutable_model()->mutable_lora();
  lora.set_rank(3);
  lora.set_alpha(6);
  lora.set_dropout(0.1);
  for (const char* target : targets) lora.add_targets(target);
}

// 7 layers: embedding, two blocks of two, final norm, head.
struct Case {
  const char* name;
  Apply apply;
};
constexpr Case kCases[] = {
    {"rates and decays",
     [](v1::JobSpec& spec) {
       v1::ParameterGroupSpec& slow = *spec.mutable_training()->add_groups();
       slow.set_parameters("h.0.*");
       slow.set_learning_rate_scale(0.25);
       v1::ParameterGroupSpec& decayed = *spec.mutable_training()->add_groups();
       decayed.set_parameters("*.bias");
       decayed.set_weight_decay(0.5);
     }},
    {"the first layers frozen",
     [](v1::JobSpec& spec) {
       Freeze("w?e.weight", spec);
       Freeze("h.0.*", spec);
     }},
    {"a layer in the middle frozen",
     [](v1::JobSpec& spec) {
       Freeze("h.1.attn.*", spec);
       Freeze("h.1.ln_1.*", spec);
     }},
    {"all but biases frozen", [](v1::JobSpec& spec) { Freeze("*.weight", spec); }},
    {"all but the last norm frozen",
     [](v1::JobSpec& spec) {
       for (const char* pattern : {"w*", "h.*", "lm*"}) {
         if (*pattern == 'l' && spec.model().gpt().tied_head()) continue;
         Freeze(pattern, spec);
       }
     }},
    {"adapters",
     [](v1::JobSpec& spec) {
       AdaptWith({"*.c_attn", "h.1.mlp.*"}, spec);
     }},
    {"an average of the weights, of which some are frozen",
     [](v1::JobSpec& spec) {
       Freeze("h.0.*", spec);
       spec.mutable_training()->mutable_ema()->set_decay(0.8);
     }},
    {"adapters in the last block, and norms",
     [](v1::JobSpec& spec) {
       AdaptWith({"h.1.attn.c_proj"}, spec);
       v1::ParameterGroupSpec& norms = *spec.mutable_training()->add_groups();
       norms.set_parameters("*ln_*");
       norms.set_learning_rate_scale(0.5);
     }},
};

class Groups : public ::testing::Test {
 protected:
  Groups() { AddTestText(files_); }

  void ExpectEqual(const v1::JobSpec& spec, const std::vector<LayerRange>& layers,
                   uint64_t delay_seed = 0) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = layers, .delay_seed = delay_seed}, files_));
    ExpectSameTraining(cluster, serial);
  }

  // By layer of the model, after training in one process.
  std::vector<std::string> LayersAfter(const v1::JobSpec& spec) {
    const auto backend = *MakeCpuBackend(1);
    const absl::StatusOr<ReferenceResult> result =
        TrainReference({.spec = spec, .stages = EvenSplit(kLayers, 1)}, files_, *backend);
    EXPECT_THAT(result, IsOk());
    return result.ok() ? result->layer_sha256 : std::vector<std::string>(kLayers);
  }

  MemoryFiles files_;
};

TEST_F(Groups, EveryMethod_IsTheSerialReference) {
  for (const Case& each : kCases) {
    for (const Method& method : Methods()) {
      const int per_worker = StagesPerWorkerMin(method.placement);
      for (const int workers : {1, 3}) {
        const int stages = workers * per_worker;
        v1::JobSpec spec = SmallJob(std::string(method.name));
        v1::TrainingSpec& training = *spec.mutable_training();
        training.set_microbatches(method.steps_in_rounds ? 2 * workers : 4);
        training.set_batch(2 * training.microbatches());
        training.set_steps(4);
        spec.mutable_validation()->set_every_steps(3);
        spec.mutable_validation()->set_batches(1);
        spec.mutable_model()->mutable_gpt()->set_tied_head(method.synchronous);
        if (method.synchronous && !method.updates_each_microbatch) {
          training.mutable_clip()->set_global_norm(0.5);
        } else {
          training.mutable_clip()->set_layer_norm(0.2);
        }
        each.apply(spec);
        FillDefaults(spec);
        SCOPED_TRACE(absl::StrCat(each.name, ", ", method.name, ", ", stages, " stages"));
        ExpectEqual(spec, EvenSplit(kLayers, stages), /*delay_seed=*/stages);
      }
    }
  }
}

// A frozen table that two stages share takes no reduction, so that no method minds it.
TEST_F(Groups, FrozenTiedTable_GoesWithMethodsThatUpdateEachStage) {
  for (const char* method : {"pipedream", "paci", "pipemare"}) {
    v1::JobSpec spec = SmallJob(method);
    spec.mutable_model()->mutable_gpt()->set_tied_head(true);
    EXPECT_FALSE(CheckStages(*ResolveJob(spec), 3).ok());
    Freeze("wte.weight", spec);
    FillDefaults(spec);
    ExpectEqual(spec, EvenSplit(kLayers, 3));
  }
}

TEST_F(Groups, LateGradientsReplicasPrecisionsAndRecomputation_AreTheSerialReference) {
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.name);
    for (const StalenessCase& late : StalenessCases()) {
      v1::JobSpec spec = SmallJob(late.method);
      each.apply(spec);
      late.apply(spec);
      FillDefaults(spec);
      SCOPED_TRACE(late.name);
      ExpectEqual(spec, EvenSplit(kLayers, 3));
    }
    for (const char* method : {"1f1b", "pipedream"}) {
      v1::JobSpec spec = SmallJob(method);
      each.apply(spec);
      spec.mutable_training()->set_precision("bf16");
      spec.mutable_training()->set_rounding("stochastic");
      spec.mutable_pipeline()->set_recompute("all");
      FillDefaults(spec);
      ExpectEqual(spec, EvenSplit(kLayers, 3));
      v1::JobSpec replicated = SmallJob(method);
      each.apply(replicated);
      for (const int replicas : {2, 1, 2}) replicated.mutable_pipeline()->add_replicas(replicas);
      FillDefaults(replicated);
      ExpectEqual(replicated, EvenSplit(kLayers, 3));
    }
  }
}

TEST_F(Groups, EveryPartition_GivesTheSameBits) {
  for (const Case& each : kCases) {
    v1::JobSpec spec = SmallJob("1f1b");
    spec.mutable_model()->mutable_gpt()->set_tied_head(true);
    spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
    each.apply(spec);
    FillDefaults(spec);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, EvenSplit(kLayers, 1), {}, files_));
    for (const int stages : {2, 4, 7}) {
      for (const auto& layers : AllSplits(kLayers, stages)) {
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                      TrainCluster({.spec = spec, .layers = layers}, files_));
        ExpectSameTraining(cluster, serial);
      }
    }
  }
}

TEST_F(Groups, FrozenLayers_KeepTheirBytes) {
  v1::JobSpec trained = SmallJob("1f1b");
  Freeze("w?e.weight", trained);
  Freeze("h.0.attn.*", trained);
  Freeze("h.0.ln_1.*", trained);
  FillDefaults(trained);
  const ModelGraph model = ChainOf(trained);
  const std::vector<std::string> after = LayersAfter(trained);
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<NamedArray> initial;
    for (const ParameterSpec& parameter : model.layers[layer].parameters) {
      initial.push_back(
          {parameter.name, parameter.shape, InitialWeights(parameter, trained.training().seed())});
    }
    EXPECT_EQ(after[layer] == ParametersDigest(initial), layer < 2) << layer;
  }
}

// A rate of 0 leaves the weights, too, so that training with it is the same but for what it costs.
TEST_F(Groups, ARateOfZero_TrainsAsFreezingDoes) {
  const auto train = [&](bool frozen) {
    v1::JobSpec spec = SmallJob("pipedream");
    v1::ParameterGroupSpec& group = *spec.mutable_training()->add_groups();
    group.set_parameters("h.0.*");
    if (frozen) {
      group.set_frozen(true);
    } else {
      group.set_learning_rate_scale(0.0);
    }
    FillDefaults(spec);
    return TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, 3)}, files_);
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained frozen, train(true));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained still, train(false));
  ExpectSameTraining(frozen, still);
}

TEST_F(Groups, Checkpoint_IsCompleteAndGoesOnBitForBit) {
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.name);
    v1::JobSpec spec = SmallJob("1f1b");
    spec.mutable_training()->set_steps(4);
    spec.mutable_checkpoint()->set_every_steps(2);
    spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
    each.apply(spec);
    FillDefaults(spec);
    TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, 3)}, files_);
    ASSERT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, cluster.CommitCheckpoint(2));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Manifest manifest, VerifyCheckpoint(files_, directory));
    const ModelGraph model = ChainOf(spec);
    for (int layer = 0; layer < kLayers; ++layer) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const LayerState state,
                                    LoadLayer(files_, directory, manifest, layer));
      EXPECT_EQ(state.weights.size(), model.layers[layer].parameters.size());
    }
    for (const int stages : {1, 2, 5}) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                    TrainCluster({.spec = spec,
                                                  .layers = EvenSplit(kLayers, stages),
                                                  .first_step = 2,
                                                  .checkpoint = directory},
                                                 files_));
      EXPECT_EQ(resumed.weights_sha256, cluster.WeightsSha256()) << stages << " stages";
    }
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
  }
}

TEST_F(Groups, WhatIsFrozen_IsPartOfWhatACheckpointMustMatch) {
  const auto fingerprint = [](const v1::JobSpec& spec) {
    return FingerprintOf(spec, *ResolveJob(spec));
  };
  const v1::JobSpec plain = SmallJob("1f1b");
  v1::JobSpec rates = plain, frozen = plain;
  kCases[0].apply(rates);
  FillDefaults(rates);
  Freeze("h.0.*", frozen);
  FillDefaults(frozen);
  EXPECT_THAT(CompareFingerprints(fingerprint(plain), fingerprint(rates)), IsOk());
  EXPECT_THAT(CompareFingerprints(fingerprint(plain), fingerprint(frozen)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("frozen in h.0.attention")));
}

// The average of weights, with and without frozen layers: every method keeps the reference's, and validates with it.
TEST_F(Groups, WeightAverage_IsTheSerialReference) {
  for (const Method& method : Methods()) {
    for (const bool bf16 : {false, true}) {
      const int stages = 3 * StagesPerWorkerMin(method.placement);
      v1::JobSpec spec = SmallJob(std::string(method.name));
      v1::TrainingSpec& training = *spec.mutable_training();
      training.set_microbatches(method.steps_in_rounds ? 6 : 4);
      training.set_batch(2 * training.microbatches());
      training.set_steps(4);
      training.mutable_ema()->set_decay(0.75);
      if (bf16) training.set_precision("bf16");
      spec.mutable_validation()->set_every_steps(2);
      spec.mutable_validation()->set_batches(1);
      if (bf16) Freeze("h.0.*", spec);
      FillDefaults(spec);
      SCOPED_TRACE(absl::StrCat(method.name, ", bf16 ", bf16));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained current,
                                    TrainSerially(spec, EvenSplit(kLayers, stages), {}, files_));
      spec.mutable_validation()->set_weights("ema");
      if (method.placement == Placement::kRoundTrip) {
        EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                               HasSubstr("validation.weights: cannot be ema")));
        continue;
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained averaged,
                                    TrainSerially(spec, EvenSplit(kLayers, stages), {}, files_));
      EXPECT_EQ(averaged.weights_sha256, current.weights_sha256);
      EXPECT_NE(averaged.validations, current.validations);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const Trained cluster,
          TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, stages)}, files_));
      ExpectSameTraining(cluster, averaged);
    }
  }
}

// A step keeps as much of it however many updates it has: with weights that stand still nothing shows, so the shares are
// looked at themselves.
TEST_F(Groups, WeightAverage_KeepsAsMuchInAStepWhateverTheUpdates) {
  v1::JobSpec spec = SmallJob("pipedream");
  spec.mutable_training()->mutable_ema()->set_decay(0.9);
  const ResolvedJob job = *ResolveJob(spec);
  EXPECT_NEAR(std::pow(AverageKept(job, 1, 1), 4), 0.9, 1e-12);
  EXPECT_NEAR(AverageKept(job, 4, 1), 0.9, 1e-12);
  EXPECT_NEAR(std::pow(AverageKept(job, 1, 2), 2), 0.9, 1e-12);
  spec.mutable_training()->clear_ema();
  EXPECT_EQ(AverageKept(*ResolveJob(spec), 1, 1), 1.0);
}

// B of zeros: an adapted model starts where the model was.
TEST_F(Groups, Adapters_StartWithTheModelsLossAndTrainNothingElse) {
  v1::JobSpec plain = SmallJob("1f1b");
  v1::JobSpec adapted = plain;
  AdaptWith({"*"}, adapted);
  FillDefaults(adapted);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained a, TrainSerially(plain, EvenSplit(7, 1), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained b,
                                TrainSerially(adapted, EvenSplit(7, 1), {}, files_));
  EXPECT_NEAR(a.steps.front().loss, b.steps.front().loss, 1e-6);
  const ModelGraph model = ChainOf(adapted);
  std::set<std::string> trained;
  for (const LayerSpec& layer : model.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      if (!parameter.frozen) trained.insert(parameter.name);
    }
  }
  EXPECT_EQ(trained.size(), 16u);  // two factors of four maps in two blocks
  for (const std::string& name : trained) {
    EXPECT_TRUE(absl::EndsWith(name, kLoraA) || absl::EndsWith(name, kLoraB)) << name;
  }
}

}  // namespace
}  // namespace penstock
