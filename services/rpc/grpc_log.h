// What gRPC itself wants to log. By default it writes to stderr whatever it meets, such as every
// refused connection of a peer that is gone, which we report in our own words.
#pragma once

namespace penstock {

// Sends gRPC's messages of severity "error" to `sink` (from any thread) instead of to stderr, and
// drops the rest. For main(): the setting is the process's. With GRPC_VERBOSITY set in the
// environment nothing is changed.
void SetGrpcLogSink(void (*sink)(const char* message));

}  // namespace penstock
