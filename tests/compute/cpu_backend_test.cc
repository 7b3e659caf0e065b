// What is special about the CPU back-end: threads, its name, and no allocation in steady state.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <thread>

#include "compute/cpu/threads.h"
#include "tests/compute/conformance.h"
#include "tests/support/status_matchers.h"

// GCC sees free but not that our operator new is malloc, once it inlines only one of the two.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace penstock {
namespace {

// While set, allocations by anyone but oneDNN are counted. oneDNN builds a small map of arguments on the
// heap for every primitive it runs, inside its C interface, too, which no caller can avoid.
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};
std::atomic<size_t> largest_bytes{0};  // of an allocation

bool InOneDnn(void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && std::strstr(info.dli_fname, "libdnnl") != nullptr;
}

void* CountedAllocation(size_t size_bytes, void* caller) {
  if (counting.load(std::memory_order_relaxed) && !InOneDnn(caller)) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    largest_bytes = std::max(largest_bytes.load(), size_bytes);
  }
  void* const data = std::malloc(size_bytes);
  if (data == nullptr) {
    std::abort();
  }
  return data;
}

TEST(CpuBackend, TrainingSteps_InSteadyState_AllocateNothing) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
  GptConfig config = TinyGpt();
  config.dropout = 0.1;
  const ModelGraph model = *BuildGpt(config);
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    StageOptions options;
    options.layers = {0, model.size()};
    options.samples = 2;
    options.precision = precision;
    options.optimizer = AdamWConfig{};
    options.versions_max = 2;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto stage, Stage::Create(*backend, model, options));
    stage->InitializeWeights();
    const std::vector<Tensor> ports = PortsOf(*stage, model, 0, options.samples);
    const std::vector<float> ones(model.size(), 1.0f);
    std::vector<double> norms(model.size());
    const auto train = [&](int64_t version) {
      const MicrobatchId id(version);
      const absl::StatusOr<Tensor> loss = stage->Forward(id, version, version, Tensor(), ports);
      ASSERT_TRUE(loss.ok());
      ASSERT_TRUE(stage->ReadLoss(*loss).ok());
      ASSERT_TRUE(stage->BackwardInput(id, version, Tensor(), 1.0f).ok());
      ASSERT_TRUE(stage->BackwardWeight(id).ok());
      stage->CombineUses();
      ASSERT_TRUE(stage->LayerSquaredNorms(absl::MakeSpan(norms)).ok());
      Stage::StepOptions step;
      step.learning_rate = 1e-3;
      step.gradient_scales = ones;
      step.keep_replaced = true;
      step.oldest_live_version = version;
      ASSERT_TRUE(stage->Step(version + 1, step).ok());
    };
    for (int64_t version = 0; version < 3; ++version) {
      train(version);
    }
    allocations = 0;
    counting = true;
    for (int64_t version = 3; version < 8; ++version) {
      train(version);
    }
    counting = false;
    EXPECT_EQ(allocations, 0) << (precision == Precision::kBf16 ? "bf16" : "f32");
  }
}

TEST(CpuBackend, ThreadsOutOfRange_AreRefused) {
  for (const int threads : {0, -1, 100000}) {
    EXPECT_THAT(MakeCpuBackend(threads),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         testing::HasSubstr(std::to_string(threads) + " threads")));
  }
}

TEST(CpuBackend, Name_SaysLibraryInstructionsAndThreads) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(2));
  EXPECT_THAT(std::string(backend->name()),
              testing::MatchesRegex("cpu \\(oneDNN [0-9.]+, [a-z0-9 ]+, 2 threads\\)"));
}

// As a back-end that is loaded at run time has one.
TEST(CpuBackend, OpOfAnotherTable_IsFoundByItsName) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
  const ValueType activation = {DType::kF32, {3, 4}};
  Node node = MakeNode("relu", {}, {activation});
  const Op copy = *node.op;
  node.op = &copy;
  EXPECT_THAT(
      backend->MakeKernels({.node = node, .inputs = {activation}, .samples = 1}, Precision::kF32),
      IsOk());
}

