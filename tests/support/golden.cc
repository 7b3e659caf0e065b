#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace penstock {

void ExpectEqualsGolden(absl::string_view name, const std::string& actual) {
  ExpectEqualsSourceFile("tests/golden/" + std::string(name), actual);
}

void ExpectEqualsSourceFile(absl::string_view source_path, const std::string& actual) {
  const std::filesystem::path path =
      std::filesystem::path(PENSTOCK_SOURCE_DIR) / std::string(source_path);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << actual;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path << " is missing; run with UPDATE_GOLDEN=1 to write it";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(actual, expected.str())
      << "differs from " << path << "; run with UPDATE_GOLDEN=1 to accept the change";
}

}  // namespace penstock
