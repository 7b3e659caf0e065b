// The checks of a message that need one key's options alone (job/keys/key_options.h): that it is there, in its range and
// one of its words, and that the key which it belongs to has the value for it. Checks of several keys together are
// elsewhere (job/keys/check_fields.h, job/resolve.h).
//
// Pure functions.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace penstock {

// REQUIRES: defaults are filled in. Paths in options start from `root`. Keys are looked at in the order of their
// description; messages that are not there are looked at if they would have been filled with defaults.
// Errors: InvalidArgument naming the first key that is wrong: "training.steps: is 0 or missing; expected a whole
// number from 1 to 100000000".
absl::Status CheckKeys(const google::protobuf::Message& root);

}  // namespace penstock
