#include "services/coordinator/put_jobs.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/put_path.h"
#include "base/sha256.h"
#include "base/status.h"
#include "data/record_index.h"
#include "job/data/data_kind.h"
#include "job/hugging_face/read_config.h"
#include "tokenizer/tokenizer.h"

namespace penstock {
namespace {

constexpr char kHuggingFaceKey[] = "model.hugging_face.directory";
constexpr char kPretrainedKey[] = "model.pretrained.directory";
constexpr char kPutAgain[] = "; put the directory again with `penstock data put`";

bool IsPutDirectory(absl::string_view path) {
  return IsPutPath(path) && absl::StrContains(path, '/');
}

// A directory of which all that `put` names is there.
struct PutDirectory {
  PutPath put;
  PutListing listing;
  std::vector<const PutEntry*> files;  // of the listing
};

absl::StatusOr<PutDirectory> OpenPut(DigestStore& store, const std::string& path) {
  PutDirectory directory;
  PENSTOCK_ASSIGN_OR_RETURN(directory.put, ParsePutPath(path));
  PENSTOCK_ASSIGN_OR_RETURN(directory.listing, ReadPutListing(ReadCallOf(store), directory.put));
  directory.files = directory.listing.At(directory.put.name);
  if (directory.files.empty()) return NotInPutDirectory(directory.put, directory.listing);
  for (const PutEntry* entry : directory.files) {
    if (entry->size_bytes == 0) continue;  // nothing is sent for it
    PENSTOCK_ASSIGN_OR_RETURN(const DigestStore::File file, store.Find(entry->sha256));
    if (file.whole) continue;
    return absl::NotFoundError(absl::StrCat("sha256:", directory.put.sha256, "/", entry->name,
                                            " is not there as a whole", kPutAgain));
  }
  return directory;
}

// The digest of the first of `names` in the directory.
absl::StatusOr<std::string> DigestOfFirst(const PutDirectory& directory,
                                          absl::Span<const char* const> names) {
  for (const char* const name : names) {
    const PutEntry* const entry = directory.listing.Find(JoinPath(directory.put.name, name));
    if (entry != nullptr) return entry->sha256;
  }
  PutPath missing = directory.put;
  missing.name = JoinPath(missing.name, names.front());
  return NotInPutDirectory(missing, directory.listing);
}

absl::StatusOr<std::string> DigestOfTokens(const PutDirectory& directory) {
  Sha256 sha256;
  int files = 0;
  for (const PutEntry* entry : directory.files) {
    const std::string below = NameBelow(entry->name, directory.put.name);
    const bool counts =
        below.empty() || (absl::EndsWith(below, ".bin") && !absl::StrContains(below, '/'));
    if (!counts) continue;
    ++files;
    const std::string line = absl::StrCat(entry->name.substr(entry->name.rfind('/') + 1), "\n",
                                          entry->size_bytes, "\n", entry->sha256, "\n");
    sha256.Update(line.data(), line.size());
  }
  if (files > 0) return sha256.HexDigest();
  return absl::NotFoundError(
      absl::StrCat(directory.put.ToString(), " has no file that ends with .bin"));
}

absl::StatusOr<std::string> DigestOf(const v1::DataSpec& data, const DataInput& input,
                                     const PutDirectory& directory) {
  const PutEntry* const file = directory.listing.Find(directory.put.name);
  if (file != nullptr) return file->sha256;
  if (input.use == DataInput::Use::kTokenizer) {
    return DigestOfFirst(directory, TokenizerFileNames());
  }
  if (data.has_tokens()) return DigestOfTokens(directory);
  if (data.has_text()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory.put.ToString(), " is a directory; name the text in it"));
  }
  const char* const names[] = {kRecordIndexFile};
  return DigestOfFirst(directory, names);
}

