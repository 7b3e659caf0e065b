#include "job/keys/suggest.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(EditDistance, KnownPairs_HaveKnownDistances) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("steps", "steps"), 0);
  EXPECT_EQ(EditDistance("stepz", "steps"), 1);
  EXPECT_EQ(EditDistance("step", "steps"), 1);
  EXPECT_EQ(EditDistance("setps", "steps"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
}

TEST(EditDistance, AnyPair_IsSymmetric) {
  for (const char* a : {"", "a", "ab", "ba", "batch", "bacth", "microbatches"}) {
    for (const char* b : {"", "b", "ca", "abc", "batches", "learning_rate"}) {
      EXPECT_EQ(EditDistance(a, b), EditDistance(b, a)) << a << " " << b;
    }
  }
}

TEST(NearestName, SlipOfTheFinger_FindsTheName) {
  const std::vector<std::string> names = {"steps", "batch", "microbatches", "seed"};
  EXPECT_EQ(NearestName("stepz", names), "steps");
  EXPECT_EQ(NearestName("micro_batches", names), "microbatches");
  EXPECT_EQ(NearestName("sede", names), "seed");
}

TEST(NearestName, NothingAlike_IsEmpty) {
  EXPECT_EQ(NearestName("momentum", {"steps", "batch"}), "");
  EXPECT_EQ(NearestName("x", {"steps"}), "");
  EXPECT_EQ(NearestName("steps", {}), "");
  EXPECT_EQ(NearestName(std::string(1'000'000, 'a'), {"steps"}), "");
}

TEST(NearestNames, Pattern_FindsThreeHoweverFar) {
  const std::vector<std::string> names = {"wte.weight", "h.0.attn.c_attn.weight",
                                          "h.0.attn.c_attn.bias", "ln_f.bias"};
  EXPECT_EQ(NearestNames("*.attn.cattn.weight", names).front(), "h.0.attn.c_attn.weight");
  EXPECT_EQ(NearestNames("*.c_attn.wait", names).front(), "h.0.attn.c_attn.weight");
  EXPECT_EQ(NearestNames("w?.weight", names).front(), "wte.weight");
  EXPECT_EQ(NearestNames("ln.bias", names).front(), "ln_f.bias");
  EXPECT_EQ(NearestNames("zzz", names).size(), 3);
  EXPECT_EQ(NearestNames("a", {"b"}), std::vector<std::string>{"b"});
}

}  // namespace
}  // namespace penstock
