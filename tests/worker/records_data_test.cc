#include "worker/records_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "data/record_writer.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kImage = 0;
constexpr int kLabel = 1;
constexpr int64_t kImageBytes = 3 * 4 * 2;

// Record i has an image of bytes i and the label 1000 + i.
class RecordsDataTest : public ::testing::Test {
 protected:
  void Write(const std::string& directory, int32_t first, int32_t end) {
    auto writer = RecordWriter::Create(files_, directory,
                                       {{"image", "U8", {3, 4, 2}}, {"label", "I32", {}}}, 1000);
    ASSERT_THAT(writer, IsOk());
    for (int32_t i = first; i < end; ++i) {
      const std::vector<std::byte> image(kImageBytes, static_cast<std::byte>(i));
      const int32_t label = 1000 + i;
      ASSERT_THAT((*writer)->Add(
                      {image, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&label), 4)}),
                  IsOk());
    }
    ASSERT_THAT((*writer)->Finish(), IsOk());
  }
  std::unique_ptr<RecordFiles> Directory(const std::string& directory) {
    auto records = RecordFiles::Open(files_, directory, {});
    EXPECT_THAT(records, IsOk());
    return *std::move(records);
  }
  static std::vector<Port> Ports() {
    return {{"image", {DType::kU8, {3, 4, 2}}}, {"label", {DType::kI32, {}}, 2000}};
  }
  absl::StatusOr<std::unique_ptr<RecordsData>> Open(const RecordsOptions& options,
                                                    const std::vector<Port>& ports = Ports()) {
    return RecordsData::Open(Directory("/train"), nullptr, ports, options);
  }

  static std::vector<std::byte> Images(const DataSource& data, Split split, int64_t first,
                                       int64_t samples) {
    std::vector<std::byte> images(samples * kImageBytes);
    EXPECT_THAT(data.Read(split, first, kImage, absl::MakeSpan(images)), IsOk());
    return images;
  }
  static std::vector<int32_t> Labels(const DataSource& data, Split split, int64_t first,
                                     int64_t samples) {
    std::vector<int32_t> labels(samples);
    EXPECT_THAT(data.Read(split, first, kLabel,
                          absl::MakeSpan(reinterpret_cast<std::byte*>(labels.data()),
                                         samples * sizeof(int32_t))),
                IsOk());
    return labels;
  }

  MemoryFiles files_;
};

TEST_F(RecordsDataTest, Training_PortsOfASampleAreOfOneRecord) {
  Write("/train", 0, 50);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data, Open({.seed = 3}));
  const std::vector<std::byte> images = Images(*data, Split::kTraining, 40, 30);
  const std::vector<int32_t> labels = Labels(*data, Split::kTraining, 40, 30);
  for (int64_t i = 0; i < 30; ++i) {
    EXPECT_EQ(static_cast<int32_t>(images[i * kImageBytes]) + 1000, labels[i]);
  }
}

TEST_F(RecordsDataTest, Training_ShuffledEpochsHaveEveryTrainingRecordOnce) {
  Write("/train", 0, 50);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data, Open({.validation_fraction = 0.2, .seed = 3}));
  ASSERT_EQ(data->training_records(), 40);
  std::set<std::vector<int32_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> labels = Labels(*data, Split::kTraining, 40 * epoch, 40);
    epochs.insert(labels);
    std::sort(labels.begin(), labels.end());
    for (int32_t i = 0; i < 40; ++i) EXPECT_EQ(labels[i], 1000 + i);
  }
  EXPECT_EQ(epochs.size(), 3u);
}

TEST_F(RecordsDataTest, Training_AnySplitIntoReads_IsTheSame) {
  Write("/train", 0, 20);
  for (const OrderKind order : {OrderKind::kShuffled, OrderKind::kSequential, OrderKind::kRandom}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const auto data,
        Open({.order = order, .augmentation = {.flip = true, .crop = 2}, .seed = 3}));
    const std::vector<std::byte> whole = Images(*data, Split::kTraining, 13, 60);
    for (int64_t i = 0; i < 60; ++i) {
      const std::vector<std::byte> one = Images(*data, Split::kTraining, 13 + i, 1);
      EXPECT_TRUE(std::equal(one.begin(), one.end(), whole.begin() + i * kImageBytes)) << i;
    }
  }
}

