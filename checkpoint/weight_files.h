// WeightFiles: the tensors of a directory that a model can start from. Either Hugging Face's save_pretrained wrote it, as
// model.safetensors or as the shards that model.safetensors.index.json lists, or it is one of Penstock's checkpoints, whose
// tensors are the parameters and buffers of its layers, by their names, whatever cut and optimizer they were trained with.
//
// Only the headers are read when it is opened, and a tensor when it is asked for, so that nothing holds a file as a whole.
//
// Thread safety: immutable once open.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "checkpoint/safetensors.h"

namespace penstock {

inline constexpr char kWeightsName[] = "model.safetensors";
inline constexpr char kWeightsIndexName[] = "model.safetensors.index.json";

class WeightFiles {
 public:
  // A manifest counts before an index, and an index before model.safetensors, where the directory has several. Of an index only the
  // shards that hold one of `tensors` are opened, where somebody says which he reads; the others need not be there. REQUIRES: `files`
  // outlives it.
  // Errors, which begin with the path of a file: NotFound (none is there), DataLoss (damaged, or the index and its
  // shards disagree), Unimplemented (a checkpoint of a later format), those of `files`.
  static absl::StatusOr<WeightFiles> Open(
      Files& files, const std::string& directory,
      const std::optional<std::set<std::string>>& tensors = std::nullopt);

  const std::string& directory() const { return directory_; }
  // Whether it is a checkpoint of Penstock's.
  bool is_checkpoint() const { return is_checkpoint_; }
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
    std::unique_ptr<RandomAccessFile> file;  // null: it is opened when it is read
  };
  struct Place {
    size_t shard = 0;
    TensorPlace tensor;
  };

  explicit WeightFiles(std::string directory) : directory_(std::move(directory)) {}
  // Both: REQUIRES: the directory has the file that says which others there are.
  absl::Status OpenCheckpoint(Files& files);
  absl::Status OpenIndexed(Files& files, const std::optional<std::set<std::string>>& tensors);
  // `listed`: the shards of the index by tensor; empty: there is no index.
  absl::Status OpenShard(Files& files, const std::string& name,
                         const std::map<std::string, std::string>& listed);

  std::string directory_;
  bool is_checkpoint_ = false;
  Files* files_ = nullptr;  // of a checkpoint
  std::vector<Shard> shards_;
  std::map<std::string, Place> tensors_;
};

// The files, beside the index of shards at `path`, that hold one of `tensors`.
// Errors, which begin with the path: DataLoss (damaged), those of `files`.
absl::StatusOr<std::set<std::string>> ShardsWith(FileReader& files, const std::string& path,
                                                 const std::set<std::string>& tensors);

// All files that the content of an index names. Errors: DataLoss, without a path.
absl::StatusOr<std::set<std::string>> ShardsOfIndex(absl::string_view index);

// The number with these bits: IEEE 754's format of 16 bits, of which every one is a float.
float FloatOfHalf(uint16_t bits);

}  // namespace penstock