// The files that an index of records lists are there, with its digests.
absl::Status CheckRecords(DigestStore& store, const PutDirectory& directory) {
  PutFiles files(ReadCallOf(store));
  PutPath place = directory.put;
  const std::string name = place.name;
  place.name = JoinPath(name, kRecordIndexFile);
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text,
                            files.Read(place.ToString(), kRecordIndexBytesMax));
  const absl::StatusOr<RecordIndex> index = ParseRecordIndex(text);
  if (!index.ok()) return Annotate(index.status(), place.ToString());
  const auto check = [&](const std::string& file, const std::string& sha256) -> absl::Status {
    place.name = JoinPath(name, file);
    const PutEntry* const entry = directory.listing.Find(place.name);
    if (entry != nullptr && entry->sha256 == sha256) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat(place.ToString(), entry == nullptr ? " is not there" : " has another SHA-256",
                     ", but ", kRecordIndexFile, " lists it", kPutAgain));
  };
  for (const RecordShard& shard : index->shards) {
    PENSTOCK_RETURN_IF_ERROR(check(shard.file, shard.sha256));
  }
  for (const ListedFile& file : index->files) {
    PENSTOCK_RETURN_IF_ERROR(check(file.file, file.sha256));
  }
  return absl::OkStatus();
}

absl::Status CompleteInput(DigestStore& store, const v1::DataSpec& data, const DataInput& input) {
  PENSTOCK_ASSIGN_OR_RETURN(const PutDirectory directory, OpenPut(store, *input.path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string sha256, DigestOf(data, input, directory));
  if (data.has_records() || data.has_pairs()) {
    PENSTOCK_RETURN_IF_ERROR(CheckRecords(store, directory));
  }
  if (input.sha256->empty()) *input.sha256 = sha256;
  if (*input.sha256 == sha256) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("has ", sha256, ", but ", input.sha256_key, " is ",
                                                 *input.sha256, "; leave one of them out"));
}

}  // namespace

bool NamesPutDirectory(const v1::JobSpec& spec) {
  if (IsPutPath(spec.model().hugging_face().directory()) ||
      IsPutPath(spec.model().pretrained().directory())) {
    return true;
  }
  v1::DataSpec data = spec.data();
  if (data.source_case() == v1::DataSpec::SOURCE_NOT_SET) return false;
  const std::vector<DataInput> inputs = DataKindOf(data).inputs(data);
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const DataInput& input) { return IsPutDirectory(*input.path); });
}

absl::Status CompletePutJob(DigestStore* store, v1::JobSpec& spec) {
  if (!NamesPutDirectory(spec)) return absl::OkStatus();
  if (store == nullptr) {
    return absl::FailedPreconditionError(
        "the job names a directory that was put, but this coordinator keeps no files of users: "
        "start "
        "it with --data-directory DIR, or name a path that all workers find");
  }
  v1::ModelSpec& model = *spec.mutable_model();
  if (IsPutPath(model.hugging_face().directory())) {
    PutFiles files(ReadCallOf(*store));
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(OpenPut(*store, model.hugging_face().directory()).status(), kHuggingFaceKey));
    PENSTOCK_RETURN_IF_ERROR(ReadHuggingFaceConfig(files, "", model));
  }
  if (IsPutPath(model.pretrained().directory())) {
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(OpenPut(*store, model.pretrained().directory()).status(), kPretrainedKey));
  }
  if (spec.data().source_case() == v1::DataSpec::SOURCE_NOT_SET) return absl::OkStatus();
  for (const DataInput& input : DataKindOf(spec.data()).inputs(*spec.mutable_data())) {
    if (!IsPutDirectory(*input.path)) continue;
    PENSTOCK_RETURN_IF_ERROR(Annotate(CompleteInput(*store, spec.data(), input), input.key));
  }
  return absl::OkStatus();
}

PutReadCall ReadCallOf(DigestStore& store) {
  return [&store](const std::string& sha256,
                  int64_t size_bytes_max) -> absl::StatusOr<std::string> {
    const absl::StatusOr<DigestStore::Use> use = store.Hold(sha256);
    if (absl::IsNotFound(use.status())) {
      return absl::NotFoundError(absl::StrCat(use.status().message(), kPutAgain,
                                              " (of several coordinators only the one that took it "
                                              "has it)"));
    }
    PENSTOCK_RETURN_IF_ERROR(use.status());
    return RealFiles().Read(use->path, size_bytes_max);
  };
}

}  // namespace penstock
