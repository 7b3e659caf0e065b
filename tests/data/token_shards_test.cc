#include "data/token_shards.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Id>
std::string Bytes(const std::vector<Id>& ids) {
  return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id));
}

std::string Header(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return Bytes(header);
}

class TokenShardsTest : public ::testing::Test {
 protected:
  TokenShardsTest() { EXPECT_THAT(files_.CreateDirectories("/tokens"), IsOk()); }

  void Write(const std::string& path, const std::string& content) {
    ASSERT_THAT(files_.WriteDurably(path, {content}), IsOk());
  }
  std::vector<int32_t> ReadAll(const std::string& path, const TokenShardOptions& options = {}) {
    auto shards = TokenShards::Open(files_, path, options);
    EXPECT_THAT(shards, IsOk());
    if (!shards.ok()) return {};
    std::vector<int32_t> ids((*shards)->tokens(), -1);
    EXPECT_THAT((*shards)->Copy(0, absl::MakeSpan(ids)), IsOk());
    return ids;
  }

  MemoryFiles files_;
};

TEST_F(TokenShardsTest, EveryFormat_GivesItsIds) {
  Write("/tokens/gpt2.bin", Header(20240520, 1, 3) + Bytes<uint16_t>({50256, 0, 65535}));
  Write("/tokens/llama.bin", Header(20240801, 7, 2) + Bytes<uint32_t>({128255, 7}));
  Write("/tokens/nano.bin", Bytes<uint16_t>({1, 2, 3, 4}));
  Write("/tokens/wide.bin", Bytes<uint32_t>({100'000, 5}));
  EXPECT_EQ(ReadAll("/tokens/gpt2.bin"), (std::vector<int32_t>{50256, 0, 65535}));
  EXPECT_EQ(ReadAll("/tokens/llama.bin", {.format = TokenFormat::kLlmC}),
            (std::vector<int32_t>{128255, 7}));
  EXPECT_EQ(ReadAll("/tokens/nano.bin"), (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(ReadAll("/tokens/wide.bin", {.format = TokenFormat::kRaw32}),
            (std::vector<int32_t>{100'000, 5}));
}

TEST_F(TokenShardsTest, ManyShards_AreOneSequenceInTheOrderOfTheirNames) {
  Write("/tokens/b.bin", Bytes<uint16_t>({4, 5}));
  Write("/tokens/a.bin", Bytes<uint16_t>({1, 2, 3}));
  Write("/tokens/empty.bin", "");
  Write("/tokens/z.bin", Header(20240801, 7, 1) + Bytes<uint32_t>({70'000}));
  Write("/tokens/notes.txt", "x");
  EXPECT_EQ(ReadAll("/tokens"), (std::vector<int32_t>{1, 2, 3, 4, 5, 70'000}));
  EXPECT_EQ(ReadAll("/tokens/[ab].bin"), (std::vector<int32_t>{1, 2, 3, 4, 5}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto shards, TokenShards::Open(files_, "/tokens", {}));
  for (int64_t first = 0; first < 6; ++first) {
    for (int64_t count = 0; first + count <= 6; ++count) {
      const std::vector<int32_t> all = {1, 2, 3, 4, 5, 70'000};
      std::vector<int32_t> ids(count, -1);
      ASSERT_THAT(shards->Copy(first, absl::MakeSpan(ids)), IsOk());
      EXPECT_EQ(ids, std::vector<int32_t>(all.begin() + first, all.begin() + first + count));
    }
  }
}

// Any odd number of ids, so that narrow ones are widened from any place in the memory of the wide ones.
TEST_F(TokenShardsTest, ManyIds_AreWidenedInPlace) {
  for (const int size : {1, 2, 3, 7, 64, 1001}) {
    std::vector<uint16_t> ids(size);
    std::iota(ids.begin(), ids.end(), static_cast<uint16_t>(64'000));
    Write("/tokens/many.bin", Bytes(ids));
    EXPECT_EQ(ReadAll("/tokens/many.bin"), std::vector<int32_t>(ids.begin(), ids.end())) << size;
  }
}

TEST_F(TokenShardsTest, IdsTheModelDoesNotKnow_AreNamedWithTheirPlace) {
  Write("/tokens/a.bin", Bytes<uint16_t>({1, 2, 300, 4, 500}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto shards,
                                TokenShards::Open(files_, "/tokens/a.bin", {.ids = 300}));
  std::vector<int32_t> ids(2);
  EXPECT_THAT(shards->Copy(0, absl::MakeSpan(ids)), IsOk());
  EXPECT_THAT(shards->Copy(3, absl::MakeSpan(ids)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("/tokens/a.bin: token 4 is 500"), HasSubstr("below 300"))));
  Write("/tokens/b.bin", Bytes<uint32_t>({0xFFFFFFFF}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto wide, TokenShards::Open(files_, "/tokens/b.bin", {.format = TokenFormat::kRaw32}));
  ids.resize(1);
  EXPECT_THAT(wide->Copy(0, absl::MakeSpan(ids)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is 4294967295")));
}

TEST_F(TokenShardsTest, WhatIsNoShard_SaysWhatWasExpected) {
  const auto open = [&](const std::string& content, TokenFormat format = TokenFormat::kDetected) {
    Write("/tokens/x.bin", content);
    return TokenShards::Open(files_, "/tokens/x.bin", {.format = format}).status();
  };
  EXPECT_THAT(open(Header(20240520, 1, 3) + Bytes<uint16_t>({1, 2})),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("/tokens/x.bin has 1028 bytes"),
                             HasSubstr("3 tokens of 2 bytes"), HasSubstr("take 1030"))));
  EXPECT_THAT(open(Header(20240520, 1, -1)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("-1 tokens")));
  EXPECT_THAT(open(Header(20240520, 2, 0)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("version 2"), HasSubstr("expected version 1"))));
  EXPECT_THAT(open("abc"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has 3 bytes")));
  EXPECT_THAT(open("abcdef", TokenFormat::kRaw32),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has 6 bytes")));
  EXPECT_THAT(open("ab", TokenFormat::kLlmC),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("data.tokens.format")));
  EXPECT_THAT(TokenShards::Open(files_, "/nowhere.bin", {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere.bin does not exist")));
  EXPECT_THAT(TokenShards::Open(files_, "/tokens/q*.bin", {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("matches no file")));
}

TEST_F(TokenShardsTest, Digest_SeesNamesSizesAndContent) {
  const auto digest = [&] {
    const auto found = DigestOfTokenShards(files_, "/tokens", [] { return false; });
    EXPECT_THAT(found, IsOk());
    return found.value_or("");
  };
  Write("/tokens/a.bin", Bytes<uint16_t>({1, 2, 3}));
  const std::string first = digest();
  EXPECT_THAT(TokenShards::Open(files_, "/tokens", {.sha256 = first}), IsOk());
  Write("/tokens/a.bin", Bytes<uint16_t>({1, 2, 4}));
  EXPECT_NE(digest(), first);
  EXPECT_THAT(TokenShards::Open(files_, "/tokens", {.sha256 = first}),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(first), HasSubstr(digest()))));
  ASSERT_THAT(files_.RemoveAll("/tokens/a.bin"), IsOk());
  Write("/tokens/b.bin", Bytes<uint16_t>({1, 2, 3}));
  EXPECT_NE(digest(), first);
  EXPECT_THAT(DigestOfTokenShards(files_, "/tokens", [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("b.bin")));
}

// Of a large shard its ends and pieces between them count.
TEST_F(TokenShardsTest, Digest_OfALargeShard_SeesItsEnds) {
  std::string large(9 << 20, 'x');
  const auto digest = [&] {
    Write("/tokens/large.bin", large);
    const auto found = DigestOfTokenShards(files_, "/tokens", [] { return false; });
    EXPECT_THAT(found, IsOk());
    return found.value_or("");
  };
  const std::string first = digest();
  for (const size_t place : {size_t{0}, large.size() - 1}) {
    large[place] = 'y';
    EXPECT_NE(digest(), first) << place;
    large[place] = 'x';
  }
  EXPECT_EQ(digest(), first);
}

}  // namespace
}  // namespace penstock
