#include "data/record_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

std::string TypeText(absl::string_view dtype, absl::Span<const int64_t> shape) {
  return absl::StrCat(dtype, " [", absl::StrJoin(shape, ", "), "]");
}

// Where the tensors of `index` lie in a shard with this layout, by tensor.
absl::StatusOr<std::vector<int64_t>> OffsetsOf(const SafetensorsLayout& layout,
                                               const RecordIndex& index, int64_t records) {
  std::vector<int64_t> offsets;
  for (const TensorType& tensor : index.tensors) {
    const auto place = std::find_if(
        layout.tensors.begin(), layout.tensors.end(),
        [&](const TensorPlace& candidate) { return candidate.type.name == tensor.name; });
    if (place == layout.tensors.end()) {
      return absl::DataLossError(absl::StrCat("has no tensor ", tensor.name));
    }
    std::vector<int64_t> shape = {records};
    shape.insert(shape.end(), tensor.shape.begin(), tensor.shape.end());
    if (place->type.dtype != tensor.dtype || place->type.shape != shape) {
      return absl::DataLossError(absl::StrCat(
          "tensor ", tensor.name, " is ", TypeText(place->type.dtype, place->type.shape),
          ", but by the index it is ", TypeText(tensor.dtype, shape)));
    }
    offsets.push_back(place->offset);
  }
  return offsets;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordFiles>> RecordFiles::Open(Files& files,
                                                               const std::string& directory,
                                                               const RecordFilesOptions& options) {
  auto records = std::unique_ptr<RecordFiles>(new RecordFiles(directory));
  const std::string path = JoinPath(directory, kRecordIndexFile);
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files.Read(path, kRecordIndexBytesMax));
  records->sha256_ = Sha256Hex(text);
  if (!options.sha256.empty() && options.sha256 != records->sha256_) {
    return absl::DataLossError(absl::StrCat(path, " is another index than the job's: its SHA-256 ",
                                            "is ", records->sha256_, ", expected ",
                                            options.sha256));
  }
  absl::StatusOr<RecordIndex> index = ParseRecordIndex(text);
  if (!index.ok()) return Annotate(index.status(), path);
  records->index_ = *std::move(index);
  for (const RecordShard& shard : records->index_.shards) {
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(records->OpenShard(files, shard), JoinPath(directory, shard.file)));
  }
  PENSTOCK_RETURN_IF_ERROR(records->CheckContents(options));
  return records;
}

absl::Status RecordFiles::OpenShard(Files& files, const RecordShard& listed) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file,
                            files.OpenRandomAccess(JoinPath(directory_, listed.file)));
  PENSTOCK_ASSIGN_OR_RETURN(const SafetensorsLayout layout, ReadSafetensorsLayout(*file));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int64_t> offsets,
                            OffsetsOf(layout, index_, listed.records));
  shards_.push_back({.file = std::move(file), .offsets = std::move(offsets)});
  starts_.push_back(starts_.back() + listed.records);
  return absl::OkStatus();
}

absl::Status RecordFiles::CheckContents(const RecordFilesOptions& options) const {
  const int64_t all_bytes = size_bytes();
  if (all_bytes > options.checked_bytes_max) return absl::OkStatus();
  std::vector<std::byte> piece(kPieceBytes);
  int64_t done_bytes = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const RandomAccessFile& file = *shards_[i].file;
    Sha256 sha256;
    for (int64_t offset = 0; offset < file.size_bytes(); offset += kPieceBytes) {
      const int64_t bytes = std::min(kPieceBytes, file.size_bytes() - offset);
      PENSTOCK_RETURN_IF_ERROR(file.Read(offset, absl::MakeSpan(piece.data(), bytes)));
      sha256.Update(piece.data(), bytes);
      done_bytes += bytes;
      if (options.progress) PENSTOCK_RETURN_IF_ERROR(options.progress(done_bytes, all_bytes));
    }
    const std::string digest = sha256.HexDigest();
    if (digest == index_.shards[i].sha256) continue;
    return absl::DataLossError(absl::StrCat(JoinPath(directory_, index_.shards[i].file),
                                            " is not the file of the index: its SHA-256 ", "is ",
                                            digest, ", the index says ", index_.shards[i].sha256));
  }
  return absl::OkStatus();
}

int64_t RecordFiles::size_bytes() const {
  int64_t bytes = 0;
  for (const Shard& shard : shards_) bytes += shard.file->size_bytes();
  return bytes;
}

int RecordFiles::FindTensor(absl::string_view name) const {
  const auto tensor =
      std::find_if(index_.tensors.begin(), index_.tensors.end(),
                   [&](const TensorType& candidate) { return candidate.name == name; });
  return tensor == index_.tensors.end() ? -1 : static_cast<int>(tensor - index_.tensors.begin());
}

absl::Status RecordFiles::Read(int tensor, int64_t record, absl::Span<std::byte> values) const {
  PENSTOCK_CHECK(record >= 0 && record < records());
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), record);
  const auto shard = after - starts_.begin() - 1;
  const auto bytes = static_cast<int64_t>(values.size());
  return shards_[shard].file->Read(
      shards_[shard].offsets[tensor] + (record - starts_[shard]) * bytes, values);
}

}  // namespace penstock
