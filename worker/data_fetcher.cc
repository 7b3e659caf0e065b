#include "worker/data_fetcher.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/weight_files.h"
#include "job/data/data_kind.h"
#include "worker/pretrained.h"

namespace penstock {
namespace {

constexpr char kWeightsKey[] = "model.pretrained.directory";

// What a directory with a tokenizer, which may be a whole model's, has of one, by its name in there. Its weights stay away.
bool IsOfTokenizer(absl::string_view name) {
  if (name.find('/') != absl::string_view::npos) return false;
  return name.empty() || absl::EndsWith(name, ".json") || absl::EndsWith(name, ".model");
}

absl::Status NoCache(absl::string_view key, const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat(key, " names ", path,
                   ", but this worker fetches nothing that was put: start it with --data-cache "
                   "DIR"));
}

// The names of the tensors that `layers` read.
std::set<std::string> TensorsOf(const ModelGraph& model, LayerRange layers) {
  std::set<std::string> tensors;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    tensors.merge(NamesOfFirstWeights(model, layer));
  }
  return tensors;
}

}  // namespace

absl::Status FetchPutData(DataFetcher* fetcher, absl::FunctionRef<absl::Status()> may_go_on,
                          v1::DataSpec& data) {
  for (const DataInput& input : DataKindOf(data).inputs(data)) {
    if (!IsPutPath(*input.path)) continue;
    if (fetcher == nullptr) return NoCache(input.key, *input.path);
    const absl::StatusOr<PutPath> put = ParsePutPath(*input.path);
    if (!put.ok()) return Annotate(put.status(), input.key);
    const bool is_tokenizer = input.use == DataInput::Use::kTokenizer;
    absl::StatusOr<std::string> path = fetcher->Fetch(
        *put, [&](absl::string_view name) { return !is_tokenizer || IsOfTokenizer(name); },
        may_go_on);
    if (!path.ok()) return Annotate(path.status(), input.key);
    *input.path = *std::move(path);
    input.sha256->clear();
  }
  return absl::OkStatus();
}

absl::Status FetchPutWeights(DataFetcher* fetcher, Files& files,
                             absl::FunctionRef<absl::Status()> may_go_on, const ResolvedJob& job,
                             LayerRange layers, v1::ModelSpec& model) {
  if (!model.has_pretrained() || !IsPutPath(model.pretrained().directory())) {
    return absl::OkStatus();
  }
  std::string& directory = *model.mutable_pretrained()->mutable_directory();
  if (fetcher == nullptr) return NoCache(kWeightsKey, directory);
  const absl::StatusOr<PutPath> put = ParsePutPath(directory);
  if (!put.ok()) return Annotate(put.status(), kWeightsKey);
  const auto fetch = [&](absl::FunctionRef<bool(absl::string_view)> wanted) {
    absl::StatusOr<std::string> path = fetcher->Fetch(*put, wanted, may_go_on);
    return path.ok() ? path : Annotate(path.status(), kWeightsKey);
  };
  // What says which file has what comes first.
  PENSTOCK_ASSIGN_OR_RETURN(const std::string here, fetch([](absl::string_view name) {
                              return name == kManifestName || name == kWeightsIndexName;
                            }));
  const bool is_checkpoint = files.Exists(JoinPath(here, kManifestName));
  const std::string index = JoinPath(here, kWeightsIndexName);
  std::set<std::string> wanted = {kWeightsName};
  if (!is_checkpoint && files.Exists(index)) {
    PENSTOCK_ASSIGN_OR_RETURN(wanted, ShardsWith(files, index, TensorsOf(job.model, layers)));
  }
  PENSTOCK_RETURN_IF_ERROR(fetch([&](absl::string_view name) {
                             return is_checkpoint ? absl::StartsWith(name, kWeightsPrefix)
                                                  : wanted.count(std::string(name)) > 0;
                           }).status());
  directory = here;
  return absl::OkStatus();
}

}  // namespace penstock
