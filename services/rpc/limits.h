// Every limit of remote calls, in one place. Both ends use the same numbers: a channel that pings
// more often than its server allows is thrown out.
#pragma once

#include "absl/time/time.h"
#include "base/heartbeat.h"

namespace penstock::rpc_limits {

// Bound on a control message; job and plan are far below it.
inline constexpr int kControlMessageBytesMax = 1 << 20;
// Bound on one chunk of a tensor on its stream: payload, header and slack.
inline constexpr int kTensorMessageBytesMax = 4 << 20;
// Bound on all headers of one call.
inline constexpr int kMetadataBytesMax = 8 << 10;
// Bounds an error's text, which travels percent-encoded in the metadata, three bytes for one at worst.
inline constexpr int kStatusMessageBytesMax = 2000;
// Calls in progress on one connection.
inline constexpr int kConcurrentStreamsMax = 64;
// Connections to one server, which has half of the process's descriptors for them at most; more wait to be accepted.
inline constexpr int kConnectionsMax = 1024;
// For a new connection, until its peer has shown a certificate and that it speaks HTTP/2. A peer without either is in
// the way this long at most.
inline constexpr int kHandshakeTimeoutMs = 5000;
// After this time a connection takes no new calls (those under way go on), so that its client makes another and shows
// its certificate again: a certificate that expired, or whose authority was dropped, is of no use from then on.
inline constexpr absl::Duration kConnectionAge = absl::Minutes(5);
// Bounds on what one server holds of requests that come in. gRPC puts a message together before it looks at its size, so
// these, and not the bound on a message, say what larger ones cost: beyond them it ends connections without calls, then
// calls, no matter who made them. A server of control calls needs some 40 KiB for a connection, and 1 MiB for each of the
// four messages or so that are on their way at a time.
inline constexpr int kControlServerMemoryBytesMax = 44 << 20;
// A server of tensor streams needs a window and a chunk for each: enough for 64 edges.
inline constexpr int kTensorServerMemoryBytesMax = 512 << 20;

// A dead process is noticed at once. A peer that is frozen or cut off is noticed after the timeout at the earliest (a ping
// had just left, or a full receive buffer keeps TCP from sending), after interval + timeout at the latest.
inline constexpr int kKeepaliveIntervalMs = 1000;
// Of channels for control calls: a dead connection is given up while there is time for a heartbeat on a new one.
inline constexpr int kKeepaliveTimeoutMs = 1000;
static_assert(kKeepaliveIntervalMs + kKeepaliveTimeoutMs + kHeartbeatIntervalMs <
              kHeartbeatTimeoutMs);
// Of all servers, and of the channels of tensor streams. The stream of a frozen worker breaks at its neighbours, who know
// only that it broke; the coordinator, who hears all heartbeats, knows whose fault it is. So a stream breaks no earlier
// than the silent worker is known to be lost, and a worker that is back by then has harmed nobody. For the same reason the
// end of a worker's Attach stream is news of a process, and never of a freeze or a network that heartbeats survive.
inline constexpr int kServerKeepaliveTimeoutMs = 4000;
static_assert(kServerKeepaliveTimeoutMs >= kHeartbeatLostMs);

// A tensor stream that broke is dialled again before its peer counts as gone. That takes longer than it takes the coordinator to
// know that a worker is lost, so that a run whose worker died ends by the coordinator's word, which names the worker, and
// one whose network was away for a moment goes on.
inline constexpr int kTensorSuspicionMs = 5000;
// For one dial, until the receiver has said where to go on: time for a lost packet of the connection to be sent again.
inline constexpr int kRedialTimeoutMs = 2000;
// Between two dials.
inline constexpr int kRedialBackoffMinMs = 50;
inline constexpr int kRedialBackoffMaxMs = 500;
static_assert(kTensorSuspicionMs - kRedialBackoffMaxMs >= kHeartbeatLostMs);
// The receiver waits for another stream so much longer as its sender may notice the break later.
inline constexpr int kTensorReturnTimeoutMs =
    kTensorSuspicionMs + kKeepaliveIntervalMs + kServerKeepaliveTimeoutMs;
// A sender that has heard nothing for this long of what it sent asks how far the receiver is, after longer and longer times
// up to the second: what was lost without a broken connection is noticed by nothing else.
inline constexpr int kTensorAskMinMs = 1000;
inline constexpr int kTensorAskMaxMs = 2000;
// A question that is not answered for this long has its stream opened again, over another connection.
inline constexpr int kTensorSilenceMs = 1000;
// A tensor that came damaged is asked for again at most this often.
inline constexpr int kTensorAsksMax = 3;
// The server lets clients ping this often; below the interval, so that a late ping is no offence.
inline constexpr int kPingIntervalMinMs = 500;

// Between attempts to reach an address that does not answer.
inline constexpr int kReconnectBackoffMinMs = 100;
inline constexpr int kReconnectBackoffMaxMs = 2000;
// For one attempt, from the first packet until the other side has shown that it speaks HTTP/2.
inline constexpr int kConnectTimeoutMs = 5000;

// For calls whose answer needs no work.
inline constexpr absl::Duration kQuickCallTimeout = absl::Seconds(5);
// For a heartbeat: one that takes longer is as good as lost.
inline constexpr absl::Duration kHeartbeatCallTimeout = absl::Seconds(1);
// For an Attach stream, which is then opened again: short beside kConnectionAge, so that an old connection is not kept for it
// alone for long.
inline constexpr absl::Duration kAttachTimeout = absl::Minutes(1);
// For a worker whose Attach stream has ended to be reached. A packet that asks for a connection is sent again after one
// second, so that one lost packet is no lost worker.
inline constexpr absl::Duration kProbeTimeout = absl::Milliseconds(1500);
// The time that a stopping server lets calls in progress end by themselves.
inline constexpr absl::Duration kServerShutdownGrace = absl::Seconds(2);

// Of each lane (call_lane.h).
inline constexpr int kHandlerThreads = 4;
// Calls of one lane that wait for a handler thread, or for an answer without one; beyond it RESOURCE_EXHAUSTED.
inline constexpr int kHandlerQueueMax = 256;
// Calls of the cluster's own programs in progress: a heartbeat and a report of each of the workers that a server may have, and
// others. All come while a coordinator takes a turn of half a second, and a worker whose heartbeats are refused counts as lost.
inline constexpr int kClusterCallsMax = 2 * kConnectionsMax + kHandlerQueueMax;
// Users' calls of one peer, by its certificate's identity, or in plain text by its address: a client that asks for too
// much leaves room for others.
inline constexpr int kCallsPerPeerMax = kHandlerQueueMax / 2;
// Streams that wait for news, which are open for hours and hold a thread for a moment at a time.
inline constexpr int kWatchersMax = 1024;
inline constexpr int kWatchersPerPeerMax = kWatchersMax / 2;

// Calls with parts of files. Each holds a part in memory, and a thread while the disk is at work; a caller that is refused asks
// again. Workers of one machine, or with one certificate, are one peer.
inline constexpr int kDataPartBytesMax = kControlMessageBytesMax - (64 << 10);
inline constexpr int kDataThreads = 4;
inline constexpr int kDataCallsMax = 16;
inline constexpr int kDataCallsPerPeerMax = 12;
// For one part, and for the disk to take it.
inline constexpr absl::Duration kDataPartTimeout = absl::Seconds(20);
// A transfer in which no part got through for this long is given up.
inline constexpr absl::Duration kDataPatience = absl::Minutes(1);

// Attach streams: one of each worker, and a second one for a moment while it opens another.
inline constexpr int kAttachedMax = 2 * kConnectionsMax;

// Tuning of tensor streams (measured; see services/transport/README.md). HTTP/2 frames as large as
// the protocol allows, no bandwidth probing, and a fixed window instead.
inline constexpr int kTensorFrameBytesMax = (1 << 24) - 1;
inline constexpr int kTensorWindowBytes = 4 << 20;

}  // namespace penstock::rpc_limits
