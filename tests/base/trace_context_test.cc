#include "base/trace_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr char kExample[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

std::string Replaced(size_t at, const std::string& by) {
  std::string text = kExample;
  return text.replace(at, by.size(), by);
}

TEST(TraceContext, ExampleOfTheStandard_IsRead) {
  const absl::StatusOr<TraceContext> context = ParseTraceparent(kExample);
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_EQ(context->trace_id, (TraceId{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48,
                                        0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c}));
  EXPECT_EQ(context->span_id, (SpanId{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}));
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(FormatTraceparent(*context), kExample);
}

TEST(TraceContext, Flags_OnlySampledCounts) {
  for (const auto& [flags, sampled] : {std::pair("00", false),
                                       {"01", true},
                                       {"02", false},
                                       {"03", true},
                                       {"fe", false},
                                       {"ff", true}}) {
    const absl::StatusOr<TraceContext> context = ParseTraceparent(Replaced(53, flags));
    ASSERT_TRUE(context.ok()) << context.status();
    EXPECT_EQ(context->sampled, sampled) << flags;
    EXPECT_EQ(FormatTraceparent(*context), Replaced(53, sampled ? "01" : "00"));
  }
}

TEST(TraceContext, LaterVersion_IsReadAsFarAsItIsKnown) {
  for (const std::string& text : {Replaced(0, "01"), Replaced(0, "fe"),
                                  Replaced(0, "cc") + "-what-the-future-will-be-like"}) {
    const absl::StatusOr<TraceContext> context = ParseTraceparent(text);
    ASSERT_TRUE(context.ok()) << context.status();
    EXPECT_EQ(FormatTraceparent(*context), kExample);
  }
}

TEST(TraceContext, Malformed_IsRefused) {
  const std::string tail = std::string(kExample).substr(2);
  for (const std::string& text : {std::string(),
                                  std::string("00"),
                                  std::string(kExample).substr(0, 54),
                                  kExample + std::string("x"),
                                  kExample + std::string("-00"),
                                  Replaced(0, "cc") + ".00",
                                  Replaced(0, "cc") + "0",
                                  Replaced(0, "ff"),
                                  Replaced(3, "0A"),
                                  Replaced(0, "0A"),
                                  Replaced(3, std::string(32, '0')),
                                  Replaced(36, std::string(16, '0')),
                                  Replaced(36, "g"),
                                  Replaced(2, "_"),
                                  Replaced(35, "_"),
                                  Replaced(52, "_"),
                                  Replaced(53, "0x"),
                                  " " + tail,
                                  Replaced(10, std::string(1, '\0')),
                                  Replaced(0, "cc") + "-" + std::string(600, 'a')}) {
    const absl::StatusOr<TraceContext> context = ParseTraceparent(text);
    EXPECT_TRUE(absl::IsInvalidArgument(context.status())) << text;
    EXPECT_THAT(std::string(context.status().message()),
                HasSubstr("expected VERSION-TRACE-PARENT"));
  }
}

TEST(TraceContext, AnyContext_IsReadAsItWasWritten) {
  RandomStream random(1, 1);
  for (int i = 0; i < 2000; ++i) {
    TraceContext context;
    for (uint8_t& byte : context.trace_id) byte = static_cast<uint8_t>(random.Below(256));
    for (uint8_t& byte : context.span_id) byte = static_cast<uint8_t>(random.Below(256));
    context.trace_id[random.Below(16)] |= 1;
    context.span_id[random.Below(8)] |= 1;
    context.sampled = random.Below(2) == 1;
    const absl::StatusOr<TraceContext> read = ParseTraceparent(FormatTraceparent(context));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, context);
  }
}

// What is read is a context that can be sent on; everything else is refused, whatever bytes come.
TEST(TraceContext, AnyBytes_AreReadOrRefused) {
  RandomStream random(1, 2);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = kExample;
    for (uint64_t changes = random.Below(4); changes > 0; --changes) {
      const size_t at = random.Below(text.size());
      switch (random.Below(3)) {
        case 0:
          text[at] = static_cast<char>(random.Below(256));
          break;
        case 1:
          text[at] = "0123456789abcdef-"[random.Below(17)];
          break;
        default:
          text.erase(at, random.Below(3));
      }
      if (text.empty()) break;
    }
    const absl::StatusOr<TraceContext> context = ParseTraceparent(text);
    if (!context.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(context.status()));
      continue;
    }
    ++read;
    const absl::StatusOr<TraceContext> again = ParseTraceparent(FormatTraceparent(*context));
    ASSERT_TRUE(again.ok()) << text;
    EXPECT_EQ(*again, *context);
  }
  EXPECT_GT(read, 1000);
}

}  // namespace
}  // namespace penstock
