// Reads the descriptions of job keys (proto/penstock/v1/field_options.proto) from the messages' own descriptors.
// Defaults, checks, errors, the reference page and completion are made of it, so that a new key is described in one
// place.
//
// Pure functions, for any message; fields without options have none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "penstock/v1/field_options.pb.h"

namespace penstock {

const v1::KeyOptions& OptionsOf(const google::protobuf::FieldDescriptor& field);

// The texts that a key may have, in the order of the options or of the code's catalog; empty: any.
std::vector<std::string> WordsOf(const google::protobuf::FieldDescriptor& field);

// "f32 or bf16", "constant, linear or cosine".
std::string OneOf(const std::vector<std::string>& words);

// The values of a key, for people: "a whole number from 1 to 256", "a number above 0", "f32 or bf16", "true or false",
// "text". `largest`: of a number whose range ends at another key's, that one's value and name; else its name alone.
std::string ExpectedOf(const google::protobuf::FieldDescriptor& field,
                       absl::string_view largest = "");

// The field that is called `name`, or was in the version before, or has it as its short form; null if there is none.
const google::protobuf::FieldDescriptor* FieldNamed(const google::protobuf::Descriptor& message,
                                                    absl::string_view name);

// A job's key by its present name: of "training.device_graphs", "training.cuda_graphs". Other paths stay.
std::string PresentJobKey(absl::string_view path);
// The field that a key is read into: of "model.layers", which is a short form, "model.graph".
std::string FieldOfJobKey(absl::string_view path);

// Returns whether an absent message of this kind is filled with defaults, and so always there.
bool HasDefaults(const google::protobuf::Descriptor& message);

// A key of a job file.
struct JobKey {
  std::string path;  // "training.optimizer.adamw.beta1"
  const google::protobuf::FieldDescriptor* field = nullptr;
};

// All keys of a job in the order of job.proto, a mapping before the keys in it. The kinds of a choice are all there; the
// keys of a list's entries are not, as none of them is one value.
const std::vector<JobKey>& JobKeys();

// The largest number that a key of a job allows. REQUIRES: there is such a key, and it says so.
int64_t MaxOfJobKey(absl::string_view path);

}  // namespace penstock
