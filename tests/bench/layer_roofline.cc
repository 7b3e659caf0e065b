// What every layer of some models takes on one thread of this machine, beside what it takes at least (tests/bench/roofline.h):
//
//     layer_roofline [f32|bf16] [--rows N] [MODEL...]
//
// Layers are timed inside a stage, as `penstock profile` does. The machine's rates are measured before and after each model,
// and the larger ones count: of square products through the kernels that layers use, the fastest of some sizes, and of copying
// and of a triad over arrays that no cache holds. The models are those of compare_torch.py, of which deep ones have fewer layers here: layers that are alike
// take the same. Tables have N rows, 12 if nothing else is said, those where most is to be gained.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/status.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "tests/bench/roofline.h"
#include "worker/layer_profiler.h"
#include "worker/product_rate.h"

namespace penstock {
namespace {

struct Case {
  const char* name;
  const char* model;  // as a job has it
  int batch;
  bool has_text = false;
};

constexpr Case kCases[] = {
    {"gpt d256 T256", "gpt: {layers: 4, width: 256, heads: 4, context: 256}", 8, true},
    {"gpt d192 T128", "gpt: {layers: 6, width: 192, heads: 6, context: 128}", 8, true},
    {"gpt d768 T256", "gpt: {layers: 2, width: 768, heads: 12, context: 256}", 4, true},
    {"gpt d768 T1024", "gpt: {layers: 2, width: 768, heads: 12, context: 1024}", 1, true},
    {"cifar_resnet20", "cifar_resnet: {depth: 20, image: {size: 32, classes: 10}}", 32},
    {"resnet18", "resnet: {depth: 18, image: {size: 112, classes: 10}}", 8},
    {"resnet50", "resnet: {depth: 50, image: {size: 112, classes: 10}}", 8},
    {"vgg16", "vgg: {depth: 16, image: {size: 112, classes: 10}}", 4},
    {"lstm_lm h650", "lstm_lm: {layers: 2, hidden: 650, context: 35, dropout: 0}", 20, true},
    {"alexnet", "alexnet: {variant: torchvision, image: {size: 224, classes: 10}}", 16},
};

constexpr int64_t kProductSizes[] = {256, 512, 1024, 2048};
constexpr int64_t kArrayBytesMin = int64_t{64} << 20;
constexpr int kMemoryRounds = 5;

struct Arguments {
  std::vector<Precision> precisions = {Precision::kF32, Precision::kBf16};
  int rows = 12;
  std::vector<Case> cases;
};

const char* NameOf(Precision precision) { return precision == Precision::kBf16 ? "bf16" : "f32"; }

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "f32" || argument == "bf16") {
      arguments.precisions = {argument == "f32" ? Precision::kF32 : Precision::kBf16};
      continue;
    }
    if (argument == "--rows" && i + 1 < argc && absl::SimpleAtoi(argv[i + 1], &arguments.rows)) {
      ++i;
      continue;
    }
    const Case* const found = std::find_if(std::begin(kCases), std::end(kCases),
                                           [&](const Case& each) { return argument == each.name; });
    if (found == std::end(kCases)) {
      std::string names;
      for (const Case& each : kCases) absl::StrAppend(&names, names.empty() ? "" : ", ", each.name);
      return absl::InvalidArgumentError(absl::StrCat(
          "no model is named ", argument, "; expected f32, bf16, --rows N, or one of ", names));
    }
    arguments.cases.push_back(*found);
  }
  if (arguments.cases.empty()) arguments.cases.assign(std::begin(kCases), std::end(kCases));
  return arguments;
}

