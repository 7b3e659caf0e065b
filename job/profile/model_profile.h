// ModelProfile: measured times and memory of every layer of a model, as a file and as what is made of it.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/backend.h"
#include "compute/op_kernels.h"
#include "model/graph.h"
#include "penstock/v1/device_times.pb.h"
#include "penstock/v1/profile.pb.h"

namespace penstock {

// Errors: InvalidArgument with the key: no layers or shapes; a layer of no shape, a layer or shape twice; a value whose
// reader is no layer behind; no
// sizes, sizes that do not ascend or are not those of the other shapes; a time or a number of bytes that is
// negative, not finite or too large.
absl::Status CheckModelProfile(const v1::ModelProfile& profile);

// `file_name` is for messages. Errors: InvalidArgument with file, line and column: what ReadYamlMessage and
// CheckModelProfile find.
absl::StatusOr<v1::ModelProfile> ParseModelProfile(absl::string_view text,
                                                   const std::string& file_name);
// Errors also: NotFound, PermissionDenied.
absl::StatusOr<v1::ModelProfile> ReadModelProfile(const std::string& path);
// The text of such a file.
std::string PrintModelProfile(const v1::ModelProfile& profile);

// Sets the profile's layers: those of the model, each with its shape and what others read of it.
void SetLayers(const ModelGraph& model, Precision precision, v1::ModelProfile& profile);

// Checks that it is of this model, whose layers may be in another order. Errors: InvalidArgument naming the first layer
// that differs.
absl::Status CheckProfileFits(const v1::ModelProfile& profile, const ModelGraph& model);
// InvalidArgument unless it was made in the job's precision.
absl::Status CheckProfilePrecision(const v1::ModelProfile& profile, Precision precision);

// Returns the first profile with the mean of all their times, of workers that measured at once. REQUIRES: there is one,
// and all are of the same shapes and sizes.
v1::ModelProfile MeanTimes(absl::Span<const v1::ModelProfile> profiles);

// A layer's measurements. REQUIRES: CheckModelProfile is OK, and the layer is one of the profile's.
const v1::ShapeProfile& ShapeOf(const v1::ModelProfile& profile, const v1::ProfiledLayer& layer);

// The times of every layer with microbatches of `samples`: those measured, or on the line between the two
// measured sizes around it. Makes the times that emulated workers wait and that simulated time counts in.
// REQUIRES: CheckModelProfile is OK. Errors: InvalidArgument naming the sizes that were measured, where
// `samples` is below or above all of them.
absl::StatusOr<v1::DeviceTimes> DeviceTimesOf(const v1::ModelProfile& profile, int64_t samples);

// Returns what a microbatch of `samples` leaves behind in every node of the model: as measured, or on the line between
// the two measured sizes around it, rounded up. REQUIRES: also that CheckProfileFits is OK. Errors: as DeviceTimesOf.
absl::StatusOr<std::vector<TapeNeeds>> TapeNeedsOf(const v1::ModelProfile& profile,
                                                   const ModelGraph& model, int64_t samples);

// Returns what each layer of the model asks of the scratch memory, likewise.
absl::StatusOr<std::vector<ScratchBytes>> ScratchNeedsOf(const v1::ModelProfile& profile,
                                                         const ModelGraph& model, int64_t samples);

}  // namespace penstock
