#include <string>

#include "base/crc32c.h"
#include "base/sha256.h"
#include "base/status.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

TEST(Crc32c, KnownAnswers_Match) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(Crc32c("", 0), 0u);
  // RFC 3720, B.4.
  const std::string zeros(32, '\0');
  const std::string ones(32, '\xff');
  EXPECT_EQ(Crc32c(zeros.data(), zeros.size()), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(ones.data(), ones.size()), 0x62A8AB43u);
}

TEST(Crc32c, AnySplit_GivesTheCrcOfTheWhole) {
  const std::string text = "the pipe that carries water at full pressure to the turbines";
  const uint32_t whole = Crc32c(text.data(), text.size());
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t front = Crc32c(text.data(), cut);
    EXPECT_EQ(Crc32c(text.data() + cut, text.size() - cut, front), whole) << cut;
  }
}

// FIPS 180-2, appendix B.
TEST(Sha256, KnownAnswers_Match) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, Pieces_GiveTheDigestOfTheWhole) {
  Sha256 sha;
  for (int i = 0; i < 1000; ++i) sha.Update(std::string(1000, 'a'));
  EXPECT_EQ(sha.HexDigest(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Annotate, Error_GetsTheContextInFront) {
  EXPECT_THAT(Annotate(absl::NotFoundError("no file"), "job 3"),
              StatusIs(absl::StatusCode::kNotFound, "job 3: no file"));
  EXPECT_THAT(Annotate(absl::OkStatus(), "job 3"), IsOk());
}

}  // namespace
}  // namespace penstock
