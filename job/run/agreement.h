// The agreement between coordinator and workers beside the schedule, as a text that goes into the digest
// they compare before a run.
//
// All of them resolve one message with one function, so they disagree only if their builds do: a build that
// does not know a key skips it, and would train something else without a word. So every key that was added
// since builds first met (all of model, data, rates, clipping and kinds of optimizer came before, and a kind
// that a build does not know is an error there) has a line here, unless the schedule shows it.
//
// A pure function.
#pragma once

#include <string>

#include "job/resolve.h"

namespace penstock {

std::string AgreementOf(const ResolvedJob& job);

}  // namespace penstock
