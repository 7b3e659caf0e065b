// Plans of any graph and any cut, walked without kernels.
#include "compute/pass_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "compute/activation_bytes.h"
#include "compute/buffer_pool.h"
#include "tests/compute/played_stage.h"
#include "tests/compute/random_graph.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Keeps = PlayedStage::Keeps;
using Kind = PassStep::Kind;
using Place = PlayedMemory::Place;

constexpr uint64_t kModels = 400;
constexpr int64_t kSamples = 3;

// A microbatch through all stages, whose W come last, the first stage's first.
void PlayPipeline(const PlannedModel& model, const std::vector<LayerRange>& ranges, bool recomputes,
                  DType crossing = DType::kF32) {
  PlayedMemory memory;
  Terms terms(model, crossing);
  std::vector<PlayedStage> stages;
  for (const LayerRange& range : ranges) {
    stages.emplace_back(memory, terms, model, range, kSamples, crossing);
  }
  Place place;
  for (PlayedStage& stage : stages) {
    place = stage.Forward(place, recomputes ? Keeps::kInput : Keeps::kForBackward);
    if (!recomputes) continue;
    std::vector<int> kept;
    if (stage.plan().input >= 0) kept.push_back(stage.plan().input);
    for (const PassPlan::NodeSlots& node : stage.plan().nodes) {
      std::copy_if(node.states.begin(), node.states.end(), std::back_inserter(kept),
                   [](int slot) { return slot >= 0; });
    }
    EXPECT_THAT(stage.Held(), testing::UnorderedElementsAreArray(kept));
  }
  memory.Give(place);  // the loss
  for (size_t s = stages.size(); s-- > 0;) {
    if (recomputes) stages[s].Recompute();
    place = stages[s].BackwardInput(place);
  }
  EXPECT_FALSE(place) << "the first stage returns a gradient";
  for (PlayedStage& stage : stages) stage.BackwardWeight();
  for (const PlayedStage& stage : stages) EXPECT_THAT(stage.Held(), IsEmpty());
  EXPECT_EQ(memory.bytes(), 0);
}

