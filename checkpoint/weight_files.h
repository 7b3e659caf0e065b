// WeightFiles: the tensors of a directory as Hugging Face's save_pretrained writes it: model.safetensors, or the shards that
// model.safetensors.index.json lists.
//
// Only the headers are read when it is opened, and a tensor when it is asked for, so that nothing holds a file as a whole.
//
// Thread safety: immutable once open.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "checkpoint/safetensors.h"

namespace penstock {

inline constexpr char kWeightsName[] = "model.safetensors";
inline constexpr char kWeightsIndexName[] = "model.safetensors.index.json";

class WeightFiles {
 public:
  // The index counts where the directory has both.
  // Errors, which begin with the path of a file: NotFound (neither is there), DataLoss (damaged, or the index and its
  // shards disagree), those of `files`.
  static absl::StatusOr<WeightFiles> Open(Files& files, const std::string& directory);

  const std::string& directory() const { return directory_; }
  // Sorted.
  std::vector<std::string> names() const;
  // Null if there is none of this name.
  const TensorType* Find(const std::string& name) const;
  // "DIRECTORY/FILE: tensor NAME F32 [2, 3]", for messages. REQUIRES: there is one of this name.
  std::string Describe(const std::string& name) const;

  // Fills `values` with the first values of a tensor. REQUIRES: there is one of this name, with as many at least.
  // Errors, which begin with the file and the tensor: InvalidArgument (neither F32 nor BF16 nor F16), those of the file.
  absl::Status Read(const std::string& name, absl::Span<float> values) const;

 private:
  struct Shard {
    std::string path;
    std::unique_ptr<RandomAccessFile> file;
  };
  struct Place {
    size_t shard = 0;
    TensorPlace tensor;
  };

  explicit WeightFiles(std::string directory) : directory_(std::move(directory)) {}
  // `listed`: the shards of the index by tensor; empty: there is no index.
  absl::Status OpenShard(Files& files, const std::string& name,
                         const std::map<std::string, std::string>& listed);

  std::string directory_;
  std::vector<Shard> shards_;
  std::map<std::string, Place> tensors_;
};

// The number with these bits: IEEE 754's format of 16 bits, of which every one is a float.
float FloatOfHalf(uint16_t bits);

}  // namespace penstock
