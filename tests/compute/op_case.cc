#include "tests/compute/op_case.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"

namespace penstock {
namespace {

using Words = std::vector<std::string>;

int64_t Integer(absl::string_view text) {
  int64_t value = 0;
  PENSTOCK_CHECK(absl::SimpleAtoi(text, &value));
  return value;
}
double Real(absl::string_view text) {
  double value = 0.0;
  PENSTOCK_CHECK(absl::SimpleAtod(text, &value));
  return value;
}

// "[3, 5]", or "3" for equal ones.
template <typename T>
void SetList(const std::string& name, absl::string_view text, T (*read)(absl::string_view),
             OpCase& to) {
  if (!absl::ConsumePrefix(&text, "[")) return to.attributes.Set(name, read(text));
  std::vector<T> values;
  for (absl::string_view each :
       absl::StrSplit(absl::StripSuffix(text, "]"), ',', absl::SkipWhitespace())) {
    values.push_back(read(each));
  }
  to.attributes.Set(name, std::move(values));
}

// "kernel [3, 5]"
void AddAttribute(const std::string& text, OpCase& to) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  const std::string& name = parts.first;
  const std::string& value = parts.second;
  const absl::Span<const AttributeSpec> specs = (*FindOp(to.op))->attributes;
  const auto* spec = std::find_if(specs.begin(), specs.end(),
                                  [&](const AttributeSpec& each) { return each.name == name; });
  PENSTOCK_CHECK(spec != specs.end());
  switch (spec->kind) {
    case AttributeKind::kFlag:
      return to.attributes.Set(name, value == "true");
    case AttributeKind::kInteger:
      return to.attributes.Set(name, Integer(value));
    case AttributeKind::kNumber:
      return to.attributes.Set(name, Real(value));
    case AttributeKind::kWord:
      return to.attributes.Set(name, value);
    case AttributeKind::kIntegers:
      return SetList(name, value, Integer, to);
    case AttributeKind::kNumbers:
      return SetList(name, value, Real, to);
  }
}

// "f32 3 7 scale 4"
OpCase::Input ReadInput(const Words& words) {
  OpCase::Input input;
  for (const DType dtype : {DType::kF32, DType::kI32, DType::kU8}) {
    if (words[0] == Name(dtype)) input.type.dtype = dtype;
  }
  size_t at = 1;
  for (; at < words.size() && absl::ascii_isdigit(words[at][0]); ++at) {
    input.type.dims.push_back(Integer(words[at]));
  }
  for (; at + 1 < words.size(); at += 2) {
    if (words[at] == "scale") input.scale = Real(words[at + 1]);
    if (words[at] == "below") input.below = Integer(words[at + 1]);
  }
  return input;
}

void ReadFile(const std::filesystem::path& path, std::vector<OpCase>& cases) {
  std::ifstream file(path);
  OpCase::Array* array = nullptr;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == ' ') {
      for (absl::string_view value : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
        array->values.push_back(Real(value));
      }
      continue;
    }
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    const std::string& key = parts.first;
    const std::string text(absl::StripAsciiWhitespace(parts.second));
    const Words words = absl::StrSplit(text, ' ', absl::SkipEmpty());
    if (key == "case") {
      std::string name = absl::StrCat(++number, "_", text);
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !absl::ascii_isalnum(c); }, '_');
      cases.push_back({.op = path.stem().string(), .name = std::move(name)});
    } else if (key == "attribute") {
      AddAttribute(text, cases.back());
    } else if (key == "input") {
      cases.back().inputs.push_back(ReadInput(words));
    } else if (key == "samples") {
      cases.back().samples = Integer(text);
    } else if (key == "numbers") {
      cases.back().numbers = static_cast<uint32_t>(Integer(text));
    } else if (key == "library") {
      cases.back().library = true;
    } else {
      array = &cases.back().expected[key];
      for (const std::string& dim : words) array->dims.push_back(Integer(dim));
    }
  }
}

uint32_t PurposeOf(const NumbersName& name) {
  return 10000 * name.of.numbers + 1000 * name.microbatch + static_cast<uint32_t>(name.use) +
         name.which;
}

}  // namespace

const OpCase::Array* OpCase::Find(const std::string& what) const {
  const auto found = expected.find(what);
  return found == expected.end() ? nullptr : &found->second;
}

std::vector<ValueType> OpCase::InputTypes() const {
  std::vector<ValueType> types;
  types.reserve(inputs.size());
  for (const Input& input : inputs) types.push_back(input.type);
  return types;
}

Node OpCase::MakeNode() const {
  Node node;
  node.name = name;
  node.op = *FindOp(op);
  node.attributes = *Complete(node.op->attributes, attributes);
  const std::vector<ValueType> types = InputTypes();
  OpResult result = *node.op->infer({node.attributes, types});
  node.output = std::move(result.output);
  node.parameters = std::move(result.parameters);
  node.buffers = std::move(result.buffers);
  node.needs_gradient = true;
  node.draw = 3;
  return node;
}

std::vector<OpCase> ReadOpCases() {
  // A test program that was carried to another machine is told where the repository lies there (tests/gpu/).
  const char* const carried_to = std::getenv("PENSTOCK_SOURCE_DIR");
  const std::filesystem::path repository = carried_to == nullptr ? PENSTOCK_SOURCE_DIR : carried_to;
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(repository / "tests" / "golden" / "ops")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<OpCase> cases;
  for (const auto& file : files) ReadFile(file, cases);
  return cases;
}

// Murmur3's last steps, of a number for each purpose and place.
std::vector<uint32_t> Hashes(const NumbersName& name, int64_t count) {
  std::vector<uint32_t> hashes(count);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t h = static_cast<uint32_t>(i) * 0x9E3779B1u + PurposeOf(name) * 0x85EBCA77u;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    hashes[i] = h ^ h >> 16;
  }
  return hashes;
}

std::vector<float> Numbers(const NumbersName& name, int64_t count, double scale) {
  std::vector<float> numbers;
  numbers.reserve(count);
  for (const uint32_t hash : Hashes(name, count)) {
    numbers.push_back(static_cast<float>(((2.0 * (hash >> 9) + 1.0) * 0x1p-23 - 1.0) * scale));
  }
  return numbers;
}

}  // namespace penstock