// What kernels keep on the heap is in no prediction of memory. A table of all bytes was 256 times as large as the sample.
TEST(CpuBackend, ImageOfManyChannels_KeepsNoTableOfThem) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
  constexpr int64_t kChannels = 1 << 16;
  const ValueType bytes = {DType::kU8, {1, 1, kChannels}};
  const Node node = MakeNode("image", {}, {bytes});
  largest_bytes = 0;
  counting = true;
  const auto kernels =
      backend->MakeKernels({.node = node, .inputs = {bytes}, .samples = 1}, Precision::kF32);
  counting = false;
  ASSERT_THAT(kernels, IsOk());
  EXPECT_LE(largest_bytes, kChannels * sizeof(double)) << "a factor for each channel";
}

// The workspace of attention grows with time and width; no machine has room for this one.
TEST(CpuBackend, OpWhoseScratchDoesNotFit_IsAnErrorAndOthersStillWork) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
  const int64_t huge = int64_t{1} << 22;
  const auto make = [&](int64_t width, int64_t time) {
    const ValueType activation = {DType::kF32, {time, width}};
    const Node node =
        MakeNode("attention_branch", {{"width", width}, {"heads", int64_t{1}}}, {activation});
    return backend->MakeKernels({.node = node, .inputs = {activation}, .samples = 1},
                                Precision::kF32);
  };
  EXPECT_THAT(make(huge, huge), StatusIs(absl::StatusCode::kResourceExhausted,
                                         testing::HasSubstr("bytes of scratch memory")));
  EXPECT_THAT(make(16, 8), IsOk());
}

TEST(CpuBackend, Bf16Head_KeepsNoLogitsUntilItsWeightGradient) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
  if (std::string(backend->name()).find("bf16") == std::string::npos) {
    GTEST_SKIP() << "this machine has no bf16 products";
  }
  const int64_t rows = 2 * 20, width = 16, vocabulary = 1000;
  const std::vector<ValueType> inputs = {{DType::kF32, {20, width}}, {DType::kI32, {20}}};
  const Node node = MakeNode("gpt_head", {{"vocabulary", vocabulary}, {"width", width}}, inputs);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto head,
      backend->MakeKernels({.node = node, .inputs = inputs, .samples = 2}, Precision::kBf16));
  const TapeNeeds needs = head->tape_needs();
  EXPECT_LT(needs.kept_bytes, rows * vocabulary);  // the input
  EXPECT_GE(needs.stash_bytes, rows * vocabulary * SizeOf(DType::kF32));
  EXPECT_LT(needs.weight_stash_bytes, rows * vocabulary * SizeOf(DType::kF32));  // their gradient
}

// A new thread has OpenMP's default of one thread per core; the back-end's own number must hold there.
TEST(CpuBackend, UsedFromAnotherThread_GivesTheSameBits) {
  const ModelGraph model = *BuildGpt(TinyGpt());
  Pipeline::Options options;
  options.layers_per_stage = {7};
  options.samples = 2;
  const auto digests = [&] {
    const auto backend = *MakeCpuBackend(1);
    Pipeline pipeline(*backend, model, options);
    pipeline.Step();
    return pipeline.Digests();
  };
  const std::vector<std::string> here = digests();
  std::vector<std::string> there;
  std::thread([&] { there = digests(); }).join();
  EXPECT_EQ(here, there);
}

TEST(Threads, For_RunsEveryIterationOnce) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer cannot see how OpenMP's threads wait for each other";
#endif
  for (const int count : {1, 2, 5}) {
    const Threads threads(count);
    for (const int64_t iterations : {0, 1, 7, 100}) {
      std::vector<std::atomic<int>> runs(iterations);
      threads.For(iterations, [&](int64_t i, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, count);
        ++runs[i];
      });
      for (int64_t i = 0; i < iterations; ++i) {
        EXPECT_EQ(runs[i], 1);
      }
    }
  }
}

TEST(Threads, ForBlocks_CoversRowsInBlocks) {
  std::vector<std::array<int64_t, 3>> blocks;
  Threads(1).ForBlocks(70, 32, [&](int64_t first, int64_t count, int64_t index) {
    blocks.push_back({first, count, index});
  });
  EXPECT_EQ(blocks, (std::vector<std::array<int64_t, 3>>{{0, 32, 0}, {32, 32, 1}, {64, 6, 2}}));
}

}  // namespace
}  // namespace penstock

void* operator new(size_t size_bytes) {
  return penstock::CountedAllocation(size_bytes, __builtin_return_address(0));
}
void* operator new[](size_t size_bytes) {
  return penstock::CountedAllocation(size_bytes, __builtin_return_address(0));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t) noexcept { std::free(data); }
