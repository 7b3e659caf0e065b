// OpCase: one op with its settings and inputs, and what PyTorch makes of them, as tests/golden/ops/ has it.
//
// tests/parity/op_numbers.py writes the files; to add a case is described there.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "model/graph.h"

namespace penstock {

struct OpCase {
  struct Input {
    ValueType type;
    double scale = 1.0;  // of f32: numbers are between -scale and scale
    int64_t below = 0;   // of i32: ids are from 0 to below - 1
  };
  struct Array {
    std::vector<int64_t> dims;
    std::vector<double> values;
  };

  std::string op;
  std::string name;  // "3_rows_of_two_dimensions", as tests are named
  Attributes attributes;
  std::vector<Input> inputs;
  int64_t samples = 1;
  uint32_t numbers = 0;  // which numbers it is fed
  bool library = false;  // it multiplies by a library, whose bits depend on the number of threads
  std::map<std::string, Array> expected;  // "output", "gradient of input 0", "gradient of weight"

  const Array* Find(const std::string& what) const;
  std::vector<ValueType> InputTypes() const;
  // The node that the case is about. Its attributes and inputs fit its op.
  Node MakeNode() const;
  friend std::ostream& operator<<(std::ostream& out, const OpCase& a) {
    return out << a.op << " " << a.name;
  }
};

// All of the files, in the order of ops.
std::vector<OpCase> ReadOpCases();

// What an op is fed: a fixed function of what it is for, the same as in tests/parity/op_numbers.py.
enum class NumbersFor : uint32_t {
  kInput = 1,
  kParameter = 100,
  kState = 400,
  kGradOutput = 500,
  kDirection = 700
};

// `which`: the input, parameter or buffer. `microbatch`: 0 is the one that PyTorch saw.
struct NumbersName {
  const OpCase& of;
  NumbersFor use;
  uint32_t which = 0;
  uint32_t microbatch = 0;
};
std::vector<uint32_t> Hashes(const NumbersName& name, int64_t count);
// In (-scale, scale), none of them 0.
std::vector<float> Numbers(const NumbersName& name, int64_t count, double scale = 1.0);

}  // namespace penstock
