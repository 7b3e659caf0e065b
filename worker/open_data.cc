#include "worker/open_data.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/put_path.h"
#include "base/status.h"
#include "job/data/data_kind.h"
#include "worker/data_opener.h"
#include "worker/job_tokenizer.h"
#include "worker/pretrained.h"

namespace penstock {
namespace {

constexpr const DataOpener* kDataOpeners[] = {&kTextOpener, &kTokensOpener, &kRecordsOpener,
                                              &kPairsOpener, &kSyntheticOpener};

const DataOpener& DataOpenerOf(const v1::DataSpec& data) {
  for (const DataOpener* opener : kDataOpeners) {
    if (opener->source == data.source_case()) return *opener;
  }
  PENSTOCK_CHECK(false);
  return kTextOpener;
}

// Enters the digest of what `input` names.
absl::Status EnterDigest(const DataOpener& opener, const std::string& root,
                         const std::function<bool()>& stop, const DataInput& input) {
  const std::string path = JoinPath(root, *input.path);
  const absl::StatusOr<std::string> sha256 =
      input.use == DataInput::Use::kTokenizer ? DigestOfTokenizer(path) : opener.digest(path, stop);
  if (absl::IsCancelled(sha256.status())) return sha256.status();
  if (!sha256.ok()) {
    return absl::Status(
        sha256.status().code(),
        absl::StrCat(input.key, ": ", sha256.status().message(), "; ", input.remedy));
  }
  if (!input.sha256->empty() && *input.sha256 != *sha256) {
    return absl::DataLossError(absl::StrCat(input.sha256_key, ": ", path, " has ", *sha256,
                                            ", the job says ", *input.sha256));
  }
  *input.sha256 = *sha256;
  return absl::OkStatus();
}

// Enters the digests of the weights that training starts from.
absl::Status EnterPretrainedDigests(Files& files, const std::string& root,
                                    const std::function<bool()>& stop, const ResolvedJob& job,
                                    v1::ModelSpec& model) {
  if (!model.has_pretrained()) return absl::OkStatus();
  const absl::StatusOr<std::vector<std::string>> digests =
      DigestPretrained({.files = files, .root = root, .model = model, .job = job}, stop);
  if (!digests.ok()) return Annotate(digests.status(), "model.pretrained.directory");
  model.mutable_pretrained()->mutable_layer_sha256()->Assign(digests->begin(), digests->end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataSource>> OpenData(Files& files, const v1::JobSpec& spec,
                                                     const ResolvedJob& job,
                                                     const std::string& root,
                                                     const RunLimits& limits) {
  return DataOpenerOf(spec.data())
      .open({.files = files, .spec = spec, .job = job, .root = root, .limits = limits});
}

absl::StatusOr<std::unique_ptr<DataSource>> OpenEvaluationData(Files& files,
                                                               const v1::JobSpec& spec,
                                                               const ModelGraph& model,
                                                               DataPart part, int64_t batch,
                                                               const std::string& root) {
  // Made-up data have no end.
  constexpr int64_t kSyntheticSamples = 1024;
  PENSTOCK_RETURN_IF_ERROR(DataKindOf(spec.data()).fits(spec.data(), model));
  ResolvedJob job;
  job.model = model;
  job.batch = batch;
  job.microbatch_samples = 1;
  job.validation_batches = kSyntheticSamples;
  job.seed = spec.training().seed();
  const RunLimits limits;
  return DataOpenerOf(spec.data())
      .open({.files = files,
             .spec = spec,
             .job = job,
             .root = root,
             .limits = limits,
             .evaluated = part});
}

absl::Status CheckJobData(Files& files, const std::string& root, const ResolvedJob& job,
                          v1::JobSpec& spec, const std::function<bool()>& stop) {
  const DataOpener& opener = DataOpenerOf(spec.data());
  const DataKind& kind = DataKindOf(spec.data());
  for (const DataInput& input : kind.inputs(*spec.mutable_data())) {
    PENSTOCK_RETURN_IF_ERROR(EnterDigest(opener, root, stop, input));
  }
  const RunLimits limits;
  const DataRequest request = {
      .files = files, .spec = spec, .job = job, .root = root, .limits = limits, .stop = stop};
  PENSTOCK_RETURN_IF_ERROR(Annotate(opener.open(request).status(), kind.key));
  return EnterPretrainedDigests(files, root, stop, job, *spec.mutable_model());
}

bool JobDataIsHere(const std::string& root, const v1::JobSpec& spec) {
  v1::DataSpec data = spec.data();
  const DataOpener& opener = DataOpenerOf(data);
  std::error_code error;
  if (IsPutPath(spec.model().hugging_face().directory())) return false;
  if (spec.model().has_pretrained() &&
      !std::filesystem::exists(JoinPath(root, spec.model().pretrained().directory()), error)) {
    return false;
  }
  for (const DataInput& input : DataKindOf(data).inputs(data)) {
    const std::string path = JoinPath(root, *input.path);
    const bool is_pattern = opener.is_here != nullptr && input.use != DataInput::Use::kTokenizer;
    if (is_pattern ? !opener.is_here(path) : !std::filesystem::exists(path, error)) return false;
  }
  return true;
}

}  // namespace penstock