// Three arrays, each as large as the last cache: what a round has read of them is gone when the next one comes there.
class MemoryArrays {
 public:
  MemoryArrays()
      : size_(std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), kArrayBytesMin) /
              static_cast<int64_t>(sizeof(float))),
        a_(size_, 1.0f),
        b_(size_, 2.0f),
        c_(size_, 3.0f) {}

  double BytesPerSecond() {
    return std::max(Fastest(2, [&] { std::memcpy(a_.data(), b_.data(), size_ * sizeof(float)); }),
                    Fastest(3, [&] {
                      for (int64_t i = 0; i < size_; ++i) a_[i] = b_[i] + 0.5f * c_[i];
                    }));
  }

 private:
  template <typename Move>
  double Fastest(int arrays, Move move) const {
    int64_t best_ns = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < kMemoryRounds; ++i) {
      const int64_t start_ns = RealClock().MonotonicNs();
      move();
      best_ns = std::min(best_ns, RealClock().MonotonicNs() - start_ns);
    }
    const auto bytes = static_cast<double>(arrays * size_) * sizeof(float);
    return bytes * 1e9 / static_cast<double>(best_ns);
  }

  const int64_t size_;
  std::vector<float> a_, b_, c_;
};

// Raises `rates` to what is measured now. A back-end of its own, so that the model finds nothing in the one that it gets.
absl::Status Measure(Precision precision, MachineRates& rates) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeCpuBackend(1));
  for (const int64_t size : kProductSizes) {
    PENSTOCK_ASSIGN_OR_RETURN(const double rate,
                              MeasureProductRate(*backend, precision, size, RealClock()));
    rates.flops_per_second = std::max(rates.flops_per_second, rate);
  }
  rates.bytes_per_second = std::max(rates.bytes_per_second, MemoryArrays().BytesPerSecond());
  return absl::OkStatus();
}

absl::StatusOr<ResolvedJob> JobOf(const Case& each, Precision precision) {
  const std::string text =
      absl::StrCat("name: roofline\nmodel:\n  ", each.model,
                   "\ndata: ", each.has_text ? "{text: {path: text}}" : "{synthetic: {}}",
                   "\ntraining:\n  {steps: 1, batch: ", each.batch,
                   ", microbatches: 1, seed: 1, precision: ", NameOf(precision), ", optimizer: ",
                   each.has_text ? "{adamw: {learning_rate: 1.0e-3}}"
                                 : "{sgd: {learning_rate: 1.0e-3, momentum: 0.9}}",
                   "}\n");
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSpec spec, ParseJobYaml(text, each.name));
  return ResolveJob(spec);
}

absl::Status PrintCase(const Case& each, Precision precision, int rows) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, JobOf(each, precision));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeCpuBackend(1));
  MachineRates rates;
  PENSTOCK_RETURN_IF_ERROR(Measure(precision, rates));
  const auto ignore = [](const ProfilerProgress&) { return absl::OkStatus(); };
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelProfile profile,
                            ProfileLayers(*backend, job.model,
                                          {.samples = {job.microbatch_samples},
                                           .precision = precision,
                                           .optimizer = job.optimizer,
                                           .seed = job.seed},
                                          RealClock(), ignore));
  PENSTOCK_RETURN_IF_ERROR(Measure(precision, rates));
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<RooflineRow> found,
      RooflineOf(job.model, profile, job.optimizer, job.microbatch_samples, precision, rates));
  std::cout << absl::StrFormat("\n%s, batch %d, %s: products %.1f GFLOP/s, memory %.2f GB/s\n\n",
                               each.name, each.batch, NameOf(precision),
                               rates.flops_per_second * 1e-9, rates.bytes_per_second * 1e-9)
            << RooflineTable(found, rows, rates) << std::flush;
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  PENSTOCK_ASSIGN_OR_RETURN(const Arguments arguments, Parse(argc, argv));
  std::cout << "F: forward, I: backward of the input, W: backward of the weights; ms, GFLOP and MB "
               "of one layer and microbatch\n";
  for (const Precision precision : arguments.precisions) {
    for (const Case& each : arguments.cases) {
      PENSTOCK_RETURN_IF_ERROR(PrintCase(each, precision, arguments.rows));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const absl::Status status = penstock::Run(argc, argv);
  if (!status.ok()) {
    std::cerr << "layer_roofline: " << status << "\n";
    return 1;
  }
  return 0;
}
