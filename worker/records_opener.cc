// data.records: the directories of records, and the digest of one.
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "tokenizer/limits.h"
#include "tokenizer/tokenizer.h"
#include "worker/data_opener.h"
#include "worker/records_data.h"

namespace penstock {
namespace {

absl::StatusOr<std::unique_ptr<RecordFiles>> OpenDirectory(const DataRequest& request,
                                                           const std::string& path,
                                                           const std::string& sha256) {
  return RecordFiles::Open(request.files, JoinPath(request.root, path),
                           RecordOptions(request, path, sha256));
}

// The tokenizer of the directory, for checkpoints; none, if it lists none.
absl::StatusOr<std::vector<AttachedFile>> AttachedOf(const DataRequest& request,
                                                     const RecordFiles& records) {
  std::vector<AttachedFile> attached;
  for (const ListedFile& listed : records.index().files) {
    if (listed.file != kTokenizerJsonName && listed.file != kTokenizerModelName) continue;
    PENSTOCK_ASSIGN_OR_RETURN(
        std::string content,
        records.ReadListedFile(request.files, listed.file, kTokenizerFileBytesMax));
    attached.push_back({listed.file, std::move(content)});
  }
  return attached;
}

absl::StatusOr<std::unique_ptr<DataSource>> OpenRecords(const DataRequest& request) {
  const v1::RecordsSpec& spec = request.spec.data().records();
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<RecordFiles> training,
                            OpenDirectory(request, spec.path(), spec.sha256()));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<AttachedFile> attached, AttachedOf(request, *training));
  if (request.evaluated == DataPart::kAll && !spec.validation().empty()) {
    return absl::InvalidArgumentError(
        "data.records has directories for training and for validation; evaluate one of them");
  }
  std::unique_ptr<RecordFiles> validation;
  if (!spec.validation().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(validation,
                              OpenDirectory(request, spec.validation(), spec.validation_sha256()));
  }
  return RecordsData::Open(
      std::move(training), std::move(validation), request.job.model.ports,
      {.order = OrderNamed(spec.order()),
       .augmentation = {.flip = spec.augment().flip(), .crop = spec.augment().crop()},
       .validation_fraction = spec.validation_fraction(),
       .validation_samples = request.validates() ? request.validation_samples() : 0,
       .evaluated = request.evaluated,
       .batch = request.job.batch,
       .seed = request.job.seed,
       .attached = std::move(attached)});
}

}  // namespace

RecordFilesOptions RecordOptions(const DataRequest& request, const std::string& path,
                                 const std::string& sha256) {
  return {.sha256 = sha256,
          .checked_bytes_max = request.limits.data_checked_bytes_max,
          .progress = [&request, path](int64_t, int64_t) {
            if (!request.stop()) return absl::OkStatus();
            return absl::CancelledError(absl::StrCat("interrupted while ", path, " was read"));
          }};
}

absl::StatusOr<std::string> DigestOfRecords(const std::string& path, const std::function<bool()>&) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  const std::string index = JoinPath(path, kRecordIndexFile);
  if (!std::filesystem::is_regular_file(index, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no directory of records: it has no ",
                                                   kRecordIndexFile,
                                                   " (`penstock data prepare` makes one)"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, RealFiles().Read(index, kRecordIndexBytesMax));
  return Sha256Hex(text);
}

const DataOpener kRecordsOpener = {
    .source = v1::DataSpec::kRecords, .open = OpenRecords, .digest = DigestOfRecords};

}  // namespace penstock
