#include "data/record_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<RecordWriter>> RecordWriter::Create(Files& files,
                                                                   std::string directory,
                                                                   std::vector<TensorType> tensors,
                                                                   int64_t shard_bytes_max) {
  const std::string index = JoinPath(directory, kRecordIndexFile);
  if (files.Exists(index)) {
    return absl::AlreadyExistsError(
        absl::StrCat(index, " is there already; remove the directory or name another"));
  }
  PENSTOCK_RETURN_IF_ERROR(files.CreateDirectories(directory));
  return std::unique_ptr<RecordWriter>(
      new RecordWriter(files, std::move(directory), std::move(tensors), shard_bytes_max));
}

absl::Status RecordWriter::Add(absl::Span<const absl::Span<const std::byte>> values) {
  PENSTOCK_CHECK(values.size() == values_.size());
  for (size_t i = 0; i < values.size(); ++i) {
    PENSTOCK_CHECK(static_cast<int64_t>(values[i].size()) == RecordBytes(index_.tensors[i]));
    values_[i].append(reinterpret_cast<const char*>(values[i].data()), values[i].size());
    bytes_ += static_cast<int64_t>(values[i].size());
  }
  ++records_;
  return bytes_ < shard_bytes_max_ ? absl::OkStatus() : WriteShard();
}

absl::StatusOr<RecordIndex> RecordWriter::Finish() {
  if (records_ > 0) PENSTOCK_RETURN_IF_ERROR(WriteShard());
  if (index_.shards.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(directory_, ": there is no record to write"));
  }
  PENSTOCK_RETURN_IF_ERROR(
      files_.WriteDurably(JoinPath(directory_, kRecordIndexFile), {PrintRecordIndex(index_)}));
  PENSTOCK_RETURN_IF_ERROR(files_.SyncDirectory(directory_));
  return index_;
}

absl::Status RecordWriter::WriteShard() {
  std::vector<TensorType> tensors = index_.tensors;
  for (TensorType& tensor : tensors) tensor.shape.insert(tensor.shape.begin(), records_);
  const std::string header = SafetensorsHeaderFor(tensors, {});
  std::vector<absl::string_view> pieces = {header};
  pieces.insert(pieces.end(), values_.begin(), values_.end());
  Sha256 sha256;
  for (const absl::string_view piece : pieces) sha256.Update(piece);
  RecordShard shard = {.file = absl::StrFormat("%05d.safetensors", index_.shards.size()),
                       .records = records_,
                       .sha256 = sha256.HexDigest()};
  PENSTOCK_RETURN_IF_ERROR(files_.WriteDurably(JoinPath(directory_, shard.file), pieces));
  index_.shards.push_back(std::move(shard));
  for (std::string& values : values_) values.clear();
  records_ = bytes_ = 0;
  return absl::OkStatus();
}

}  // namespace penstock
