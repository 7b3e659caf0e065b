// The conformance suite of ops, one test for each case of tests/golden/ops/ and each property. A back-end adds one
// file that instantiates it:
//
//     INSTANTIATE_TEST_SUITE_P(Cpu, OpConformance, OpsOn({BackendCase{...}}), OpTestName);
//
// To add a case of an op: tests/parity/op_numbers.py.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/compute/op_passes.h"

namespace penstock {

struct OpTestCase {
  BackendCase on;
  OpCase op;
  friend std::ostream& operator<<(std::ostream& out, const OpTestCase& a) { return out << a.op; }
};

// Every case on every back-end.
inline auto OpsOn(const std::vector<BackendCase>& backends) {
  std::vector<OpTestCase> cases;
  for (const BackendCase& backend : backends) {
    for (const OpCase& op : ReadOpCases()) cases.push_back({backend, op});
  }
  return ::testing::ValuesIn(cases);
}

inline std::string OpTestName(const ::testing::TestParamInfo<OpTestCase>& info) {
  return info.param.on.name + "_" + info.param.op.op + "_" + info.param.op.name;
}

class OpConformance : public ::testing::TestWithParam<OpTestCase> {
 public:
  void SetUp() override;
  Backend& backend() { return *backend_; }
  const OpCase& op_case() const { return GetParam().op; }

 private:
  std::unique_ptr<Backend> backend_;
};

// What differs between two results, as one line; empty: they have the same bits.
std::string DifferentBits(const OpResults& a, const OpResults& b);

}  // namespace penstock
