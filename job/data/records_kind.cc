// data.records: a directory of records, such as images with their labels.
#include "absl/strings/str_cat.h"
#include "base/exact_text.h"
#include "base/status.h"
#include "job/data/data_kind.h"
#include "job/keys/check_fields.h"

namespace penstock {
namespace {

constexpr char kRecordsRemedy[] =
    "--data DIR names another directory of records, --data-root the folder that relative paths "
    "start from";
constexpr char kValidationRemedy[] =
    "name a directory of records, or set data.records.validation_fraction in its place";

void FillRecordsDefaults(v1::DataSpec& data) {
  v1::RecordsSpec& records = *data.mutable_records();
  if (records.has_validation_fraction()) return;
  records.set_validation_fraction(DefaultValidationFraction(!records.validation().empty()));
}

absl::Status CheckRecordsSpec(const v1::JobSpec& spec) {
  const v1::RecordsSpec& records = spec.data().records();
  PENSTOCK_RETURN_IF_ERROR(CheckValidationPart(spec, {.kind = "data.records",
                                                      .own_data = "a directory that is",
                                                      .no_data = "no directory",
                                                      .has_own_data = !records.validation().empty(),
                                                      .fraction = records.validation_fraction(),
                                                      .sha256 = records.validation_sha256()}));
  PENSTOCK_RETURN_IF_ERROR(CheckDigest("data.records.sha256", records.sha256()));
  return CheckDigest("data.records.validation_sha256", records.validation_sha256());
}

// Tensors are matched with inputs where the index is read.
absl::Status RecordsFits(const v1::DataSpec&, const ModelGraph& model) {
  return CheckCarriesNothing("data.records", "records", model);
}

std::vector<DataInput> RecordsInputs(v1::DataSpec& data) {
  v1::RecordsSpec& records = *data.mutable_records();
  std::vector<DataInput> inputs = {{.key = "data.records.path",
                                    .path = records.mutable_path(),
                                    .sha256_key = "data.records.sha256",
                                    .sha256 = records.mutable_sha256(),
                                    .remedy = kRecordsRemedy}};
  if (!records.validation().empty()) {
    inputs.push_back({.key = "data.records.validation",
                      .path = records.mutable_validation(),
                      .sha256_key = "data.records.validation_sha256",
                      .sha256 = records.mutable_validation_sha256(),
                      .remedy = kValidationRemedy,
                      .use = DataInput::Use::kValidation});
  }
  return inputs;
}

Fingerprint RecordsFingerprint(const v1::DataSpec& data) {
  const v1::RecordsSpec& records = data.records();
  return {{"data.records.sha256", records.sha256()},
          {"data.records.validation_fraction", ExactText(records.validation_fraction())},
          {"data.records.order", records.order()},
          {"data.records.augment.flip", records.augment().flip() ? "true" : "false"},
          {"data.records.augment.crop", absl::StrCat(records.augment().crop())}};
}

}  // namespace

const DataKind kRecordsKind = {.source = v1::DataSpec::kRecords,
                               .key = "data.records",
                               .fill_defaults = FillRecordsDefaults,
                               .check = CheckRecordsSpec,
                               .fits = RecordsFits,
                               .inputs = RecordsInputs,
                               .fingerprint = RecordsFingerprint};

}  // namespace penstock
