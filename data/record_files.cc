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

absl::StatusOr<const TensorPlace*> PlaceOfTensor(const SafetensorsLayout& layout,
                                                 const std::string& name) {
  const auto place =
      std::find_if(layout.tensors.begin(), layout.tensors.end(),
                   [&](const TensorPlace& candidate) { return candidate.type.name == name; });
  if (place != layout.tensors.end()) return &*place;
  return absl::DataLossError(absl::StrCat("has no tensor ", name));
}

absl::Status CheckType(const TensorType& found, absl::string_view dtype,
                       absl::Span<const int64_t> shape) {
  if (found.dtype == dtype && absl::MakeConstSpan(found.shape) == shape) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("tensor ", found.name, " is ",
                                          TypeText(found.dtype, found.shape),
                                          ", but by the index it is ", TypeText(dtype, shape)));
}

// Where the tensors of `index` lie in a shard with this layout, by tensor.
absl::StatusOr<std::vector<int64_t>> OffsetsOf(const SafetensorsLayout& layout,
                                               const RecordIndex& index, int64_t records) {
  std::vector<int64_t> offsets;
  for (const TensorType& tensor : index.tensors) {
    PENSTOCK_ASSIGN_OR_RETURN(const TensorPlace* const place, PlaceOfTensor(layout, tensor.name));
    std::vector<int64_t> shape = {records};
    shape.insert(shape.end(), tensor.shape.begin(), tensor.shape.end());
    PENSTOCK_RETURN_IF_ERROR(CheckType(place->type, tensor.dtype, shape));
    offsets.push_back(place->offset);
  }
  return offsets;
}

// Where the records of a sequence with `values` values begin: ascending numbers from 0 to `values`.
absl::Status CheckRecordOffsets(const SequenceType& sequence, absl::Span<const int64_t> offsets,
                                int64_t values) {
  const std::string name = OffsetsName(sequence);
  if (offsets.front() != 0 || offsets.back() != values) {
    return absl::DataLossError(absl::StrCat(name, " goes from ", offsets.front(), " to ",
                                            offsets.back(), ", expected 0 to ", values,
                                            ", the values of ", sequence.name));
  }
  const int64_t length_max = kRecordBytesMax / SafetensorsElementBytes(sequence.dtype);
  for (size_t record = 0; record + 1 < offsets.size(); ++record) {
    const int64_t begin = offsets[record];  // from 0 on
    const int64_t end = offsets[record + 1];
    if (end >= begin && end - begin <= length_max) continue;
    return absl::DataLossError(absl::StrCat(name, ": record ", record, " goes from ", begin, " to ",
                                            end, "; expected ascending numbers, and at most ",
                                            length_max, " values in a record"));
  }
  return absl::OkStatus();
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
  PENSTOCK_RETURN_IF_ERROR(records->CheckContents(files, options));
  return records;
}

absl::Status RecordFiles::OpenShard(Files& files, const RecordShard& listed) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file,
                            files.OpenRandomAccess(JoinPath(directory_, listed.file)));
  PENSTOCK_ASSIGN_OR_RETURN(const SafetensorsLayout layout, ReadSafetensorsLayout(*file));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int64_t> offsets,
                            OffsetsOf(layout, index_, listed.records));
  Shard shard = {.offsets = std::move(offsets)};
  for (const SequenceType& sequence : index_.sequences) {
    PENSTOCK_ASSIGN_OR_RETURN(const TensorPlace* const values,
                              PlaceOfTensor(layout, sequence.name));
    const int64_t count = values->size_bytes / SafetensorsElementBytes(sequence.dtype);
    PENSTOCK_RETURN_IF_ERROR(CheckType(values->type, sequence.dtype, {count}));
    PENSTOCK_ASSIGN_OR_RETURN(const TensorPlace* const places,
                              PlaceOfTensor(layout, OffsetsName(sequence)));
    PENSTOCK_RETURN_IF_ERROR(CheckType(places->type, kOffsetsDtype, {listed.records + 1}));
    std::vector<int64_t> record_offsets(listed.records + 1);
    PENSTOCK_RETURN_IF_ERROR(file->Read(
        places->offset, absl::MakeSpan(reinterpret_cast<std::byte*>(record_offsets.data()),
                                       record_offsets.size() * sizeof(int64_t))));
    PENSTOCK_RETURN_IF_ERROR(CheckRecordOffsets(sequence, record_offsets, count));
    shard.sequence_offsets.push_back(values->offset);
    shard.record_offsets.push_back(std::move(record_offsets));
  }
  shard.file = std::move(file);
  shards_.push_back(std::move(shard));
  starts_.push_back(starts_.back() + listed.records);
  return absl::OkStatus();
}

absl::Status RecordFiles::CheckContents(Files& files, const RecordFilesOptions& options) const {
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
  for (const ListedFile& listed : index_.files) {
    PENSTOCK_RETURN_IF_ERROR(ReadListedFile(files, listed.file, kRecordBytesMax).status());
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

int RecordFiles::FindSequence(absl::string_view name) const {
  const auto sequence =
      std::find_if(index_.sequences.begin(), index_.sequences.end(),
                   [&](const SequenceType& candidate) { return candidate.name == name; });
  return sequence == index_.sequences.end() ? -1
                                            : static_cast<int>(sequence - index_.sequences.begin());
}

RecordFiles::ShardPlace RecordFiles::PlaceOf(int64_t record) const {
  PENSTOCK_CHECK(record >= 0 && record < records());
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), record);
  const auto shard = after - starts_.begin() - 1;
  return {.shard = &shards_[shard], .record = record - starts_[shard]};
}

absl::Status RecordFiles::Read(int tensor, int64_t record, absl::Span<std::byte> values) const {
  const ShardPlace place = PlaceOf(record);
  const auto bytes = static_cast<int64_t>(values.size());
  return place.shard->file->Read(place.shard->offsets[tensor] + place.record * bytes, values);
}

int64_t RecordFiles::LengthOf(int sequence, int64_t record) const {
  const ShardPlace place = PlaceOf(record);
  const std::vector<int64_t>& offsets = place.shard->record_offsets[sequence];
  return offsets[place.record + 1] - offsets[place.record];
}

absl::Status RecordFiles::ReadSequence(int sequence, int64_t record,
                                       absl::Span<std::byte> values) const {
  const ShardPlace place = PlaceOf(record);
  const int64_t value_bytes = SafetensorsElementBytes(index_.sequences[sequence].dtype);
  PENSTOCK_CHECK(static_cast<int64_t>(values.size()) == LengthOf(sequence, record) * value_bytes);
  return place.shard->file->Read(
      place.shard->sequence_offsets[sequence] +
          place.shard->record_offsets[sequence][place.record] * value_bytes,
      values);
}

absl::StatusOr<std::string> RecordFiles::ReadListedFile(Files& files, absl::string_view name,
                                                        int64_t size_bytes_max) const {
  const auto listed =
      std::find_if(index_.files.begin(), index_.files.end(),
                   [&](const ListedFile& candidate) { return candidate.file == name; });
  const std::string path = JoinPath(directory_, name);
  if (listed == index_.files.end()) {
    return absl::NotFoundError(absl::StrCat(JoinPath(directory_, kRecordIndexFile),
                                            " lists no file ", name, " among its files"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::string content, files.Read(path, size_bytes_max));
  const std::string digest = Sha256Hex(content);
  if (digest == listed->sha256) return content;
  return absl::DataLossError(absl::StrCat(path, " is not the file of the index: its SHA-256 is ",
                                          digest, ", the index says ", listed->sha256));
}

}  // namespace penstock
