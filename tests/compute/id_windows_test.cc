// The additions of a table's gradient on a GPU, thread by thread on the CPU.
#include "compute/cuda/kernels/id_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace penstock::cuda {
namespace {

constexpr int64_t kWidth = 3;

// As SortRows: the ids ascending, then their rows, those of one id ascending.
std::vector<int32_t> Sorted(const std::vector<int32_t>& ids) {
  std::vector<int32_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) { return ids[a] < ids[b]; });
  std::vector<int32_t> order;
  for (const int32_t row : rows) order.push_back(ids[row]);
  order.insert(order.end(), rows.begin(), rows.end());
  return order;
}

// `descending`: the windows' blocks and threads, in whatever order a GPU takes them.
std::vector<float> Add(const std::vector<int32_t>& ids, const std::vector<float>& gradient,
                       int64_t vocabulary, bool descending) {
  const std::vector<int32_t> order = Sorted(ids);
  const IdOrder o = {static_cast<int64_t>(ids.size()), kWidth, order.data()};
  std::vector<float> table(vocabulary * kWidth, 100.0f);
  std::vector<float> sums(IdWindowSums(o.rows, kWidth), NAN);  // what no window writes is not read
  const auto for_each = [&](const auto& work) {
    for (int64_t i = 0; i < IdWindows(o.rows) * kWidth; ++i) {
      const int64_t at = descending ? IdWindows(o.rows) * kWidth - 1 - i : i;
      work(at / kWidth, at % kWidth);
    }
  };
  for_each([&](int64_t window, int64_t column) {
    AddIdWindow(o, window, column, table.data(), sums.data(), [&](int64_t row, int32_t id) {
      EXPECT_EQ(ids[row], id);
      return gradient[row * kWidth + column];
    });
  });
  for_each([&](int64_t window, int64_t column) {
    AddIdAcrossWindows(o, window, column, table.data(), sums.data());
  });
  return table;
}

class IdWindowsTest : public ::testing::Test {
 protected:
  // Small whole numbers: their sums are exact in any order.
  std::vector<float> Gradient(int64_t rows) {
    std::vector<float> gradient(rows * kWidth);
    for (float& value : gradient) value = static_cast<float>(random_.Below(64)) - 32.0f;
    return gradient;
  }
  void ExpectSums(const std::vector<int32_t>& ids, int64_t vocabulary) {
    const std::vector<float> gradient = Gradient(static_cast<int64_t>(ids.size()));
    std::vector<float> expected(vocabulary * kWidth, 100.0f);
    for (size_t row = 0; row < ids.size(); ++row) {
      for (int64_t c = 0; c < kWidth; ++c) {
        expected[ids[row] * kWidth + c] += gradient[row * kWidth + c];
      }
    }
    EXPECT_EQ(Add(ids, gradient, vocabulary, /*descending=*/false), expected) << ids.size();
    EXPECT_EQ(Add(ids, gradient, vocabulary, /*descending=*/true), expected) << ids.size();
  }

  RandomStream random_{5, 1};
};

TEST_F(IdWindowsTest, AllRowsOfOneId_AreAdded) {
  for (const int64_t rows : {1, 31, 32, 33, 63, 64, 65, 96, 1000}) {
    ExpectSums(std::vector<int32_t>(rows, 2), 4);
  }
}

TEST_F(IdWindowsTest, EachRowAnIdOfItsOwn_IsAdded) {
  for (const int64_t rows : {1, 31, 32, 33, 100}) {
    std::vector<int32_t> ids(rows);
    std::iota(ids.rbegin(), ids.rend(), 0);
    ExpectSums(ids, rows);
  }
}

TEST_F(IdWindowsTest, RunsOfEveryLength_AtEveryPlaceOfAWindow_AreAdded) {
  for (int64_t first = 0; first <= 2 * kIdWindow + 1; ++first) {
    for (const int64_t second : {1, 2, 30, 31, 32, 33, 34, 64, 65, 100}) {
      std::vector<int32_t> ids(first, 0);
      ids.insert(ids.end(), second, 1);
      ids.push_back(2);
      ExpectSums(ids, 3);
    }
  }
}

TEST_F(IdWindowsTest, RandomTexts_AreAdded) {
  for (const int64_t vocabulary : {2, 5, 40, 300}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<int32_t> ids(1 + random_.Below(700));
      // Some ids have most rows.
      for (int32_t& id : ids)
        id = static_cast<int32_t>(random_.Below(1 + random_.Below(vocabulary)));
      ExpectSums(ids, vocabulary);
    }
  }
}

// Numbers whose sum depends on the order of additions.
TEST_F(IdWindowsTest, OrderOfBlocks_DoesNotMatter) {
  std::vector<int32_t> ids(500);
  for (int32_t& id : ids) id = static_cast<int32_t>(random_.Below(4));
  std::vector<float> gradient(ids.size() * kWidth);
  for (float& value : gradient) value = static_cast<float>(random_.Normal());
  EXPECT_EQ(Add(ids, gradient, 4, false), Add(ids, gradient, 4, true));
}

}  // namespace
}  // namespace penstock::cuda
