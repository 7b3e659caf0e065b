// The reference page of job files: every key with its meaning, its values and its default, in Markdown.
//
// A pure function of what the keys say about themselves (job/keys/key_options.h).
#pragma once

#include <string>

namespace penstock {

// docs/job-file.md.
std::string JobReference();

}  // namespace penstock
