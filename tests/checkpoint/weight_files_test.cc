#include "checkpoint/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

template <typename Number>
std::string Bytes(const std::vector<Number>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Number));
}

struct Tensor {
  TensorType type;
  std::string bytes;
};

void Write(MemoryFiles& files, const std::string& path, const std::vector<Tensor>& tensors) {
  std::vector<TensorType> types;
  std::string data;
  for (const Tensor& tensor : tensors) {
    types.push_back(tensor.type);
    data += tensor.bytes;
  }
  ASSERT_THAT(files.WriteDurably(path, {SafetensorsHeaderFor(types, {}), data}), IsOk());
}

std::vector<float> ReadAll(const WeightFiles& weights, const std::string& name, size_t count) {
  std::vector<float> values(count);
  EXPECT_THAT(weights.Read(name, absl::MakeSpan(values)), IsOk());
  return values;
}

// IEEE 754, table of binary16: the ends of the normal and subnormal numbers, and what NumPy's float16 says of others.
TEST(FloatOfHalf, KnownBits_AreTheirNumbers) {
  const std::pair<uint16_t, float> known[] = {
      {0x0000, 0.0f},         {0x0001, 0x1p-24f},  {0x03FF, 0x1.ff8p-15f},  {0x0400, 0x1p-14f},
      {0x3555, 0.333251953f}, {0x3C00, 1.0f},      {0x3C01, 1.0009765625f}, {0x7BFF, 65504.0f},
      {0xC000, -2.0f},        {0x8001, -0x1p-24f}, {0x7C00, INFINITY},      {0xFC00, -INFINITY}};
  for (const auto& [bits, number] : known) EXPECT_EQ(FloatOfHalf(bits), number) << bits;
  EXPECT_TRUE(std::isnan(FloatOfHalf(0x7E00)));
  EXPECT_TRUE(std::signbit(FloatOfHalf(0x8000)));
}

TEST(WeightFiles, EveryType_IsReadAsFloat) {
  MemoryFiles files;
  Write(files, "/m/model.safetensors",
        {{{"a", "F32", {2, 2}}, Bytes<float>({1.5f, -2.0f, 0.1f, 4.0f})},
         {{"b", "BF16", {2}}, Bytes<uint16_t>({0x3FC0, 0xC049})},
         {{"c", "F16", {2}}, Bytes<uint16_t>({0x3C00, 0xC000})}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const WeightFiles weights, WeightFiles::Open(files, "/m"));
  EXPECT_THAT(weights.names(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(ReadAll(weights, "a", 4), ElementsAre(1.5f, -2.0f, 0.1f, 4.0f));
  EXPECT_THAT(ReadAll(weights, "a", 2), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(ReadAll(weights, "b", 2), ElementsAre(1.5f, -3.140625f));
  EXPECT_THAT(ReadAll(weights, "c", 2), ElementsAre(1.0f, -2.0f));
  EXPECT_EQ(weights.Describe("b"), "/m/model.safetensors: tensor b BF16 [2]");
  EXPECT_EQ(weights.Find("d"), nullptr);
}

TEST(WeightFiles, LongHalves_AreReadPieceByPiece) {
  constexpr size_t kCount = (1 << 20) + 3;
  std::vector<uint16_t> bits(kCount);
  for (size_t i = 0; i < kCount; ++i) bits[i] = static_cast<uint16_t>(i * 31) & 0x7BFF;
  MemoryFiles files;
  Write(files, "/m/model.safetensors",
        {{{"a", "F16", {static_cast<int64_t>(kCount)}}, Bytes(bits)}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const WeightFiles weights, WeightFiles::Open(files, "/m"));
  const std::vector<float> values = ReadAll(weights, "a", kCount);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], FloatOfHalf(bits[i])) << i;
}

TEST(WeightFiles, OtherTypes_AreRefusedWhenTheyAreRead) {
  MemoryFiles files;
  Write(files, "/m/model.safetensors", {{{"a", "I64", {1}}, Bytes<int64_t>({7})}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const WeightFiles weights, WeightFiles::Open(files, "/m"));
  float value = 0.0f;
  EXPECT_THAT(
      weights.Read("a", absl::MakeSpan(&value, 1)),
      StatusIs(kInvalid, AllOf(HasSubstr("tensor a I64 [1]"), HasSubstr("F32, BF16 or F16"))));
}

class Shards : public ::testing::Test {
 protected:
  Shards() {
    Write(files_, "/m/model-1.safetensors", {{{"a", "F32", {1}}, Bytes<float>({1.0f})}});
    Write(files_, "/m/model-2.safetensors", {{{"b", "F32", {1}}, Bytes<float>({2.0f})}});
  }
  absl::StatusOr<WeightFiles> Open(const std::string& index) {
    EXPECT_THAT(files_.WriteDurably("/m/model.safetensors.index.json", {index}), IsOk());
    return WeightFiles::Open(files_, "/m");
  }
  MemoryFiles files_;
};

TEST_F(Shards, AreFoundByTheIndex) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const WeightFiles weights, Open(R"({"metadata": {"total_size": 8},
               "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})"));
  EXPECT_THAT(ReadAll(weights, "a", 1), ElementsAre(1.0f));
  EXPECT_THAT(ReadAll(weights, "b", 1), ElementsAre(2.0f));
  EXPECT_EQ(weights.Describe("b"), "/m/model-2.safetensors: tensor b F32 [1]");
}

TEST_F(Shards, ThatTheIndexMisstates_AreRefused) {
  EXPECT_THAT(Open(R"({"weight_map": {"a": "model-1.safetensors", "c": "model-2.safetensors"}})"),
              StatusIs(kDataLoss, HasSubstr("/m/model-2.safetensors: has the tensor b, which")));
  EXPECT_THAT(Open(R"({"weight_map": {"a": "model-1.safetensors", "c": "model-1.safetensors"}})"),
              StatusIs(kDataLoss, HasSubstr("/m/model-1.safetensors: has no tensor c, which")));
  EXPECT_THAT(Open(R"({"weight_map": {"a": "model-3.safetensors"}})"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("model-3.safetensors")));
}

TEST_F(Shards, OfABadIndex_AreNotOpened) {
  for (const char* index : {"[]", "{}", R"({"weight_map": {}})", R"({"weight_map": 3})", "{"}) {
    EXPECT_THAT(Open(index), StatusIs(kDataLoss, HasSubstr("/m/model.safetensors.index.json")));
  }
  for (const char* name : {"\"../m/model-1.safetensors\"", "\"\"", "\".hidden\"", "5"}) {
    EXPECT_THAT(Open(absl::StrCat(R"({"weight_map": {"a": )", name, "}}")),
                StatusIs(kDataLoss, HasSubstr("expected the name of a file beside the index")));
  }
}

TEST(WeightFiles, DirectoryWithout_SaysWhatIsExpected) {
  MemoryFiles files;
  EXPECT_THAT(WeightFiles::Open(files, "/m"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("model.safetensors")));
  ASSERT_THAT(files.WriteDurably("/m/model.safetensors", {"short"}), IsOk());
  EXPECT_THAT(WeightFiles::Open(files, "/m"),
              StatusIs(kDataLoss, HasSubstr("/m/model.safetensors: ")));
}

}  // namespace
}  // namespace penstock
