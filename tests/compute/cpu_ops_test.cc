// The conformance suite of ops on the CPU, and what holds there alone.
#include <algorithm>

#include "compute/cpu/cpu_backend.h"
#include "compute/cpu/kernels/best.h"
#include "tests/compute/conformance_ops.h"

namespace penstock {
namespace {

std::vector<BackendCase> CpuCases() {
  std::vector<BackendCase> cases = {{"OneThread", [] { return MakeCpuBackend(1); }}};
#if !defined(__SANITIZE_THREAD__)
  // ThreadSanitizer cannot see how OpenMP's threads wait for each other.
  cases.push_back({"ThreeThreads", [] { return MakeCpuBackend(3); }});
#endif
  for (const Kernels* kernels : SupportedKernels()) {
    if (kernels == SupportedKernels().front()) continue;  // which those above have
    cases.push_back({kernels->instruction_set, [kernels] { return MakeCpuBackend(1, *kernels); }});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpConformance, OpsOn(CpuCases()), OpTestName);

// A table of bytes has at most 1024 channels; of more, each value is computed by itself.
TEST(CpuOps, Image_OfManyChannels_HasTheBitsOfOneChannel) {
  const auto backend = *MakeCpuBackend(1);
  const auto output = [&](int64_t pixels, int64_t channels) {
    const OpCase op_case = {
        .op = "image",
        .name = "of_bytes",
        .attributes = {{"mean", 0.485}, {"deviation", 0.229}},
        .inputs = {{.type = {DType::kU8, {1, pixels, channels}}}},
    };
    return OpPasses(*backend, op_case, Precision::kF32).Run().output;
  };
  const std::vector<float> one = output(4096, 1);
  EXPECT_EQ(output(4, 1024), one);
  EXPECT_EQ(output(1, 4096), one);
}

TEST(CpuOps, EachHasACase) {
  const std::vector<OpCase> cases = ReadOpCases();
  for (const Op* op : AllOps()) {
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(),
                            [&](const OpCase& each) { return each.op == op->name; }))
        << op->name << " has no file in tests/golden/ops; see tests/parity/op_numbers.py";
  }
}

#if !defined(__SANITIZE_THREAD__)
// Our own loops split work the same way whatever the number of threads.
TEST(CpuOps, NumberOfThreads_ChangesNoBit) {
  const auto one = *MakeCpuBackend(1);
  const auto three = *MakeCpuBackend(3);
  for (const OpCase& op_case : ReadOpCases()) {
    if (op_case.library) continue;
    for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
      EXPECT_EQ(DifferentBits(OpPasses(*one, op_case, precision).Run(),
                              OpPasses(*three, op_case, precision).Run()),
                "")
          << op_case;
    }
  }
}
#endif

}  // namespace
}  // namespace penstock