TEST(PassPlan, OfRandomModelsAndCuts_ReadsWhatIsThereAndGivesAllBack) {
  for (uint64_t seed = 0; seed < kModels; ++seed) {
    const PlannedModel model = RandomModel(seed);
    const std::vector<LayerRange> cuts[] = {{{0, model.graph.size()}},
                                            RandomStages(model.graph, seed)};
    for (const std::vector<LayerRange>& ranges : cuts) {
      for (const bool recomputes : {false, true}) {
        for (const DType crossing : {DType::kF32, DType::kBf16}) {
          SCOPED_TRACE(testing::Message()
                       << "seed " << seed << ", " << ranges.size() << " stages, " << Name(crossing)
                       << (recomputes ? ", forward done again" : ""));
          PlayPipeline(model, ranges, recomputes, crossing);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(PassPlan, Evaluate_KeepsNothing) {
  for (uint64_t seed = 0; seed < kModels; ++seed) {
    SCOPED_TRACE(seed);
    const PlannedModel model = RandomModel(seed);
    for (const DType crossing : {DType::kF32, DType::kBf16}) {
      PlayedMemory memory;
      Terms terms(model, crossing);
      Place place;
      for (const LayerRange& range : RandomStages(model.graph, seed)) {
        PlayedStage stage(memory, terms, model, range, kSamples, crossing);
        place = stage.Forward(place, Keeps::kNothing);
        EXPECT_THAT(stage.Held(), IsEmpty());
      }
      memory.Give(place);
      EXPECT_EQ(memory.bytes(), 0);
    }
  }
}

TEST(PassPlan, SlotsThatCross_AreThoseThatPassesAreGivenAndReturn) {
  for (uint64_t seed = 0; seed < kModels; ++seed) {
    SCOPED_TRACE(seed);
    const PlannedModel model = RandomModel(seed);
    for (const LayerRange& range : RandomStages(model.graph, seed)) {
      const PassPlan plan = MakePassPlan(model.graph, range, kSamples, model.NeedsOf(range));
      std::set<int> crossing = {plan.input, plan.grad_output, plan.grad_input};
      if (range.end() < model.graph.size()) crossing.insert(plan.output);
      for (size_t slot = 0; slot < plan.slots.size(); ++slot) {
        EXPECT_EQ(plan.slots[slot].crosses, crossing.count(static_cast<int>(slot)) > 0);
      }
    }
  }
}

int64_t Count(const std::vector<PassStep>& steps, Kind kind) {
  return std::count_if(steps.begin(), steps.end(),
                       [&](const PassStep& step) { return step.kind == kind; });
}

// Together the layers do what the whole model does, and nothing about bundles.
TEST(PassPlan, OfLayersWithoutCuts_AddUpToTheWholeModel) {
  for (uint64_t seed = 0; seed < kModels; ++seed) {
    for (const DType crossing : {DType::kF32, DType::kBf16}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << Name(crossing));
      const PlannedModel model = RandomModel(seed);
      const PassPlan whole =
          MakePassPlan(model.graph, {0, model.graph.size()}, kSamples, model.needs, crossing);
      std::map<Kind, int64_t> forward, backward;
      for (int layer = 0; layer < model.graph.size(); ++layer) {
        const LayerRange range = {layer, 1};
        const PassPlan plan = MakePassPlan(model.graph, range, kSamples, model.NeedsOf(range),
                                           crossing, StageEnds::kLayers);
        EXPECT_EQ(plan.output >= 0, range.end() == model.graph.size()) << "the loss is returned";
        EXPECT_EQ(plan.grad_input, -1);
        for (const int received : {plan.input, plan.grad_output}) {
          EXPECT_TRUE(received < 0 || plan.slots[received].dtype == DType::kF32);
        }
        for (const PassStep& step : plan.forward) ++forward[step.kind];
        for (const PassStep& step : plan.backward_input) ++backward[step.kind];
      }
      for (const Kind kind : {Kind::kRun, Kind::kRound, Kind::kAdd, Kind::kNarrow, Kind::kWiden}) {
        EXPECT_EQ(forward[kind], Count(whole.forward, kind));
        EXPECT_EQ(backward[kind], Count(whole.backward_input, kind));
      }
      EXPECT_EQ(forward[Kind::kCopy], Count(whole.forward, Kind::kCopy));
      EXPECT_EQ(forward[Kind::kWiden], 0);
    }
  }
}

// x is read three times; the last stage sees two of its readers.
PlannedModel WithThreeReaders() {
  PlannedModel model;
  const int port = model.AddPort({4});
  const int x = model.Add({port}, {4}, true);
  const int a = model.Add({x}, {4}, true);
  const int b = model.Add({x, a}, {4}, true);
  model.AddLoss({x, b});
  return model;
}

TEST(PassPlan, GradientOfAValue_IsAddedFromItsLastReaderToItsFirst) {
  const PlannedModel model = WithThreeReaders();
  const PassPlan plan = MakePassPlan(model.graph, {0, 4}, 1, model.needs);
  std::vector<std::pair<int, int>> sums;
  for (const PassStep& step : plan.backward_input) {
    if (step.kind == Kind::kAdd) sums.push_back({step.from, step.slot});
  }
  const int of_loss = plan.nodes[3].grad_inputs[0];
  const int of_b = plan.nodes[2].grad_inputs[0];
  const int of_a = plan.nodes[1].grad_inputs[0];
  EXPECT_THAT(sums, ElementsAre(std::pair(of_loss, of_b), std::pair(of_b, of_a)));
  EXPECT_EQ(plan.nodes[0].grad_output, of_a);
}

TEST(PassPlan, GradientOfAValueAcrossACut_StartsWithTheSumOfTheReadersBehindIt) {
  const PlannedModel model = WithThreeReaders();
  const PassPlan behind = MakePassPlan(model.graph, {2, 2}, 1, model.NeedsOf({2, 2}));
  EXPECT_EQ(Count(behind.backward_input, Kind::kAdd), 1);
  const PassPlan before = MakePassPlan(model.graph, {0, 2}, 1, model.NeedsOf({0, 2}));
  std::vector<std::pair<int, int>> sums;
  for (const PassStep& step : before.backward_input) {
    if (step.kind == Kind::kAdd) sums.push_back({step.from, step.slot});
  }
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0].second, before.nodes[1].grad_inputs[0]);
  // The first summand is the part of what was received.
  const auto view = std::find_if(before.backward_input.begin(), before.backward_input.end(),
                                 [&](const PassStep& step) {
                                   return step.kind == Kind::kShare && step.slot == sums[0].first;
                                 });
  ASSERT_NE(view, before.backward_input.end());
  EXPECT_EQ(view->from, before.grad_output);
}

TEST(PassPlan, BundleOfOneValue_IsItsTensorWithoutACopy) {
  PlannedModel model;
  int value = model.AddPort({4});
  for (int node = 0; node < 5; ++node) value = model.Add({value}, {4}, true);
  model.AddLoss({value});
  const PassPlan plan = MakePassPlan(model.graph, {1, 3}, 1, model.NeedsOf({1, 3}));
  EXPECT_EQ(plan.nodes[0].inputs[0], plan.input);
  EXPECT_EQ(plan.nodes[2].output, plan.output);
  EXPECT_EQ(plan.nodes[2].grad_output, plan.grad_output);
  EXPECT_EQ(plan.nodes[0].grad_inputs[0], plan.grad_input);
  for (const auto* steps : {&plan.forward, &plan.recompute, &plan.forward_only, &plan.evaluate,
                            &plan.backward_input, &plan.backward_weight}) {
    EXPECT_EQ(Count(*steps, Kind::kCopy), 0);
    EXPECT_EQ(Count(*steps, Kind::kShare), 0);
  }
}

TEST(PassPlan, RandomBundlesOfOneValue_AreNotCopied) {
  for (uint64_t seed = 0; seed < kModels; ++seed) {
    SCOPED_TRACE(seed);
    const PlannedModel model = RandomModel(seed);
    for (const LayerRange& range : RandomStages(model.graph, seed)) {
      const PassPlan plan = MakePassPlan(model.graph, range, kSamples, model.NeedsOf(range));
      const size_t values = ActivationsAt(model.graph, range.end(), kSamples).parts.size();
      EXPECT_EQ(Count(plan.forward, Kind::kCopy), values > 1 ? values : 0);
    }
  }
}

TEST(PassPlan, ValueThatPassesThrough_GoesFromBundleToBundle) {
  PlannedModel model;
  const int port = model.AddPort({4});
  const int skip = model.Add({port}, {4}, true);
  const int a = model.Add({skip}, {6}, true);
  const int b = model.Add({a}, {5}, true);
  model.AddLoss({skip, b});
  const PassPlan plan = MakePassPlan(model.graph, {2, 1}, 1, model.NeedsOf({2, 1}));
  // Each part starts at a multiple of 16 floats.
  EXPECT_EQ(plan.slots[plan.input].shape, (Shape{16 + 6}));
  EXPECT_EQ(plan.slots[plan.output].shape, (Shape{16 + 5}));
  EXPECT_EQ(plan.slots[plan.grad_output].shape, (Shape{16 + 5}));
  EXPECT_EQ(plan.slots[plan.grad_input].shape, (Shape{16 + 6}));
  EXPECT_EQ(Count(plan.forward, Kind::kCopy), 2);
  EXPECT_EQ(Count(plan.backward_input, Kind::kCopy), 2);
  // The forward that is done again makes no output.
  EXPECT_EQ(Count(plan.recompute, Kind::kCopy), 0);
}

// Two towers, each with a port of its own: what the first makes waits for the second.
PlannedModel WithTwoTowers(bool second_is_trained) {
  PlannedModel model;
  const int left = model.AddPort({4});
  const int right = model.AddPort({4});
  const int first = model.Add({left}, {4}, true);
  const int second = model.Add({right}, {4}, second_is_trained);
  model.AddLoss({first, second});
  return model;
}

TEST(PassPlan, InputThatNobodyReadsHere_IsGivenBackByADoneAgainForward) {
  PlayPipeline(WithTwoTowers(true), {{0, 1}, {1, 1}, {2, 1}}, /*recomputes=*/true);
}

TEST(PassPlan, StageWithNothingToTrain_ReturnsTheGradientThatItIsGiven) {
  const PlannedModel model = WithTwoTowers(false);
  const PassPlan plan = MakePassPlan(model.graph, {1, 1}, 1, model.NeedsOf({1, 1}));
  EXPECT_EQ(plan.grad_input, plan.grad_output);
  PlayPipeline(model, {{0, 1}, {1, 1}, {2, 1}}, /*recomputes=*/false);
  PlayPipeline(model, {{0, 1}, {1, 1}, {2, 1}}, /*recomputes=*/true);
}

// W of the stage behind reads the tensor that it has returned, while the stage before adds up two gradients that were
// both handed on.
TEST(PassPlan, GradientThatTheNextStageStillReads_IsNotAddedInto) {
  PlannedModel model;
  const int port = model.AddPort({4});
  const int other = model.AddPort({4});
  const int x = model.Add({port}, {4}, true);
  const int r = model.Add({x}, {4}, true, {.grad_output_for_weight = true, .passes_gradient = 1});
  const int y = model.Add({x, r}, {4}, false, {.passes_gradient = 1});
  const int f = model.Add({other}, {4}, true, {.grad_output_for_weight = true});
  const int z = model.Add({y, f}, {4}, false, {.passes_gradient = 3});
  model.AddLoss({z});
  for (const bool recomputes : {false, true}) {
    PlayPipeline(model, {{0, 3}, {3, 3}}, recomputes);
  }
}

// A view of data, which others read as it is.
TEST(PassPlan, ReshapedPortThatCrossesInBf16_IsRoundedInACopy) {
  PlannedModel model;
  const int port = model.AddPort({4});
  const int flat = model.Add({port}, {4}, false, {.passes_input = true, .passes_gradient = 1});
  const int a = model.Add({flat}, {4}, true, {.inputs_for_weight = 1});
  const int b = model.Add({a, port}, {4}, true, {.inputs_for_weight = 3});
  model.AddLoss({b});
  for (const std::vector<LayerRange>& ranges :
       {std::vector<LayerRange>{{0, 4}}, std::vector<LayerRange>{{0, 1}, {1, 3}}}) {
    for (const bool recomputes : {false, true}) {
      PlayPipeline(model, ranges, recomputes, DType::kBf16);
    }
  }
  const PassPlan plan = MakePassPlan(model.graph, {0, 4}, 1, model.needs);
  EXPECT_EQ(Count(plan.forward, Kind::kCopy), 0) << "there is no need to in f32";
}

// Passes of one stage, with the bytes that a ledger says beside those that are there.
class CountedStage {
 public:
  CountedStage(const PlannedModel& model, LayerRange range, bool recomputes, DType crossing)
      : terms_(model, crossing),
        stage_(memory_, terms_, model, range, kSamples, crossing),
        recomputes_(recomputes),
        is_last_(range.end() == model.graph.size()),
        said_(ActivationBytesOf(stage_.plan(), recomputes, is_last_)) {}

  void ExpectWhatWasSaid() {
    Place output = End(
        "F", said_.forward, stage_.plan().output,
        [&](Place input) {
          return stage_.Forward(input, recomputes_ ? Keeps::kInput : Keeps::kForBackward);
        },
        Received(stage_.Input(), said_.input));
    if (!is_last_) Drop(output, said_.output);
    if (recomputes_) {
      End("R", said_.recompute, -1,
          [&](Place) {
            stage_.Recompute();
            return Place();
          },
          {});
    }
    Place gradient = End(
        "I", said_.backward_input, stage_.plan().grad_input,
        [&](Place grad_output) {
          const Place returned = stage_.BackwardInput(grad_output);
          if (!is_last_) return returned;
          memory_.Give(output);  // the loss is read after I
          twice_bytes_ = 0;
          return returned;
        },
        Received(stage_.GradOutput(), said_.grad_output));
    if (gradient) Drop(gradient, said_.grad_input);
    End("W", said_.backward_weight, -1,
        [&](Place) {
          stage_.BackwardWeight();
          return Place();
        },
        {});
    EXPECT_EQ(said_bytes_, 0) << "the prediction does not come back to where it started";
    EXPECT_EQ(memory_.bytes(), 0);
  }

 private:
  Place Received(Place place, int64_t said_bytes) {
    said_bytes_ += said_bytes;
    ExpectInUse();
    most_ = std::max(most_, memory_.bytes());
    return place;
  }
  void Drop(Place& place, int64_t said_bytes) {
    memory_.Give(place);
    said_bytes_ -= said_bytes;
    twice_bytes_ = 0;
    ExpectInUse();
  }
  // What a stage returns and keeps counts twice until it is dropped.
  template <typename Pass>
  Place End(const char* name, const PassBytes& bytes, int result, Pass pass, Place given) {
    SCOPED_TRACE(name);
    slack_ = std::max(slack_, twice_bytes_);
    const Place returned = pass(given);
    most_ = std::max(most_, said_bytes_ + bytes.most);
    said_bytes_ += bytes.left;
    EXPECT_LE(memory_.bytes_peak(), most_);
    // Only a loss may be counted twice while a pass runs.
    EXPECT_GE(memory_.bytes_peak() + slack_, most_);
    if (returned && memory_.holders(returned) > 1) {
      twice_bytes_ = BufferPool::BlockBytes(stage_.plan().slots[result].size_bytes());
    }
    ExpectInUse();
    return returned;
  }
  void ExpectInUse() const { EXPECT_EQ(memory_.bytes() + twice_bytes_, said_bytes_); }

  PlayedMemory memory_;
  Terms terms_;
  PlayedStage stage_;
  const bool recomputes_;
  const bool is_last_;
  const ActivationBytes said_;
  int64_t said_bytes_ = 0;   // that should be in use by now
  int64_t twice_bytes_ = 0;  // of them, of what a stage returned and keeps
  int64_t most_ = 0;         // and was said at most
  int64_t slack_ = 0;        // of this, what may have been counted twice
};

TEST(ActivationBytes, OfRandomStages_AreThoseThatAreThere) {
  for (uint64_t seed = 0; seed < kModels; ++seed) {
    const PlannedModel model = RandomModel(seed);
    for (const LayerRange& range : RandomStages(model.graph, seed)) {
      for (const bool recomputes : {false, true}) {
        for (const DType crossing : {DType::kF32, DType::kBf16}) {
          SCOPED_TRACE(testing::Message()
                       << "seed " << seed << ", layers " << range.first << " to " << range.end() - 1
                       << ", " << Name(crossing) << (recomputes ? ", forward done again" : ""));
          CountedStage(model, range, recomputes, crossing).ExpectWhatWasSaid();
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock
