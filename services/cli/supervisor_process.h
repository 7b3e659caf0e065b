// The supervisor's own side: its event loop, and the messages between it and the command line.
//
// One message is one record of a SOCK_SEQPACKET socket: fields separated by zero bytes.
//
//   to the supervisor    spawn WORKER COUNT ARGUMENT... VARIABLE...    COUNT arguments
//                        sweep DIRECTORY        of unfinished checkpoints, at the end
//                        remove DIRECTORY       at the end
//                        stop GRACE_MS                                 end-of-file means `stop 0`
//   from it              spawned PID | refused ERRNO                   answers `spawn`
//                        exited WORKER WAIT_STATUS
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

inline constexpr size_t kSupervisorMessageBytesMax = 64 * 1024;

// Errors: ResourceExhausted (too long), Unavailable (the other side is gone).
absl::Status SendFields(int socket, const std::vector<std::string>& fields);
// Errors: Unavailable (the other side is gone). REQUIRES: `socket` is readable, or blocking is fine.
absl::StatusOr<std::vector<std::string>> ReceiveFields(int socket);

// Runs until the workers are gone, then exits the process. `logs`: the workers' stdout and stderr.
[[noreturn]] void RunSupervisorProcess(int socket, const std::vector<int>& logs);

}  // namespace penstock
