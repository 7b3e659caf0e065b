// Settings of gRPC that hold for a whole process.
#pragma once

namespace penstock {

// For main(), before anything of gRPC's is used.
//
// gRPC looks ten times a second after connections that no call waits on. The thread that waits for a call on its channel makes
// the connection. A call to an address that does not answer fails at once, though, so when we try again every now and
// then no call waits, and gRPC by itself goes on with the handshake every five seconds: too rarely for TLS, which takes
// several turns, to be done within the time for one attempt.
//
// Abseil's mutexes, which are gRPC's, do not look for cycles of locks. Where the library was built with assertions, as Debian's
// is, each lock otherwise keeps a graph of all locks up to date, a ninth of a coordinator's processor time. Our own
// mutexes (base/mutex.h) have no such graph.
void PrepareProcessForGrpc();

}  // namespace penstock
