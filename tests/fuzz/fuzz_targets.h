// All fuzz targets, as fuzz_corpus_test runs them. CMakeLists.txt writes the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

struct FuzzTarget {
  std::string name;  // of its file and of its corpus
  int (*run)(const uint8_t* data, size_t size);
  size_t input_bytes_max;
  int mutations;  // that a test tries
};

const std::vector<FuzzTarget>& FuzzTargets();

}  // namespace penstock