TEST_F(RecordsDataTest, EvaluatedParts_AreAllTheirRecordsInOrder) {
  Write("/train", 0, 50);
  Write("/test", 100, 107);
  const auto labels_of = [](const RecordsData& data) {
    return Labels(data, Split::kValidation, 0, data.validation_samples());
  };
  const auto numbers = [](int32_t first, int32_t end) {
    std::vector<int32_t> labels;
    for (int32_t i = first; i < end; ++i) labels.push_back(1000 + i);
    return labels;
  };
  const auto open = [&](DataPart part) {
    return Open({.validation_fraction = 0.2, .evaluated = part, .seed = 3});
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto training, open(DataPart::kTraining));
  EXPECT_EQ(labels_of(*training), numbers(0, 40));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto validation, open(DataPart::kValidation));
  EXPECT_EQ(labels_of(*validation), numbers(40, 50));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto all, open(DataPart::kAll));
  EXPECT_EQ(labels_of(*all), numbers(0, 50));
  // With a directory for each.
  for (const DataPart part : {DataPart::kTraining, DataPart::kValidation}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const auto data,
        RecordsData::Open(Directory("/train"), Directory("/test"), Ports(), {.evaluated = part}));
    EXPECT_EQ(labels_of(*data), part == DataPart::kTraining ? numbers(0, 50) : numbers(100, 107));
  }
}

TEST_F(RecordsDataTest, Augmentation_ChangesImagesInTrainingAlone) {
  Write("/train", 1, 50);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data, Open({.augmentation = {.crop = 2},
                                                       .validation_fraction = 0.5,
                                                       .validation_samples = 20,
                                                       .seed = 3}));
  const auto zeros = [](const std::vector<std::byte>& images) {
    return std::count(images.begin(), images.end(), std::byte{0});
  };
  EXPECT_GT(zeros(Images(*data, Split::kTraining, 0, 20)), 0);
  EXPECT_EQ(zeros(Images(*data, Split::kValidation, 0, 20)), 0);
}

TEST_F(RecordsDataTest, Validation_OfAPart_IsSpreadOverItInOrder) {
  Write("/train", 0, 100);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data,
                                Open({.validation_fraction = 0.3, .validation_samples = 10}));
  EXPECT_EQ(Labels(*data, Split::kValidation, 0, 10),
            (std::vector<int32_t>{1070, 1073, 1076, 1079, 1082, 1085, 1088, 1091, 1094, 1097}));
}

TEST_F(RecordsDataTest, Validation_OfADirectory_ReadsThatOne) {
  Write("/train", 0, 10);
  Write("/test", 50, 54);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data,
                                RecordsData::Open(Directory("/train"), Directory("/test"), Ports(),
                                                  {.validation_samples = 4}));
  EXPECT_EQ(data->training_records(), 10);
  EXPECT_EQ(Labels(*data, Split::kValidation, 0, 4),
            (std::vector<int32_t>{1050, 1051, 1052, 1053}));
}

TEST_F(RecordsDataTest, Open_TooFewForValidation_SaysWhatWouldDo) {
  Write("/train", 0, 100);
  EXPECT_THAT(Open({.validation_fraction = 0.3, .validation_samples = 40, .batch = 8}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("/train has 30 records for validation"),
                             HasSubstr("set validation.batches to at most 3"))));
  EXPECT_THAT(Open({.validation_fraction = 0.3, .validation_samples = 64, .batch = 32}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a batch alone has 32")));
}

TEST_F(RecordsDataTest, Open_PortWithoutItsTensor_NamesBoth) {
  Write("/train", 0, 10);
  const std::pair<Port, const char*> cases[] = {
      {{"picture", {DType::kU8, {3, 4, 2}}}, "has no tensor picture, u8 [3, 4, 2]"},
      {{"image", {DType::kU8, {4, 3, 2}}},
       "image U8 [3, 4, 2], but the model's input of that name "
       "is u8 [4, 3, 2]"},
      {{"image", {DType::kF32, {3, 4, 2}}}, "is f32 [3, 4, 2]"},
      {{"label", {DType::kI32, {1}}}, "is i32 [1]"}};
  for (const auto& [port, reason] : cases) {
    EXPECT_THAT(Open({}, {port}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
  }
}

TEST_F(RecordsDataTest, Open_AugmentationWithoutImages_IsRefused) {
  Write("/train", 0, 10);
  EXPECT_THAT(Open({.augmentation = {.flip = true}}, {{"label", {DType::kI32, {}}}}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("leave augment out")));
}

}  // namespace
}  // namespace penstock
