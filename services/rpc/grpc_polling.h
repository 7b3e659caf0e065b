// Sets how often gRPC looks after connections that no call waits on.
#pragma once

namespace penstock {

// For main(), before anything of gRPC's is used: the setting is the process's, and read once.
//
// The thread that waits for a call on its channel makes the connection. A call to an address that does not answer
// fails at once, though, so when we try again every now and then no call waits, and gRPC by itself goes on with
// the handshake every five seconds: too rarely for TLS, which takes several turns, to be done within the time for
// one attempt. So it looks ten times a second.
void PollIdleChannelsOften();

}  // namespace penstock
