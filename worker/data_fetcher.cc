#include "worker/data_fetcher.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/data/data_kind.h"

namespace penstock {

absl::Status FetchPutData(DataFetcher* fetcher, absl::FunctionRef<absl::Status()> may_go_on,
                          v1::DataSpec& data) {
  std::vector<DataInput> inputs;
  std::vector<std::string> digests;
  for (DataInput& input : DataKindOf(data).inputs(data)) {
    const std::optional<std::string> put = PutDigestOf(*input.path);
    if (!put.has_value()) continue;
    digests.push_back(*put);
    inputs.push_back(std::move(input));
  }
  if (digests.empty()) return absl::OkStatus();
  if (fetcher == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(inputs.front().key, " names the file ", *inputs.front().path,
                     ", but this worker fetches no files: start it with --data-cache DIR"));
  }
  absl::StatusOr<std::vector<std::string>> paths = fetcher->Fetch(digests, may_go_on);
  if (!paths.ok()) return Annotate(paths.status(), inputs.front().key);
  for (size_t i = 0; i < inputs.size(); ++i) {
    *inputs[i].path = (*paths)[i];
    inputs[i].sha256->clear();
  }
  return absl::OkStatus();
}

}  // namespace penstock
