#include "data/image_sets.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "data/record_files.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kAny = int64_t{1} << 40;

std::string Idx(const std::vector<int>& dims, const std::string& values) {
  std::string file = {0, 0, 8, static_cast<char>(dims.size())};
  for (const int dim : dims) {
    file += {0, 0, static_cast<char>(dim >> 8), static_cast<char>(dim & 255)};
  }
  return file + values;
}

class ImageSetsTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& content) {
    ASSERT_THAT(files_.CreateDirectories("/from"), IsOk());
    ASSERT_THAT(files_.WriteDurably("/from/" + name, {content}), IsOk());
  }
  absl::StatusOr<PreparedImages> Prepare() {
    return PrepareImages(files_, {.from = "/from", .to = "/to"});
  }
  // The bytes of a record.
  std::string Value(const std::string& part, const char* tensor, int64_t record) {
    const auto records = RecordFiles::Open(files_, "/to/" + part, {.checked_bytes_max = kAny});
    EXPECT_THAT(records, IsOk());
    const int number = (*records)->FindTensor(tensor);
    std::string value(RecordBytes((*records)->index().tensors[number]), ' ');
    EXPECT_THAT(
        (*records)->Read(number, record,
                         absl::MakeSpan(reinterpret_cast<std::byte*>(value.data()), value.size())),
        IsOk());
    return value;
  }

  MemoryFiles files_;
};

TEST_F(ImageSetsTest, Mnist_BecomesRecords) {
  Write("train-images-idx3-ubyte", Idx({3, 2, 2}, "abcdefghijkl"));
  Write("train-labels-idx1-ubyte", Idx({3}, {7, 0, 9}));
  Write("t10k-images-idx3-ubyte", Idx({1, 2, 2}, "mnop"));
  Write("t10k-labels-idx1-ubyte", Idx({1}, {4}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PreparedImages images, Prepare());
  EXPECT_EQ(images.set, "MNIST");
  ASSERT_EQ(images.parts.size(), 2u);
  EXPECT_EQ(images.parts[0].directory, "/to/train");
  EXPECT_EQ(images.parts[0].index.records(), 3);
  EXPECT_EQ(images.parts[0].index.tensors[0].shape, (std::vector<int64_t>{2, 2, 1}));
  EXPECT_EQ(Value("train", "image", 1), "efgh");
  EXPECT_EQ(Value("train", "label", 2), std::string({9, 0, 0, 0}));
  EXPECT_EQ(Value("test", "image", 0), "mnop");
}

TEST_F(ImageSetsTest, Cifar_ColoursOfAPixelStandTogether) {
  // Image `first` has red, green and blue planes of first, first + 1 and first + 2.
  const auto image = [](char label, char first) {
    std::string record(1, label);
    for (char plane = 0; plane < 3; ++plane) record += std::string(1024, first + plane);
    record[1 + 1024 + 5] = 'G';  // green of pixel 5
    return record;
  };
  for (const char batch : {'1', '2', '3', '4', '5'}) {
    Write(absl::StrCat("data_batch_", std::string(1, batch), ".bin"),
          image(batch, 'a') + image(batch, 'r'));
  }
  Write("test_batch.bin", image(3, 'x'));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PreparedImages images, Prepare());
  EXPECT_EQ(images.set, "CIFAR-10");
  EXPECT_EQ(images.parts[0].index.records(), 10);
  EXPECT_EQ(images.parts[1].index.records(), 1);
  const std::string pixels = Value("train", "image", 3);
  EXPECT_EQ(pixels.substr(0, 6), "rstrst");
  EXPECT_EQ(pixels.substr(15, 3), "rGt");
  EXPECT_EQ(Value("train", "label", 3), std::string({'2', 0, 0, 0}));
}

TEST_F(ImageSetsTest, Cifar100_TakesTheFineLabel) {
  Write("train.bin", std::string({1, 42}) + std::string(3072, 'x'));
  Write("test.bin", std::string({1, 43}) + std::string(3072, 'x'));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PreparedImages images, Prepare());
  EXPECT_EQ(images.set, "CIFAR-100");
  EXPECT_EQ(Value("train", "label", 0), std::string({42, 0, 0, 0}));
}

TEST_F(ImageSetsTest, WhatIsMissingOrWrong_IsNamed) {
  Write("notes.txt", "nothing");
  EXPECT_THAT(Prepare().status(),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("MNIST (train-images-idx3-ubyte"), HasSubstr("CIFAR-10"))));
  Write("test_batch.bin", "short");
  EXPECT_THAT(Prepare().status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("lacks data_batch_1.bin")));
  for (const char batch : {'1', '2', '3', '4', '5'}) {
    Write(absl::StrCat("data_batch_", std::string(1, batch), ".bin"), "short");
  }
  EXPECT_THAT(Prepare().status(), StatusIs(absl::StatusCode::kDataLoss,
                                           AllOf(HasSubstr("data_batch_1.bin: has 5 bytes"),
                                                 HasSubstr("no multiple of 3073"))));
}

TEST_F(ImageSetsTest, Mnist_DamagedFiles_AreRefused) {
  const std::string images = Idx({2, 2, 2}, "abcdefgh");
  const std::string labels = Idx({2}, {1, 2});
  const std::pair<std::string, std::string> cases[] = {
      {images.substr(0, 10), labels},          {images + "x", labels},
      {Idx({2, 2}, "abcd"), labels},           {images, Idx({3}, {1, 2, 3})},
      {Idx({0, 2, 2}, ""), Idx({0}, "")},      {"\x1f\x8b gzip", labels},
      {Idx({65535, 65535, 65535}, ""), labels}};
  for (const auto& [pixels, classes] : cases) {
    Write("train-images-idx3-ubyte", pixels);
    Write("train-labels-idx1-ubyte", classes);
    Write("t10k-images-idx3-ubyte", images);
    Write("t10k-labels-idx1-ubyte", labels);
    EXPECT_THAT(Prepare().status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/from/train-images-idx3-ubyte")));
  }
}

}  // namespace
}  // namespace penstock
