// data.pairs: sequences with other sequences, such as sentences with their translations.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/data/data_kind.h"
#include "job/keys/check_fields.h"

namespace penstock {
namespace {

constexpr char kPairsRemedy[] =
    "--data DIR names another directory of pairs, --data-root the folder that relative paths start "
    "from";
constexpr char kPairsValidationRemedy[] = "name a directory of pairs, or leave validation out";

// What pairs can fill, and with how many dimensions.
struct PairPort {
  absl::string_view name;
  size_t dims;
};
constexpr PairPort kPairPorts[] = {
    {"source", 1}, {"source_lengths", 0}, {"inputs", 1}, {"targets", 1}, {"target_lengths", 0}};

bool IsPairPort(const Port& port) {
  return port.type.dtype == DType::kI32 &&
         std::any_of(std::begin(kPairPorts), std::end(kPairPorts), [&](const PairPort& known) {
           return known.name == port.name && known.dims == port.type.dims.size();
         });
}

void FillPairsDefaults(v1::DataSpec&) {}

absl::Status CheckPairsSpec(const v1::JobSpec& spec) {
  const v1::PairsSpec& pairs = spec.data().pairs();
  if (pairs.validation().empty() && !pairs.validation_sha256().empty()) {
    return InvalidKey("data.pairs.validation_sha256",
                      "is there, but data.pairs.validation names no directory");
  }
  if (spec.validation().every_steps() > 0 && pairs.validation().empty()) {
    return InvalidKey("validation.every_steps",
                      "asks for validation, but data.pairs.validation names no directory");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckDigest("data.pairs.sha256", pairs.sha256()));
  return CheckDigest("data.pairs.validation_sha256", pairs.validation_sha256());
}

absl::Status PairsFits(const v1::DataSpec&, const ModelGraph& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckCarriesNothing("data.pairs", "pairs", model));
  const auto other = std::find_if_not(model.ports.begin(), model.ports.end(), IsPairPort);
  if (other != model.ports.end()) {
    return InvalidKey(
        "data.pairs",
        absl::StrCat(
            "has nothing for the model's input ", other->name, " ", other->type.ToString(),
            "; it fills source i32 [source time], source_lengths i32 [], inputs i32 "
            "[target time], targets i32 [target time] and target_lengths i32 []; change its "
            "inputs, or train on data.records, which can have any"));
  }
  const auto find = [&](absl::string_view name) {
    return std::find_if(model.ports.begin(), model.ports.end(),
                        [&](const Port& port) { return port.name == name; });
  };
  const auto inputs = find("inputs");
  const auto targets = find("targets");
  if (inputs == model.ports.end() || targets == model.ports.end() ||
      inputs->type == targets->type) {
    return absl::OkStatus();
  }
  return InvalidKey("data.pairs",
                    absl::StrCat("fills inputs and targets with sequences of one length, but the "
                                 "model's are ",
                                 inputs->type.ToString(), " and ", targets->type.ToString()));
}

std::vector<DataInput> PairsInputs(v1::DataSpec& data) {
  v1::PairsSpec& pairs = *data.mutable_pairs();
  std::vector<DataInput> inputs = {{.key = "data.pairs.path",
                                    .path = pairs.mutable_path(),
                                    .sha256_key = "data.pairs.sha256",
                                    .sha256 = pairs.mutable_sha256(),
                                    .remedy = kPairsRemedy}};
  if (!pairs.validation().empty()) {
    inputs.push_back({.key = "data.pairs.validation",
                      .path = pairs.mutable_validation(),
                      .sha256_key = "data.pairs.validation_sha256",
                      .sha256 = pairs.mutable_validation_sha256(),
                      .remedy = kPairsValidationRemedy,
                      .use = DataInput::Use::kValidation});
  }
  return inputs;
}

Fingerprint PairsFingerprint(const v1::DataSpec& data) {
  const v1::PairsSpec& pairs = data.pairs();
  return {{"data.pairs.sha256", pairs.sha256()},
          {"data.pairs.buckets", absl::StrCat(pairs.buckets())}};
}

}  // namespace

const DataKind kPairsKind = {.source = v1::DataSpec::kPairs,
                             .key = "data.pairs",
                             .fill_defaults = FillPairsDefaults,
                             .check = CheckPairsSpec,
                             .fits = PairsFits,
                             .inputs = PairsInputs,
                             .fingerprint = PairsFingerprint};

}  // namespace penstock
