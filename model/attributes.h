// Attributes: the settings of one node of a model, by name: conv2d's channels, a dropout's probability.
//
// What an op has is a table in its file (AttributeSpec). `Complete` checks given attributes against it and fills in
// defaults, so that kernels ask for names which are there.
//
// Plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace penstock {

using AttributeValue =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

// In the order of AttributeValue's alternatives.
enum class AttributeKind : uint8_t { kFlag, kInteger, kNumber, kWord, kIntegers, kNumbers };

// Says what a checkpoint or profile has to know of an attribute: whatever kernels depend on is described. What an op
// got when there were checkpoints of it is described only where it is not the default, so that these still fit.
enum class AttributeUse : uint8_t { kKernels, kKernelsAddedLater, kInitialWeights };

// The default of an attribute that a node need not have.
inline constexpr absl::string_view kNoDefault = "none";

struct AttributeSpec {
  absl::string_view name;
  AttributeKind kind = AttributeKind::kInteger;
  absl::string_view help;
  // The default, as it is written in YAML; empty: the attribute is required; kNoDefault: without it the node has none.
  absl::string_view otherwise;
  double min = 1;  // of integers and numbers
  double max = 1 << 24;
  absl::Span<const absl::string_view> words = {};  // of a word
  int sizes = 0;  // of lists: how many there are; a single number stands for that many equal ones
  AttributeUse use = AttributeUse::kKernels;
};

class Attributes {
 public:
  using Entry = std::pair<std::string, AttributeValue>;

  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries) : entries_(entries) {}

  bool has(absl::string_view name) const { return Find(name) != nullptr; }
  // REQUIRES: the attribute is there and of this kind.
  bool flag(absl::string_view name) const;
  int64_t integer(absl::string_view name) const;
  double number(absl::string_view name) const;
  const std::string& word(absl::string_view name) const;
  const std::vector<int64_t>& integers(absl::string_view name) const;
  const std::vector<double>& numbers(absl::string_view name) const;

  const AttributeValue* Find(absl::string_view name) const;
  // Replaces what has the name.
  void Set(absl::string_view name, AttributeValue value);
  const std::vector<Entry>& entries() const { return entries_; }

  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  std::vector<Entry> entries_;
};

// An attribute as YAML writes it: "3", "0.1", "true", "valid", "[3, 5]".
std::string ToString(const AttributeValue& value);

bool IsDefault(const AttributeSpec& spec, const AttributeValue& value);

// `given` with defaults but kNoDefault, in the order of `specs`. Whole numbers become numbers and single ones lists
// where the op wants them.
// Errors: InvalidArgument starting with the attribute's name: unknown (with the nearest), missing, of another kind,
// out of range.
absl::StatusOr<Attributes> Complete(absl::Span<const AttributeSpec> specs, const Attributes& given);

}  // namespace penstock
