#include "job/defaults.h"

#include <algorithm>

#include "base/check.h"
#include "job/data/data_kind.h"
#include "job/keys/key_options.h"
#include "job/resolve.h"
#include "job/yaml/yaml_message.h"

namespace penstock {
namespace {

// The rate of the Nesterov pipeline's paper, for 134 million parameters.
constexpr double kNesterovRate = 3e-4;

// The defaults that keys say of themselves. Messages that have none stay absent.
void FillKeys(google::protobuf::Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *descriptor.field(i);
    if (field.is_repeated()) {
      if (field.message_type() == nullptr) continue;
      for (int j = 0; j < reflection.FieldSize(message, &field); ++j) {
        FillKeys(*reflection.MutableRepeatedMessage(&message, &field, j));
      }
      continue;
    }
    const bool is_there = reflection.HasField(message, &field);
    if (field.message_type() != nullptr) {
      const bool fills = is_there || (field.real_containing_oneof() == nullptr &&
                                      HasDefaults(*field.message_type()));
      if (fills) FillKeys(*reflection.MutableMessage(&message, &field));
    } else if (const std::string& value = OptionsOf(field).default_();
               !is_there && !value.empty()) {
      PENSTOCK_CHECK(SetFromYaml(value, field, message).ok());
    }
  }
}

// The update rules of the method's paper, where the job names none.
void FillUpdateRules(const UpdatePreset& preset, v1::TrainingSpec& training) {
  if (preset.optimizer == "nadamw" && training.optimizer().kind_case() == 0) {
    training.mutable_optimizer()->mutable_nadamw()->set_learning_rate(kNesterovRate);
  }
  v1::StalenessSpec& staleness = *training.mutable_staleness();
  const int64_t most = MaxOfJobKey("training.staleness.rescheduled_steps");
  // Nothing is checked yet, so that the number may be any.
  const int64_t warmup = std::min(training.learning_rate().warmup_steps(), most);
  const int64_t rescheduled = warmup > 0 ? 5 * warmup : training.steps() / 4;
  if (!staleness.has_rescheduled_steps()) {
    staleness.set_rescheduled_steps(
        preset.reschedules_rates ? std::clamp<int64_t>(rescheduled, 1, most) : 0);
  }
  if (preset.stage_momentum && !staleness.has_stage_momentum()) staleness.set_stage_momentum(0.9);
}

}  // namespace

void FillDefaultsOfAnyMethod(v1::JobSpec& spec) {
  FillKeys(*spec.mutable_model());
  FillKeys(*spec.mutable_data());
  FillDataDefaults(*spec.mutable_data());
  FillKeys(*spec.mutable_validation());
  FillKeys(*spec.mutable_checkpoint());
  FillKeys(*spec.mutable_recovery());
}

void FillDefaults(v1::JobSpec& spec) {
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  if (pipeline.method().empty() && !pipeline.schedule_file().empty()) {
    pipeline.set_method(std::string(ListedMethod().name));
  }
  if (pipeline.stage_layers_size() > 0 && !pipeline.has_stages()) {
    pipeline.set_stages(pipeline.stage_layers_size());
  }
  FillKeys(spec);
  FillDataDefaults(*spec.mutable_data());
  const absl::StatusOr<const Method*> method = FindMethod(absl::string_view(pipeline.method()));
  FillUpdateRules(method.ok() ? (*method)->update : UpdatePreset(), *spec.mutable_training());
  FillKeys(*spec.mutable_training());  // of the optimizer that the method brings
}

void SetMethod(const std::string& method, bool keeps_optimizer, v1::JobSpec& spec) {
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  if (pipeline.method() != method) spec.clear_prediction();
  pipeline.set_method(method);
  pipeline.clear_schedule_file();
  pipeline.clear_schedule();
  const absl::StatusOr<const Method*> found = FindMethod(absl::string_view(method));
  if (keeps_optimizer || !found.ok() || (*found)->update.optimizer != "nadamw") return;
  v1::OptimizerSpec& optimizer = *spec.mutable_training()->mutable_optimizer();
  if (optimizer.has_nadamw() || optimizer.kind_case() == 0) return;
  const double rate = PeakRateOf(optimizer);
  optimizer.mutable_nadamw()->set_learning_rate(rate);
}

absl::Status ValidateJob(const v1::JobSpec& spec) { return ResolveJob(spec).status(); }

}  // namespace penstock
