#include "data/record_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<RecordWriter>> RecordWriter::Create(
    Files& files, std::string directory, std::vector<TensorType> tensors, int64_t shard_bytes_max,
    std::vector<SequenceType> sequences) {
  const std::string index = JoinPath(directory, kRecordIndexFile);
  if (files.Exists(index)) {
    return absl::AlreadyExistsError(
        absl::StrCat(index, " is there already; remove the directory or name another"));
  }
  PENSTOCK_RETURN_IF_ERROR(files.CreateDirectories(directory));
  return std::unique_ptr<RecordWriter>(
      new RecordWriter(files, std::move(directory), shard_bytes_max,
                       {.tensors = std::move(tensors), .sequences = std::move(sequences)}));
}

absl::Status RecordWriter::Add(absl::Span<const absl::Span<const std::byte>> values) {
  PENSTOCK_CHECK(values.size() == values_.size());
  const size_t tensors = index_.tensors.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bytes = static_cast<int64_t>(values[i].size());
    if (i < tensors) {
      PENSTOCK_CHECK(bytes == RecordBytes(index_.tensors[i]));
    } else {
      const size_t sequence = i - tensors;
      const int64_t value_bytes = SafetensorsElementBytes(index_.sequences[sequence].dtype);
      PENSTOCK_CHECK(bytes % value_bytes == 0);
      std::vector<int64_t>& offsets = record_offsets_[sequence];
      offsets.push_back(offsets.back() + bytes / value_bytes);
      bytes_ += static_cast<int64_t>(sizeof(int64_t));
    }
    values_[i].append(reinterpret_cast<const char*>(values[i].data()), values[i].size());
    bytes_ += bytes;
  }
  ++records_;
  return bytes_ < shard_bytes_max_ ? absl::OkStatus() : WriteShard();
}

absl::Status RecordWriter::AddFile(const std::string& name, absl::string_view content) {
  PENSTOCK_RETURN_IF_ERROR(files_.WriteDurably(JoinPath(directory_, name), {content}));
  index_.files.push_back({.file = name, .sha256 = Sha256Hex(content)});
  return absl::OkStatus();
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
  // Offsets, which have eight bytes each, come first, so that they are aligned whatever the values are.
  std::vector<TensorType> in_file;
  std::vector<absl::string_view> pieces = {""};  // the header
  for (size_t i = 0; i < index_.sequences.size(); ++i) {
    if (record_offsets_[i].back() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          directory_, ": none of the ", records_, " records of a shard has a value of ",
          index_.sequences[i].name, ", and safetensors files have no empty tensors"));
    }
    in_file.push_back({OffsetsName(index_.sequences[i]), kOffsetsDtype, {records_ + 1}});
    pieces.emplace_back(reinterpret_cast<const char*>(record_offsets_[i].data()),
                        record_offsets_[i].size() * sizeof(int64_t));
  }
  in_file.insert(in_file.end(), tensors.begin(), tensors.end());
  for (size_t i = 0; i < index_.sequences.size(); ++i) {
    const SequenceType& sequence = index_.sequences[i];
    in_file.push_back({sequence.name, sequence.dtype, {record_offsets_[i].back()}});
  }
  pieces.insert(pieces.end(), values_.begin(), values_.end());
  const std::string header = SafetensorsHeaderFor(in_file, {});
  pieces.front() = header;
  Sha256 sha256;
  for (const absl::string_view piece : pieces) sha256.Update(piece);
  RecordShard shard = {.file = absl::StrFormat("%05d.safetensors", index_.shards.size()),
                       .records = records_,
                       .sha256 = sha256.HexDigest()};
  PENSTOCK_RETURN_IF_ERROR(files_.WriteDurably(JoinPath(directory_, shard.file), pieces));
  index_.shards.push_back(std::move(shard));
  for (std::string& values : values_) values.clear();
  for (std::vector<int64_t>& offsets : record_offsets_) offsets = {0};
  records_ = bytes_ = 0;
  return absl::OkStatus();
}

}  // namespace penstock
