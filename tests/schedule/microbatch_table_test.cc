#include "schedule/microbatch_table.h"

#include <map>

#include "base/random.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

TEST(MicrobatchTable, RandomOperations_AgreeWithAMap) {
  for (const int64_t distance : {int64_t{1}, int64_t{16}, int64_t{1} << 32}) {
    RandomStream random(3, static_cast<uint64_t>(distance));
    MicrobatchTable<int64_t> table;
    std::map<int64_t, int64_t> expected;
    for (int64_t round = 0; round < 30'000; ++round) {
      // First mostly inserts, later mostly erases.
      const int64_t key = static_cast<int64_t>(random.Below(60)) * distance;
      if (random.Below(30'000) > static_cast<uint64_t>(round)) {
        table.Insert(key) = expected[key] = round;
      } else if (expected.erase(key) == 1) {
        table.Erase(key);
      }
      ASSERT_EQ(table.size(), expected.size());
    }
    int64_t entries = 0;
    table.ForEach([&](int64_t key, int64_t value) {
      ++entries;
      EXPECT_EQ(expected.at(key), value);
    });
    EXPECT_EQ(entries, static_cast<int64_t>(expected.size()));
    for (int64_t i = 0; i < 60; ++i) {
      const auto* found = table.Find(i * distance);
      ASSERT_EQ(found != nullptr, expected.count(i * distance) == 1);
      if (found == nullptr) continue;
      EXPECT_EQ(*found, expected.at(i * distance));
    }
  }
}

}  // namespace
}  // namespace penstock
