// The log of gRPC itself. By default gRPC writes to stderr in a form of its own, for example every refused connection of
// a peer that is gone, which we report in our own words.
#pragma once

#include <string>

namespace penstock {

// From now on gRPC's messages are lines of our log (LogLine) on stderr, said by `name`: those that GRPC_VERBOSITY in the
// environment asks for, else its errors if `errors`, else none. For main(): the setting is the process's, and the first
// one counts.
void WriteGrpcLog(const std::string& name, bool errors);

}  // namespace penstock
