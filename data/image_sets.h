// Image sets: MNIST's and CIFAR's files as records directories.
//
// A set has parts, `train` and `test`, each of which becomes a directory with the tensors `image`, u8 [height, width,
// channels], and `label`, i32. Pixels of a colour image stand together, while CIFAR's files have a plane for each colour.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "data/record_index.h"

namespace penstock {

inline constexpr int64_t kShardBytes = int64_t{256} << 20;

struct PrepareOptions {
  std::string from;  // a folder with the set's files
  std::string to;    // a folder for the directories of the parts
  int64_t shard_bytes_max = kShardBytes;
  // Called after each file with how many of all are done; its error ends the work. May be empty.
  std::function<absl::Status(int64_t done, int64_t all, const std::string& file)> progress;
};

struct PreparedPart {
  std::string directory;
  RecordIndex index;
};
struct PreparedImages {
  std::string set;  // "MNIST"
  std::vector<PreparedPart> parts;
};

// Finds out which set is in `from` and converts it. Errors: NotFound saying which files the known sets have,
// AlreadyExists (a part's directory has an index), DataLoss (a file that is not what its name says), those of `files`.
absl::StatusOr<PreparedImages> PrepareImages(Files& files, const PrepareOptions& options);

}  // namespace penstock
