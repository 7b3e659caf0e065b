// Tensors through memory that two workers of a host have mapped: what arrives, and what is refused.
#include "compute/cpu/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/buffer_pool.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// As they lie in the offer and in a descriptor.
struct OfferBytes {
  char magic[8];
  int64_t process;
  int64_t file;
  uint32_t content[4];
};
struct DescriptorBytes {
  int64_t offset;
  uint32_t crc;
  uint32_t zero;
};

class SharedMemoryTest : public ::testing::Test {
 protected:
  SharedMemoryTest() : left_(MakeSharedMemory(left_pool_)), right_(MakeSharedMemory(right_pool_)) {}
  void SetUp() override {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(exporter_, left_->MakeExporter());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(importer_, right_->Import(exporter_->offer()));
  }

  Tensor Counting(int64_t count, int32_t first) {
    Tensor tensor = left_pool_.AcquireTensor(DType::kI32, {count});
    std::iota(tensor.data<int32_t>(), tensor.data<int32_t>() + count, first);
    return tensor;
  }
  // Exports the tensor, and keeps it exported.
  ShareBytes Export(const Tensor& tensor) {
    absl::StatusOr<Outgoing> outgoing = left_->StartExporting(tensor);
    EXPECT_THAT(outgoing, IsOk());
    EXPECT_FALSE(outgoing->pending());
    exported_.push_back(outgoing->device);
    absl::StatusOr<ShareBytes> descriptor = exporter_->Describe(outgoing->device);
    EXPECT_THAT(descriptor, IsOk());
    return *descriptor;
  }
  DescriptorBytes BytesOf(const ShareBytes& descriptor) {
    DescriptorBytes bytes;
    EXPECT_TRUE(descriptor.To(bytes));
    return bytes;
  }
  OfferBytes Offer() {
    OfferBytes bytes;
    EXPECT_TRUE(exporter_->offer().To(bytes));
    return bytes;
  }
  void ExpectRefused(const DescriptorBytes& descriptor, const char* why) {
    EXPECT_THAT(importer_->Fetch(ShareBytes::From(descriptor), DType::kI32, {4}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  }

  BufferPool left_pool_{HostMemory()};
  BufferPool right_pool_{HostMemory()};
  std::unique_ptr<DeviceShare> left_;
  std::unique_ptr<DeviceShare> right_;
  std::shared_ptr<Exporter> exporter_;
  std::unique_ptr<Importer> importer_;
  std::vector<Tensor> exported_;
};

TEST_F(SharedMemoryTest, AnySize_ArrivesWhole) {
  for (const int64_t count : {1, 4, 1023, 1024, 1025, 32768, 100'000, 1'000'003}) {
    const Tensor sent = Counting(count, static_cast<int32_t>(count));
    const ShareBytes descriptor = Export(sent);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Importer::Fetched fetched,
                                  importer_->Fetch(descriptor, DType::kI32, {count}));
    EXPECT_EQ(fetched.ticket, kNoTicket);
    ASSERT_EQ(fetched.tensor.shape, sent.shape);
    EXPECT_EQ(std::memcmp(fetched.tensor.data<void>(), sent.data<void>(), sent.size_bytes()), 0)
        << count;
  }
  EXPECT_EQ(std::string(importer_->path()), "shared-memory");
}

// The sender may write to its tensor again, and blocks that came back are used again, with what is in them now.
TEST_F(SharedMemoryTest, ExportedTensor_IsACopyInABlockThatIsUsedAgain) {
  Tensor sent = Counting(1000, 5);
  const ShareBytes first = Export(sent);
  sent.data<int32_t>()[0] = -1;
  EXPECT_EQ(importer_->Fetch(first, DType::kI32, {1000})->tensor.data<int32_t>()[0], 5);
  exported_.clear();
  const ShareBytes second = Export(sent);
  EXPECT_EQ(BytesOf(second).offset, BytesOf(first).offset);
  EXPECT_EQ(importer_->Fetch(second, DType::kI32, {1000})->tensor.data<int32_t>()[0], -1);
  EXPECT_THAT(importer_->Fetch(first, DType::kI32, {1000}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("checksum")));
}

TEST_F(SharedMemoryTest, AnotherProcess_FetchesTheTensor) {
  const ShareBytes descriptor = Export(Counting(5000, 7));
  const pid_t child = fork();
  if (child == 0) {
    // What it has mapped of its own is not what it imports.
    const absl::StatusOr<std::unique_ptr<Importer>> importer = right_->Import(exporter_->offer());
    if (!importer.ok()) _exit(1);
    const auto fetched = (*importer)->Fetch(descriptor, DType::kI32, {5000});
    if (!fetched.ok()) _exit(2);
    _exit(fetched->tensor.data<int32_t>()[4999] == 7 + 4999 ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// ------------------------------------------------------------------------------------------ hostile

TEST_F(SharedMemoryTest, DescriptorsOfOtherMemory_AreRefused) {
  const DescriptorBytes good = BytesOf(Export(Counting(4, 1)));
  ASSERT_THAT(importer_->Fetch(ShareBytes::From(good), DType::kI32, {4}), IsOk());
  const auto with = [&](auto change) {
    DescriptorBytes bytes = good;
    change(bytes);
    return bytes;
  };
  ExpectRefused(with([](DescriptorBytes& b) { b.offset += 4; }), "checksum");
  ExpectRefused(with([](DescriptorBytes& b) { b.offset = -4096; }), "no tensor of 16 bytes");
  ExpectRefused(with([](DescriptorBytes& b) { b.offset = INT64_MAX - 7; }), "no tensor of 16");
  ExpectRefused(with([](DescriptorBytes& b) { b.offset = int64_t{1} << 40; }), "no tensor of 16");
  ExpectRefused(with([](DescriptorBytes& b) { b.crc ^= 1; }), "checksum");
  EXPECT_THAT(importer_->Fetch(ShareBytes::Of("12345").value(), DType::kI32, {4}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("described in 5 bytes")));
  // More than there is.
  EXPECT_THAT(importer_->Fetch(ShareBytes::From(good), DType::kI32, {1 << 26}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no tensor of 268435456")));
}

TEST_F(SharedMemoryTest, OffersOfOtherFiles_AreRefused) {
  const auto import = [&](const OfferBytes& offer) {
    return right_->Import(ShareBytes::From(offer)).status();
  };
  ASSERT_THAT(import(Offer()), IsOk());
  OfferBytes offer = Offer();
  offer.content[2] ^= 1;
  EXPECT_THAT(import(offer), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("not the peer's")));
  offer = Offer();
  offer.process = INT64_MAX;
  EXPECT_THAT(import(offer), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("another host")));
  offer = Offer();
  offer.file = 0;
  EXPECT_THAT(import(offer), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is not here")));
  offer = Offer();
  offer.magic[0] = 'x';
  EXPECT_THAT(import(offer),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not an offer")));
  EXPECT_THAT(right_->Import(ShareBytes::Of("abc").value()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not an offer")));
}

// The exporter takes memory away that it has described.
TEST_F(SharedMemoryTest, FileThatIsCutShort_IsAnError) {
  const ShareBytes descriptor = Export(Counting(100'000, 1));
  const std::string path = absl::StrCat("/proc/self/fd/", Offer().file);
  const int64_t size = static_cast<int64_t>(std::filesystem::file_size(path));
  ASSERT_EQ(truncate(path.c_str(), BytesOf(descriptor).offset + 4096), 0);
  EXPECT_THAT(importer_->Fetch(descriptor, DType::kI32, {100'000}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no tensor of 400000 bytes")));
  ASSERT_EQ(truncate(path.c_str(), size), 0);
}

// Figures and memory of what is exported.
TEST_F(SharedMemoryTest, ExportedTensors_CountInThePoolAndAreGivenBack) {
  const int64_t before = left_pool_.stats().bytes_in_use;
  (void)Export(Counting(1000, 1));
  EXPECT_EQ(left_pool_.stats().bytes_in_use, before + BufferPool::BlockBytes(4000));
  exported_.clear();
  EXPECT_EQ(left_pool_.stats().bytes_in_use, before);
  const auto in_file = [&] {
    struct stat status;
    EXPECT_EQ(fstat(static_cast<int>(Offer().file), &status), 0);
    return static_cast<int64_t>(status.st_blocks) * 512;
  };
  const int64_t others = in_file();
  for (int64_t mib = 8; mib < 13; ++mib) {
    const Tensor sent = Counting(mib << 18, 1);
    (void)Export(sent);
    exported_.clear();
  }
  EXPECT_LE(in_file() - others, int64_t{16} << 20);
}

}  // namespace
}  // namespace penstock
